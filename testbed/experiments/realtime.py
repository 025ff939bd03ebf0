# SPDX-License-Identifier: GPL-2.0
"""The topic lwq on real time with two CPUs: the queue before it and after it, in turns.

Kernels are made of the topic's first patch, which is the base's queue and a benchmark, and of its last: one that has the benchmark run,
with bench/lwq/hold.patch, and one that is a server, with bench/lwq/enqueue.patch. They are booted in turns, so that what else the machine
does falls on both. A time is in cycles of the TSC and is the median over the turns; a ratio is the median of the ratios of the turns.
"""

import json
import re
import shutil
import statistics

from .. import report
from ..machines import kernel, uml
from ..series import topics as store
from ..suites import kunit as suites
from .counts import KERNELS, TOPIC, ends
from ..util import BUILD, cache, digest, lock, run, say, whole

SOURCE = store.TOPICS / TOPIC / "experiments" / "realtime"
ENQUEUE, HOLD = SOURCE / "enqueue.patch", SOURCE / "hold.patch"
RECORDED = store.TOPICS / TOPIC / "results" / "realtime.json"
CPUS = 2
THREADS = (8, 32, 128, 512)
LOAD = "load:conns=64,window=8,count=400,op=read,size=4k,file=bulk"


def kernels(base):
    """({kernel: the one that runs the benchmark}, {kernel: the server})."""
    with lock("source"):
        commits = ends(base)
        benchmarks = {name: benchmark_kernel(base, kernel.variant(base, commit, name, HOLD.read_text())) for name, commit in commits.items()}
        servers = {name: kernel.variant(base, commit, name, ENQUEUE.read_text()) for name, commit in commits.items()}
        return benchmarks, {name: kernel.executable(base, commit, kernel.flavour(TOPIC, "smp"), f"{TOPIC}-{name}") for name, commit in servers.items()}


def benchmark_kernel(base, commit):
    kept = cache() / "kernels" / f"benchmark-{digest(kernel.content(base, commit), kernel.compiler())}"
    if not kept.is_file():
        kernel.checkout(base, commit)
        config = BUILD / TOPIC / ".kunitconfig"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text("CONFIG_KUNIT=y\nCONFIG_LWQ_BENCHMARK=y\n")
        place = suites.kunit_place(base, CPUS)
        say("building a kernel for the benchmark")
        with kernel.building(place):
            run(*suites.kunit_py(base, "build", [config], CPUS), cwd=base.repo, env=kernel.ENV, log=BUILD / TOPIC / "benchmark-make.log")
        with whole(kept) as part:
            shutil.copy2(place / "linux", part)
    return kept


def script(selftests):
    """The guest's script: READs of 4 KiB from the page cache of 64 connections by so many threads; the benchmark has run at boot."""
    lines = ["#!/bin/bash", f". /host{selftests}/nfsd/lib.sh", "measure=/sys/kernel/debug/svc_measure",
             "nfsd_disk 512", "nfsd_file bulk 64M", f"nfsd_start {THREADS[0]}", "cat $EXPORT/bulk >/dev/null"]
    for threads in THREADS:
        lines += [f"nfsd_threads {threads}", "sleep 1", "echo 0 >$measure",
                  f"nfsload -v 3 -o /results/{threads}.json {LOAD} || exit 1", f"cat $measure >/results/{threads}.svc"]
    return "\n".join(lines) + "\n"


def measure(base, turns):
    """Measure; returns the path of build/lwq/realtime.json: {kernel: {figure: [a value for each turn]}}."""
    benchmarks, servers = kernels(base)
    out = BUILD / TOPIC
    out.mkdir(parents=True, exist_ok=True)
    text = out / "realtime.sh"
    text.write_text(script(kernel.selftests(base)))
    path = out / "realtime.json"
    found = {name: {} for name in KERNELS}
    for turn in range(turns):
        # Who is first changes, too
        for name in KERNELS if turn % 2 else KERNELS[::-1]:
            say(f"turn {turn + 1} of {turns}: {name}")
            said = run("timeout", "--kill-after=10", "900", benchmarks[name], "mem=1G", "console=tty", *suites.kunit_boot(CPUS), "kunit.enable=1",
                       "kunit_shutdown=halt", "kunit.filter_glob=lwq_benchmark", check=False, log=out / f"benchmark-{name}.log").stdout
            where = uml.boot(servers[name], text, out / f"server-{name}", 900, simulated=False)
            for figure, value in {**benchmark(said), **enqueue(where)}.items():
                found[name].setdefault(figure, []).append(value)
        path.write_text(json.dumps(found, indent=None).replace('], "', '],\n "') + "\n")
    return path


