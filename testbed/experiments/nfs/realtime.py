# SPDX-License-Identifier: GPL-2.0
"""Two kernels on real time with two CPUs, booted in turns, so that what else the machine does falls on both.

Of each kernel there are two: one that runs a KUnit benchmark at boot, and one that is a server; a test-only patch
makes each of them say what it measures. Kernels beyond the two that are compared run the benchmark only. A time is in
cycles of the TSC and is the median over the repeats; a ratio is the median of the repeats' ratios.
"""

import dataclasses
import json
import pathlib
import re
import statistics
from collections.abc import Sequence
from typing import Any

from ... import schema
from ...machines import guest, kernel
from ...series import applied
from ...series.base import Base
from ...suites import kunit
from ...util import Fail, lock, run, say
from .. import sweep
from ..experiment import KERNELS, Experiment
from ..run import boot, commits, kernels, selftests, watched
from ..table import Point, Result, Table
from . import nfsload, server

MACHINES = ("smp",)
CPUS = 2
COMPARED = ["before", "after"]
BENCHMARK = schema.table(
    {
        "patch": schema.STRING,
        "suite": sweep.PLAIN,
        "options": {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "^CONFIG_[A-Z0-9_]+=y$"}},
    },
    # {kernel: a patch on the second one of the two, which makes another to compare with}
    instead=schema.mapping(schema.STRING),
)
LOAD = schema.table(
    {
        "patch": schema.STRING,
        "measure": schema.STRING,
        "version": schema.STRING,
        "groups": nfsload.GROUPS,
        "threads": {"type": "array", "minItems": 1, "uniqueItems": True, "items": schema.COUNT},
    }
)
REQUIRED = {
    "kernels": {**KERNELS, "type": "object"},
    "benchmark": BENCHMARK,
    "server": server.SERVER,
    "files": server.FILES,
    "load": LOAD,
}
OPTIONAL: dict[str, schema.Schema] = {}
ready = nfsload.ready


def check(experiment: Experiment) -> None:
    data, where = experiment.data, experiment.where
    if list(experiment.kernels)[:2] != COMPARED:
        raise Fail(f"{where}: kernels: this kind compares two, before and after; they come first, in this order")
    if data.get("exact", True):
        raise Fail(f"{where}: real time is never the same: say exact = false")
    server.check(experiment)
    for patch in (data["benchmark"]["patch"], data["load"]["patch"], *data["benchmark"].get("instead", {}).values()):
        experiment.file(patch)
    if again := set(data["benchmark"].get("instead", {})) & set(experiment.kernels):
        raise Fail(f"{where}: benchmark.instead: there is a kernel {again.pop()} already")


def points(experiment: Experiment) -> list[Point]:
    return [{"threads": threads} for threads in experiment.data["load"]["threads"]]


def groups(experiment: Experiment, point: Point) -> list[str]:
    return experiment.data["load"]["groups"]


def benchmarks(base: Base, experiment: Experiment, out: pathlib.Path) -> dict[str, pathlib.Path]:
    """{kernel: the one that runs the benchmark}"""
    about, made = experiment.data["benchmark"], {}
    config = out / f"{experiment.name}.config"
    config.write_text("".join(f"{option}\n" for option in about["options"]))
    what = experiment.flavour("smp")
    what = dataclasses.replace(what, configs=(*what.configs, config))
    with lock("source"):
        found = commits(base, experiment)
        for name, instead in about.get("instead", {}).items():
            text = experiment.file(instead).read_text()
            found[name] = applied.variant(base, found["after"], f"{instead} on after", text)
        for name, commit in found.items():
            patch = experiment.file(about["patch"]).read_text()
            commit = applied.variant(base, commit, f"{about['patch']} on {name}", patch)
            made[name] = kernel.executable(base, commit, what, f"{experiment.name}-benchmark-{name}")
    return made


def script(experiment: Experiment, place: str) -> str:
    """The guest's script: the load for each number of threads, with every file in the page cache."""
    load, version = experiment.data["load"], experiment.data["load"]["version"]
    lines = [
        *server.up(experiment, place),
        f"measure={load['measure']}",
        *(f"cat $EXPORT/{name} >/dev/null" for name in experiment.data["files"]),
    ]
    for threads in load["threads"]:
        lines += [
            f"nfsd_threads {threads}",
            "sleep 1",
            "echo 0 >$measure",
            f"nfsload -v {version} -o /results/{threads}.json {' '.join(load['groups'])} || exit 1",
            f"cat $measure >/results/{threads}.svc",
        ]
    return "\n".join(lines) + "\n"


