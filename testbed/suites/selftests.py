# SPDX-License-Identifier: GPL-2.0
"""The topics' kselftests in the guest, on patched, where all must pass, and on base, where the cases of fails-on-base must fail."""

import concurrent.futures
import functools
import os
import re

from ..machines import guest, kernel, qemu, uml
from ..series.topics import listed
from ..util import BUILD, say

# Seconds of real time for a whole boot; for one script, of the guest's time.
LIMIT = {"sim": 900, "x86": 10800}
TIMEOUT = {"sim": 300, "x86": 900}


def left_out(topics, kind):
    """{script: why it is not run on this kind of machine}, of the topics' files left-out."""
    words = [line.split(None, 2) for topic in topics for line in listed(topic.home / "left-out")]
    return {script: why for where, script, why in words if where == kind}


def fails_on_base(topics, kind):
    """The cases that have to fail on the base, on this kind of machine."""
    names = ("fails-on-base",) if kind == "sim" else ("fails-on-base", f"fails-on-base.{kind}")
    cases = [case for topic in topics for name in names for case in listed(topic.home / name)]
    return {case for case in cases if case.partition(": ")[0] not in left_out(topics, kind)}


def selftests(base, tally, kind="sim"):
    """All topics' selftests, on one guest of each kernel for each group of topics that share a configuration."""
    place = kernel.selftests(base)
    for what, topics in kernel.flavours(kind).items():
        if any(topic.selftests for topic in topics):
            judge(tally, what, topics, place, kernel.kernels(base, what))


def script(topics, kind, place):
    """What the guest runs: the kernel's own runner, over the topics' directories."""
    lines = ["#!/bin/bash", *(topic.prepare for topic in topics if topic.prepare)]
    have = [line.partition(":") for line in (place / "kselftest-list.txt").read_text().split()]
    words = [f"-c {name}" for name in dict.fromkeys(target for topic in topics for target in topic.selftests)]
    words += [f"-S {collection}:{name}" for collection, _, name in have if name in left_out(topics, kind)]
    # The runner's own status says nothing: what it prints is judged. It opens /dev/stdout again, which has to be a pipe.
    return "\n".join([*lines, f"cd /host{place} && ./run_kselftest.sh {' '.join(words)} -o {TIMEOUT[kind]} 2>&1 | cat >/results/ktap"]) + "\n"


def judge(tally, what, topics, place, kernels):
    """Run the selftests of topics of a flavour and count each case."""
    without = left_out(topics, what.kind)
    text = BUILD / f"selftests-{what.name}.sh"
    text.parent.mkdir(exist_ok=True)
    text.write_text(script(topics, what.kind, place))
    guest.root()
    say("; ".join([f"running the selftests on {', '.join(kernels)} ({what.name})", *(f"without {name}: {why}" for name, why in without.items())]))
    expected = fails_on_base(topics, what.kind)
    emulated = kernel.for_qemu(what.kind)
    machine = qemu.boot if emulated else functools.partial(uml.boot, simulated=what.kind == "sim")
    # A guest of QEMU's keeps two CPUs busy.
    with concurrent.futures.ThreadPoolExecutor(1 if emulated else len(os.sched_getaffinity(0))) as pool:
        boots = {name: pool.submit(machine, path, text, BUILD / f"selftests-{name}-{what.name}", LIMIT[what.kind])
                 for name, path in kernels.items()}
    results = {}
    for name, boot in boots.items():
        tally.run(f"the guest that ran the selftests on {name} ({what.name}) is healthy", boot.result)
        said = BUILD / f"selftests-{name}-{what.name}" / "ktap"
        results[name] = ktap(said.read_text(errors="replace")) if said.is_file() else {}
        if not results[name]:
            tally.that(f"selftests on {name}", f"no test was run; see {said.parent}")
    for case, verdict in {**dict.fromkeys(sorted(expected), "was not run"), **results["patched"]}.items():
        tally.that(f"patched: {case}", "" if verdict == "ok" else f"{verdict}; see {BUILD}/selftests-patched-{what.name}/ktap")
    for case in sorted(expected):
        verdict = results["base"].get(case, "was not run")
        tally.that(f"base: fails as it should: {case}", "" if verdict == "not ok" else f"on base it is: {verdict}")


def ktap(text):
    """{"script: case": "ok" | "not ok" | "skipped"} of run_kselftest.sh's output; a script without cases is its own."""
    verdicts, cases = {}, {}
    for line in text.splitlines():
        found = re.match(r"(# )?(ok|not ok) \d+ -? ?(.*?)(?:\s+#\s*(.*))?$", line)
        if not found:
            continue
        nested, verdict, name, directive = found.groups()
        verdict = "skipped" if directive and re.match(r"(SKIP|TODO|XFAIL)", directive) else verdict
        if nested:
            cases[name.strip()] = verdict
            continue
        script = name.rpartition(": ")[2].strip()
        verdicts.update({f"{script}: {case}": said for case, said in cases.items()})
        # A script that failed although its cases passed (a time-out, a crash) or that ran none counts by itself.
        if not cases or verdict == "not ok" and "not ok" not in cases.values():
            verdicts[script] = verdict
        cases = {}
    return verdicts
