# SPDX-License-Identifier: GPL-2.0
"""Each part of the testbed imports only from those below it, and none knows a topic by its name."""

import ast
import pathlib
import re

import pytest

from testbed.series import topics
from testbed.util import ROOT

# From the bottom to the top; a part may import what stands before it, and within itself.
LAYERS = [
    "util",
    "host",
    "schema",
    "series",
    "machines",
    "suites",
    "packages",
    "experiments",
    "report",
    "swarm",
    "gate",
    "cli",
    "__main__",
]
FILES = sorted((ROOT / "testbed").rglob("*.py"))


def part(path: pathlib.Path) -> str:
    return path.relative_to(ROOT / "testbed").parts[0].removesuffix(".py")


def imported(path: pathlib.Path) -> set[str]:
    """The parts of the testbed that a file imports, wherever in it."""
    here = ("testbed", *path.relative_to(ROOT / "testbed").with_suffix("").parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            whole = [*here[: -node.level], *(node.module or "").split(".")]
            names = [name for name in whole if name]
            found |= {names[1]} if len(names) > 1 else {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_part_imports_only_downward(path: pathlib.Path) -> None:
    if part(path) != "__init__":
        allowed = LAYERS[: LAYERS.index(part(path)) + 1]
        assert imported(path) <= set(allowed), f"{path} imports {imported(path) - set(allowed)}"


def test_nothing_in_the_testbed_names_a_topic_or_a_selftest_directory() -> None:
    names = [topic.name for topic in topics.series()]
    names += [f"selftests/{target}" for topic in topics.series() for target in topic.selftests]
    for path in (ROOT / "testbed").rglob("*"):
        if path.is_file() and path.suffix in (".py", ".sh", ".config"):
            found = [name for name in names if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", path.read_text())]
            assert not found, f"{path} names {', '.join(found)}"
