# SPDX-License-Identifier: GPL-2.0
"""A world: an NFS server with some threads, disks of which each block takes its time, and groups of clients.

A load has

    threads      nfsd threads, in one pool
    seconds      how long it lasts, in simulated time
    zones        {name: times in us}: a place on the disk whose blocks of 4 KiB take these times in turn. Lists in the
                 list are stages: blocks at the place's beginning take the first's times, those at its end the last's
    groups       {name: what its clients do}; the keys are nfsload's, times in us
                 op, zone, size, conns, window or burst, pause_us, start_us, vers, proto, stable, and
                 slow_us: its clients take nothing for so long, then everything for a fourth of that, over and over

Each of a READ's pages is a request to the disk, one after the other: nothing is read ahead, and what was read is
forgotten. So a thread's time is known: pages times what a block takes. GETATTR, NULL and a WRITE to the page cache take
none.
"""

import json
import math
import pathlib
from collections.abc import Iterator
from typing import Any

from .. import schema
from ..util import Fail
from .draw import Dice, Load

PAGE = 4096
TIMES: schema.Schema = {"type": "integer", "minimum": 1, "maximum": 10_000_000}
STAGE: schema.Schema = {"type": "array", "minItems": 1, "items": TIMES}
ZONE: schema.Schema = {"type": "array", "minItems": 1, "items": {"anyOf": [TIMES, STAGE]}}
TIME: schema.Schema = {"type": "integer", "minimum": 0}
GROUP = schema.table(
    {"op": {"enum": ["read", "write", "getattr", "null"]}, "conns": schema.COUNT},
    zone=schema.STRING,
    size=schema.COUNT,
    window=schema.COUNT,
    burst=schema.COUNT,
    pause_us=TIME,
    start_us=TIME,
    vers={"enum": ["3", "4.0", "4.1", "4.2"]},
    proto={"enum": ["tcp", "udp"]},
    stable={"enum": [0, 1, 2]},
    slow_us=schema.COUNT,
)
LOAD = schema.table(
    {
        "threads": {"type": "integer", "minimum": 1, "maximum": 1024},
        "seconds": {"type": "number", "exclusiveMinimum": 0},
        "zones": {"type": "object", "additionalProperties": ZONE},
        "groups": {"type": "object", "minProperties": 1, "additionalProperties": GROUP},
    }
)
# What its swarm.toml says beside what every one says: whose shell library makes the server, and what is done on a side
# when the server is up, with {threads} for the number of threads.
SETTINGS: dict[str, schema.Schema] = {"library": schema.STRING}
MAY: dict[str, schema.Schema] = {"start": schema.mapping(schema.STRING)}
# {figure: what it is of a group}; "replies" and "longest" are also of the server.
FIGURES = {
    "replies": "replies a second",
    "p50": "the median, of bursts where a group sends bursts, ns",
    "p99": "the 99th percentile of the same, ns",
    "longest": "the longest request, ns",
    "part": "its part of the threads' time",
    "alone": "the median when no other group is there, ns",
    "own": "what one request takes a thread, ns",
    "held": "what the longest of all groups' requests takes a thread, ns",
    "turn": "when the next thread is free, if all have such requests, ns",
    "fifth": "a fifth of the threads' time, and of that the group's part by its connections",
    "bound": "what the ready queue's document says that nobody waits beyond, ns",
}
SERVER = "server"
CLASSES = {
    "pauses": "bursts of up to 64, and then a pause",
    "room": "of those that pause, where all of them together leave half of the threads' time",
    "cheap": "a request takes a fourth of the dearest or less, and nothing is wrong with its clients",
    "dear": "always something in flight, and no request takes more",
    "backlog": "always something in flight, and it takes a fourth of the dearest's time or more",
    "slow": "takes its replies slowly",
    "late": "begins later than the others",
    "udp": "NFSv3 over UDP",
    SERVER: "all groups together",
}

# A load is drawn again if it would have more replies than these, for a reply takes real time.
REPLIES = 12_000
TURNS = 30
FS, AG_MIN = 1 << 20, 64 << 20


# What is drawn.


def draw(seed: int) -> Load:
    dice = Dice(seed)
    while True:
        load = once(dice)
        if load:
            return load


