# SPDX-License-Identifier: GPL-2.0
"""Two kernels on real time with two CPUs, booted in turns, so that what else the machine does falls on both.

Of each kernel there are two: one that runs a KUnit benchmark at boot, and one that is a server; a test-only patch
makes each of them say what it measures. A time is in cycles of the TSC and is the median over the repeats; a ratio is
the median of the repeats' ratios.
"""

import json
import pathlib
import re
import shutil
import statistics
from typing import Any

from .. import schema
from ..machines import guest, kernel
from ..series.base import Base
from ..suites import kunit
from ..util import Fail, cache, digest, lock, run, say, whole
from . import nfsload, server, sweep
from .experiment import KERNELS, Experiment
from .run import boot, commits, kernels, selftests, watched
from .table import Point, Result, Table

MACHINES = ("smp",)
CPUS = 2
BENCHMARK = schema.table(
    {
        "patch": schema.STRING,
        "suite": sweep.PLAIN,
        "options": {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "^CONFIG_[A-Z0-9_]+=y$"}},
    }
)
LOAD = schema.table({"patch": schema.STRING, "measure": schema.STRING, "version": {"enum": list(nfsload.VERSIONS)},
                     "groups": {"type": "array", "minItems": 1, "items": schema.STRING},
                     "threads": {"type": "array", "minItems": 1, "uniqueItems": True, "items": schema.COUNT}})
REQUIRED = {
    "kernels": {**KERNELS, "type": "object"},
    "benchmark": BENCHMARK,
    "server": server.SERVER,
    "files": server.FILES,
    "load": LOAD,
}
OPTIONAL: dict[str, schema.Schema] = {}


def check(experiment: Experiment) -> None:
    data, where = experiment.data, experiment.where
    if list(experiment.kernels) != ["before", "after"]:
        raise Fail(f"{where}: kernels: this kind compares two, before and after, in this order")
    if data.get("exact", True):
        raise Fail(f"{where}: real time is never the same: say exact = false")
    server.check(experiment)
    for table in ("benchmark", "load"):
        experiment.file(data[table]["patch"])
    try:
        nfsload.command(data["load"]["groups"], data["load"]["version"], server.sizes(experiment))
    except nfsload.Refused as refused:
        raise Fail(f"{where}: load.groups: nfsload would refuse this: {refused}") from refused


def points(experiment: Experiment) -> list[Point]:
    return [{"threads": threads} for threads in experiment.data["load"]["threads"]]


def benchmarks(base: Base, experiment: Experiment) -> dict[str, pathlib.Path]:
    """{kernel: the one that runs the benchmark}"""
    about, made = experiment.data["benchmark"], {}
    with lock("source"):
        for name, commit in commits(base, experiment).items():
            patch = experiment.file(about["patch"]).read_text()
            made[name] = benchmark_kernel(
                base, kernel.variant(base, commit, f"{about['patch']} on {name}", patch), about["options"]
            )
    return made


def benchmark_kernel(base: Base, commit: str, options: list[str]) -> pathlib.Path:
    kept = cache() / "kernels" / f"benchmark-{digest(kernel.content(base, commit), kernel.compiler(), *options)}"
    if not kept.is_file():
        kernel.checkout(base, commit)
        place = kunit.kunit_place(base, CPUS)
        with whole(cache() / "kernels" / f"{kept.name}.kunitconfig") as config:
            config.write_text("CONFIG_KUNIT=y\n" + "".join(f"{option}\n" for option in options))
            log = kept.with_name(f"{kept.name}.log")
            say(f"building a kernel for the benchmark; what make says goes to {log}")
            with kernel.building(place):
                run(*kunit.kunit_py(base, "build", [config], CPUS), cwd=base.repo, env=kernel.make_env(), log=log)
        with whole(kept) as part:
            shutil.copy2(place / "linux", part)
    return kept


