# SPDX-License-Identifier: GPL-2.0
"""What it costs to queue a transport and to dispatch it: instructions, counted one by one, and cycles with two CPUs at it."""

import json
import re

from ..machines import guest, kernel, uml
from ..series.base import git
from ..series.topics import TOPICS
from . import singlestep
from ..util import BUILD, Fail, lock, remove, say

COST = TOPICS / "sunrpc-ready-queue" / "experiments" / "cost"
TOPIC = "topic: sunrpc-ready-queue"
ROUNDS = 256  # SVC_COST_ROUNDS of svc_cost.patch
# UML's own: how it masks interrupts and reads a simulated clock is no kernel's cost.
UML = re.compile(r"(um_|_*time_travel_|deliver_time_travel|timer_read|(un)?block_signals|arch_local_irq)")
ONE_CPU = 'echo "1 idle" >/sys/module/svc_cost/parameters/run\necho 1 >/sys/module/svc_cost/parameters/run\n'
TWO_CPUS = """for turn in $(seq 8); do
	for run in "1 idle" 1 "2 idle" 2; do
		echo "$run" >/sys/module/svc_cost/parameters/run
	done
done
dmesg | grep -o 'svc_cost: .*' >/results/cycles
"""


def kernels(base, kind):
    """{name: executable} of the base, of the queue without the ready queue's topic, and of all of it, each with the benchmark."""
    patch, made = (COST / "svc_cost.patch").read_text(), {}
    with lock("source"):
        where = kernel.commits(base)
        topic = git(base.repo, "log", "--format=%H", f"--grep=^{TOPIC}$", f"{where['base']}..{where['patched']}").stdout.split()
        if len(topic) != 1:
            raise Fail(f'the queue has {len(topic)} commits "{TOPIC}"')
        for name, commit in (("base", where["base"]), ("before", topic[0]), ("patched", where["patched"])):
            commit = kernel.variant(base, commit, f"svc_cost on {name}", patch)
            made[name] = kernel.executable(base, commit, kernel.flavour(TOPIC.removeprefix("topic: "), kind), f"cost-{name}")
    return made


def instructions(executable, place):
    """[Counter of instructions by function, for an idle transport; the same, for one with requests in flight]"""
    remove(place)
    place.mkdir(parents=True)
    script = place.with_suffix(".sh")
    script.write_text(f"#!/bin/bash\n{ONE_CPU}")
    with open(place / "console", "wb") as console:
        passes = singlestep.count(uml.command(executable, guest.root(), script, place, True, ()), "svc_cost_begin", "svc_cost_end", console, 2)
    uml.verdict(place / "console", place / "exit", 0, 0)
    return [{name: number / ROUNDS for name, number in one.items() if not UML.match(name)} for one in passes]


def cycles(executable, place):
    """{"1 threads, idle": the fewest cycles of a round, …} of UML on two CPUs; noisy but for its minimum."""
    script = place.with_suffix(".sh")
    script.write_text(f"#!/bin/bash\n{TWO_CPUS}")
    found = {}
    for what, number in re.findall(r"svc_cost: (.*): (\d+) cycles", (uml.boot(executable, script, place, 600, False) / "cycles").read_text()):
        found[what] = min(found.get(what, float("inf")), int(number) / ROUNDS)
    return found


def measure(base):
    """Print both tables, and leave the instructions by function in build/cost/cost.json."""
    results = BUILD / "cost"
    results.mkdir(parents=True, exist_ok=True)
    counted = {name: instructions(path, results / f"cost-{name}") for name, path in kernels(base, "sim").items()}
    (results / "cost.json").write_text(json.dumps(counted, indent=1, sort_keys=True) + "\n")
    print(f"\n{'instructions, one svc_xprt_enqueue() and the svc_recv() it leads to':70}" + "".join(f"{name:>10}" for name in counted))
    for index, what in enumerate(("with no request in flight", "with a request in flight")):
        print(f"  {what:68}" + "".join(f"{sum(one[index].values()):10.0f}" for one in counted.values()))
    taken = {name: cycles(path, results / f"cost-{name}-smp") for name, path in kernels(base, "smp").items()}
    print(f"\n{'cycles (the fewest of many), two CPUs':70}" + "".join(f"{name:>10}" for name in taken))
    for what in taken["base"]:
        print(f"  {what:68}" + "".join(f"{one[what]:10.0f}" for one in taken.values()))
    say(f"the instructions by function are in {results}/cost.json")