def once(dice: Dice) -> Load | None:
    """A load; None if it would last too long, or needs no disk."""
    threads = dice.one_of([1, 1, 2, 4, 4, 8, 16, 16, 16, 32, 64, 128, 256])
    zones = {name: zone(dice) for name in ("a", "b", "c")[: dice.one_of([1, 2, 2, 3])]}
    kinds = [pausing, dice.one_of([window, window, pausing]), dice.one_of([window, flood])]
    kinds += [dice.one_of([pausing, window, flood, writer, datagrams]) for _ in range(dice.one_of([0, 0, 1, 1, 2, 3]))]
    groups = {f"g{i}": kind(dice, zones) for i, kind in enumerate(dice.shuffled(kinds))}
    load: Load = {"threads": threads, "seconds": 0, "zones": zones, "groups": groups}
    if dice.chance(0.1):
        groups["slow"] = {
            "op": "read",
            "zone": dice.one_of(sorted(zones)),
            "size": dice.one_of([16, 64, 256]) << 10,
            "conns": dice.between(1, 6),
            "window": dice.between(1, 4),
            "slow_us": dice.between(10_000, 100_000),
        }
    load["zones"] = {name: times for name, times in zones.items() if name in used(load)}
    if not load["zones"] or any(time_of(load, one) > 1e9 for one in groups.values()):
        return None
    if sum(flight(load, one) for one in groups.values()) < threads and dice.chance(0.8):
        return None
    # What idling before gave to each is spent after some turns.
    seconds = max((TURNS * turn(load) + 20 * pause) / 1e9 for pause in pauses(load))
    load["seconds"] = round(max(seconds, 0.2), 1)
    if most_replies(load) * load["seconds"] > REPLIES or load["seconds"] > 300:
        return None
    if dice.chance(0.25):
        late = dice.one_of(sorted(groups))
        groups[late]["start_us"] = round(load["seconds"] * 1e6 * (0.2 + 0.3 * dice.random()))
    return load


def zone(dice: Dice) -> list[Any]:
    mean = dice.between(20, 50_000) if dice.chance(0.9) else dice.between(50_000, 1_000_000)
    match dice.one_of(["fixed", "fixed", "two", "exponential", "drifting"]):
        case "two":
            far = mean * dice.between(4, 100)
            return dice.shuffled([dice.near(mean) for _ in range(dice.one_of([3, 7, 15]))] + [min(far, 1_000_000)])
        case "exponential":
            return dice.shuffled([max(round(-math.log(1 - (i + 0.5) / 12) * mean), 1) for i in range(12)])
        case "drifting":
            return [[dice.near(mean * by) for _ in range(3)] for by in dice.shuffled([1, 1.5, 2.5, 4])]
        case _:
            return [dice.near(mean) for _ in range(5)]


def size(dice: Dice) -> int:
    return 512 << dice.one_of([0, 3, 3, 3, 3, 3, 4, 5, 7, 8, 9, 11])


def version(dice: Dice) -> dict[str, str]:
    vers = dice.one_of(["3", "3", "3", "4.0", "4.1", "4.2"])
    return {} if vers == "3" else {"vers": vers}


def pausing(dice: Dice, zones: dict[str, Any]) -> dict[str, Any]:
    """Users: few with long bursts, many with single requests, and what is between."""
    burst = dice.one_of([1, 1, 2, 8, 16, 32, 32, 64])
    op = dice.one_of(["read", "read", "read", "read", "getattr", "null"])
    own = {"zone": dice.one_of(sorted(zones)), "size": size(dice)} if op == "read" else {}
    if op == "getattr":
        own = {"zone": dice.one_of(sorted(zones))}
    return {
        "op": op,
        **own,
        "conns": dice.between(1, 100 if burst <= 16 else 20),
        "burst": burst,
        "pause_us": dice.between(1_000, 200_000),
        **version(dice),
    }


def window(dice: Dice, zones: dict[str, Any]) -> dict[str, Any]:
    """A backlog."""
    return {
        "op": "read",
        "zone": dice.one_of(sorted(zones)),
        "size": size(dice),
        "conns": dice.between(1, 64),
        "window": dice.between(1, 16),
        **version(dice),
    }


def flood(dice: Dice, zones: dict[str, Any]) -> dict[str, Any]:
    """What takes a thread no time, and would take all of it if there were no pause."""
    op = dice.one_of(["null", "getattr"])
    own = {"zone": dice.one_of(sorted(zones))} if op == "getattr" else {}
    return {
        "op": op,
        **own,
        "conns": dice.between(1, 96),
        "burst": dice.between(1, 16),
        "pause_us": dice.between(500, 20_000),
        **version(dice),
    }


