# SPDX-License-Identifier: GPL-2.0
"""A world: a whole NFS server under clients that know what they wrote, and a schedule of what happens to them all.

A load has

    threads    nfsd threads
    seconds    how long the clients of the kind `calls` go on, and things happen, in simulated time
    disk_us    what each request to the disk takes
    modes      [READ, WRITE]: the I/O modes it begins with
    block      the largest READ or WRITE, in bytes
    clients    {name: what it does}; each has a `kind`, and may have `start_ms`
               calls: READs and WRITEs of NFSv3 in turns, whose calls are sent again if the connection was closed
                   (nfsfault): conns, window, size; far: behind a link; read: of a file that is only read, whose disk
                   may be bad; company: {kind of nuisance: connections}
               fuzz: what no client sends (nfsfuzz): profiles, seed, number; corpus is what was found before
               load: WRITEs, and READs of what they wrote (nfsload): vers, proto, size, conns, window or burst and
                   pause_ms, count; second: of an export that may be gone for a while
               mount: the kernel's client: options of the mount, steps of I/O, locks
    faults     what happens: at_ms, and `fault`, one of FAULTS with its own words

All clients' work is finite. When all is over the faults are, too: the server has to answer, to stop, and to leave
nothing behind. What a kernel cannot do (allocations that fail) it leaves out.
"""

import pathlib
import shlex
import shutil
from collections.abc import Iterator
from typing import Any

from .. import schema
from ..suites.selftests import LEAKS
from ..util import Fail
from .draw import Dice, Load

NATURAL: schema.Schema = {"type": "integer", "minimum": 0}
MODE: schema.Schema = {"enum": [0, 1, 2]}
COMPANY = ("reset", "half", "garbage", "huge", "unread", "gone", "silent")
PROFILES = ("records", "ranges", "compounds", "together")
CORPUS = "corpus"
VERSIONS = ("3", "4.0", "4.1", "4.2")
SIZE: schema.Schema = {"type": "integer", "minimum": 512, "maximum": 1 << 20}
FLAG: schema.Schema = {"const": True}
CLIENTS: dict[str, schema.Schema] = {
    "calls": schema.table(
        {"kind": schema.STRING, "conns": schema.COUNT, "window": schema.COUNT, "size": SIZE},
        start_ms=NATURAL,
        far=FLAG,
        read=FLAG,
        company={
            "type": "object",
            "properties": dict.fromkeys(COMPANY, schema.COUNT),
            "minProperties": 1,
            "additionalProperties": False,
        },
    ),
    "fuzz": schema.table(
        {
            "kind": schema.STRING,
            "profiles": {"type": "array", "minItems": 1, "items": {"enum": [*PROFILES, CORPUS]}},
            "seed": NATURAL,
            "number": schema.COUNT,
        },
        start_ms=NATURAL,
    ),
    "load": schema.table(
        {"kind": schema.STRING, "size": SIZE, "conns": schema.COUNT, "count": schema.COUNT},
        vers={"enum": list(VERSIONS)},
        proto={"enum": ["tcp", "udp"]},
        window=schema.COUNT,
        burst=schema.COUNT,
        pause_ms=schema.COUNT,
        second=FLAG,
        start_ms=NATURAL,
    ),
    "mount": schema.table(
        {
            "kind": schema.STRING,
            "options": {"type": "string", "pattern": r"^vers=(3|4\.[012])[a-z0-9=,]*$"},
            "steps": schema.COUNT,
            "seed": NATURAL,
        },
        locks=schema.COUNT,
        start_ms=NATURAL,
    ),
}


def fault(**words: schema.Schema) -> schema.Schema:
    return schema.table({"at_ms": NATURAL, "fault": schema.STRING, **words})


