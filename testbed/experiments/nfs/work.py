# SPDX-License-Identifier: GPL-2.0
"""Real work through real mounts, alone and with a load in the background: its time, and the server's view of it."""

import pathlib
import shlex
import statistics

from ... import schema
from ...util import Fail
from .. import sweep
from ..experiment import Experiment
from ..table import Point, Result, Table
from . import server, trace

# The trace is of one CPU, and time is simulated.
MACHINES = ("sim",)
MOUNT = {"name": sweep.PLAIN, "path": schema.STRING, "options": schema.STRING}
WORK = schema.table(
    {
        "prepare": schema.STRING,
        "background": schema.STRING,
        "mounts": {"type": "array", "minItems": 1, "items": schema.table(MOUNT)},
        "tasks": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": sweep.PLAIN,
            "additionalProperties": schema.STRING,
        },
    }
)
REQUIRED = {"server": server.SERVER, "files": server.FILES, "work": WORK}
OPTIONAL: dict[str, schema.Schema] = {}
ALONE, BACKGROUND = "nothing", "bulk"

# One piece of work: a mount of its own and cold caches on both sides, the time it takes, and the server's view of its
# requests. Everything is done before the clock is read, and what is traced is only what comes from the mount's address.
PIECE = r"""
tracing=/sys/kernel/tracing
echo 65536 >$tracing/buffer_size_kb
echo mono >$tracing/trace_clock
echo 0 >$tracing/tracing_on
for event in svc_xprt_enqueue svc_xprt_dequeue svc_send svc_drop svcsock_tcp_recv_{eagain,short,err}; do
	echo 1 >$tracing/events/sunrpc/$event/enable
done
ip addr add 10.0.0.1/32 dev lo
piece() # LABEL MOUNT-OPTIONS PATH COMMAND
{
	mkdir -p /tmp/work
	mount -t nfs -o "$2" 10.0.0.1:"$3" /tmp/work || exit 1
	for i in 1 2 3; do
		sync
		echo 3 >/proc/sys/vm/drop_caches
		sleep 1
	done
	echo >$tracing/trace
	echo 1 >$tracing/tracing_on
	begin=${EPOCHREALTIME/./}
	(cd /tmp/work && eval "$4") >"/results/$1.out" 2>&1 || exit 1
	end=${EPOCHREALTIME/./}
	echo 0 >$tracing/tracing_on
	echo $((end - begin)) >"/results/$1.us"
	grep -F "=10.0.0.1:" $tracing/trace | grep -v "addr=10.0.0.1:2049" >"/results/$1.trace"
	grep -F overrun: $tracing/per_cpu/cpu0/stats >"/results/$1.lost"
	umount /tmp/work
}
"""


def check(experiment: Experiment) -> None:
    server.check(experiment)
    names = [mount["name"] for mount in experiment.data["work"]["mounts"]]
    for name in names:
        if names.count(name) > 1:
            raise Fail(f"{experiment.where}: work.mounts: there are two mounts {name}")


def points(experiment: Experiment) -> list[Point]:
    work = experiment.data["work"]
    return sweep.combinations(
        {
            "mount": [mount["name"] for mount in work["mounts"]],
            "background": [ALONE, BACKGROUND],
            "task": list(work["tasks"]),
        }
    )


def script(experiment: Experiment, selftests: str) -> str:
    """Each task on each mount, first on an idle server, then with the background."""
    work = experiment.data["work"]
    mounts = {mount["name"]: mount for mount in work["mounts"]}
    lines = [
        "#!/bin/bash",
        *server.made(experiment, selftests),
        "(set -e",
        "cd $EXPORT",
        work["prepare"].rstrip(),
        ")",
        "[ $? -eq 0 ] || exit 1",
        "sync",
        *server.started(experiment),
        "sleep 20  # an NFSv4 OPEN waits for the end of the grace period",
        PIECE.strip(),
    ]
    background = ALONE
    for point in sorted(points(experiment), key=lambda point: point["background"] != ALONE):
        if point["background"] != background:
            background = point["background"]
            lines += [work["background"].rstrip()]
        mount = mounts[point["mount"]]
        lines += [
            f"piece {sweep.label(point)}-{turn} {mount['options']} {mount['path']} "
            f"{shlex.quote(work['tasks'][point['task']])}"
            for turn in range(experiment.repeats)
        ]
    return "\n".join(lines) + "\n"


def leaves(experiment: Experiment, point: Point) -> list[str]:
    return [f"{sweep.label(point)}-{turn}.lost" for turn in range(experiment.repeats)]


def read(experiment: Experiment, where: pathlib.Path, point: Point) -> Point:
    """How long it took, in order, and at what depth the server saw its requests, all repeats together."""
    elapsed, depths = [], []
    for stem in (where / f"{sweep.label(point)}-{turn}" for turn in range(experiment.repeats)):
        trace.complete(stem)
        elapsed.append(1000 * int(stem.with_name(stem.name + ".us").read_text()))
        depths.append(trace.depth(stem.with_name(stem.name + ".trace").read_text().splitlines()))
    return {"elapsed_ns": sorted(elapsed), **{name: sum(depth[name] for depth in depths) for name in depths[0]}}


def metrics(experiment: Experiment, result: Result) -> list[Table]:
    """Its time alone and with the background, and how many of a hundred requests found their transport idle."""
    points = {kernel: {(p["mount"], p["task"], p["background"]): p for p in found} for kernel, found in result.items()}
    kernels = list(points)
    rows = []
    for mount, task in dict.fromkeys(key[:2] for key in points[kernels[0]]):
        cells = [points[kernel][mount, task, background] for background in (ALONE, BACKGROUND) for kernel in kernels]
        rows.append(
            [
                task,
                mount,
                cells[0]["requests"] // len(cells[0]["elapsed_ns"]),
                *(f"{statistics.median(p['elapsed_ns']) / 1e9:.2f}" for p in cells),
                *(f"{100 * p['idle'] / max(p['requests'], 1):.0f} %" for p in cells),
            ]
        )
    head = [
        f"{what}{kernel}{where}"
        for what in ("", "idle, ")
        for where in (" alone", " beside bulk")
        for kernel in kernels
    ]
    return [
        Table(["", "mount", "requests", *head], rows, 's, the median of the repeats; "idle": of a hundred requests')
    ]
