# SPDX-License-Identifier: GPL-2.0
"""Do a topic's code and its KUnit tests link in every combination of built in, module and left out?

A kernel takes minutes to link, so only the tests' directories are compiled. Whoever needs a symbol that another file
there has must be able to see it: what is built in sees what is built in, and a module what is exported.
"""

import dataclasses
import itertools
import os
import pathlib
import re
from collections.abc import Iterable, Iterator

from ..machines import kernel
from ..machines.kinds import KINDS
from ..series import applied
from ..series import topics as store
from ..series.base import Base
from ..series.topics import Topic
from ..util import BUILD, Fail, Tally, cache, lock, run

KIND = KINDS["sim"]
# What a symbol that is exported to modules is called beside itself.
EXPORT = "__export_symbol_"
BUILT_IN = "what is built in"


@dataclasses.dataclass(frozen=True)
class Unit:
    """What is linked together: all that is built in, or a module."""

    name: str
    defined: set[str]
    exported: set[str]
    needed: set[str]


def unseen(units: Iterable[Unit]) -> list[str]:
    """A line for each symbol that a unit needs, another one has, and the first cannot see."""
    units = list(units)
    return [
        f"{unit.name} needs {symbol} of {owner.name}"
        for unit in units
        for owner in units
        if owner is not unit
        for symbol in sorted(unit.needed & owner.defined)
        if symbol not in owner.exported or unit.name == BUILT_IN
    ]


def unit(name: str, path: pathlib.Path) -> Unit:
    """An object or archive, as nm tells of it."""
    found = [line.split() for line in run("nm", path).stdout.splitlines() if re.search(r" \S \S+$", line)]
    defined = {words[-1] for words in found if words[-2].isupper() and words[-2] != "U"}
    exported = {words[-1].removeprefix(EXPORT) for words in found if words[-1].startswith(EXPORT)}
    needed = {words[-1] for words in found if words[-2] == "U"} - defined
    return Unit(name, defined, exported, needed)


def units(out: pathlib.Path, place: pathlib.Path) -> Iterator[Unit]:
    """What was made of a directory of the kernel."""
    if (out / place / "built-in.a").is_file():
        yield unit(BUILT_IN, out / place / "built-in.a")
    order = out / place / "modules.order"
    for name in order.read_text().split() if order.is_file() else ():
        yield unit(pathlib.Path(name).stem, out / name)


def ways(links: dict[str, str]) -> Iterator[dict[str, str]]:
    """{option: value} of each combination."""
    for values in itertools.product(*links.values()):
        yield dict(zip(links, values))


def fragment(asked: str, way: dict[str, str]) -> str:
    """What a .kunitconfig asks for, and a way to have it."""
    options = dict(re.findall(r"^CONFIG_(\w+)=(.+)$", asked, re.M)) | way
    lines = ["CONFIG_MODULES=y"]
    for name, value in options.items():
        lines.append(f"# CONFIG_{name} is not set" if value == "n" else f"CONFIG_{name}={value}")
    return "\n".join([*lines, ""])


def link(base: Base, topic: Topic, commit: str, way: dict[str, str], out: pathlib.Path) -> dict[str, str]:
    """Compile the tests' directories in a way, and have each unit see what it needs; {option of a test: its value}."""
    asked, said = out / "way.config", ", ".join(f"{name}={value}" for name, value in way.items())
    asked.write_text(fragment("".join(applied.read(base, commit, name) for name in topic.kunit), way))
    kernel.merge(base, out, KIND, [asked])
    for name in topic.kunit:
        place = pathlib.Path(name).parent
        made = (*kernel.make_line(KIND), "-C", base.repo, f"O={out}", f"-j{len(os.sched_getaffinity(0))}", f"{place}/")
        run(*made, env=kernel.make_env(), log=BUILD / "links" / f"{topic.name}.log")
        if problems := unseen(units(out, place)):
            raise Fail(f"with {said}:\n" + "\n".join(problems))
    have = kernel.asked([out / ".config"])
    return {name: have.get(name, "n") for name in kernel.asked([asked]) if name.endswith("_KUNIT_TEST")}


def every_way(base: Base, topic: Topic) -> None:
    """All combinations; each test has to be built in in one of them, and a module in another."""
    out = cache() / "build" / "links"
    found: dict[str, set[str]] = {}
    with lock("source"), kernel.building(out):
        commit = applied.commits(base)["patched"]
        applied.checkout(base, commit)
        for way in ways(topic.links):
            for name, value in link(base, topic, commit, way, out).items():
                found.setdefault(name, set()).add(value)
    for name, values in found.items():
        if missing := {"m", "y"} - values:
            raise Fail(f"{name} was never {' or '.join(sorted(missing))}: nothing tells whether that links")


def links(base: Base, tally: Tally) -> None:
    """Each topic that says what its code may be: built in, a module, or left out."""
    tally.suite = "links"
    for topic in store.series():
        if topic.links:
            what = f"{topic.name}: links in every combination of {', '.join(topic.links)}"
            tally.run(what, every_way, base, topic)
