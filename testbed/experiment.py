# SPDX-License-Identifier: GPL-2.0
"""Experiments: what bench/NAME.toml says, run on a kernel; the result is one JSON file a run."""

import concurrent.futures
import itertools
import json
import os
import shlex
import tomllib

from . import guest, uml
from .util import BUILD, ROOT, Fail, say

BENCH = ROOT / "bench"
RESULTS = BENCH / "results"


def load(name):
    """The experiment of bench/NAME.toml as a dict; docs/measuring.md says what each key means."""
    path = BENCH / f"{name}.toml"
    if not path.is_file():
        have = ", ".join(sorted(p.stem for p in BENCH.glob("*.toml")))
        raise Fail(f"there is no experiment {name} (bench/{name}.toml); there are: {have}")
    with open(path, "rb") as text:
        found = tomllib.load(text)
    missing = {"title", "server", "files"} - found.keys()
    if missing or not found.keys() & {"load", "fio"}:
        raise Fail(f"{path} lacks {', '.join(sorted(missing)) or '[load] or [fio]'}")
    return found


def points(experiment):
    """Every combination of the sweep's values, as dicts; one empty dict without a sweep."""
    sweep = experiment.get("sweep", {})
    return [dict(zip(sweep, values)) for values in itertools.product(*sweep.values())]


def label(point):
    return "-".join(f"{name}{value}" for name, value in point.items()) or "all"


def groups(experiment, point):
    """nfsload's arguments at a point of the sweep; a group without connections is left out."""
    filled = [text.format(**point) for text in experiment["load"]["groups"]]
    return [text for text in filled if not {"conns=0", "burst=0", "window=0"} & set(text.partition(":")[2].split(","))]


def script(experiment, selftests):
    """The guest's script: a server as the experiment says, then nfsload at each point, or fio once."""
    server = experiment["server"]
    lines = ["#!/bin/bash", f". /host{selftests}/nfsd/lib.sh",
             f"nfsd_disk {server['disk_mb']} {server['service_ns']}"]
    lines += [f"nfsd_file {name} {size}" for name, size in experiment["files"].items()]
    lines += [f"nfsd_start {server['threads']}"]
    lines += [f"nfsd_knob {name} {value}" for name, value in server.get("knobs", {}).items()]
    if "load" in experiment:
        for point in points(experiment):
            arguments = " ".join(shlex.quote(text) for text in groups(experiment, point))
            lines.append(f"nfsload -v {experiment['load']['version']} -o /results/{label(point)}.json {arguments} || exit 1")
    else:
        lines += fio(experiment["fio"])
    return "\n".join(lines) + "\n"


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


def run(name, kernels, selftests, out=None, limit=600):
    """Run an experiment on every kernel of `kernels` ({name: executable}), as many at once as there are CPUs.

    Returns {kernel: results directory} after writing out/NAME.json (build/results by default), which holds figures
    only: nothing of this machine, so that two runs of the same kernels give the same bytes.
    """
    experiment = load(name)
    out = out or BUILD / "results"
    out.mkdir(parents=True, exist_ok=True)
    text = out / f"{name}.sh"
    text.write_text(script(experiment, selftests))
    say(f"running {name} on {', '.join(kernels)}: {experiment['title']}")
    guest.root()  # made once, before both boots want it
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        boots = {kernel: pool.submit(uml.boot, path, text, out / f"{name}-{kernel}", limit) for kernel, path in kernels.items()}
        done = {kernel: boot.result() for kernel, boot in boots.items()}
    collected = {kernel: [{**point, **read(experiment, where, point)} for point in points(experiment)] for kernel, where in done.items()}
    path = out / f"{name}.json"
    path.write_text(json.dumps(collected, indent=1) + "\n")
    return path


def read(experiment, where, point):
    """What one point of an experiment gave."""
    if "fio" in experiment:
        return read_fio(json.loads((where / "fio.json").read_text()))
    result = json.loads((where / f"{label(point)}.json").read_text())
    bad = {group["name"]: group["errors"] for group in result["groups"] if any(group["errors"].values())}
    if bad:
        raise Fail(f"{where}: requests failed at {label(point)}: {bad}")
    return result


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
