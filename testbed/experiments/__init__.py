# SPDX-License-Identifier: GPL-2.0
"""Experiments: what topics/TOPIC/experiments/NAME.toml says, run on a kernel; the result is one JSON file a run."""

import concurrent.futures
import itertools
import json
import os
import shlex
import tomllib

from ..machines import guest, uml
from ..series import topics as store
from ..util import BUILD, Fail, say
from . import trace

POOL = "/proc/fs/nfsd/pool_stats"

# One piece of work: a mount of its own and cold caches on both sides, the time it takes, and the server's view of its requests.
# Everything is done before the clock is read, and what is traced is only what comes from the address of the mount.
WORK = r"""
tracing=/sys/kernel/tracing
echo 65536 >$tracing/buffer_size_kb
echo mono >$tracing/trace_clock
echo 0 >$tracing/tracing_on
for event in svc_xprt_enqueue svc_xprt_dequeue svc_send svc_drop svcsock_tcp_recv_eagain svcsock_tcp_recv_short svcsock_tcp_recv_err; do
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

# What is traced to know how many transports wait; of each event only its name and the transport's flags are kept.
QUEUE = r"""
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


def everywhere():
    """{name: path} of all experiments; a name stands once among all topics."""
    return {path.stem: path for topic in store.series() for path in sorted((topic.home / "experiments").glob("*.toml"))}


def place(name):
    """The file of an experiment."""
    have = everywhere()
    if name not in have:
        raise Fail(f"there is no experiment {name}; there are: {', '.join(sorted(have))}")
    return have[name]


def topic_of(name):
    """The name of the topic that an experiment is of."""
    return place(name).parent.parent.name


def recorded(name):
    """Where the experiment's recorded result is kept."""
    return place(name).parent.parent / "results" / f"{name}.json"


def load(name):
    """The experiment of that name as a dict; docs/measuring.md says what each key means."""
    path = place(name)
    with open(path, "rb") as text:
        found = tomllib.load(text)
    if "like" in found:
        like = load(found["like"])
        found = {**like, **{key: {**like[key], **value} if isinstance(value, dict) else value for key, value in found.items()}}
    missing = {"title", "server", "files"} - found.keys()
    if missing or not found.keys() & {"load", "fio", "work"}:
        raise Fail(f"{path} lacks {', '.join(sorted(missing)) or '[load], [fio] or [work]'}")
    return found


def variants(name):
    """{variant: patch} of an experiment: NAME/VARIANT.patch beside it, or for a variant P=V, P.patch with V in the place of VALUE."""
    found = {}
    for variant in load(name).get("variants", []):
        stem, _, value = variant.partition("=")
        path = place(name).with_suffix("") / f"{stem}.patch"
        if not path.is_file():
            raise Fail(f"the experiment {name} names the variant {variant}; there is no {path}")
        found[variant] = path.read_text().replace("VALUE", value)
    return found


def combinations(sweep):
    return [dict(zip(sweep, values)) for values in itertools.product(*sweep.values())]


def points(experiment):
    """Where an experiment measures: every combination of the sweep's values, as dicts, each row's own if it has rows."""
    if "work" in experiment:
        work = experiment["work"]
        return combinations({"mount": [mount["name"] for mount in work["mounts"]], "beside": ["nothing", "bulk"], "task": list(work["tasks"])})
    if "rows" in experiment:
        return [{"row": row["name"], **point} for row in experiment["rows"] for point in combinations(row.get("sweep", {}))]
    return combinations(experiment.get("sweep", {}))


def label(point):
    return "-".join(value if isinstance(value, str) else f"{name}{value}" for name, value in point.items()) or "all"


def groups(experiment, point):
    """nfsload's arguments at a point of the sweep; a group without connections is left out."""
    texts = next((row["groups"] for row in experiment.get("rows", []) if row["name"] == point.get("row")), None)
    filled = [text.format(**point) for text in texts or experiment["load"]["groups"]]
    return [text for text in filled if not {"conns=0", "burst=0", "window=0"} & set(text.partition(":")[2].split(","))]


