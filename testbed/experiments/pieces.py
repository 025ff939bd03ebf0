# SPDX-License-Identifier: GPL-2.0
"""The pieces of the selftests that an experiment's guest runs; a record depends on that, and on no other line of them.

Of a script and of a program that is all of it; a C program is named as what it is built to, and has what it includes.
Of a library, which is sourced and no program, it is the code outside of its functions, and those functions that are
named in what is run. So none may be called by a name that is put together only then.
"""

import pathlib
import re
import tempfile
from collections.abc import Iterable

from ..series.base import git
from ..series.topics import SELFTESTS, Topic
from ..util import TOOLS, digest
from .experiment import Experiment

# With the comment above it.
FUNCTION = re.compile(r"(?:^#.*\n)*^(\w+)\(\).*\n\{\n(?:.*\n)*?\}\n", re.M)
COMMENT = re.compile(r"^\s*#.*\n|^\n", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s+"(?:[^"]*/)?([^"/]+)"', re.M)
IMPORT = re.compile(r"^\s*(?:import|from)\s+(\w+)", re.M)
# What no guest runs or reads, and of a Makefile what all programs are built with.
ASIDE = re.compile(r"(^|/)(README|config|settings|\.gitignore)$")
FLAGS = re.compile(r"^(?:\w*FLAGS|LDLIBS)\b.*\n", re.M)


def of(topics: Iterable[Topic]) -> dict[str, str]:
    """{piece: text} of what topics bring: "nfsd/nfsload.c", "nfsd/lib.sh", "nfsd/lib.sh: nfsd_disk()"."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="knfsd-queue-") as place:
        patches = [patch for topic in topics for patch in topic.patches]
        outside = {"GIT_CEILING_DIRECTORIES": str(pathlib.Path(place).parent)}
        # The collection's own Makefile is the kernel's, and not here to be patched.
        only = [f"--exclude={SELFTESTS}Makefile", f"--include={SELFTESTS}*"]
        git(pathlib.Path(place), "apply", "--whitespace=nowarn", *only, *patches, env=outside)
        for path in sorted(path for path in pathlib.Path(place, SELFTESTS).rglob("*") if path.is_file()):
            name, text = str(path.relative_to(place)).removeprefix(SELFTESTS), path.read_text()
            if ASIDE.search(name):
                continue
            if path.name == "Makefile":
                found[name] = "".join(FLAGS.findall(text))
            elif path.suffix != ".sh" or path.stat().st_mode & 0o100:
                found[name] = text
            else:
                found[name] = COMMENT.sub("", FUNCTION.sub("", text))
                found |= {f"{name}: {function[1]}()": function[0] for function in FUNCTION.finditer(text)}
    return found


def run(script: str, known: dict[str, str]) -> set[str]:
    """The pieces that a guest's script runs: those it names, those that they name, and so on."""
    found: set[str] = set()
    while True:
        words = named(script).union(*(names(piece, known[piece]) for piece in found))
        more = set()
        for piece in known:
            path, _, function = piece.partition(": ")
            called = {path, path.rpartition("/")[2], path.rpartition("/")[2].removesuffix(".c")}
            if path in found and function.removesuffix("()") in words if function else called & words:
                more.add(piece)
        if more == found:
            return found
        found = more


def named(text: str) -> set[str]:
    """The words of a script, those with a dot or a hyphen as a whole and in parts."""
    said = COMMENT.sub("", text)
    return set(re.findall(r"[\w.-]+", said)) | set(re.findall(r"\w+", said))


def names(piece: str, text: str) -> set[str]:
    """What a piece may run: of C the headers that it includes, the code that goes with them, and what builds it."""
    if piece.endswith((".c", ".h")):
        headers = INCLUDE.findall(text)
        return {*headers, *(name.removesuffix(".h") for name in headers), f"{piece.rpartition('/')[0]}/Makefile"}
    if piece.endswith("/Makefile"):
        return set()
    return named(text) | {f"{name}.py" for name in IMPORT.findall(text) if piece.endswith(".py")}


def used(experiment: Experiment) -> dict[str, str]:
    """{piece: key of its text} of what the experiment's guest runs."""
    if not hasattr(experiment.kind, "script"):
        return {}
    known, script = of(experiment.topics), experiment.kind.script(experiment, "")
    found = {piece: digest(known[piece]) for piece in sorted(run(script, known))}
    tools = sorted(set(re.findall(re.escape(f"{TOOLS}/") + r"([\w-]+)", script)))
    return found | {f"tools/{name}": digest(TOOLS / name) for name in tools}
