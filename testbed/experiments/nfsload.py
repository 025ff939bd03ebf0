# SPDX-License-Identifier: GPL-2.0
"""The command line of nfsload, the selftests' load generator: what it would refuse is refused before a guest is booted.

This mirrors parse_group() of nfsload.c, its limits included, and what share_file() needs of a file.
"""

import dataclasses
import re
from collections.abc import Iterable

VERSIONS = ("3", "4.0", "4.1", "4.2")
OPS = ("null", "getattr", "read", "write")
PROTOS = ("tcp", "udp")
MAX_CONNS, MAX_DEPTH, MAX_COUNT, IO_MAX, UDP_MAX = 4096, 2048, 1_000_000_000, 4 << 20, 32768
SHIFTS = {"": 0, "k": 10, "M": 20, "G": 30}
UNITS = {"ns": 1, "us": 10 ** 3, "ms": 10 ** 6, "s": 10 ** 9}
LONGEST = 1_000_000 * UNITS["s"]


class Refused(Exception):
    """Why nfsload would end with status 2."""


@dataclasses.dataclass
class Group:
    """What a group of connections does; times in ns, sizes in bytes."""
    name: str
    vers: str
    op: str = "read"
    proto: str = "tcp"
    file: str = ""
    conns: int = 1
    burst: bool = False
    depth: int = 0
    pause: int = 0
    count: int = 0
    size: int = 0
    chunk: int = 0
    gap: int = 0
    verify: int = 0

    @property
    def has_data(self) -> bool:
        return self.op in ("read", "write")


def number(key: str, text: str, least: int, most: int) -> int:
    if not re.fullmatch(r"[0-9]+", text):
        raise Refused(f"{key}='{text}' is not a number")
    if not least <= int(text) <= most:
        raise Refused(f"{key}={text} is not between {least} and {most}")
    return int(text)


def size(key: str, text: str, most: int = IO_MAX) -> int:
    found = re.fullmatch(r"([0-9]+)([kMG]?)", text)
    if not found:
        raise Refused(f"{key}='{text}' is not a size such as 4096, 64k or 1M")
    value = int(found[1]) << SHIFTS[found[2]]
    if not 1 <= value <= most:
        raise Refused(f"{key}={text} is not between 1 and {most} bytes")
    return value


def time(key: str, text: str) -> int:
    found = re.fullmatch(r"([0-9]+)(ns|us|ms|s)", text)
    if not found:
        if re.fullmatch(r"0+", text):
            return 0
        raise Refused(f"{key}='{text}' is not a time: write a whole number and ns, us, ms or s, such as 50ms")
    value = int(found[1]) * UNITS[found[2]]
    if value > LONGEST:
        raise Refused(f"{key}={text} is too long")
    return value


def one_of(key: str, text: str, known: Iterable[str]) -> str:
    if text not in known:
        raise Refused(f"{key}='{text}' is not one of {' '.join(known)}")
    return text


def key(group: Group, name: str, value: str) -> None:
    match name:
        case "conns":
            group.conns = number(name, value, 1, MAX_CONNS)
        case "window" | "burst":
            if group.depth:
                raise Refused(f"group '{group.name}': give window or burst, and once")
            group.depth, group.burst = number(name, value, 1, MAX_DEPTH), name == "burst"
        case "pause":
            group.pause = time(name, value)
        case "op":
            group.op = one_of(name, value, OPS)
        case "proto":
            group.proto = one_of(name, value, PROTOS)
        case "vers":
            group.vers = one_of(name, value, VERSIONS)
        case "size":
            group.size = size(name, value)
        case "file":
            group.file = value
        case "count":
            group.count = number(name, value, 1, MAX_COUNT)
        case "start":
            time(name, value)
        case "chunk":
            group.chunk = size(name, value)
        case "gap":
            group.gap = time(name, value)
        case "stable":
            number(name, value, 0, 2)
        case "seed":
            number(name, value, 0, 2 ** 32 - 1)
        case "verify":
            group.verify = number(name, value, 0, 1)
        case _:
            raise Refused(f"group '{group.name}': no key '{name}'; nfsload -h lists the keys")


def parse(text: str, vers: str) -> Group:
    """The group of one argument; Refused where nfsload would refuse it."""
    name, _, rest = text.partition(":")
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise Refused(f"'{name}': a group's name is made of letters, digits, '_' and '-'")
    group = Group(name, vers)
    for item in filter(None, rest.split(",")):
        if "=" not in item:
            raise Refused(f"group '{name}': '{item}' is not KEY=VALUE")
        key(group, *item.split("=", 1))
    if not group.depth:
        raise Refused(f"group '{name}' needs window=N or burst=N")
    if group.pause and not group.burst:
        raise Refused(f"group '{name}': pause= goes with burst=")
    if bool(group.gap) != bool(group.chunk):
        raise Refused(f"group '{name}': chunk= and gap= go together")
    if group.has_data and not group.file:
        raise Refused(f"group '{name}': op={group.op} needs file=PATH")
    if not group.has_data and group.size:
        raise Refused(f"group '{name}': op={group.op} has no size")
    if group.verify and group.op != "read":
        raise Refused(f"group '{name}': verify= goes with op=read")
    if group.proto == "udp" and (group.vers != "3" or group.chunk or group.size > UDP_MAX):
        raise Refused(f"group '{name}': proto=udp goes with vers=3, without chunk=, and with size=32k at most")
    if group.has_data and not group.size:
        group.size = 4096
    return group


def command(texts: Iterable[str], vers: str, files: dict[str, int]) -> list[Group]:
    """The groups of a command line; `files` are those on the export, with their sizes in bytes."""
    groups: list[Group] = []
    for text in texts:
        group = parse(text, vers)
        if group.name in [other.name for other in groups]:
            raise Refused(f"there are two groups '{group.name}'")
        groups.append(group)
    for group in groups:
        if group.has_data and group.file not in files:
            raise Refused(
                f"group '{group.name}': there is no file '{group.file}' on the export; there are: {', '.join(files)}"
            )
        if group.has_data and files[group.file] // group.size // group.conns < group.depth:
            raise Refused(
                f"group '{group.name}': file '{group.file}' has {files[group.file]} bytes, but {group.conns} "
                f"connections "
                f"with {group.depth} requests of {group.size} bytes need {group.conns * group.depth * group.size}"
            )
    if not any(group.count for group in groups):
        raise Refused("one group at least needs a count=, or there is no end")
    return groups