def writer(dice: Dice, zones: dict[str, Any]) -> dict[str, Any]:
    return {
        "op": "write",
        "zone": dice.one_of(sorted(zones)),
        "size": size(dice),
        "conns": dice.between(1, 8),
        "window": dice.between(1, 8),
        "stable": 2,
        **version(dice),
    }


def datagrams(dice: Dice, zones: dict[str, Any]) -> dict[str, Any]:
    return {
        "op": "read",
        "zone": dice.one_of(sorted(zones)),
        "size": dice.one_of([512, 4096, 8192]),
        "conns": dice.between(1, 4),
        "burst": dice.between(1, 4),
        "pause_us": dice.between(1_000, 50_000),
        "proto": "udp",
    }


# What is known of a load before it runs.


def used(load: Load) -> set[str]:
    return {one["zone"] for one in load["groups"].values() if "zone" in one}


def depth(one: dict[str, Any]) -> int:
    return one.get("window") or one["burst"]


def bytes_of(one: dict[str, Any]) -> int:
    return one.get("size", PAGE) if one["op"] in ("read", "write") else 0


def stages(times: list[Any]) -> list[list[int]]:
    return times if isinstance(times[0], list) else [times]


def mean(times: list[Any]) -> float:
    """What a block of a zone takes, in ns."""
    every = [sum(stage) / len(stage) for stage in stages(times)]
    return 1000 * sum(every) / len(every)


def time_of(load: Load, one: dict[str, Any]) -> float:
    """What a request of a group takes a thread, in ns."""
    if one["op"] == "read":
        return math.ceil(bytes_of(one) / PAGE) * mean(load["zones"][one["zone"]])
    if one["op"] == "write" and one.get("stable"):
        # Its pages go to the disk together, and the log after them.
        return 1000 * max(max(stage) for stage in stages(load["zones"][one["zone"]]))
    return 0


def flight(load: Load, one: dict[str, Any]) -> int:
    """How many threads a group that does not pause can hold."""
    return one["conns"] * one["window"] if "window" in one and time_of(load, one) else 0


def turn(load: Load) -> float:
    """What all that can be in flight takes the threads, in ns."""
    groups = load["groups"].values()
    total = sum(one["conns"] * depth(one) * time_of(load, one) for one in groups)
    return total / load["threads"] + max(time_of(load, one) for one in groups)


def pauses(load: Load) -> list[float]:
    return [0, *(1000 * one["pause_us"] for one in load["groups"].values() if "pause_us" in one)]


def most_replies(load: Load) -> float:
    """Replies a second, were each group alone on the server."""
    found = 0.0
    for one in load["groups"].values():
        own, many = time_of(load, one), one["conns"] * depth(one)
        wait = max(own, many * own / load["threads"]) + 1000 * one.get("pause_us", 0)
        if not wait:
            return math.inf
        found += many * 1e9 / wait
    return found


def asked(load: Load) -> float:
    """The part of the threads' time that those who pause would take, were they alone."""
    found = 0.0
    for one in load["groups"].values():
        if one.get("pause_us"):
            own, many = time_of(load, one), one["conns"] * one["burst"]
            found += many * own / (max(own, many * own / load["threads"]) + 1000 * one["pause_us"])
    return found / load["threads"]


def fifth(load: Load, one: dict[str, Any]) -> float:
    """The part of the threads' time that a backlog has at the least, if it is served in turns with the others."""
    dearest = max(time_of(load, other) for other in load["groups"].values())
    others = [other for other in load["groups"].values() if "window" in other and time_of(load, other) > dearest / 4]
    weight = sum(other["conns"] * time_of(load, other) for other in others)
    part = one["conns"] * time_of(load, one) / weight if weight else 0
    return min(0.2 * part, one["conns"] * depth(one) / load["threads"])


def bound(load: Load) -> int:
    """As which dispatch, at the latest, a transport is served that all others wait before."""
    return 5 * (sum(one["conns"] for one in load["groups"].values()) + load["threads"]) + 56