def measure(experiment: Experiment, base: Base, out: pathlib.Path) -> Result:
    """{kernel: {figure: [a value for each repeat]}}"""
    place = selftests(base, experiment)
    timed = benchmarks(base, experiment, out)
    patch = experiment.file(experiment.data["load"]["patch"]).read_text()
    servers = kernels(base, experiment, patch=patch, only=COMPARED)
    text = out / f"{experiment.name}.sh"
    text.write_text(script(experiment, place))
    guest.root()
    found: dict[str, dict[str, list[Any]]] = {name: {} for name in timed}
    booted = [0]
    with watched(experiment.name, lambda: booted[0], (len(timed) + len(servers)) * experiment.repeats, "boots"):
        for turn in range(experiment.repeats):
            # Who is first changes, too
            for name in list(found) if turn % 2 else list(found)[::-1]:
                log, where = out / f"{experiment.name}-benchmark-{name}.log", out / f"{experiment.name}-{name}"
                say(f"repeat {turn + 1} of {experiment.repeats}: {name}; its consoles go to {log} and {where}/console")
                said = run(
                    *kunit.command(timed[name], CPUS, experiment.limit, experiment.data["benchmark"]["suite"]),
                    check=False,
                    log=log,
                ).stdout
                booted[0] += 1
                figures = benchmark(said)
                if name in servers:
                    boot(experiment, experiment.machine, servers[name], text, where)
                    booted[0] += 1
                    figures |= enqueue(where, experiment.data["load"]["threads"])
                for figure, number in figures.items():
                    found[name].setdefault(figure, []).append(number)
    return found


def dump(result: Result) -> str:
    return json.dumps(result, indent=None).replace('], "', '],\n "') + "\n"


def benchmark(console: str) -> dict[str, float]:
    """{figure: value} of what the benchmark said, in cycles: medians and least of the rounds of a boot."""
    found: dict[str, float] = {}
    passes = console.split("lock held", 1)[0]
    for depth, state, least, first in re.findall(
        r"depth +(\d+) (cold|warm): first dequeue min (\d+) median (\d+) ns", passes
    ):
        found |= {f"first {state} {depth}": int(first), f"least first {state} {depth}": int(least)}
    for depth, state, mean in re.findall(r"depth +(\d+) (cold|warm): least mean of all (\d+) cycles", console):
        found[f"least mean {state} {depth}"] = int(mean)
    for depth, state, least, held in re.findall(r"depth +(\d+) (cold|warm): lock held min (\d+) median (\d+)", console):
        found |= {f"held {state} {depth}": int(held), f"least held {state} {depth}": int(least)}
    # It calls them ps, and nanoseconds are cycles here
    for depth, what, entry in re.findall(r"depth +(\d+), ([a-z ]+): (min .*) ps an entry", console):
        found |= {
            f"{what}, {name} {depth}": int(number) / 1000 for name, number in re.findall(r"([a-z0-9]+) (\d+)", entry)
        }
    held = re.search(r"interrupts (\d+) held up (\d+) dequeues of (\d+); (\d+) found nothing", console)
    if not held or "depth" not in console:
        raise Fail("the benchmark did not come to its end: see the log of its console")
    found |= dict(zip(("interrupts", "held up", "dequeues", "found nothing"), map(int, held.groups())))
    found |= {f"below {edge}": int(count) for edge, count in re.findall(r"dequeues below (\d+) ns: (\d+)", console)}
    return found


def enqueue(where: pathlib.Path, counts: list[int]) -> dict[str, float]:
    """{figure: value} of svc_xprt_enqueue(), from the buckets of each CPU."""
    found: dict[str, float] = {}
    for threads in counts:
        cpus = [
            [int(number) for number in line.split()] for line in (where / f"{threads}.svc").read_text().splitlines()
        ]
        calls, cycles = sum(cpu[0] for cpu in cpus), sum(cpu[1] for cpu in cpus)
        if not calls:
            raise Fail(f"{where}/{threads}.svc: no call was timed")
        buckets = [sum(column) for column in zip(*(cpu[4:] for cpu in cpus))]
        found |= {
            f"enqueue min {threads}": min(cpu[2] for cpu in cpus if cpu[0]),
            f"enqueue mean {threads}": cycles // calls,
            f"enqueue max {threads}": max(cpu[3] for cpu in cpus),
            f"enqueue calls {threads}": calls,
        }
        found |= {f"enqueue p{percent} {threads}": edge(buckets, calls * percent / 100) for percent in (50, 90, 99)}
    return found


