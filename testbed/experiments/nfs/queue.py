# SPDX-License-Identifier: GPL-2.0
"""How many transports wait for a thread under a load of nfsload's, from the server's trace events."""

import pathlib
from typing import Any

from ...util import Fail
from .. import sweep
from ..experiment import Experiment
from ..table import Point, Result, Table
from . import load, nfsload, server, trace

MACHINES = ("sim",)
REQUIRED = {**load.REQUIRED, "sweep": sweep.SWEEP}
OPTIONAL = nfsload.ONCE
ready, points, groups = nfsload.ready, load.points, load.groups
# A name that a sweep may have without a group that uses it: the number of nfsd threads.
THREADS = "threads"

# What is traced; of each event only its name and the transport's flags are kept.
TRACE = r"""
tracing=/sys/kernel/tracing
echo 131072 >$tracing/buffer_size_kb
for event in svc_xprt_enqueue svc_xprt_dequeue svc_xprt_no_write_space; do
	echo 1 >$tracing/events/sunrpc/$event/enable
done
traced() # STEM COMMAND
{
	stem=$1
	shift
	sleep 1  # for the last connections to be closed
	echo >$tracing/trace
	echo 1 >$tracing/tracing_on
	"$@" || exit 1
	sleep 1
	echo 0 >$tracing/tracing_on
	sed -n 's/^.* \(svc_xprt_[a-z_]*\): .*flags=\([A-Z|_]*\).*$/\1 \2/p' $tracing/trace >"$stem.queue"
	grep -F overrun: $tracing/per_cpu/cpu0/stats >"$stem.lost"
}
"""


def check(experiment: Experiment) -> None:
    data, where = experiment.data, experiment.where
    server.check(experiment)
    sweep.check(data["sweep"], data["load"]["groups"], (), where, {THREADS})
    for threads in data["sweep"].get(THREADS, [1]):
        if not isinstance(threads, int) or threads < 1:
            raise Fail(f"{where}: sweep.threads: {threads!r} is no number of nfsd threads: 1 at least")


def script(experiment: Experiment, selftests: str) -> str:
    lines = [*server.up(experiment, selftests), TRACE.strip()]
    for point in points(experiment):
        lines += [f"nfsd_threads {point[THREADS]}"] if THREADS in point else []
        lines += nfsload.counting(experiment, point, f"traced /results/{sweep.label(point)} ")
    return "\n".join(lines) + "\n"


def leaves(experiment: Experiment, point: Point) -> list[str]:
    return [f"{sweep.label(point)}.lost"]


def read(experiment: Experiment, where: pathlib.Path, point: Point) -> Point:
    nfsload.replies(where, point)
    return waiting(where / sweep.label(point), nfsload.pool(where, point))


def waiting(stem: pathlib.Path, counts: dict[str, int]) -> dict[str, Any]:
    """How many transports waited at a point; the server's own counter has to agree."""
    trace.complete(stem)
    with open(stem.with_name(stem.name + ".queue")) as lines:
        found = trace.waiting(lines)
    if (found["queued"], found["left"]) != (counts["queued"], 0):
        raise Fail(
            f"{stem}: the trace has {found['queued']} transports queued and {found['left']} left; the server "
            f"counted {counts['queued']}"
        )
    del found["left"]
    return found


def metrics(experiment: Experiment, result: Result) -> list[Table]:
    """How many transports wait, and how many of them one dequeue of the base's reverses under its lock."""
    names = list(experiment.data["sweep"])
    head = [*names, "queued", "waiting, median", "waiting, most", "reversed at once, mean", "most"]
    return [
        Table(
            head,
            [
                [
                    *(point[name] for name in names),
                    *(point[name] for name in ("queued", "median", "longest")),
                    f"{point['queued'] / max(point['refills'], 1):.1f}",
                    point["refill"],
                ]
                for point in points
            ],
            kernel if len(result) > 1 else "",
        )
        for kernel, points in result.items()
    ]