def benchmark(console):
    """{figure: value} of what the benchmark said, in cycles: medians and least of the rounds of a boot."""
    found = {}
    passes = console.split("lock held", 1)[0]
    for depth, state, least, first in re.findall(r"depth +(\d+) (cold|warm): first dequeue min (\d+) median (\d+) ns", passes):
        found |= {f"first {state} {depth}": int(first), f"least first {state} {depth}": int(least)}
    for depth, state, mean in re.findall(r"depth +(\d+) (cold|warm): least mean of all (\d+) cycles", console):
        found[f"least mean {state} {depth}"] = int(mean)
    for depth, state, least, held in re.findall(r"depth +(\d+) (cold|warm): lock held min (\d+) median (\d+)", console):
        found |= {f"held {state} {depth}": int(held), f"least held {state} {depth}": int(least)}
    # It calls them ps, and nanoseconds are cycles here
    for depth, least, entry in re.findall(r"depth +(\d+): min (\d+) median (\d+) ps an entry", console):
        found |= {f"pass {depth}": int(entry) / 1000, f"least pass {depth}": int(least) / 1000}
    return found


def enqueue(where):
    """{figure: value} of svc_xprt_enqueue(), from the buckets of each CPU."""
    found = {}
    for threads in THREADS:
        cpus = [[int(number) for number in line.split()] for line in (where / f"{threads}.svc").read_text().splitlines()]
        calls, cycles = sum(cpu[0] for cpu in cpus), sum(cpu[1] for cpu in cpus)
        buckets = [sum(column) for column in zip(*(cpu[4:] for cpu in cpus))]
        found |= {f"enqueue min {threads}": min(cpu[2] for cpu in cpus if cpu[0]), f"enqueue mean {threads}": cycles // calls,
                  f"enqueue max {threads}": max(cpu[3] for cpu in cpus), f"enqueue calls {threads}": calls}
        found |= {f"enqueue p{percent} {threads}": edge(buckets, calls * percent / 100) for percent in (50, 90, 99)}
    return found


def edge(buckets, rank):
    """The upper edge of the bucket, of four an octave, that holds the sample of this rank."""
    for bucket, count in enumerate(buckets):
        rank -= count
        if rank <= 0:
            return (bucket % 4 + 5) << (bucket // 4 - 2) if bucket >= 8 else bucket + 1
    return 0


def tables(result):
    """The figures as a person reads them."""
    before, after = (result[name] for name in KERNELS)
    depths = sorted({int(figure.split()[2]) for figure in before if figure.startswith("held cold")})
    text = ["TSC cycles, medians over the turns; after/before is the median of the turns' ratios."]

    def row(title, figure):
        if figure not in before:
            return None
        ratios = sorted(b / a for a, b in zip(before[figure], after[figure]))
        return [title, middle(before[figure]), middle(after[figure]), f"{statistics.median(ratios):.2f}x", f"{ratios[0]:.2f}-{ratios[-1]:.2f}"]

    def one(title, rows):
        head = [title, "before", "after", "after/before", "least and most"]
        text.append(report.table(head, [line for line in rows if line], left=(0,)))

    for state in ("cold", "warm"):
        for what, name in (("least held", "lock held, least of 25"), ("held", "lock held, median of 25"),
                           ("least first", "first dequeue, least of 25"), ("first", "first dequeue, median of 25"),
                           ("least mean", "mean of all dequeues, least of 25")):
            one(f"{name}, {state}, entries waiting", [row(depth, f"{what} {state} {depth}") for depth in depths])
    for what, name in (("least pass", "least"), ("pass", "median")):
        one(f"2 producers, 2 consumers: cycles an entry, {name} of 25, entries waiting", [row(depth, f"{what} {depth}") for depth in depths])
    for what in ("min", "p50", "p90", "p99", "mean", "max"):
        one(f"svc_xprt_enqueue(), {what}, nfsd threads", [row(threads, f"enqueue {what} {threads}") for threads in THREADS])
    return "\n\n".join(text)


def middle(values):
    value = statistics.median(values)
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