def classes(load: Load) -> dict[str, set[str]]:
    """{group: what it is}."""
    dearest = max(time_of(load, one) for one in load["groups"].values())
    found = {SERVER: {SERVER}}
    for name, one in load["groups"].items():
        own, plain = time_of(load, one), not {"slow_us", "start_us"} & one.keys() and one.get("proto") != "udp"
        is_of = {
            "pauses": bool(one.get("pause_us")) and one["burst"] <= 64,
            "room": bool(one.get("pause_us")) and one["burst"] <= 64 and asked(load) <= 0.5,
            "cheap": own <= dearest / 4 and plain,
            "dear": "window" in one and own == dearest and plain,
            "backlog": "window" in one and own > dearest / 4 and plain,
            "slow": "slow_us" in one,
            "late": "start_us" in one,
            "udp": one.get("proto") == "udp",
        }
        found[name] = {what for what, holds in is_of.items() if holds}
    return found


def check(load: Load) -> None:
    """What the schema cannot say."""
    if not load["zones"]:
        raise Fail("zones: there is none, and so no disk to make: give one, and a group that is not of NULLs")
    for name, one in load["groups"].items():
        if name == SERVER or not name.replace("-", "").replace("_", "").isalnum():
            raise Fail(f"groups.{name}: a name is of letters, digits, '-' and '_', and not {SERVER}")
        if ("window" in one) == ("burst" in one):
            raise Fail(f"groups.{name}: give window or burst")
        if "pause_us" in one and "burst" not in one:
            raise Fail(f"groups.{name}: pause_us goes with burst")
        if (one["op"] == "null") == ("zone" in one):
            raise Fail(f"groups.{name}: {'NULL is of no zone' if one['op'] == 'null' else 'lacks zone'}")
        if "zone" in one and one["zone"] not in load["zones"]:
            raise Fail(f"groups.{name}: there is no zone {one['zone']}{schema.meant(one['zone'], load['zones'])}")
        if "size" in one and not bytes_of(one):
            raise Fail(f"groups.{name}: {one['op'].upper()} has no size")
    if most_replies(load) == math.inf:
        for name, one in load["groups"].items():
            held = sum(flight(load, other) for other in load["groups"].values())
            if not time_of(load, one) and not one.get("pause_us") and held < load["threads"]:
                raise Fail(f"groups.{name}: takes no time and does not pause, and the others leave it threads: no end")


def said(load: Load, name: str) -> str:
    """A group in a few words."""
    if name == SERVER:
        return f"all, {load['threads']} threads"
    one = load["groups"][name]
    how = f"{one['window']} in flight" if "window" in one else f"bursts of {one['burst']}"
    what = f"{one['op'].upper()}" + (f" of {bytes_of(one) / 1024:g} KiB" if bytes_of(one) else "")
    words = [f"{name}: {one['conns']} with {how}, {what}, {time_of(load, one) / 1e6:.3g} ms"]
    words += [f"pause {one['pause_us'] / 1000:.3g} ms"] if "pause_us" in one else []
    words += [one[key] for key in ("proto",) if key in one]
    return ", ".join([*words, *(word for key, word in (("slow_us", "slow"), ("start_us", "late")) if key in one)])


