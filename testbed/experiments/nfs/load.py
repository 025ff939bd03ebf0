# SPDX-License-Identifier: GPL-2.0
"""An exact load on an NFS server, by nfsload, over one sweep."""

import pathlib
from typing import Any

from ... import schema
from ...util import Fail
from .. import sweep
from ..experiment import Experiment, machines
from ..table import Curves, Point, Result, Table, ms, spreads
from . import nfsload, server

MACHINES = machines()
REQUIRED = {"server": server.SERVER, "files": server.FILES, "load": nfsload.LOAD}
OPTIONAL = {
    **nfsload.ONCE,
    "sweep": sweep.SWEEP,
    "headline": schema.table(
        {
            "of": schema.STRING,
            "title": schema.STRING,
            "across": schema.STRING,
            "up": schema.STRING,
            "caption": schema.STRING,
        }
    ),
}
ready, leaves = nfsload.ready, nfsload.leaves


def check(experiment: Experiment) -> None:
    data = experiment.data
    server.check(experiment)
    sweep.check(data.get("sweep", {}), data["load"]["groups"], (), experiment.where)
    if "headline" in data:
        check_headline(experiment)


def check_headline(experiment: Experiment) -> None:
    """It is of one sweep, on base and patched, and at the sweep's first value nobody else is there."""
    where, of = f"{experiment.where}: headline", experiment.data["headline"]["of"]
    if len(experiment.data.get("sweep", {})) != 1 or not {"base", "patched"} <= experiment.kernels.keys():
        raise Fail(f"{where}: it goes with a sweep of one name, and is of the kernels base and patched")
    first, *others = (nfsload.bursts(groups(experiment, point)) for point in points(experiment))
    for found in (first, *others):
        if not found.get(of):
            raise Fail(f"{where}: of: there is no group {of} with burst= at every point")
    if len(first) != 1:
        raise Fail(f"{where}: the sweep's first value is to leave {of} alone, and leaves {', '.join(first)}")


def points(experiment: Experiment) -> list[Point]:
    return sweep.combinations(experiment.data.get("sweep", {}))


def groups(experiment: Experiment, point: Point) -> list[str]:
    return nfsload.filled(experiment.data["load"]["groups"], point)


def script(experiment: Experiment, selftests: str) -> str:
    calls = [nfsload.call(experiment, point) for point in points(experiment)]
    return "\n".join([*server.up(experiment, selftests), *calls]) + "\n"


def read(experiment: Experiment, where: pathlib.Path, point: Point) -> Point:
    return nfsload.replies(where, point)


def metrics(experiment: Experiment, result: Result) -> list[Table]:
    found = [headline(experiment, result)] if "headline" in experiment.data else []
    members = {
        kernel: [[spread_of(one) for one in point["groups"]] for point in points] for kernel, points in result.items()
    }
    return [
        *found,
        spreads(list(experiment.data.get("sweep", {})), result, members, "ms" if found else ""),
    ]


def spread_of(one: dict[str, Any]) -> dict[str, Any]:
    """A group's name, the spread that matters (of bursts, else of requests) in ns, and a count."""
    return {
        "name": one["name"],
        "spread": one.get("burst_ns") or one["latency_ns"],
        "count": one["interval"]["requests"],
    }


def headline(experiment: Experiment, result: Result) -> Table:
    """A burst's median time by the sweep's value, base beside patched."""
    about = experiment.data["headline"]
    (name,) = experiment.data["sweep"]
    time = {
        kernel: [nfsload.group(point, about["of"])["burst_ns"]["p50"] for point in result[kernel]]
        for kernel in ("base", "patched")
    }
    rows = [
        [
            base[name],
            ms(one),
            ms(other),
            f"{one / time['base'][0]:.1f}x",
            f"{other / time['patched'][0]:.1f}x",
            nfsload.rate(base),
            nfsload.rate(patched),
        ]
        for base, patched, one, other in zip(result["base"], result["patched"], time["base"], time["patched"])
    ]
    return Table(
        [name, "base, ms", "patched, ms", "base / alone", "patched / alone", "base, ops/s", "patched, ops/s"],
        rows,
        about["caption"],
    )


def picture(experiment: Experiment, result: Result) -> Curves | None:
    if "headline" not in experiment.data:
        return None
    about = experiment.data["headline"]
    (name,) = experiment.data["sweep"]
    times = {
        kernel: [nfsload.group(point, about["of"])["burst_ns"]["p50"] / 1e6 for point in points]
        for kernel, points in result.items()
    }
    return Curves(
        about["title"],
        about["across"],
        about["up"],
        [point[name] for point in result["base"][1:]],
        {kernel: values[1:] for kernel, values in times.items()},
        times["base"][0],
        "alone on the server",
    )
