# SPDX-License-Identifier: GPL-2.0
"""The topic lwq in counts: instructions and cache lines missed by the kernel's own queue, the same on every machine with this compiler.

lib/lwq.c and what it includes are built into bench/lwq/count.c, as they were before the topic and as they are after it, and run by
callgrind with its simulated caches.
"""

import itertools
import json
import re
import shutil

from .. import report
from ..machines import kernel
from ..series import topics as store
from ..series.base import git
from ..suites import check
from ..util import BUILD, lock, remove, run

TOPIC = "lwq"
SOURCE = store.TOPICS / TOPIC / "experiments" / "counts"
RECORDED = store.TOPICS / TOPIC / "results" / "counts.json"
KERNELS = ("before", "after")
# Of the kernel's own headers these are used; the shim stands for the others.
HEADERS = ("llist.h", "mpscq.h", "lwq.h")
SHIMMED = ("atomic.h", "cache.h", "container_of.h", "export.h", "kernel.h", "preempt.h", "rcupdate.h", "sched.h", "spinlock.h", "stddef.h",
           "types.h")
DEPTHS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
CACHES = ("--D1=32768,8,64", "--I1=32768,8,64", "--LL=1048576,16,64")
PASSES = 1000


def ends(base):
    """{kernel: commit}: the topic's first patch, a benchmark that leaves the queue as it was, and its last; with no other topic it does not need."""
    topics = store.series()
    topic = next(topic for topic in topics if topic.name == TOPIC)
    branch = f"{TOPIC}-{store.queue_digest()}"
    if git(base.repo, "rev-parse", "--verify", "-q", f"refs/heads/{branch}", check=False).returncode:
        git(base.repo, "branch", "-f", branch, check.stands_alone(base, topics, topic))
    return {name: git(base.repo, "rev-parse", f"{branch}~{back}").stdout.strip() for name, back in zip(KERNELS, (len(topic.patches) - 1, 0))}


def build(base):
    """{kernel: program}, in build/lwq/."""
    made = {}
    with lock("source"):
        commits = ends(base)
    for name, commit in commits.items():
        place = BUILD / TOPIC / f"count-{name}"
        remove(place)
        (place / "linux").mkdir(parents=True)
        for header in SHIMMED:
            (place / "linux" / header).write_text('#include "shim.h"\n')
        for path, target in [(f"include/linux/{header}", f"linux/{header}") for header in HEADERS] + [("lib/llist.c",) * 2, ("lib/lwq.c",) * 2]:
            text = git(base.repo, "show", f"{commit}:{path}", check=False)
            if not text.returncode:
                (place / target.rpartition("lib/")[2]).write_text(text.stdout)
        for file in ("count.c", "shim.h"):
            shutil.copyfile(SOURCE / file, place / file)
        made[name] = place / "count"
        run("gcc", "-O2", "-std=gnu11", "-fno-strict-aliasing", "-w", "-I", place, "-o", made[name], place / "count.c")
    return made


def count(program, *arguments):
    """{"instructions", "misses"} of what the program collects; a miss is a line that neither simulated cache had."""
    out = program.with_name("callgrind.out")
    # The environment lies on the stack, and where that begins decides whether it shares a line with something counted.
    run("env", "-i", "PATH=/usr/bin:/bin", "valgrind", "--tool=callgrind", "--cache-sim=yes", "--collect-atstart=no", *CACHES,
        "--callgrind-out-file=callgrind.out", "./count", *arguments, cwd=program.parent)
    text = out.read_text()
    events = re.search(r"^events: (.*)$", text, re.M)[1].split()
    totals = dict(itertools.zip_longest(events, map(int, re.search(r"^(?:summary|totals): (.*)$", text, re.M)[1].split()), fillvalue=0))
    return {"instructions": totals["Ir"], "misses": totals["DLmr"] + totals["DLmw"]}


def measure(base):
    """Count; returns the path of build/lwq/counts.json."""
    with lock("counts"):
        programs = build(base)
        found = {name: {f"{what} {state} {depth}": count(program, what, depth, state)
                        for what in ("held", "dequeue") for state in ("cold", "warm") for depth in DEPTHS}
                 | {f"pass {depth}": {"instructions": count(program, "pass", depth, PASSES)["instructions"] / PASSES} for depth in (1, 1024)}
                 for name, program in programs.items()}
        path = BUILD / TOPIC / "counts.json"
        path.write_text(json.dumps(found, indent=1) + "\n")
    return path


def tables(found):
    before, after = (found[name] for name in KERNELS)
    text = []
    for state, what in itertools.product(("cold", "warm"), ("held", "dequeue")):
        title = {"held": "under the lock", "dequeue": "the whole dequeue"}[what]
        rows = [[depth, *(side[f"{what} {state} {depth}"][kind] for kind in ("instructions", "misses") for side in (before, after))] for depth in DEPTHS]
        text.append(report.table([f"{title}, {state}, entries waiting", "instructions before", "after", "lines missed before", "after"], rows))
    rows = [[depth, f"{before[f'pass {depth}']['instructions']:.1f}", f"{after[f'pass {depth}']['instructions']:.1f}"] for depth in (1, 1024)]
    text.append(report.table(["a dequeue and an enqueue, entries waiting", "instructions before", "after"], rows))
    return "\n\n".join(text)
