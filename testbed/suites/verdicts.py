# SPDX-License-Identifier: GPL-2.0
"""Verdicts that are kept: what was judged need not be judged again while nothing has changed that it depends on.

Each is a file of the cache, named by a key of all that decides it, the code that judges included. Only what was found
to be well is kept, so a failure is looked at each time.
"""

import json
import os
import pathlib
import sys
from collections.abc import Callable
from typing import TypeVar

from ..machines import guest
from ..util import ROOT, Fail, Tally, cache, digest, run, say, write

T = TypeVar("T")
Key = str | pathlib.Path


# Set while nothing that is kept is believed, in the commands that this one calls, too: `make test-all` asks anew.
FRESH = "TESTBED_FRESH"


def fresh() -> bool:
    return FRESH in os.environ


def place(key: tuple[Key, ...]) -> pathlib.Path:
    return cache() / "verdicts" / digest(*key)


def kept(key: tuple[Key, ...]) -> pathlib.Path | None:
    """The file of a kept verdict, if there is one that is to be believed."""
    path = place(key)
    return path if path.is_file() and not fresh() else None


def keep(key: tuple[Key, ...], value: object = None) -> None:
    write(place(key), json.dumps(value))


def code(*rooms: str) -> list[pathlib.Path]:
    """The modules of rooms of the testbed, for what all of them decide."""
    return sorted(path for room in rooms for path in (ROOT / "testbed" / room).rglob("*.py"))


def checkout() -> str:
    """A key of every file of the checkout that git does not ignore, of Python and of the machine's packages.

    It is for what may read any of them: that need not be asked for again if nothing at all has changed.
    """
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).stdout.split("\0")
    paths = [path for name in sorted(set(names)) if (path := ROOT / name).is_file()]
    parts: list[Key] = [sys.version]
    for path in paths:
        parts += [f"{path.relative_to(ROOT)} {os.access(path, os.X_OK)}", path]
    return digest(*parts, *guest.packages(pathlib.Path("/")))


def once(function: Callable[[], object], *key: Key) -> None:
    """Call a check, which raises Fail, unless it has passed before for the same key."""
    if not kept(key):
        function()
        keep(key)


def counted(tally: Tally, function: Callable[[], object], *key: Key) -> None:
    """Call what counts its cases in a tally; or count those again that have all passed before for the same key."""
    if path := kept(key):
        say("all passed, and nothing that decides it has changed")
        return tally.add(tally.suite, json.loads(path.read_text()))
    before = len(tally.cases)
    function()
    found = {case.name: case.problem for case in tally.cases[before:]}
    if found and not any(found.values()):
        keep(key, found)


def value(function: Callable[[], T], *key: Key) -> T:
    """What a function returns, as JSON has it, or has returned before for the same key."""
    if path := kept(key):
        try:
            return json.loads(path.read_text())
        except ValueError as error:
            raise Fail(f"{path}: not JSON: {error}: delete it") from error
    found = function()
    keep(key, found)
    return found
