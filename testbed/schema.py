# SPDX-License-Identifier: GPL-2.0
"""TOML files as checked data: whatever is wrong with one is said in a line, before anything is downloaded or built."""

import difflib
import json
import pathlib
import tomllib
from typing import Any

from .util import ROOT, Fail

Schema = dict[str, Any]

STRING: Schema = {"type": "string", "minLength": 1}
STRINGS: Schema = {"type": "array", "items": STRING, "uniqueItems": True}
COUNT: Schema = {"type": "integer", "minimum": 1}


def table(required: dict[str, Schema], **optional: Schema) -> Schema:
    """A table that has these keys, may have those, and no other."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


def mapping(of: Schema) -> Schema:
    """A table whose keys are names of the writer's own."""
    return {"type": "object", "additionalProperties": of}


def shown(path: pathlib.Path) -> str:
    """A path as a person in the checkout would type it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def text(path: pathlib.Path) -> str:
    """A text file of the checkout."""
    try:
        return path.read_text()
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise Fail(f"{shown(path)}: not UTF-8: line {line} has the byte 0x{error.object[error.start]:02x}") from error


def result(path: pathlib.Path, again: str) -> dict[str, Any]:
    """A JSON file that a command of ours has written; `again` makes it anew."""
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise Fail(f"{shown(path)}: not JSON: {error}; `{again}` makes it anew") from error
    if not isinstance(found, dict):
        raise Fail(f"{shown(path)}: no table of JSON; `{again}` makes it anew")
    return found


def plain(data: dict[str, Any], schema: Schema, path: pathlib.Path) -> None:
    """As check(), of a file of strings, lists of strings and tables of strings, without a package that may be missing.

    It says of what type the values are, and no more.
    """
    if lacks := [name for name in schema["required"] if name not in data]:
        raise Fail(f"{shown(path)}: lacks {', '.join(lacks)}")
    for name, value in data.items():
        kind = schema["properties"].get(name, {}).get("type", "string")
        values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
        if not isinstance(value, {"string": str, "array": list, "object": dict}[kind]) or not all(
            isinstance(one, str) for one in values
        ):
            wanted = {"string": "a string", "array": "a list of strings", "object": "a table of strings"}[kind]
            raise Fail(f"{shown(path)}: {name}: {value!r} is not {wanted}")


def parse(path: pathlib.Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Fail(f"{shown(path)}: not TOML: {error}") from error


def check(data: Any, schema: Schema, path: pathlib.Path) -> None:
    """Raise Fail with one line for what of `data`, which was read from `path`, is not as the schema has it."""
    try:
        import jsonschema
    except ModuleNotFoundError as error:
        raise Fail("python3-jsonschema, which checks TOML files, is not installed: `make setup`") from error

    validator = jsonschema.Draft202012Validator(schema)
    wrong = jsonschema.exceptions.best_match(validator.iter_errors(data))
    if wrong is None:
        return
    where = ".".join(f"[{part}]" if isinstance(part, int) else part for part in wrong.absolute_path).replace(".[", "[")
    raise Fail(f"{shown(path)}: {where + ': ' if where else ''}{said(wrong)}")


def said(error: Any) -> str:
    if error.validator == "additionalProperties":
        known = sorted(error.schema.get("properties", {}))
        unknown = sorted(set(error.instance) - set(known))
        return (
            "; ".join(f"unknown key {name}{meant(name, known)}" for name in unknown)
            + f"; known here: {', '.join(known)}"
        )
    if error.validator == "required":
        return f"lacks {', '.join(name for name in error.validator_value if name not in error.instance)}"
    if error.validator == "enum":
        names = [str(value) for value in error.validator_value]
        return f"{error.instance!r} is not one of {', '.join(names)}{meant(str(error.instance), names)}"
    if error.validator == "type":
        return f"{error.instance!r} is not of type {error.validator_value}"
    return error.schema.get("description") or error.message


def meant(name: str, known: Any) -> str:
    """A guess at what a misspelt name was to be."""
    close = difflib.get_close_matches(name, list(known), 1)
    return f" (meant: {close[0]}?)" if close else ""