def smaller(load: Load) -> Iterator[Load]:
    """Loads that say less: a group fewer, a number halved, a time that is the same for all blocks."""

    def but(**changed: Any) -> Load:
        new = {**load, **changed}
        new["zones"] = {name: times for name, times in new["zones"].items() if name in used(new)}
        return new

    groups = load["groups"]
    if len(groups) > 1:
        for name in groups:
            new = but(groups={other: one for other, one in groups.items() if other != name})
            if new["zones"]:
                yield new
    for name, one in groups.items():
        for key in ("start_us", "slow_us", "vers", "proto"):
            if key in one:
                yield but(groups={**groups, name: {word: value for word, value in one.items() if word != key}})
        for key in ("conns", "window", "burst", "size"):
            least = PAGE if key == "size" else 1
            if one.get(key, 0) > least:
                yield but(groups={**groups, name: {**one, key: max(one[key] // 2, least)}})
    if load["threads"] > 1:
        yield but(threads=load["threads"] // 2)
    for name, times in load["zones"].items():
        plain = [round(mean(times) / 1000)]
        # Three times, not one: or the threads fall into step.
        plain = sorted({max(round(plain[0] * by), 1) for by in (0.97, 1, 1.03)})
        if times != plain:
            yield but(zones={**load["zones"], name: plain})


# What the guest runs.

PREPARE = r"""
. /host$selftests/$library
disk() # NAME NSEC SECTORS: its requests take so long, however many there are
{
	local dir=/sys/kernel/config/nullb/$1
	mkdir $dir
	echo $(($3 / 2048 + 1)) >$dir/size
	echo 1 >$dir/memory_backed
	echo 256 >$dir/hw_queue_depth
	echo $2 >$dir/completion_nsec
	echo 2 >$dir/irqmode
	echo 1 >$dir/power
}
"""
# The log has a disk of its own. No dentry, inode or block that is needed is read while the load lasts.
SERVE = r"""
disk log 20000 131072
dmsetup create --noudevsync swarm </tmp/table || exit 1
DISK=dm-0 EXPORT=$WORK/export
mkfs.xfs -q --unsupported -d noalign,agsize={agsize},size={size} -l logdev=/dev/log,size=64m /dev/$DISK || exit 1
mkdir $EXPORT
mount -t xfs -o logdev=/dev/log,noatime /dev/$DISK $EXPORT || exit 1
echo 0 >/sys/block/$DISK/queue/read_ahead_kb
mkdir {zones}
{files}
{start}
nfsd_knob io_cache_read 1
"""
# Less than a reply fits into a socket.
SLOW = r"""
sysctl -qw net.ipv4.tcp_rmem="4096 131072 262144" net.ipv4.tcp_wmem="4096 131072 262144"
mkfifo $WORK/never
exec 9<>$WORK/never
nfsload -l 100000 -o /results/slow-{name}.json {group} {clock} >/dev/null &
(
	slow=$!
	while kill -STOP $slow && read -r -t {stopped} -u 9; [ $? -gt 128 ]; do
		kill -CONT $slow
		read -r -t {running} -u 9
	done
	kill -CONT $slow
) 2>/dev/null &
slow="$slow $!"
"""


def lines(load: Load, sectors: int) -> list[str]:
    """The lines that make the disks and the table of the one they are put together to."""
    made, table, at = [], [], 0
    for name, times in load["zones"].items():
        length = sectors // len(stages(times))
        for number, stage in enumerate(stages(times)):
            disks = [f"{name}{number}-{i}" for i in range(len(stage))]
            made += [f"disk {disk} {1000 * us} {length // len(stage)}" for disk, us in zip(disks, stage)]
            table.append(f"{at} {length} striped {len(stage)} 8 " + " ".join(f"/dev/{disk} 0" for disk in disks))
            at += length
    return [*made, "cat >/tmp/table <<EOF", *table, "EOF"]


def file_of(one: dict[str, Any]) -> int:
    """How long a group's file is: each of its requests has blocks of its own, and so has the next one."""
    return max(2 * one["conns"] * depth(one) * bytes_of(one), 16 * PAGE)


def argument(name: str, one: dict[str, Any], **but: Any) -> str:
    """A group as nfsload has it."""
    words = {
        "op": one["op"],
        "file": f"{one['zone']}/{name}" if "zone" in one else None,
        "size": one.get("size") if bytes_of(one) else None,
        "conns": one["conns"],
        "window": one.get("window"),
        "burst": one.get("burst"),
        "pause": f"{one['pause_us']}us" if "pause_us" in one else None,
        "start": f"{one['start_us']}us" if "start_us" in one else None,
        **{key: one.get(key) for key in ("vers", "proto", "stable")},
        **but,
    }
    title = but.pop("name", name)
    return f"{title}:" + ",".join(f"{key}={value}" for key, value in words.items() if value is not None)


def alone(load: Load) -> list[str]:
    """Each group whose time alone is asked for, when no other is there: one after the other."""
    found, at = [], 0
    for name, one in load["groups"].items():
        own = time_of(load, one)
        if one.get("pause_us") and own:
            took = 4 * (3 * one["conns"] * one["burst"] * own / load["threads"] + own + 1000 * one["pause_us"])
            found.append(argument(name, one, start=f"{at}ms", count=3))
        elif own and one["op"] == "write":
            took = 12 * own
            found.append(argument(name, one, start=f"{at}ms", count=4, conns=1, window=1))
        else:
            continue
        at += 1000 + round(took / 1e6)
    return found


def script(load: Load, side: str, settings: dict[str, Any]) -> str:
    """What the guest runs. What a group comes to when it is alone is measured when the load is over."""
    begin = settings.get("start", {}).get(side, "nfsd_start {threads}")
    if any(one.get("proto") == "udp" for one in load["groups"].values()):
        begin += "\nnfsd_threads 0\nrpc.nfsd --udp {threads} || exit 1"
    parts = math.lcm(*(len(stages(times)) * len(stage) for times in load["zones"].values() for stage in stages(times)))
    places = list(load["zones"])
    files = {name: one for name, one in load["groups"].items() if "zone" in one}
    most = max(sum(file_of(one) for one in files.values() if one["zone"] == zone) for zone in places)
    blocks = math.ceil((1.1 * most + (24 << 20)) / PAGE / parts) * parts
    clock = f"clock:op=null,burst=1,pause={round(load['seconds'] * 1e6)}us,count=2"
    slow = {name: one for name, one in load["groups"].items() if "slow_us" in one}
    main = [argument(name, one) for name, one in load["groups"].items() if name not in slow]
    text = [f"library={settings['library']}", PREPARE, *lines(load, blocks * PAGE // 512)]
    text.append(
        SERVE.format(
            agsize=blocks * PAGE,
            size=blocks * PAGE * len(places),
            start=begin.replace("{threads}", str(load["threads"])),
            zones=" ".join(f"$EXPORT/{zone}" for zone in places),
            files="\n".join(f"nfsd_file {one['zone']}/{name} {file_of(one)}" for name, one in files.items()),
        )
    )
    for name, one in slow.items():
        text.append(
            SLOW.format(
                name=name,
                group=argument(name, one),
                clock=clock,
                stopped=f"{one['slow_us'] / 1e6:.6f}",
                running=f"{one['slow_us'] / 4e6:.6f}",
            )
        )
    text += ["traced_begin", f"nfsload -l 100000 -o /results/load.json {' '.join([*main, clock])} >/dev/null || exit 1"]
    text += ["traced_end", '[ -z "$slow" ] || wait']
    if solos := alone(load):
        text.append(f"nfsload -l 100000 -o /results/alone.json {' '.join(solos)} >/dev/null || exit 1")
    return "\n".join(text) + "\n"


# The figures.


def read(where: pathlib.Path, load: Load) -> dict[str, dict[str, float]]:
    """{group: {figure: number}} of a run's directory of results, the server among the groups."""
    result = replies(where / "load.json")
    total = result.pop("total")
    solo = replies(where / "alone.json") if alone(load) else {}
    solo.pop("total", None)
    found: dict[str, dict[str, float]] = {}
    own = {name: time_of(load, one) for name, one in load["groups"].items()}
    own |= {name: solo[name]["latency_ns"]["p50"] for name in solo if load["groups"][name]["op"] == "write"}
    for name, one in load["groups"].items():
        if "slow_us" in one:
            result |= replies(where / f"slow-{name}.json")
        got = result[name]
        spread = got.get("burst_ns") or got["latency_ns"]
        found[name] = {
            "replies": got["interval"]["requests"] * 1e9 / total["interval_ns"],
            "p50": spread["p50"],
            "p99": spread["p99"],
            "longest": got["latency_ns"]["max"],
            "part": got["interval"]["requests"] * own[name] / (load["threads"] * total["interval_ns"]),
            "own": own[name],
            "held": max(own.values()),
            "turn": max(own.values()) / load["threads"],
            "bound": depth(one) * bound(load) * max(own.values()) / load["threads"] + 2 * max(own.values()),
            "count": spread["count"],
        }
        if "window" in one:
            found[name]["fifth"] = fifth(load, one)
        if name in solo and one.get("pause_us"):
            found[name]["alone"] = solo[name]["burst_ns"]["p50"]
        elif one.get("pause_us"):
            found[name]["alone"] = own[name]
    found[SERVER] = {
        "replies": sum(one["replies"] for one in found.values()),
        "longest": max(one["longest"] for one in found.values()),
        "part": sum(one["part"] for one in found.values()),
        "count": sum(one["interval"]["requests"] for name, one in result.items() if name in found),
    }
    return found


def replies(path: pathlib.Path) -> dict[str, Any]:
    """{group: what nfsload says of it}, and `total`."""
    result = json.loads(path.read_text())
    bad = {one["name"]: one["errors"] for one in result["groups"] if any(one["errors"].values())}
    if bad:
        raise Fail(f"{path}: requests failed: {bad}")
    return {"total": result["total"], **{one["name"]: one for one in result["groups"]}}