def script(experiment, selftests):
    """The guest's script: a server as the experiment says, then nfsload at each point, fio once, or each piece of work."""
    server = experiment["server"]
    lines = ["#!/bin/bash", f". /host{selftests}/nfsd/lib.sh",
             f"nfsd_disk {server['disk_mb']} {server['service_ns']}"]
    lines += [f"nfsd_file {name} {size}" for name, size in experiment["files"].items()]
    if "work" in experiment:
        lines += ["(set -e", "cd $EXPORT", experiment["work"]["prepare"].rstrip(), ")", "[ $? -eq 0 ] || exit 1", "sync"]
    lines += [f"nfsd_start {server['threads']}"]
    lines += [f"nfsd_knob {name} {value}" for name, value in server.get("knobs", {}).items()]
    if experiment.get("queue"):
        lines += [QUEUE.strip()]
    if "load" in experiment:
        for point in points(experiment):
            arguments = " ".join(shlex.quote(text) for text in groups(experiment, point))
            where = f"/results/{label(point)}"
            call = f"nfsload -v {experiment['load']['version']} -o {where}.json {arguments} || exit 1"
            if "threads" in point:
                lines += [f"nfsd_threads {point['threads']}"]
            if experiment.get("queue"):
                call = f"traced {where} {call}"
            lines += [f"cat {POOL} >{where}.pool", call, f"cat {POOL} >>{where}.pool"] if counted(experiment) else [call]
    elif "work" in experiment:
        lines += work(experiment)
    else:
        lines += fio(experiment["fio"])
    return "\n".join(lines) + "\n"


def counted(experiment):
    """Whether the server's own counters are kept at each point."""
    return "rows" in experiment or experiment.get("queue")


def fio(setup):
    """The script's part for fio: its mounts, then all jobs in one process, for each calibrates its clock for long."""
    lines = []
    for mount in setup["mounts"]:
        where = f"/tmp/{mount['name']}"
        lines += [f"mkdir -p {where}",
                  f"mount -t nfs -o {mount['options']} {mount['address']}:{mount['path']} {where} || exit 1"]
    lines += ["sleep 20  # an NFSv4 OPEN waits for the end of the grace period", "cat > /tmp/jobs.fio <<'EOF'", setup["jobs"].rstrip(), "EOF",
              "fio --output-format=json --output=/results/fio.json /tmp/jobs.fio || exit 1"]
    lines += [f"umount /tmp/{mount['name']}" for mount in setup["mounts"]]
    return lines


def work(experiment):
    """The script's part for work: each task on each mount, first on an idle server, then beside bulk."""
    setup = experiment["work"]
    mounts = {mount["name"]: mount for mount in setup["mounts"]}
    lines = ["sleep 20  # an NFSv4 OPEN waits for the end of the grace period", WORK.strip()]
    beside = "nothing"
    for point in sorted(points(experiment), key=lambda point: point["beside"] != "nothing"):
        if point["beside"] != beside:
            beside = point["beside"]
            lines += [setup["bulk"].rstrip()]
        mount = mounts[point["mount"]]
        lines += [f"piece {label(point)}-{turn} {mount['options']} {mount['path']} {shlex.quote(setup['tasks'][point['task']])}"
                  for turn in range(setup["turns"])]
    return lines