def edge(buckets: list[int], rank: float) -> int:
    """The upper edge of the bucket, of 16 an octave, that holds the sample of this rank."""
    for bucket, count in enumerate(buckets):
        rank -= count
        if rank <= 0:
            return (bucket % 16 + 17) << (bucket // 16 - 4) if bucket >= 64 else bucket + 1
    return 0


def metrics(experiment: Experiment, result: Result) -> list[Table]:
    before, after = (result[name] for name in COMPARED)
    others = [name for name in result if name not in COMPARED]
    depths = sorted({int(figure.split()[2]) for figure in before if figure.startswith("held cold")})
    tables: list[Table] = []

    def one(title: str, figures: dict[int, str], more: Sequence[str] = ()) -> None:
        rows = []
        for depth, figure in figures.items():
            if figure in before:
                ratios = sorted(b / a for a, b in zip(before[figure], after[figure]))
                rows.append(
                    [
                        depth,
                        middle(before[figure]),
                        middle(after[figure]),
                        f"{statistics.median(ratios):.2f}x",
                        f"{ratios[0]:.2f}-{ratios[-1]:.2f}",
                        *(middle(result[name][figure]) for name in more),
                    ]
                )
        caption = (
            "TSC cycles, medians over the repeats; after/before is the median of the repeats' ratios"
            if not tables
            else ""
        )
        tables.append(Table([title, "before", "after", "after/before", "min and max", *more], rows, caption, left=(0,)))

    for state in ("cold", "warm"):
        for what, name in (
            ("least held", "lock held, least of 25"),
            ("held", "lock held, median of 25"),
            ("least first", "first dequeue, least of 25"),
            ("first", "first dequeue, median of 25"),
            ("least mean", "mean of all dequeues, least of 25"),
        ):
            one(f"{name}, {state}, entries waiting", {depth: f"{what} {state} {depth}" for depth in depths})
    for what, name in (
        ("one queue", "2 CPUs, each mostly takes what it put in"),
        ("handed over", "each entry goes from one CPU to the other"),
    ):
        for part in ("min", "p10", "median", "p90", "max"):
            one(
                f"{name}: cycles an entry, {part} of 25, entries waiting",
                {depth: f"{what}, {part} {depth}" for depth in depths},
                others,
            )
    tables += interrupts(result)
    for what in ("min", "p50", "p90", "p99", "mean", "max"):
        one(
            f"svc_xprt_enqueue(), {what}, nfsd threads",
            {threads: f"enqueue {what} {threads}" for threads in experiment.data["load"]["threads"]},
        )
    return tables


def interrupts(result: Result) -> list[Table]:
    """How often interrupts on one CPU hold up the other, and how long those dequeues take that had none themselves."""
    total = {name: {figure: sum(values) for figure, values in figures.items()} for name, figures in result.items()}
    edges = sorted({int(figure.split()[1]) for figures in total.values() for figure in figures if "below" in figure})
    held = [
        [
            name,
            of["interrupts"],
            of["dequeues"],
            of["held up"],
            f"{1000 * of['held up'] / of['interrupts']:.1f}",
            of["found nothing"],
        ]
        for name, of in total.items()
    ]
    spread = [
        [edge, *(sum(of.get(f"below {above}", 0) for above in edges if above > edge) for of in total.values())]
        for edge in edges[:-1]
    ]
    return [
        Table(
            [
                "with interrupts on both CPUs",
                "interrupts",
                "dequeues",
                "held up by the other CPU's",
                "for 1000 interrupts",
                "found nothing",
            ],
            held,
            "Sums over the repeats",
            left=(0,),
        ),
        Table(["dequeues that took as many cycles or more", *total], spread, "", left=(0,)),
    ]


def middle(values: list[float]) -> str:
    value = statistics.median(values)
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
