# SPDX-License-Identifier: GPL-2.0
"""fio's own load, through real mounts of an NFS server in the guest."""

import configparser
import json
import pathlib
import re
from typing import Any

from ... import schema
from ...util import Fail
from .. import sweep
from ..experiment import Experiment, machines
from ..table import Point, Result, Table, spreads
from . import server

MACHINES = machines()
MOUNT = schema.table({"name": sweep.PLAIN, "address": schema.STRING, "path": schema.STRING, "options": schema.STRING})
FIO = schema.table({"jobs": schema.STRING, "mounts": {"type": "array", "minItems": 1, "items": MOUNT}})
REQUIRED = {"fio": FIO, "server": server.SERVER, "files": server.FILES}
OPTIONAL = {
    "repeats": {
        "const": 1,
        "description": "it is 1: fio runs its jobs once; what is to be repeated is a job of its own",
    },
}
PERCENTILES = (50, 90, 99)


def check(experiment: Experiment) -> None:
    data, where = experiment.data, experiment.where
    server.check(experiment)
    names = [mount["name"] for mount in data["fio"]["mounts"]]
    for name in names:
        if names.count(name) > 1:
            raise Fail(f"{where}: fio.mounts: there are two mounts {name}")
    jobs = configparser.RawConfigParser(allow_no_value=True, interpolation=None, delimiters=("=",), strict=False)
    try:
        jobs.read_string(data["fio"]["jobs"])
    except configparser.Error as error:
        raise Fail(f"{where}: fio.jobs is no job file: {' '.join(str(error).split())}") from error
    found = re.findall(r"^\[(.+)\]", data["fio"]["jobs"], re.M)
    for name in found:
        if found.count(name) > 1:
            raise Fail(f"{where}: fio.jobs: there are two jobs {name}")
    if not [name for name in found if name != "global"]:
        raise Fail(f"{where}: fio.jobs has no job")


def points(experiment: Experiment) -> list[Point]:
    return [{}]


def script(experiment: Experiment, selftests: str) -> str:
    """The mounts, then all jobs in one process, for each calibrates its clock for long."""
    setup, lines = experiment.data["fio"], server.up(experiment, selftests)
    for mount in setup["mounts"]:
        where = f"/tmp/{mount['name']}"
        lines += [
            f"mkdir -p {where}",
            f"mount -t nfs -o {mount['options']} {mount['address']}:{mount['path']} {where} || exit 1",
        ]
    lines += [
        "sleep 20  # an NFSv4 OPEN waits for the end of the grace period",
        "cat > /tmp/jobs.fio <<'EOF'",
        setup["jobs"].rstrip(),
        "EOF",
        "fio --output-format=json --output=/results/fio.json /tmp/jobs.fio || exit 1",
    ]
    lines += [f"umount /tmp/{mount['name']}" for mount in setup["mounts"]]
    return "\n".join(lines) + "\n"


def leaves(experiment: Experiment, point: Point) -> list[str]:
    return ["fio.json"]


def read(experiment: Experiment, where: pathlib.Path, point: Point) -> Point:
    return figures(json.loads((where / "fio.json").read_text()))


def figures(result: dict[str, Any]) -> Point:
    """Of fio's many figures those that depend on nothing but simulated time: {"jobs": [{name, ios, latency_ns}]}."""
    jobs = []
    for job in result["jobs"]:
        if job["error"]:
            raise Fail(f"fio job {job['jobname']} failed with error {job['error']}")
        sides = [job[side] for side in ("read", "write") if job.get(side, {}).get("total_ios")]
        if len(sides) != 1:
            raise Fail(
                f"fio job {job['jobname']} has "
                f"{'both READs and WRITEs: make two jobs of it' if sides else 'done nothing'}"
            )
        spread = sides[0]["clat_ns"]
        jobs.append(
            {
                "name": job["jobname"],
                "ios": sides[0]["total_ios"],
                "latency_ns": {
                    "mean": round(spread["mean"]),
                    "max": spread["max"],
                    **{f"p{float(k):g}": v for k, v in spread["percentile"].items() if float(k) in PERCENTILES},
                },
            }
        )
    return {"jobs": jobs}


def metrics(experiment: Experiment, result: Result) -> list[Table]:
    members = {
        kernel: [
            [{"name": job["name"], "spread": job["latency_ns"], "count": job["ios"]} for job in point["jobs"]]
            for point in points
        ]
        for kernel, points in result.items()
    }
    return [spreads([], result, members)]
