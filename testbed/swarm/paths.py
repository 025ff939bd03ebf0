# SPDX-License-Identifier: GPL-2.0
"""A world: an NVMe device with several paths, which a policy shares I/O out to. The sides are policies.

A load has

    paths        a list of them: delay_us is what each answer takes, mbit the rate of a link, in either direction
    changes      [after ms, path, delay_us]: a path that becomes slower or faster, or hangs for as long as that is
    namespaces   how many disks, each with so many I/Os in flight as depth says
    sizes        in KiB, of which each I/O has one by chance
    writes       of a hundred I/Os
    ms           how long it lasts, after ramp_ms
    seed         of what is chance in the load itself

The paths are NVMe over TCP to a target in a network namespace, behind netem, so it needs no kernel of its own.
"""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

from .. import schema
from ..util import Fail
from .draw import Dice, Load

US: schema.Schema = {"type": "integer", "minimum": 0, "maximum": 60_000_000}
PATH = schema.table({"delay_us": US}, mbit=schema.COUNT)
LOAD = schema.table(
    {
        "paths": {"type": "array", "minItems": 1, "maxItems": 8, "items": PATH},
        "depth": {"type": "integer", "minimum": 1, "maximum": 512},
        "sizes": {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 4, "maximum": 1024}},
        "ms": schema.COUNT,
    },
    namespaces={"type": "integer", "minimum": 1, "maximum": 32},
    writes={"type": "integer", "minimum": 0, "maximum": 100},
    ramp_ms={"type": "integer", "minimum": 0},
    seed={"type": "integer", "minimum": 0},
    changes={"type": "array", "items": {"type": "array", "minItems": 3, "maxItems": 3, "items": US}},
)
SETTINGS: dict[str, schema.Schema] = {}
MAY: dict[str, schema.Schema] = {}
FIGURES = {
    "replies": "I/Os a second",
    "p50": "the median, ns",
    "p99": "the 99th percentile, ns",
    "longest": "the longest, ns",
}
CLASSES = {
    "all": "all I/Os",
    "small": "those below 32 KiB, where there are others",
    "large": "those of 32 KiB or more, where there are others",
    "alike": "of a load whose paths are alike and do not change",
    "differ": "of a load whose paths are not alike",
    "hang": "of a load in which a path does not answer for a second or more",
    "changes": "of a load in which a path becomes slower or faster",
    "one-size": "of a load with I/Os of one size",
    "sizes": "of a load with I/Os below 32 KiB and others",
}
BIG = 32
# A load is drawn again if it would have more I/Os of 4 KiB than these.
REPLIES = 6_000
HANG = 1_000_000


def draw(seed: int) -> Load:
    dice = Dice(seed)
    while True:
        load = once(dice)
        if most_replies(load) * (load["ms"] + load["ramp_ms"]) / 1000 * weight(load) <= REPLIES:
            return load


