# SPDX-License-Identifier: GPL-2.0
"""A world: an NFS server whose sides are I/O modes, a disk, and clients that READ and WRITE much and little.

A load has

    threads      nfsd threads
    seconds      how long it lasts, in simulated time
    service_us   what each request to the disk takes
    groups       {name: what its clients do}; the keys are nfsload's, times in us
                 op, size, conns, burst, pause_us, vers, and
                 file_mb: how long their file is; they go through it again and again
                 warm: it is in the page cache when they begin

There is always a pause: what comes from the page cache takes no simulated time. A WRITE is on the disk when it is
answered, for else no mode could be better than to leave it in memory.
"""

import pathlib
from collections.abc import Iterator
from typing import Any

from .. import schema
from ..util import Fail
from .draw import Dice, Load
from .server import SERVER, replies

GROUP = schema.table(
    {
        "op": {"enum": ["read", "write"]},
        "size": {"type": "integer", "minimum": 512, "maximum": 1 << 20},
        "conns": schema.COUNT,
        "burst": schema.COUNT,
        "pause_us": schema.COUNT,
        "file_mb": {"type": "integer", "minimum": 1, "maximum": 512},
    },
    warm={"type": "boolean"},
    vers={"enum": ["3", "4.0", "4.1", "4.2"]},
)
LOAD = schema.table(
    {
        "threads": {"type": "integer", "minimum": 1, "maximum": 256},
        "seconds": {"type": "number", "exclusiveMinimum": 0},
        "service_us": schema.COUNT,
        "groups": {"type": "object", "minProperties": 1, "additionalProperties": GROUP},
    }
)
# Of a side: the shell that switches the server to its mode.
SETTINGS: dict[str, schema.Schema] = {"library": schema.STRING, "modes": schema.mapping(schema.STRING)}
MAY: dict[str, schema.Schema] = {}
FIGURES = {
    "replies": "replies a second",
    "p50": "the median of bursts, ns",
    "p99": "the 99th percentile of bursts, ns",
    "longest": "the longest request, ns",
    "disk_read": "bytes read from the disk for each that clients have read",
    "disk_written": "bytes written to the disk for each that clients have written",
    "own": "what one request to the disk takes, ns",
}
CLASSES = {
    "read": "READs",
    "write": "WRITEs",
    "large": "of 128 KiB or more",
    "small": "of less",
    "warm": "READs of what is in the page cache",
    "cold": "READs of what is not",
    "once": "of a file that takes more than the load lasts",
    "again": "of a file that they go through more than twice",
    "alone": "where no other group is",
    SERVER: "all groups together",
}
REPLIES = 12_000
LARGE = 128 << 10


def draw(seed: int) -> Load:
    dice = Dice(seed)
    while True:
        load = once(dice)
        if most_replies(load) * load["seconds"] <= REPLIES:
            return load


