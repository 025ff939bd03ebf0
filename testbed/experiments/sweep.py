# SPDX-License-Identifier: GPL-2.0
"""Sweeps: names and the values they take, and texts in which {name} stands for the value at a point."""

import itertools
import string
from collections.abc import Iterable
from typing import Any

from ..schema import Schema
from ..util import Fail
from .table import Point

NAME = r"[A-Za-z_][A-Za-z0-9_]*"
PLAIN: Schema = {
    "type": "string",
    "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$",
    "description": "a name is made of letters, digits, '.', '_' and '-'",
}
VALUE: Schema = {"type": ["integer", "string"], "minimum": 0, "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$"}
SWEEP: Schema = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"pattern": f"^{NAME}$", "not": {"const": "scenario"}},
    "additionalProperties": {"type": "array", "minItems": 1, "uniqueItems": True, "items": VALUE},
}


def combinations(sweep: dict[str, list[Any]]) -> list[Point]:
    """Every combination of the values, in order, the last name's fastest; one empty point without a sweep."""
    return [dict(zip(sweep, values)) for values in itertools.product(*sweep.values())]


def label(point: Point) -> str:
    """What a point's files are called."""
    return "-".join(value if isinstance(value, str) else f"{name}{value}" for name, value in point.items()) or "all"


def names(text: str, where: str) -> set[str]:
    """The names that stand in braces in a text."""
    try:
        found = [
            (name, spec, conversion) for _, name, spec, conversion in string.Formatter().parse(text) if name is not None
        ]
    except ValueError as error:
        raise Fail(f'{where}: "{text}": {error}; a brace that is meant is written twice') from error
    for name, spec, conversion in found:
        if not name.isidentifier() or spec or conversion:
            raise Fail(f'{where}: "{text}": {{{name}{":" + spec if spec else ""}}} is no name of the sweep\'s')
    return {name for name, _, _ in found}


def check(
    sweep: dict[str, list[Any]], texts: Iterable[str], titles: Iterable[str], where: str, used: Iterable[str] = ()
) -> None:
    """Fail unless the texts use each name of the sweep but those `used` otherwise, and they and the titles no other."""
    texts, titles = list(texts), list(titles)
    need = {name for text in texts for name in names(text, where)}
    for text in [*texts, *titles]:
        for name in sorted(names(text, where) - sweep.keys()):
            raise Fail(
                f'{where}: "{text}": {{{name}}} is no name of the sweep\'s ({", ".join(sweep) or "there is none"})'
            )
    for name in sweep:
        if name not in need and name not in used:
            raise Fail(
                f"{where}: sweep.{name} is not used: no text has {{{name}}}, so all its points would be the same"
            )