def once(dice: Dice) -> Load:
    many = dice.one_of([2, 2, 2, 3, 4, 8])
    model = {"delay_us": dice.between(100, 20_000)}
    if dice.chance(0.4):
        model["mbit"] = dice.between(20, 2_000)
    paths = [dict(model) for _ in range(many)]
    for path in paths[1:] if dice.chance(0.6) else []:
        for key in path:
            path[key] = round(path[key] * dice.one_of([1, 1, 1, 1.3, 2, 4, 30]))
    load: Load = {
        "paths": dice.shuffled(paths),
        "depth": dice.between(1, 256),
        "sizes": dice.one_of([[4], [4], [4], [4] * 9 + [1024], [4] * 3 + [64], [16, 128]]),
        "ms": dice.between(1_000, 20_000),
        "ramp_ms": 300,
        "namespaces": dice.one_of([1, 1, 1, 1, 2, 4, 8]),
        "writes": dice.one_of([0, 0, 0, 30, 100]),
        "seed": round(dice.random() * 1e6),
    }
    load["depth"] = max(load["depth"] // load["namespaces"], 1)
    if dice.chance(0.35):
        which, at = int(dice.random() * many), round(load["ms"] * (0.2 + 0.3 * dice.random()))
        own = load["paths"][which]["delay_us"]
        if dice.chance(0.5):
            load["ms"] = max(load["ms"], 3_000)
            took = dice.one_of([1, 2, 5, 10])
            load["ms"] += 1000 * took
            # What is sent while it hangs is answered when it no longer does.
            load["changes"] = [
                *([at + step, which, (1000 * took - step) * 1000] for step in range(0, 1000 * took, 500)),
                [at + 1000 * took, which, own],
            ]
        else:
            load["changes"] = [
                [at, which, own * dice.one_of([2, 4, 30])],
                [round(load["ms"] * 0.8), which, own],
            ]
    return load


def most_replies(load: Load) -> float:
    """I/Os a second, if each went by the quickest path and the links did nothing else."""
    flight = load["depth"] * load.get("namespaces", 1)
    size = 8192 * sum(load["sizes"]) / len(load["sizes"])
    links = sum(1e6 * path["mbit"] / size if "mbit" in path else 1e9 for path in load["paths"])
    return min(flight * 1e6 / max(min(path["delay_us"] for path in load["paths"]), 1), links)


def weight(load: Load) -> float:
    """How much real time an I/O takes, over one of 4 KiB."""
    return 1 + sum(load["sizes"]) / len(load["sizes"]) / 16


def hangs(load: Load) -> bool:
    return any(us >= HANG for _, _, us in load.get("changes", []))


def mixed(load: Load) -> bool:
    return min(load["sizes"]) < BIG <= max(load["sizes"])


def classes(load: Load) -> dict[str, set[str]]:
    alike = all(path == load["paths"][0] for path in load["paths"])
    changing = bool(load.get("changes"))
    of_all = {
        "alike": alike and not changing,
        "differ": not alike and not changing,
        "hang": hangs(load),
        "changes": changing and not hangs(load),
        "one-size": len(set(load["sizes"])) == 1,
        "sizes": mixed(load),
    }
    common = {name for name, holds in of_all.items() if holds}
    found = {"all": {"all", *common}}
    if mixed(load):
        found |= {"small": {"small", *common}, "large": {"large", *common}}
    return found


def check(load: Load) -> None:
    for at, which, _ in load.get("changes", []):
        if which >= len(load["paths"]):
            raise Fail(f"changes: there is no path {which}: the first is 0, the last {len(load['paths']) - 1}")
        if at >= load["ms"]:
            raise Fail(f"changes: one after {at} ms, and the load lasts {load['ms']} ms")


def said(load: Load, name: str) -> str:
    paths = "; ".join(
        f"{path['delay_us']} us" + (f" and {path['mbit']} Mbit/s" if "mbit" in path else "") for path in load["paths"]
    )
    words = [f"{name}: {len(load['paths'])} paths ({paths})", f"{load['depth']} in flight"]
    words += [f"on each of {load['namespaces']} disks"] if load.get("namespaces", 1) > 1 else []
    words += [f"{'/'.join(map(str, sorted(set(load['sizes']))))} KiB"]
    words += [f"{load['writes']} % WRITEs"] if load.get("writes") else []
    words += ["a path hangs"] if hangs(load) else ["a path changes"] if load.get("changes") else []
    return ", ".join(words)


def smaller(load: Load) -> Iterator[Load]:
    """Loads that say less."""
    for key in ("changes", "writes"):
        if load.get(key):
            yield {name: value for name, value in load.items() if name != key}
    if len(load["paths"]) > 2:
        for number in range(len(load["paths"])):
            left = [path for i, path in enumerate(load["paths"]) if i != number]
            moved = [[at, which - (which > number), us] for at, which, us in load.get("changes", []) if which != number]
            yield {**load, "paths": left, "changes": moved}
    if load.get("namespaces", 1) > 1:
        yield {**load, "namespaces": load["namespaces"] // 2}
    if load["depth"] > 1:
        yield {**load, "depth": load["depth"] // 2}
    if len(load["sizes"]) > 1:
        yield {**load, "sizes": [load["sizes"][0]]}
    for number, path in enumerate(load["paths"]):
        if "mbit" in path:
            without = {"delay_us": path["delay_us"]}
            yield {**load, "paths": [without if i == number else one for i, one in enumerate(load["paths"])]}
        if path["delay_us"] != load["paths"][0]["delay_us"]:
            same = {**path, "delay_us": load["paths"][0]["delay_us"]}
            yield {**load, "paths": [same if i == number else one for i, one in enumerate(load["paths"])]}


SCRIPT = r"""
set -e
nvmet=/sys/kernel/config/nvmet
nqn=nqn.2014-08.org.nvmexpress:swarm
uuid=11111111-2222-3333-4444-5555555555
mkdir $nvmet/subsystems/$nqn
echo 1 >$nvmet/subsystems/$nqn/attr_allow_any_host
for i in $(seq {namespaces}); do
	disk=/sys/kernel/config/nullb/disk$i
	space=$nvmet/subsystems/$nqn/namespaces/$i
	mkdir $disk $space
	echo 1024 >$disk/size
	echo 0 >$disk/irqmode
	echo 1024 >$disk/hw_queue_depth
	echo 1 >$disk/power
	echo -n /dev/disk$i >$space/device_path
	echo -n $uuid$(printf %02d $i) >$space/device_uuid
	echo 1 >$space/enable
done
mkdir -p /run/netns
ip netns add target
host=hostnqn=nqn.2014-08.org.nvmexpress:uuid:${uuid}00,hostid=${uuid}00
for i in $(seq {paths}); do
	port=$nvmet/ports/$i
	ip link add h$i type veth peer name t$i netns target
	ip addr add 10.0.$i.1/24 dev h$i
	ip link set h$i up
	ip -n target addr add 10.0.$i.2/24 dev t$i
	ip -n target link set t$i up
	mkdir $port
	echo tcp >$port/addr_trtype
	echo ipv4 >$port/addr_adrfam
	echo 10.0.$i.2 >$port/addr_traddr
	echo 4420 >$port/addr_trsvcid
	# ip netns exec would hide configfs
	nsenter --net=/run/netns/target ln -s $nvmet/subsystems/$nqn $port/subsystems/$nqn
	echo "transport=tcp,traddr=10.0.$i.2,trsvcid=4420,nqn=$nqn,$host,keep_alive_tmo=0" >/dev/nvme-fabrics
done
sleep 0.5
{links}
for path in /sys/block/nvme*c*n*/queue/scheduler; do
	echo none >$path
done
for path in /sys/class/nvme-subsystem/*/iopolicy; do
	echo $side >$path
done
cat >/tmp/load.json <<'EOF'
{load}
EOF
cat >/tmp/load.py <<'EOF'
{program}
EOF
python3 /tmp/load.py
"""
PROGRAM = r"""
import ctypes, glob, json, mmap, os, random, subprocess, time

IO_SETUP, IO_GETEVENTS, IO_SUBMIT = 206, 208, 209
MS = 1000000
LARGEST = 1 << 20
libc = ctypes.CDLL(None)
load = json.load(open("/tmp/load.json"))

class Iocb(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("rw_flags", ctypes.c_uint32),
                ("opcode", ctypes.c_uint16), ("prio", ctypes.c_int16), ("fd", ctypes.c_uint32),
                ("buffer", ctypes.c_uint64), ("size", ctypes.c_uint64), ("offset", ctypes.c_int64),
                ("reserved", ctypes.c_uint64), ("flags", ctypes.c_uint32), ("resfd", ctypes.c_uint32)]

class Event(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("obj", ctypes.c_uint64), ("res", ctypes.c_int64), ("res2", ctypes.c_int64)]

class Time(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]

context = ctypes.c_ulong()
assert not libc.syscall(IO_SETUP, 16384, ctypes.byref(context))
disks = sorted(path for path in glob.glob("/dev/nvme*n*") if "c" not in os.path.basename(path))
assert len(disks) == load.get("namespaces", 1), disks
files = [os.open(path, os.O_RDWR | os.O_DIRECT) for path in disks]
sizes = [1024 * size for size in load["sizes"]]
many = load["depth"] * len(files)
# What is read is not looked at, so one piece of memory is enough for all.
memory = mmap.mmap(-1, LARGEST)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
chance = random.Random(load.get("seed", 0))
iocbs, events, sent = [Iocb(data=slot) for slot in range(many)], (Event * many)(), [0] * many
pointers = [ctypes.pointer(ctypes.pointer(iocb)) for iocb in iocbs]
done, left = [], many

def submit(slot):
    iocb, size = iocbs[slot], sizes[int(chance.random() * len(sizes))]
    iocb.opcode = int(chance.random() * 100 < load.get("writes", 0))
    iocb.fd, iocb.buffer, iocb.size = files[slot % len(files)], address, size
    iocb.offset = int(chance.random() * ((1 << 30) // size)) * size
    sent[slot] = time.monotonic_ns()
    assert libc.syscall(IO_SUBMIT, context, 1, pointers[slot]) == 1

start = time.monotonic_ns() + load.get("ramp_ms", 0) * MS
end = start + load["ms"] * MS
changes = sorted([start + at * MS, which, us] for at, which, us in load.get("changes", []))
for slot in range(many):
    submit(slot)
    time.sleep(chance.random() * 10 / 1000 / many)
while left:
    now = time.monotonic_ns()
    while changes and changes[0][0] <= now:
        _, which, us = changes.pop(0)
        rate = load["paths"][which].get("mbit")
        words = ["rate", f"{rate}mbit"] if rate else []
        tc = ["ip", "netns", "exec", "target", "tc", "qdisc", "change", "dev", f"t{which + 1}", "root", "netem"]
        subprocess.run([*tc, "delay", f"{us}us", *words, "limit", "200000"], check=True)
    wait = None
    if changes:
        wait = ctypes.byref(Time(*divmod(changes[0][0] - now, 1000 * MS)))
    number = libc.syscall(IO_GETEVENTS, context, 1, many, events, wait)
    assert number >= 0
    now = time.monotonic_ns()
    for event in events[:number]:
        slot = event.data
        assert event.res == iocbs[slot].size, event.res
        done.append((now, now - sent[slot], iocbs[slot].size))
        if now < end:
            submit(slot)
        else:
            left -= 1

def figures(wanted):
    took = sorted(latency for when, latency, size in done if when >= start and wanted(size))
    inside = sum(start <= when < end and wanted(size) for when, _, size in done)
    if not took:
        return {"replies": 0.0, "count": 0}
    rank = lambda part: took[min(int(part * len(took)), len(took) - 1)]
    return {"replies": inside * 1000 / load["ms"], "p50": rank(0.5), "p99": rank(0.99), "longest": took[-1],
            "count": len(took)}

found = {"all": figures(lambda size: True)}
if min(sizes) < 32768 <= max(sizes):
    found["small"] = figures(lambda size: size < 32768)
    found["large"] = figures(lambda size: size >= 32768)
json.dump(found, open("/results/figures.json", "w"))
"""


def script(load: Load, side: str, settings: dict[str, Any]) -> str:
    """What the guest runs, with the side as the policy."""
    links = []
    for number, path in enumerate(load["paths"], 1):
        rate = f" rate {path['mbit']}mbit" if "mbit" in path else ""
        netem = f"root netem delay {path['delay_us']}us{rate} limit 200000"
        links.append(f"ip netns exec target tc qdisc add dev t{number} {netem}")
        links += [f"tc qdisc add dev h{number} root netem{rate} limit 200000"] if rate else []
    values = {
        "namespaces": load.get("namespaces", 1),
        "paths": len(load["paths"]),
        "links": "\n".join(links),
        "load": json.dumps(load),
        "program": PROGRAM.strip(),
    }
    text = SCRIPT
    for key, value in values.items():
        text = text.replace("{" + key + "}", str(value))
    return text


def read(where: pathlib.Path, load: Load) -> dict[str, dict[str, float]]:
    return json.loads((where / "figures.json").read_text())