# What may happen: its words in the order in which faults.sh has them, and what only one may do at a time.
FAULTS: dict[str, tuple[schema.Schema, str]] = {
    "threads": (fault(threads=schema.COUNT), "server"),
    "restart": (fault(ms=NATURAL, threads=schema.COUNT, taken={"enum": [0, 1]}), "server"),
    "listen": (fault(port={"type": "integer", "minimum": 20490, "maximum": 20499}), "server"),
    "mode": (fault(read=MODE, write=MODE), ""),
    "flush": (fault(), ""),
    "reexport": (fault(), ""),
    "unexport": (fault(ms=NATURAL), "second"),
    "hang": (fault(ms=NATURAL), "disk"),
    "slow": (fault(ms=NATURAL, on_ms=schema.COUNT, off_ms=schema.COUNT), "disk"),
    "errors": (fault(ms=NATURAL, file=schema.STRING), "errors"),
    "full": (fault(ms=NATURAL), "full"),
    "drop": (fault(), ""),
    "link": (fault(ms=NATURAL), "link"),
    "lossy": (fault(ms=NATURAL, how={"type": "string", "pattern": "^[a-z0-9% ]+$"}), "link"),
    "namespace": (fault(ms=NATURAL), "elsewhere"),
    "clock": (fault(seconds=schema.COUNT), ""),
    "expire": (fault(), ""),
    "mountd": (fault(ms=NATURAL), "mountd"),
    "memory": (
        fault(ms=NATURAL, kind={"enum": ["failslab", "fail_page_alloc"]}, per_cent={"type": "integer", "maximum": 20}),
        "memory",
    ),
    "nth": (fault(number=schema.COUNT), ""),
    "sunrpc": (
        fault(ms=NATURAL, switch={"enum": ["server-disconnect", "cache-wait"]}, per_cent=schema.COUNT),
        "sunrpc",
    ),
}
# What a client of a kind cannot know the outcome of. One that mounts tries again if there is no memory.
UNBEARABLE: dict[str, set[str]] = {
    "calls": set(),
    "fuzz": {"restart", "memory", "nth", "sunrpc", "full", "expire", "mountd"},
    "load": {"restart", "memory", "nth", "sunrpc", "full", "expire", "mountd"},
    "mount": {"full"},
}
# The READs of the fuzzer, which its session has to have room for.
FUZZED = 1 << 20
SHORTAGE = {"memory", "nth", "sunrpc"}
LOAD = schema.table(
    {
        "threads": {"type": "integer", "minimum": 1, "maximum": 512},
        "seconds": {"type": "integer", "minimum": 1, "maximum": 600},
        "disk_us": {"type": "integer", "minimum": 100, "maximum": 1_000_000},
        "modes": {"type": "array", "minItems": 2, "maxItems": 2, "items": MODE},
        "block": {"enum": [65536, 1 << 20]},
        "clients": {"type": "object", "minProperties": 1, "additionalProperties": {"type": "object"}},
        "faults": {"type": "array", "items": {"type": "object"}},
    }
)
# Nothing has to be compared with a second side.
SETTINGS: dict[str, schema.Schema] = {
    "library": schema.STRING,
    "sides": {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": schema.STRING},
}
MAY: dict[str, schema.Schema] = {}
# Which machines it can be on, the usual one first; sim has no allocations that fail, and does not count objects.
KINDS = ("sim", "debug")
SERVER = "server"
FIGURES = {
    "answered": "calls or steps that had their answer",
    "lost": "calls that had no answer in time, or clients that never came to their end",
    "wrong": "answers or bytes that are not right",
    "splat": "whether the kernel complained of itself",
    "hung": "what did not come to its end",
    "deaf": "requests without an answer when all was over",
    "halves": "listeners that are there although they were refused",
    "busy": "whether the export could not be unmounted afterwards",
    "sockets": "TCP sockets that are left",
    "threads": "nfsd threads that are left",
    "objects": "objects of the server's, and network namespaces, that are left",
    "leaks": "pieces of memory that nobody points to",
    "faults": "things that happened",
    "refused": "allocations that failed",
}
CLASSES = {
    "client": "every client",
    "calls": "NFSv3, sent again",
    "fuzz": "what no client sends",
    "load": "written and read again",
    "mount": "the kernel's client",
    SERVER: "the server, and what is left of it",
}

# What is drawn.


def draw(seed: int) -> Load:
    dice = Dice(seed)
    style = dice.one_of(["plain", "plain", "plain", "restart", "restart", "memory", "memory", "full"])
    seconds = dice.one_of([2, 3, 3, 4, 6])
    load: Load = {
        "threads": dice.one_of([1, 2, 4, 8, 8, 16, 32]),
        "seconds": seconds,
        "disk_us": dice.between(2_000, 20_000),
        "modes": [dice.one_of([0, 0, 1, 2, 2]), dice.one_of([0, 0, 1, 2, 2])],
        "block": dice.one_of([65536, 1 << 20]),
        "clients": {},
        "faults": [],
    }
    kinds = ["calls", *(["calls"] * dice.one_of([0, 0, 1]))]
    kinds += ["mount"] * (0 if style == "full" else dice.one_of([0, 1, 1, 2]))
    if style == "plain":
        kinds += [*(["fuzz"] if dice.chance(0.7) else []), *(["load"] * dice.one_of([0, 1, 2]))]
    if "fuzz" in kinds:
        load["block"] = FUZZED
    for number, kind in enumerate(kinds):
        load["clients"][f"c{number}"] = {"kind": kind, **DRAWN[kind](dice, load, style)}
    load["faults"] = sorted(drawn_faults(dice, load, style), key=lambda one: one["at_ms"])
    for one in load["clients"].values():
        if one["kind"] == "fuzz" and dice.chance(0.5):
            one["profiles"].append(CORPUS)
    # The last to be drawn: all else is what it was before there was this.
    if all("mountd" not in UNBEARABLE[kind] for kind in kinds) and dice.chance(0.3):
        at = dice.between(100, 1000 * load["seconds"])
        load["faults"].append({"at_ms": at, "fault": "mountd", "ms": dice.between(4000, 12_000)})
    return load


def late(dice: Dice, load: Load) -> dict[str, int]:
    return {"start_ms": dice.between(50, 500 * load["seconds"])} if dice.chance(0.25) else {}


def calls(dice: Dice, load: Load, style: str) -> dict[str, Any]:
    one: dict[str, Any] = {
        "conns": dice.one_of([1, 2, 4, 4]),
        "window": dice.one_of([1, 2, 4]),
        "size": dice.one_of([4096, 4096, 4096, 8192, 12000, 61436, 131072]),
        **late(dice, load),
    }
    one["size"] = min(one["size"], load["block"])
    if one["size"] > 16384:
        one["window"] = min(one["window"], 2)
    if dice.chance(0.3):
        one["far"] = True
    elif dice.chance(0.4):
        one["company"] = {dice.one_of(COMPANY[:4] + COMPANY[5:]): dice.one_of([1, 1, 2]) for _ in range(2)}
        if dice.chance(0.1):
            one["company"]["unread"] = 1
    elif style == "plain" and dice.chance(0.4):
        one["read"] = True
    return one


def fuzz(dice: Dice, load: Load, style: str) -> dict[str, Any]:
    profiles = dice.shuffled(PROFILES)[: dice.one_of([1, 2, 2, 4])]
    return {"profiles": profiles, "seed": dice.between(1, 1_000_000), "number": dice.between(4, 30), **late(dice, load)}


def written(dice: Dice, load: Load, style: str) -> dict[str, Any]:
    one: dict[str, Any] = {
        "size": dice.one_of([512, 4096, 4096, 8192, 32768]),
        "conns": dice.one_of([1, 2, 4]),
        "count": dice.between(8, 60),
        **late(dice, load),
    }
    if dice.chance(0.4):
        one["proto"] = "udp"
    elif dice.chance(0.6):
        one["vers"] = dice.one_of(VERSIONS[1:])
    if dice.chance(0.5):
        one |= {"burst": dice.one_of([1, 2, 4]), "pause_ms": dice.between(5, 50)}
        if dice.chance(0.5):
            one |= {"second": True, "size": min(one["size"], 4096)}
            one.pop("vers", "")
    else:
        one["window"] = dice.one_of([1, 2, 4])
    return one


def mount(dice: Dice, load: Load, style: str) -> dict[str, Any]:
    vers = dice.one_of(["3", "4.0", "4.1", "4.2", "4.2"])
    options = [f"vers={vers}", "proto=tcp"] + (["mountproto=tcp"] if vers == "3" else [])
    if vers == "3" and dice.chance(0.3):
        options[1] = "proto=udp"
    elif dice.chance(0.3):
        options.append(f"sec={dice.one_of(['krb5', 'krb5i', 'krb5i', 'krb5p'])}")
    elif dice.chance(0.15):
        options.append(f"xprtsec={dice.one_of(['tls', 'mtls'])}")
    if dice.chance(0.6):
        size = dice.one_of([4096, 16384, 61440, 65536, 262144])
        options += [f"rsize={min(size, load['block'])}", f"wsize={min(dice.one_of([4096, 65536]), load['block'])}"]
    one = {"options": ",".join(options), "steps": dice.between(10, 60), "seed": dice.between(1, 1_000_000)}
    if style == "plain" and dice.chance(0.6):
        one["locks"] = dice.between(2, 60)
    return {**one, **late(dice, load)}


DRAWN = {"calls": calls, "fuzz": fuzz, "load": written, "mount": mount}


def drawn_faults(dice: Dice, load: Load, style: str) -> list[dict[str, Any]]:
    far = any("far" in one for one in load["clients"].values())
    read = [name for name, one in load["clients"].items() if "read" in one]
    second = any("second" in one for one in load["clients"].values())
    kinds = ["threads", "threads", "mode", "mode", "flush", "reexport", "drop", "hang", "slow", "namespace"]
    kinds += ["listen", "clock", *(["link", "lossy"] * 2 if far else []), *(["errors"] * 3 if read else [])]
    kinds += [*(["unexport"] * 3 if second else []), *(["expire"] if style == "restart" else [])]
    wanted = [dice.one_of(kinds) for _ in range(dice.between(1, 10))]
    more: dict[str, list[str]] = {
        "plain": [],
        "restart": ["restart"] * dice.one_of([1, 1, 2, 3]),
        "memory": [dice.one_of(["memory", "memory", "nth", "nth", "sunrpc"]) for _ in range(dice.between(1, 6))],
        "full": ["full"] * dice.one_of([1, 2]),
    }
    wanted += more[style]
    if wanted.count("namespace") > 1:
        wanted = [one for one in wanted if one != "namespace"] + ["namespace"]
    return [one_fault(dice, load, kind, read) for kind in wanted]


def one_fault(dice: Dice, load: Load, kind: str, read: list[str]) -> dict[str, Any]:
    whole = 1000 * load["seconds"]
    threads = dice.one_of([1, 2, 3, 8, 16, 64])
    took = dice.between(20, whole // 2)
    words: dict[str, dict[str, Any]] = {
        "threads": {"threads": threads},
        "restart": {"ms": dice.between(10, 3000), "threads": threads, "taken": int(dice.chance(0.4))},
        "listen": {"port": 20490 + int(10 * dice.random())},
        "mode": {"read": dice.one_of([0, 1, 2]), "write": dice.one_of([0, 1, 2])},
        "unexport": {"ms": took},
        "hang": {"ms": took},
        "slow": {"ms": took, "on_ms": dice.between(5, 200), "off_ms": dice.between(5, 50)},
        "errors": {"ms": took, "file": dice.one_of(read) if read else ""},
        "full": {"ms": took},
        "link": {"ms": took},
        "lossy": {
            "ms": took,
            "how": dice.one_of(
                ["loss 3%", "loss 20%", "delay 20ms 10ms", "delay 5ms reorder 25% 50%", "duplicate 10%"]
            ),
        },
        "namespace": {"ms": dice.between(20, 1500)},
        "clock": {"seconds": dice.between(1, 2000)},
        "memory": {
            "ms": took,
            "kind": dice.one_of(["failslab", "failslab", "fail_page_alloc"]),
            "per_cent": dice.between(1, 5),
        },
        "nth": {"number": dice.between(1, 200)},
        "sunrpc": {
            "ms": took,
            "switch": dice.one_of(["server-disconnect", "cache-wait"]),
            "per_cent": dice.between(2, 20),
        },
    }
    return {"at_ms": dice.between(100, whole), "fault": kind, **words.get(kind, {})}


# What is known of a load before it runs.


def short_of_memory(load: Load) -> bool:
    return any(one["fault"] in SHORTAGE for one in load["faults"])


def classes(load: Load) -> dict[str, set[str]]:
    return {SERVER: {SERVER}, **{name: {"client", one["kind"]} for name, one in load["clients"].items()}}


def check(load: Load) -> None:
    """What the schema cannot say."""
    for name, one in load["clients"].items():
        where = f"clients.{name}"
        if name == SERVER or not name.isalnum():
            raise Fail(f"{where}: a name is of letters and digits, and not {SERVER}")
        check_one(one, "kind", CLIENTS, where)
        for happens in load["faults"]:
            if happens.get("fault") in UNBEARABLE[one["kind"]]:
                raise Fail(
                    f"{where}: {one['kind']} cannot tell what is right beside {happens['fault']}: drop one of them"
                )
        if one["kind"] == "load" and ("window" in one) == ("burst" in one):
            raise Fail(f"{where}: give window or burst")
        if one["kind"] == "fuzz" and load["block"] < FUZZED:
            raise Fail(f"{where}: fuzz reads {FUZZED} bytes at once: block has to be {FUZZED}")
        if "second" in one and "pause_ms" not in one:
            raise Fail(f"{where}: second goes with pause_ms: what is refused takes no time")
        if one.get("proto") == "udp" and ("vers" in one or one["size"] > 32768):
            raise Fail(f"{where}: UDP is for NFSv3, and for 32 KiB at most")
    for number, one in enumerate(load["faults"]):
        where = f"faults.[{number}]"
        check_one(one, "fault", {name: words for name, (words, _) in FAULTS.items()}, where)
        if one["fault"] in ("link", "lossy") and not any("far" in client for client in load["clients"].values()):
            raise Fail(f"{where}: no client is far")
        if one["fault"] == "errors" and "read" not in load["clients"].get(one["file"], {}):
            raise Fail(f"{where}: no client {one['file']} only reads")


def check_one(one: dict[str, Any], key: str, known: dict[str, schema.Schema], where: str) -> None:
    """One table whose schema its own `key` names."""
    name = one.get(key)
    if name not in known:
        raise Fail(f"{where}: {key}: there is no {name}{schema.meant(str(name), known)}; there are: {', '.join(known)}")
    schema.check(one, known[name], pathlib.Path(where))


def said(load: Load, name: str) -> str:
    if name == SERVER:
        happen = ", ".join(f"{one['fault']} at {one['at_ms']} ms" for one in load["faults"])
        return f"{load['threads']} threads; {happen or 'nothing happens'}"
    one = load["clients"][name]
    words = [f"{key} {value}" if value is not True else key for key, value in one.items() if key != "kind"]
    return f"{name}: {one['kind']}, {', '.join(words)}"


def smaller(load: Load) -> Iterator[Load]:
    """Loads in which less happens, to fewer clients, that do less."""
    clients, happen = load["clients"], load["faults"]
    for number in range(len(happen)):
        yield {**load, "faults": happen[:number] + happen[number + 1 :]}
    for name in clients if len(clients) > 1 else []:
        left = {other: one for other, one in clients.items() if other != name}
        far = any("far" in one for one in left.values())
        yield {
            **load,
            "clients": left,
            "faults": [
                one for one in happen if one.get("file") != name and (far or one["fault"] not in ("link", "lossy"))
            ],
        }
    for name, one in clients.items():
        for key in ("company", "locks", "start_ms"):
            if key in one:
                yield {**load, "clients": {**clients, name: {word: v for word, v in one.items() if word != key}}}
        for key in ("conns", "window", "count", "steps", "number"):
            if one.get(key, 0) > 1:
                yield {**load, "clients": {**clients, name: {**one, key: one[key] // 2}}}
        if len(one.get("profiles", [])) > 1:
            for profile in one["profiles"]:
                yield {**load, "clients": {**clients, name: {**one, "profiles": [profile]}}}
    for key in ("threads", "seconds"):
        if load[key] > 1:
            yield {**load, key: load[key] // 2}
    if load["modes"] != [0, 0]:
        yield {**load, "modes": [0, 0]}


# What the guest runs.

SHELL = pathlib.Path(__file__).with_suffix(".sh")


def script(load: Load, side: str, settings: dict[str, Any]) -> str:
    clients = load["clients"]
    options = [one["options"] for one in clients.values() if one["kind"] == "mount"]
    udp = any(one.get("proto") == "udp" for one in clients.values()) or any("proto=udp" in one for one in options)
    needs = {
        "UDP": "--udp" if udp else "",
        "KERBEROS": int(any("sec=krb5" in one for one in options)) or "",
        "TLS": int(any("xprtsec" in one for one in options)) or "",
        "STATD": int(any("vers=3" in one for one in options)) or "",
        "LINK": int(any("far" in one for one in clients.values())) or "",
    }
    files = [(name, one) for name, one in clients.items() if one["kind"] == "load"]
    lines = [
        f"library={settings['library']} leaks=/host{shlex.quote(str(LEAKS))}",
        SHELL.read_text(),
        *(f"{name}={value}" for name, value in needs.items()),
        '[ "$1" != elsewhere ] || elsewhere "$2"',
        f"make_disk 512 {1000 * load['disk_us']}",
        f"server {load['threads']} {load['block']}",
        "nfsd_file probe 64k",
        *(
            f"nfsd_file {'second/' if 'second' in one else ''}{name} {file_of(one)}; "
            f"chmod 666 $EXPORT/{'second/' if 'second' in one else ''}{name}"
            for name, one in files
        ),
        "fault_mode {} {}".format(*load["modes"]),
        "traced_begin",
        *(f"{client(load, name)} & clients+=($!)" for name in clients),
        *(f"{happening(one)} & faults+=($!)" for one in load["faults"]),
        'wait "${clients[@]}"',
        f"over {load['threads']}",
    ]
    return "\n".join(lines) + "\n"


def file_of(one: dict[str, Any]) -> int:
    """How long the file of a load is: no block is written twice before it is read."""
    depth = one.get("window") or one["burst"]
    return int(one["conns"] * one["size"] * (one["count"] * (depth if "burst" in one else 1) + depth))


def client(load: Load, name: str) -> str:
    """The line that is a client."""
    one = load["clients"][name]
    match one["kind"]:
        case "calls":
            words = [f"conns={one['conns']}", f"window={one['window']}", f"size={one['size']}"]
            # What comes from the page cache takes no time, and would never end.
            words += ["read=1", "calls=200"] if "read" in one else [f"for={1000 * load['seconds']}"]
            # Its last look at the file may find the disk as it was for the server.
            words += ["check=0"] if any(fault.get("file") == name for fault in load["faults"]) else []
            words += ["short=1"] if short_of_memory(load) else []
            words += [f"{kind}={many}" for kind, many in one.get("company", {}).items()]
            far = ("on_far ", "server=192.0.2.1 ") if "far" in one else ("", "")
            line = f'calls {name} {far[0]}"$DIR"/nfsfault "$EXPORT" {name} {far[1]}{" ".join(words)}'
        case "fuzz":
            line = f"fuzz {name} {one['seed']} {one['number']} {' '.join(one['profiles'])}"
        case "load":
            keys = ("size", "conns", "window", "burst", "count", "vers", "proto")
            words = [f"{key}={one[key]}" for key in keys if key in one]
            words += [f"pause={one['pause_ms']}ms"] if "pause_ms" in one else []
            line = f'load {name} "$EXPORT"{"/second" if "second" in one else ""} {",".join(words)}'
        case _:
            # tlshd's GnuTLS goes by the time of day: a handshake that the clock jumps over has timed out.
            late = "xprtsec" in one["options"] and any(fault["fault"] == "clock" for fault in load["faults"])
            tolerant = "1" if late or short_of_memory(load) else "''"
            line = f"mounted {name} {one['seed']} {one['steps']} {one.get('locks', 0)} {tolerant} {one['options']}"
    return f"{{ sleep {one['start_ms'] / 1000:.3f}; {line}; }}" if "start_ms" in one else line


def happening(one: dict[str, Any]) -> str:
    """The line that is a fault. Its words are in the order of its schema, whatever that is here."""
    words, lock = FAULTS[one["fault"]]
    values = [one[key] for key in words["properties"] if key not in ("at_ms", "fault")]
    # What netem is told is several words, and has no sign that the shell knows.
    text = [str(value) if one["fault"] == "lossy" else shlex.quote(str(value)) for value in values]
    return " ".join(["at", str(one["at_ms"]), lock or "-", f"fault_{one['fault']}", *text])


# What came of it.


def read(where: pathlib.Path, load: Load) -> dict[str, dict[str, float]]:
    """{client or server: {figure: number}} of a run's directory of results."""
    found: dict[str, dict[str, float]] = {name: {} for name in [*load["clients"], SERVER]}
    for line in (where / "said").read_text().splitlines():
        group, figure, number = line.split()
        found[group][figure] = found[group].get(figure, 0) + float(number)
    # A stop that does not end has the guest stop where it is.
    if "hung" not in found[SERVER]:
        found[SERVER] |= {"splat": 0, "hung": 0}
    good = {"answered", "faults", "refused"}
    if any(number for one in found.values() for figure, number in one.items() if figure not in good):
        shutil.copy(where / "console", where.with_suffix(".console"))
    return found


def sick(fail: Fail, load: Load) -> dict[str, dict[str, float]]:
    """What came of a guest that did not come to a good end."""
    return {SERVER: {"hung" if "did not end" in str(fail) else "splat": 1}}
