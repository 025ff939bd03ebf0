# SPDX-License-Identifier: GPL-2.0
"""Instructions and cache lines missed by a part of the kernel in a user program: exact, with this compiler.

Files of the kernel are built into the experiment's program as each kernel has them, and run by callgrind with its
simulated caches. The program is called with `held` or `dequeue`, entries waiting, and `cold` or `warm`; or with
`pass`, entries waiting, and passes.
"""

import itertools
import pathlib
import re
import shutil

from .. import schema
from ..series.base import Base, git
from ..util import Fail, lock, remove, run
from .experiment import KERNELS, Experiment
from .run import commits, watched
from .sweep import PLAIN
from .table import Point, Result, Table

# No machine of ours: this one, whose clock is not looked at.
MACHINES = ("host",)
HOST = ("gcc", "valgrind")
SOURCES: schema.Schema = {
    "type": "array",
    "minItems": 1,
    "uniqueItems": True,
    "items": {"type": "string", "pattern": "^[A-Za-z0-9._/-]+$"},
}
DEPTHS: schema.Schema = {"type": "array", "minItems": 1, "uniqueItems": True, "items": schema.COUNT}
COUNTS = schema.table(
    {
        # The program and what stands for the kernel's own headers, beside the TOML.
        "program": PLAIN,
        "shim": PLAIN,
        "shimmed": schema.STRINGS,
        # Of the kernel: files, and headers of include/linux; one that a kernel does not have yet is left out.
        "sources": SOURCES,
        "headers": SOURCES,
        "depths": DEPTHS,
        "pass_depths": DEPTHS,
        "passes": schema.COUNT,
    }
)
REQUIRED = {"counts": COUNTS, "kernels": {**KERNELS, "type": "object"}}
OPTIONAL = {"repeats": {"const": 1, "description": "it is 1: counts are the same each time"}}
CACHES = ("--D1=32768,8,64", "--I1=32768,8,64", "--LL=1048576,16,64")


def check(experiment: Experiment) -> None:
    if list(experiment.kernels) != ["before", "after"]:
        raise Fail(f"{experiment.where}: kernels: this kind compares two, before and after, in this order")
    if "variants" in experiment.data:
        raise Fail(f"{experiment.where}: variants are no part of this kind")
    for key in ("program", "shim"):
        experiment.file(experiment.data["counts"][key])


def points(experiment: Experiment) -> list[Point]:
    return [{"depth": depth} for depth in experiment.data["counts"]["depths"]]


def build(experiment: Experiment, base: Base, out: pathlib.Path) -> dict[str, pathlib.Path]:
    """{kernel: program}"""
    about, made = experiment.data["counts"], {}
    with lock("source"):
        found = commits(base, experiment)
    for name, commit in found.items():
        place = out / f"{experiment.name}-{name}"
        remove(place)
        (place / "linux").mkdir(parents=True)
        for header in about["shimmed"]:
            (place / "linux" / header).write_text(f'#include "{about["shim"]}"\n')
        wanted = {f"include/linux/{header}": place / "linux" / header for header in about["headers"]} | {
            source: place / pathlib.Path(source).name for source in about["sources"]
        }
        for path, target in wanted.items():
            text = git(base.repo, "show", f"{commit}:{path}", check=False)
            if not text.returncode:
                target.write_text(text.stdout)
        for file in (about["program"], about["shim"]):
            shutil.copyfile(experiment.file(file), place / file)
        made[name] = place / "count"
        run(
            "gcc",
            "-O2",
            "-std=gnu11",
            "-fno-strict-aliasing",
            "-w",
            "-I",
            place,
            "-o",
            made[name],
            place / about["program"],
        )
    return made


def count(program: pathlib.Path, *arguments: object) -> dict[str, int]:
    """{"instructions", "misses"} of what the program collects; a miss is a line that neither simulated cache had."""
    out = program.with_name("callgrind.out")
    # The environment lies on the stack, and where that begins decides whether it shares a line with something counted.
    run(
        "env",
        "-i",
        "PATH=/usr/bin:/bin",
        "valgrind",
        "--tool=callgrind",
        "--cache-sim=yes",
        "--collect-atstart=no",
        *CACHES,
        "--callgrind-out-file=callgrind.out",
        "./count",
        *arguments,
        cwd=program.parent,
    )
    text = out.read_text()
    events, sums = re.search(r"^events: (.*)$", text, re.M), re.search(r"^(?:summary|totals): (.*)$", text, re.M)
    if not events or not sums:
        raise Fail(f"{out}: callgrind wrote no totals")
    totals = dict(itertools.zip_longest(events[1].split(), map(int, sums[1].split()), fillvalue=0))
    return {"instructions": totals["Ir"], "misses": totals["DLmr"] + totals["DLmw"]}


def measure(experiment: Experiment, base: Base, out: pathlib.Path) -> Result:
    about = experiment.data["counts"]
    found: Result = {}
    with lock("counts"):
        programs = build(experiment, base, out)
        runs = [
            (what, state, depth)
            for what in ("held", "dequeue")
            for state in ("cold", "warm")
            for depth in about["depths"]
        ]
        with watched(
            experiment.name,
            lambda: sum(map(len, found.values())),
            len(programs) * (len(runs) + len(about["pass_depths"])),
            "counts",
        ):
            for name, program in programs.items():
                found[name] = {}
                for what, state, depth in runs:
                    found[name][f"{what} {state} {depth}"] = count(program, what, depth, state)
                for depth in about["pass_depths"]:
                    found[name][f"pass {depth}"] = {
                        "instructions": count(program, "pass", depth, about["passes"])["instructions"] / about["passes"]
                    }
    return found


def metrics(experiment: Experiment, result: Result) -> list[Table]:
    about, (before, after) = experiment.data["counts"], result.values()
    tables = []
    for state, what in itertools.product(("cold", "warm"), ("held", "dequeue")):
        title = {"held": "under the lock", "dequeue": "the whole dequeue"}[what]
        rows = [
            [
                depth,
                *(
                    side[f"{what} {state} {depth}"][number]
                    for number in ("instructions", "misses")
                    for side in (before, after)
                ),
            ]
            for depth in about["depths"]
        ]
        tables.append(
            Table(
                [f"{title}, {state}, entries waiting", "instructions before", "after", "lines missed before", "after"],
                rows,
            )
        )
    rows = [
        [depth, *(f"{side[f'pass {depth}']['instructions']:.1f}" for side in (before, after))]
        for depth in about["pass_depths"]
    ]
    return [*tables, Table(["a dequeue and an enqueue, entries waiting", "instructions before", "after"], rows)]
