# SPDX-License-Identifier: GPL-2.0
"""A small kernel, a small queue and caches of their own, so that no test needs the network or a real kernel."""

import pathlib
import sys
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from testbed import cli, util  # noqa: E402
from testbed.series import base, topics, tree  # noqa: E402

MAKEFILE = "VERSION = 7\nPATCHLEVEL = 3\nSUBLEVEL = 4\nEXTRAVERSION =\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in {variable.name for one in cli.COMMANDS.values() for variable in one.variables}:
        monkeypatch.delenv(name, raising=False)
    # Of a `make` that runs these tests: a `make` below it would take them for its own.
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def ksrc(tmp_path):
    """A git tree that looks like a kernel."""
    path = tmp_path / "linux"
    (path / "net").mkdir(parents=True)
    (path / "Makefile").write_text(MAKEFILE)
    (path / "Kbuild").write_text("# Kbuild\n")
    (path / "net" / "queue.c").write_text("".join(f"line {i}\n" for i in range(30)))
    base.git(path, "init", "-q")
    base.git(path, "add", "-A")
    base.git(path, "commit", "-q", "-m", "base")
    return path


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A checkout of the project's own without a topic: topics/ and tree/ below tmp_path."""
    monkeypatch.setattr(tree, "ROOT", tmp_path)
    monkeypatch.setattr(topics, "TOPICS", tmp_path / "topics")
    monkeypatch.setattr(tree, "TREE", tmp_path / "tree")
    (tmp_path / "topics").mkdir()
    return tmp_path


def module_of(program):
    """A program as a module; it leaves no compiled file beside it."""
    module = types.ModuleType(program.name.replace("-", "_"))
    module.__file__ = str(program)
    exec(compile(program.read_text(), str(program), "exec"), module.__dict__)
    return module


def commit(repo, path, text, subject, body="Why.\n"):
    """Change a file of the tree and commit it."""
    (repo / path).parent.mkdir(parents=True, exist_ok=True)
    (repo / path).write_text(text)
    base.git(repo, "add", "-A")
    base.git(repo, "commit", "-q", "-m", f"{subject}\n\n{body}", env={"GIT_AUTHOR_DATE": "@1700000000 +0000"})


def topic(repo, name, letter="The problem.\n\nDepends on: the base alone\n"):
    """Begin a topic in the tree."""
    base.git(repo, "commit", "-q", "--allow-empty", "-m", f"topic: {name}\n\nNET: the subject of {name}\n\n{letter}")


@pytest.fixture
def filled(place, ksrc):
    """A queue of two topics and three patches, exported; returns the base."""
    found = base.from_tree(ksrc)
    tree.tree(found)
    lines = [f"line {i}\n" for i in range(30)]
    topic(tree.TREE, "one")
    lines[3] = "line three\n"
    commit(tree.TREE, "net/queue.c", "".join(lines), "NET: spell three")
    lines[20] = "line twenty\n"
    commit(tree.TREE, "net/queue.c", "".join(lines), "NET: spell twenty")
    topic(tree.TREE, "two", "Another.\n\nDepends on: one\n")
    commit(tree.TREE, "net/new.c", "new\n", "NET: add a file")
    tree.export()
    return found


def patches_of(top):
    return {str(p.relative_to(top)): p.read_bytes() for p in top.rglob("*") if p.is_file()}


Fail = util.Fail
