# SPDX-License-Identifier: GPL-2.0
"""nfsload, the selftests' load generator: how it is called, and what it leaves.

What a group of connections can be is nfsload's to know, and to refuse. Here is what the testbed has to know of one: its
name, whether it sends bursts, and whether it is there at all.
"""

import json
import pathlib
import shlex
from collections.abc import Iterable
from typing import Any

from ... import schema
from ...util import Fail, run
from .. import sweep
from ..experiment import Experiment
from ..table import Point

GROUPS: schema.Schema = {"type": "array", "minItems": 1, "items": schema.STRING}
LOAD = schema.table({"version": schema.STRING, "groups": GROUPS})
ONCE = {"repeats": {"const": 1, "description": "it is 1: two runs of a load give the same figures"}}
POOL = "/proc/fs/nfsd/pool_stats"
# A group that a point leaves out.
NONE = {"conns=0", "burst=0", "window=0"}
# No address: nfsload looks at it last, and before it sends anything.
NOWHERE = "nowhere"


def filled(texts: Iterable[str], point: Point) -> list[str]:
    """The groups at a point of a sweep, as arguments; a group without connections is left out."""
    arguments = [text.format(**point) for text in texts]
    return [text for text in arguments if not NONE & set(text.partition(":")[2].split(","))]


def bursts(arguments: Iterable[str]) -> dict[str, bool]:
    """{group: whether it sends bursts}"""
    return {text.partition(":")[0]: "burst=" in text for text in arguments}


def ready(experiment: Experiment, selftests: str) -> None:
    """Fail if nfsload refuses the groups of a point, in its words, before there is a kernel."""
    program = pathlib.Path(selftests, experiment.data["server"]["library"]).with_name("nfsload")
    for point in experiment.points:
        arguments = experiment.kind.groups(experiment, point)
        said = run(program, "-v", experiment.data["load"]["version"], "-s", NOWHERE, *arguments, check=False).stdout
        if f"-s '{NOWHERE}'" not in said:
            line = said.partition("\n")[0]
            raise Fail(f"{experiment.where}: at {sweep.label(point)}, nfsload would refuse this: {line}")


def call(experiment: Experiment, point: Point, traced: str = "") -> str:
    where = f"/results/{sweep.label(point)}"
    arguments = " ".join(shlex.quote(text) for text in experiment.kind.groups(experiment, point))
    return f"{traced}nfsload -v {experiment.data['load']['version']} -o {where}.json {arguments} || exit 1"


def counting(experiment: Experiment, point: Point, traced: str = "") -> list[str]:
    """The lines of a point with the server's own counters kept, too."""
    where = f"/results/{sweep.label(point)}"
    return [f"cat {POOL} >{where}.pool", call(experiment, point, traced), f"cat {POOL} >>{where}.pool"]


def leaves(experiment: Experiment, point: Point) -> list[str]:
    return [f"{sweep.label(point)}.json"]


def replies(where: pathlib.Path, point: Point) -> Point:
    """What nfsload says of a point."""
    result = json.loads((where / f"{sweep.label(point)}.json").read_text())
    bad = {group["name"]: group["errors"] for group in result["groups"] if any(group["errors"].values())}
    if bad:
        raise Fail(f"{where}: requests failed at {sweep.label(point)}: {bad}")
    return result


def pool(where: pathlib.Path, point: Point) -> dict[str, int]:
    """What the server's pools counted between two copies of pool_stats: records, transports queued, threads woken."""
    lines = (where / f"{sweep.label(point)}.pool").read_text().splitlines()
    counts = [[int(number) for number in line.split()[1:4]] for line in lines if not line.startswith("#")]
    before, after = counts[: len(counts) // 2], counts[len(counts) // 2 :]
    return {
        name: sum(line[i] for line in after) - sum(line[i] for line in before)
        for i, name in enumerate(("received", "queued", "woken"))
    }


def group(point: Point, name: str) -> dict[str, Any]:
    """The figures of the group `name` at a point of the sweep."""
    found = [one for one in point["groups"] if one["name"] == name]
    if not found:
        raise Fail(f"a result has no group {name}")
    return found[0]


def rate(point: Point) -> int:
    """All replies a second while the interactive client was active."""
    total = point["total"]
    return round(total["interval_requests"] * 1e9 / total["interval_ns"])