def script(experiment: Experiment, place: str) -> str:
    """The guest's script: the load for each number of threads, with every file in the page cache."""
    load, version = experiment.data["load"], experiment.data["load"]["version"]
    lines = ["#!/bin/bash", *server.made(experiment, place), *server.started(experiment), f"measure={load['measure']}",
             *(f"cat $EXPORT/{name} >/dev/null" for name in experiment.data["files"])]
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
    timed = benchmarks(base, experiment)
    servers = kernels(base, experiment, patch=experiment.file(experiment.data["load"]["patch"]).read_text())
    text = out / f"{experiment.name}.sh"
    text.write_text(script(experiment, selftests(base, experiment)))
    guest.root()
    found: dict[str, dict[str, list[Any]]] = {name: {} for name in timed}
    booted = [0]
    with watched(experiment.name, lambda: booted[0], 2 * len(found) * experiment.repeats, "boots"):
        for turn in range(experiment.repeats):
            # Who is first changes, too
            for name in list(found) if turn % 2 else list(found)[::-1]:
                log, where = out / f"{experiment.name}-benchmark-{name}.log", out / f"{experiment.name}-{name}"
                say(f"repeat {turn + 1} of {experiment.repeats}: {name}; its consoles go to {log} and {where}/console")
                said = run(
                    "timeout",
                    "--kill-after=10",
                    str(experiment.limit),
                    timed[name],
                    "mem=1G",
                    "console=tty",
                    *kunit.kunit_boot(CPUS),
                    "kunit.enable=1",
                    "kunit_shutdown=halt",
                    f"kunit.filter_glob={experiment.data['benchmark']['suite']}",
                    check=False,
                    log=log,
                ).stdout
                booted[0] += 1
                boot(experiment, experiment.machine, servers[name], text, where)
                booted[0] += 1
                for figure, number in {**benchmark(said), **enqueue(where, experiment.data["load"]["threads"])}.items():
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
    for depth, least, entry in re.findall(r"depth +(\d+): min (\d+) median (\d+) ps an entry", console):
        found |= {f"pass {depth}": int(entry) / 1000, f"least pass {depth}": int(least) / 1000}
    if not found:
        raise Fail("the benchmark said nothing: see the log of its console")
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
    """The upper edge of the bucket, of four an octave, that holds the sample of this rank."""
    for bucket, count in enumerate(buckets):
        rank -= count
        if rank <= 0:
            return (bucket % 4 + 5) << (bucket // 4 - 2) if bucket >= 8 else bucket + 1
    return 0


def metrics(experiment: Experiment, result: Result) -> list[Table]:
    before, after = result.values()
    depths = sorted({int(figure.split()[2]) for figure in before if figure.startswith("held cold")})
    tables: list[Table] = []

    def one(title: str, figures: dict[int, str]) -> None:
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
                    ]
                )
        caption = (
            "TSC cycles, medians over the repeats; after/before is the median of the repeats' ratios"
            if not tables
            else ""
        )
        tables.append(Table([title, "before", "after", "after/before", "min and max"], rows, caption, left=(0,)))

    for state in ("cold", "warm"):
        for what, name in (("least held", "lock held, least of 25"), ("held", "lock held, median of 25"),
                           ("least first", "first dequeue, least of 25"), ("first", "first dequeue, median of 25"),
                           ("least mean", "mean of all dequeues, least of 25")):
            one(f"{name}, {state}, entries waiting", {depth: f"{what} {state} {depth}" for depth in depths})
    for what, name in (("least pass", "least"), ("pass", "median")):
        one(
            f"2 producers, 2 consumers: cycles an entry, {name} of 25, entries waiting",
            {depth: f"{what} {depth}" for depth in depths},
        )
    for what in ("min", "p50", "p90", "p99", "mean", "max"):
        one(
            f"svc_xprt_enqueue(), {what}, nfsd threads",
            {threads: f"enqueue {what} {threads}" for threads in experiment.data["load"]["threads"]},
        )
    return tables


def middle(values: list[float]) -> str:
    value = statistics.median(values)
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