def once(dice: Dice) -> Load:
    groups = {}
    for i in range(dice.one_of([1, 1, 2, 2, 3])):
        size = 1024 << dice.one_of([2, 2, 4, 5, 6, 7, 8, 9, 10, 10])
        one: dict[str, Any] = {
            "op": dice.one_of(["read", "read", "write"]),
            "size": size,
            "conns": dice.between(1, 8),
            "burst": dice.between(1, 16),
            "pause_us": dice.between(500, 50_000),
            "file_mb": dice.one_of([8, 16, 64, 128, 192]),
        }
        while one["conns"] * one["burst"] * size > one["file_mb"] << 19:
            one["burst"], one["conns"] = max(one["burst"] // 2, 1), max(one["conns"] // 2, 1)
        if one["op"] == "read" and dice.chance(0.4):
            one["warm"] = True
        if dice.chance(0.5):
            one["vers"] = dice.one_of(["4.0", "4.1", "4.2"])
        groups[f"g{i}"] = one
    return {
        "threads": dice.one_of([4, 8, 16, 64]),
        "seconds": round(0.1 * dice.between(3, 50), 1),
        "service_us": dice.between(20, 10_000),
        "groups": groups,
    }


def most_replies(load: Load) -> float:
    return sum(1e6 * one["conns"] * one["burst"] / one["pause_us"] for one in load["groups"].values())


def rounds(load: Load, one: dict[str, Any]) -> float:
    """How often a group would go through its file, if the disk took no time."""
    return load["seconds"] * 1e6 / one["pause_us"] * one["conns"] * one["burst"] * one["size"] / (one["file_mb"] << 20)


def classes(load: Load) -> dict[str, set[str]]:
    found = {SERVER: {SERVER}}
    for name, one in load["groups"].items():
        is_of = {
            "read": one["op"] == "read",
            "write": one["op"] == "write",
            "large": one["size"] >= LARGE,
            "small": one["size"] < LARGE,
            "warm": bool(one.get("warm")),
            "cold": one["op"] == "read" and not one.get("warm"),
            "once": rounds(load, one) < 1,
            "again": rounds(load, one) > 2,
            "alone": len(load["groups"]) == 1,
        }
        found[name] = {what for what, holds in is_of.items() if holds}
    return found


def check(load: Load) -> None:
    for name, one in load["groups"].items():
        if name == SERVER or not name.replace("-", "").replace("_", "").isalnum():
            raise Fail(f"groups.{name}: a name is of letters, digits, '-' and '_', and not {SERVER}")
        if one["conns"] * one["burst"] * one["size"] > one["file_mb"] << 20:
            raise Fail(f"groups.{name}: its requests do not fit into a file of {one['file_mb']} MiB: make it larger")
        if one.get("warm") and one["op"] == "write":
            raise Fail(f"groups.{name}: warm goes with read")


def said(load: Load, name: str) -> str:
    disk = f"disk of {load['service_us']} us"
    if name == SERVER:
        return f"all, {load['threads']} threads, {disk}"
    one = load["groups"][name]
    words = [f"{name}: {one['conns']} with bursts of {one['burst']}, {one['op'].upper()} of {one['size'] / 1024:g} KiB"]
    words += [f"file of {one['file_mb']} MiB" + (" in the page cache" if one.get("warm") else "")]
    return ", ".join([*words, f"pause {one['pause_us'] / 1000:.3g} ms", disk])


def smaller(load: Load) -> Iterator[Load]:
    groups = load["groups"]
    if len(groups) > 1:
        for name in groups:
            yield {**load, "groups": {other: one for other, one in groups.items() if other != name}}
    for name, one in groups.items():
        for key in ("vers", "warm"):
            if key in one:
                yield {**load, "groups": {**groups, name: {word: v for word, v in one.items() if word != key}}}
        for key in ("conns", "burst"):
            if one[key] > 1:
                yield {**load, "groups": {**groups, name: {**one, key: one[key] // 2}}}
        if one["size"] > 4096:
            yield {**load, "groups": {**groups, name: {**one, "size": one["size"] // 2}}}
    if load["threads"] > 1:
        yield {**load, "threads": load["threads"] // 2}


SCRIPT = r"""
. /host$selftests/$library
nfsd_disk {disk_mb} {nsec}
{files}
nfsd_start {threads}
{mode}
{warm}
moved() { awk '{ print $3, $7 }' /sys/block/$DISK/stat; }
sync
before=$(moved)
traced_begin
nfsload -l 100000 -o /results/load.json {groups} >/dev/null || exit 1
traced_end
sync
echo $before $(moved) >/results/moved
"""


def script(load: Load, side: str, settings: dict[str, Any]) -> str:
    groups = load["groups"]
    clock = f"clock:op=null,burst=1,pause={round(load['seconds'] * 1e6)}us,count=2"
    values = {
        "disk_mb": 400 + sum(one["file_mb"] for one in groups.values()),
        "nsec": 1000 * load["service_us"],
        "files": "\n".join(f"nfsd_file {name} {one['file_mb']}M" for name, one in groups.items()),
        "threads": load["threads"],
        "mode": settings["modes"].get(side, ""),
        "warm": "\n".join(f"cat $EXPORT/{name} >/dev/null" for name, one in groups.items() if one.get("warm")),
        "groups": " ".join([*(argument(name, one) for name, one in groups.items()), clock]),
    }
    text = SCRIPT
    for key, value in values.items():
        text = text.replace("{" + key + "}", str(value))
    return f"library={settings['library']}\n{text}"


def argument(name: str, one: dict[str, Any]) -> str:
    words = {
        "op": one["op"],
        "file": name,
        "size": one["size"],
        "conns": one["conns"],
        "burst": one["burst"],
        "pause": f"{one['pause_us']}us",
        "vers": one.get("vers"),
        "stable": 2 if one["op"] == "write" else None,
    }
    return f"{name}:" + ",".join(f"{key}={value}" for key, value in words.items() if value is not None)


def read(where: pathlib.Path, load: Load) -> dict[str, dict[str, float]]:
    """{group: {figure: number}}, the server among the groups."""
    result = replies(where / "load.json")
    total = result.pop("total")
    begin_read, begin_written, end_read, end_written = map(int, (where / "moved").read_text().split())
    found: dict[str, dict[str, float]] = {}
    asked = {"read": 0, "write": 0}
    for name, one in load["groups"].items():
        got = result[name]
        asked[one["op"]] += got["bytes"]
        found[name] = {
            "replies": got["interval"]["requests"] * 1e9 / total["interval_ns"],
            **{rank: got["burst_ns"][rank] for rank in ("p50", "p99")},
            "longest": got["latency_ns"]["max"],
            "own": 1000 * load["service_us"],
            "count": got["burst_ns"]["count"],
        }
    found[SERVER] = {
        "replies": sum(one["replies"] for one in found.values()),
        "count": sum(result[name]["interval"]["requests"] for name in found),
    }
    if asked["read"]:
        found[SERVER]["disk_read"] = 512 * (end_read - begin_read) / asked["read"]
    if asked["write"]:
        found[SERVER]["disk_written"] = 512 * (end_written - begin_written) / asked["write"]
    return found
