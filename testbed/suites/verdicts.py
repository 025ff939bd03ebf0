# SPDX-License-Identifier: GPL-2.0
"""Verdicts that are kept: what was judged need not be judged again while nothing has changed that it depends on.

Each is a file of the cache, named by a key of all that decides it, the code that judges included. Only what was found
to be well is kept, so a failure is looked at each time.
"""

import json
import pathlib
from collections.abc import Callable
from typing import TypeVar

from ..util import Fail, cache, digest, whole

T = TypeVar("T")
Key = str | pathlib.Path


class Settings:
    """Whether kept verdicts are believed; `make test-all` asks for each anew."""

    fresh = False


def place(key: tuple[Key, ...]) -> pathlib.Path:
    return cache() / "verdicts" / digest(*key)


def kept(key: tuple[Key, ...]) -> pathlib.Path | None:
    """The file of a kept verdict, if there is one that is to be believed."""
    path = place(key)
    return path if path.is_file() and not Settings.fresh else None


def keep(key: tuple[Key, ...], value: object = None) -> None:
    with whole(place(key)) as part:
        part.write_text(json.dumps(value))


def once(function: Callable[[], object], *key: Key) -> None:
    """Call a check, which raises Fail, unless it has passed before for the same key."""
    if not kept(key):
        function()
        keep(key)


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
