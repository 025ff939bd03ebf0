# SPDX-License-Identifier: GPL-2.0
"""What a piece of kernel code costs: instructions, counted one by one, and maybe cycles with two CPUs at it.

A test-only patch brings a module parameter `run`: the code is run so many rounds between two marks, and cycles printed.
"""

import pathlib
import re

from .. import schema
from ..machines import boot as machines
from ..machines import guest, uml
from ..series.base import Base
from ..util import Fail, remove, say
from . import singlestep
from .experiment import Experiment
from .run import boot, kernels, watched
from .sweep import PLAIN
from .table import Point, Result, Table

MACHINES = ("sim",)
# The machine whose cycles are counted.
SMP = "smp"
COST = schema.table(
    {
        "patch": schema.STRING,
        "module": PLAIN,
        "rounds": schema.COUNT,
        "begin": PLAIN,
        "end": PLAIN,
        "what": schema.STRING,
        # {what a table says of it: what is written to the parameter}
        "instructions": {**schema.mapping(schema.STRING), "minProperties": 1},
    },
    # Shell for the guest whose instructions are counted.
    prepare=schema.STRING,
    cycles={"type": "array", "minItems": 1, "uniqueItems": True, "items": schema.STRING},
)
REQUIRED = {"cost": COST}
OPTIONAL: dict[str, schema.Schema] = {}
# UML's own: how it masks interrupts and reads a simulated clock is no kernel's cost.
UML = re.compile(r"(um_|_*time_travel_|deliver_time_travel|timer_read|(un)?block_signals|arch_local_irq)")


def check(experiment: Experiment) -> None:
    experiment.file(experiment.data["cost"]["patch"])


def points(experiment: Experiment) -> list[Point]:
    return [{"run": name} for name in experiment.data["cost"]["instructions"]]


def ask(experiment: Experiment, what: str) -> str:
    return f'echo "{what}" >/sys/module/{experiment.data["cost"]["module"]}/parameters/run'


def instructions(experiment: Experiment, executable: pathlib.Path, place: pathlib.Path) -> dict[str, dict[str, float]]:
    """{what: {function: instructions a round}}"""
    cost = experiment.data["cost"]
    remove(place)
    place.mkdir(parents=True)
    script = place.with_suffix(".sh")
    script.write_text(
        "\n".join(
            ["#!/bin/bash", cost.get("prepare", ""), *(ask(experiment, what) for what in cost["instructions"].values())]
        )
        + "\n"
    )
    uml.links(guest.root(), script, place)
    with open(place / "console", "wb") as console:
        passes = singlestep.count(
            # Stepped with programs in it that are run by ptrace, as all that is recorded; the last word counts.
            uml.command(executable, simulated=True, words=["seccomp=off"]),
            place,
            cost["begin"],
            cost["end"],
            console,
            len(cost["instructions"]),
        )
    machines.verdict(place / "console", place / "exit", 0, 0)
    if len(passes) != len(cost["instructions"]):
        raise Fail(
            f"{experiment.where}: {len(passes)} passes from {cost['begin']} to {cost['end']} were seen, "
            f"{len(cost['instructions'])} were asked for; see {place}/console"
        )
    return {
        what: {name: number / cost["rounds"] for name, number in sorted(one.items()) if not UML.match(name)}
        for what, one in zip(cost["instructions"], passes)
    }


def cycles(experiment: Experiment, executable: pathlib.Path, place: pathlib.Path) -> dict[str, float]:
    """{"1 threads, idle": the fewest cycles of a round, …} of UML on two CPUs; noisy but for its minimum."""
    cost = experiment.data["cost"]
    found: dict[str, float] = {}
    script = place.with_suffix(".sh")
    lines = [
        f"for turn in $(seq {experiment.repeats}); do",
        *(ask(experiment, what) for what in cost["cycles"]),
        "done",
        f"dmesg | grep -o '{cost['module']}: .*' >/results/cycles",
    ]
    script.write_text("\n".join(["#!/bin/bash", *lines]) + "\n")
    said = (boot(experiment, SMP, executable, script, place) / "cycles").read_text()
    for what, number in re.findall(rf"{cost['module']}: (.*): (\d+) cycles", said):
        found[what] = min(found.get(what, float("inf")), int(number) / cost["rounds"])
    if not found:
        raise Fail(f"{place}/cycles: the guest's {cost['module']} said nothing of cycles")
    return found


def measure(experiment: Experiment, base: Base, out: pathlib.Path) -> Result:
    """{kernel: {"instructions": {what: {function: number}}, "cycles": {what: number}}}"""
    patch = experiment.file(experiment.data["cost"]["patch"]).read_text()
    counted = kernels(base, experiment, patch=patch)
    timed = kernels(base, experiment, SMP, patch) if "cycles" in experiment.data["cost"] else {}
    guest.root()
    found: Result = {name: {} for name in counted}
    with watched(experiment.name, lambda: sum(map(len, found.values())), len(counted) + len(timed), "guests"):
        for name, path in counted.items():
            place = out / f"{experiment.name}-{name}"
            say(f"counting {name}'s instructions; its console goes to {place}/console")
            found[name]["instructions"] = instructions(experiment, path, place)
        for name, path in timed.items():
            place = out / f"{experiment.name}-{name}-{SMP}"
            say(f"counting {name}'s cycles; its console goes to {place}/console")
            found[name]["cycles"] = cycles(experiment, path, place)
    return found


def metrics(experiment: Experiment, result: Result) -> list[Table]:
    what = experiment.data["cost"]["what"]
    first = next(iter(result.values()))
    tables = [
        Table(
            [f"instructions, {what}", *result],
            [
                [name, *(f"{sum(one['instructions'][name].values()):.0f}" for one in result.values())]
                for name in first["instructions"]
            ],
            left=(0,),
        )
    ]
    if "cycles" in first:
        tables.append(
            Table(
                ["cycles (the fewest of many), two CPUs", *result],
                [[name, *(f"{one['cycles'][name]:.0f}" for one in result.values())] for name in first["cycles"]],
                left=(0,),
            )
        )
    return tables
