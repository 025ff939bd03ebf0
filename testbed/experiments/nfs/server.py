# SPDX-License-Identifier: GPL-2.0
"""An NFS server in the guest, for the kinds of measurement that need one: the tables [server] and [files]."""

import re

from ... import schema
from ...util import Fail
from ..experiment import Experiment
from ..sweep import PLAIN

SHIFTS = {"": 0, "k": 10, "M": 20, "G": 30}
SERVER = schema.table(
    {
        "library": {"type": "string", "pattern": r"^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)+$"},
        "threads": schema.COUNT,
        "disk_mb": schema.COUNT,
    },
    service_ns={"type": "integer", "minimum": 0},
    read_ahead_kb={"type": "integer", "minimum": 0},
    knobs={"type": "object", "propertyNames": PLAIN, "additionalProperties": {"type": "integer", "minimum": 0}},
)
FILES: schema.Schema = {
    "type": "object",
    "propertyNames": PLAIN,
    "minProperties": 1,
    "additionalProperties": {
        "type": "string",
        "pattern": "^[1-9][0-9]*[kMG]?$",
        "description": "a file's size is a number of bytes, or of k, M or G",
    },
}


def sizes(experiment: Experiment) -> dict[str, int]:
    """The files of the export, in bytes."""
    found = {}
    for name, text in experiment.data.get("files", {}).items():
        number, unit = re.fullmatch(r"([0-9]+)([kMG]?)", text).groups()  # type: ignore[union-attr]
        found[name] = int(number) << SHIFTS[unit]
    return found


def check(experiment: Experiment) -> None:
    """What the schema cannot say: the library is of a topic's selftests, and the files fit on the disk."""
    server, where = experiment.data["server"], experiment.where
    have = [target for topic in experiment.topics for target in topic.selftests]
    if server["library"].partition("/")[0] not in have:
        raise Fail(
            f"{where}: server.library: {server['library']} is of no selftests of {experiment.topic.name} and what "
            f"it depends on; "
            f"there are: {', '.join(have) or 'none'}"
        )
    need = sum(sizes(experiment).values())
    if need >= server["disk_mb"] << 20:
        raise Fail(
            f"{where}: files of {need >> 20} MiB do not fit on a disk of {server['disk_mb']} MiB: make "
            f"server.disk_mb larger"
        )


def up(experiment: Experiment, selftests: str) -> list[str]:
    """A script's lines until it serves."""
    return ["#!/bin/bash", *made(experiment, selftests), *started(experiment)]


def made(experiment: Experiment, selftests: str) -> list[str]:
    """The lines up to the export with its files."""
    server = experiment.data["server"]
    disk = f"nfsd_disk {server['disk_mb']}" + (f" {server['service_ns']}" if "service_ns" in server else "")
    ahead = [server["read_ahead_kb"]] if "read_ahead_kb" in server else []
    return [
        f". /host{selftests}/{server['library']}",
        disk,
        *(f"echo {kb} >/sys/block/$DISK/queue/read_ahead_kb" for kb in ahead),
        *(f"nfsd_file {name} {size}" for name, size in experiment.data["files"].items()),
    ]


def started(experiment: Experiment) -> list[str]:
    """The lines that start it."""
    server = experiment.data["server"]
    return [
        f"nfsd_start {server['threads']}",
        *(f"nfsd_knob {name} {value}" for name, value in server.get("knobs", {}).items()),
    ]