def run(name, kernels, selftests, out=None):
    """Run an experiment on every kernel of `kernels` ({name: executable}), as many at once as there are CPUs.

    Returns {kernel: results directory} after writing out/NAME.json (build/results by default), which holds figures
    only: nothing of this machine, so that two runs of the same kernels give the same bytes.
    """
    experiment = load(name)
    out = out or BUILD / "results"
    out.mkdir(parents=True, exist_ok=True)
    text = out / f"{name}.sh"
    text.write_text(script(experiment, selftests))
    kernels = {kernel: path for kernel, path in kernels.items() if kernel in experiment.get("kernels", kernels)}
    say(f"running {name} on {', '.join(kernels)}: {experiment['title']}")
    guest.root()  # made once, before both boots want it
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        boots = {kernel: pool.submit(uml.boot, path, text, out / f"{name}-{kernel}", experiment.get("limit", 600)) for kernel, path in kernels.items()}
        done = {kernel: boot.result() for kernel, boot in boots.items()}
    collected = {kernel: [{**point, **read(experiment, where, point)} for point in points(experiment)] for kernel, where in done.items()}
    path = out / f"{name}.json"
    path.write_text(json.dumps(collected, indent=1) + "\n")
    return path


def read(experiment, where, point):
    """What one point of an experiment gave."""
    if "fio" in experiment:
        return read_fio(json.loads((where / "fio.json").read_text()))
    if "work" in experiment:
        return read_work([where / f"{label(point)}-{turn}" for turn in range(experiment["work"]["turns"])])
    result = json.loads((where / f"{label(point)}.json").read_text())
    bad = {group["name"]: group["errors"] for group in result["groups"] if any(group["errors"].values())}
    if bad:
        raise Fail(f"{where}: requests failed at {label(point)}: {bad}")
    if counted(experiment):
        result["pool"] = pool((where / f"{label(point)}.pool").read_text())
    if experiment.get("queue"):
        return read_queue(where / label(point), result["pool"])
    return result


def pool(text):
    """What the server's pools counted between two copies of pool_stats: records received, transports queued, threads woken."""
    counts = [[int(number) for number in line.split()[1:4]] for line in text.splitlines() if not line.startswith("#")]
    before, after = counts[:len(counts) // 2], counts[len(counts) // 2:]
    return {name: sum(line[i] for line in after) - sum(line[i] for line in before) for i, name in enumerate(("received", "queued", "woken"))}


def read_queue(stem, counts):
    """How many transports waited at a point; the server's own counter has to agree."""
    whole(stem)
    with open(stem.with_name(stem.name + ".queue")) as lines:
        found = trace.waiting(lines)
    if (found["queued"], found["left"]) != (counts["queued"], 0):
        raise Fail(f"{stem}: the trace has {found['queued']} transports queued and {found['left']} left; the server counted {counts['queued']}")
    del found["left"]
    return found


def whole(stem):
    """Fail if the trace buffer overflowed."""
    lost = stem.with_name(stem.name + ".lost").read_text().split()
    if int(lost[-1]):
        raise Fail(f"{stem}: the trace lost {lost[-1]} events: a larger buffer is needed")


def read_work(turns):
    """A piece of work: how long it took, in order, and at what depth the server saw its requests, all turns together."""
    elapsed, depths = [], []
    for stem in turns:
        whole(stem)
        elapsed.append(1000 * int(stem.with_name(stem.name + ".us").read_text()))
        depths.append(trace.depth(stem.with_name(stem.name + ".trace").read_text().splitlines()))
    return {"elapsed_ns": sorted(elapsed), **{name: sum(depth[name] for depth in depths) for name in depths[0]}}



def read_fio(result):
    """Of fio's many figures those that depend on nothing but simulated time: {"jobs": [{name, ios, latency_ns}]}."""
    jobs = []
    for job in result["jobs"]:
        if job["error"]:
            raise Fail(f"fio job {job['jobname']} failed with error {job['error']}")
        read = job["read"]
        spread = read["clat_ns"]
        jobs.append({"name": job["jobname"], "ios": read["total_ios"],
                     "latency_ns": {"mean": round(spread["mean"]), "max": spread["max"],
                                    **{f"p{float(k):g}": v for k, v in spread["percentile"].items()
                                       if float(k) in (50, 90, 99)}}})
    return {"jobs": jobs}
