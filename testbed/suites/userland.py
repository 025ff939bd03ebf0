# SPDX-License-Identifier: GPL-2.0
"""The topics of a base that is no kernel: its patches as a maintainer looks at them, and its programs."""

import functools
import os
import pathlib
import re
import shutil
from collections.abc import Collection

from .. import host
from ..machines import kernel
from ..series import applied
from ..series import base as bases
from ..series.base import Base, git
from ..series.topics import Topic
from ..util import Fail, Tally, cache, digest, lock, project, remove, run, say, whole
from .check import apply_all
from .verdicts import Key, once

CODE = pathlib.Path(__file__)
# All that these compilers warn of; a project's own flags leave out some of it for some of its programs.
FLAGS = "CFLAGS=-g -O2 -Wall -Wextra"
# What the base itself says while it is built. It is the last file to be made, so a build that was killed is begun anew.
BEFORE = ".said"
# The files of the commit that is there.
FILES = ".files"


def workplace(of: str, base: Base) -> pathlib.Path:
    """The directory in which the project's commits are built; all of the base has been."""
    options = bases.PROJECTS[of].configure
    place = cache() / "build" / f"{of}-{digest(base.key, *built(of))}"
    if not (place / BEFORE).is_file():
        host.setup(host.USERLAND)
        say(f"building {base.name}")
        remove(place)
        place.mkdir(parents=True)
        copy(base, base.commit, place)
        run("autoreconf", "-fi", cwd=place)
        run("./configure", "-q", *options, cwd=place)
        (place / BEFORE).write_text(make(place))
    return place


def built(of: str) -> tuple[str, ...]:
    """What a project's programs are made with."""
    return FLAGS, kernel.compiler(), *bases.PROJECTS[of].configure


def copy(base: Base, commit: str, place: pathlib.Path) -> None:
    """Have a commit's files there. What differs is new, so that make makes what it has to, and nothing else."""
    applied.checkout(base, commit)
    listed, names = place / FILES, git(base.repo, "ls-files").stdout
    before = listed.read_text().splitlines() if listed.is_file() else []
    for gone in set(before) - set(names.splitlines()):
        remove(place / gone)
    listed.write_text(names)
    run("rsync", "-rlpc", "--exclude=/.git", f"{base.repo}/", place)


def make(place: pathlib.Path) -> str:
    """What make says; Fail if it fails."""
    done = run("make", f"-j{len(os.sched_getaffinity(0))}", FLAGS, cwd=place, check=False, env={"LC_ALL": "C"})
    if done.returncode:
        bad = [line for line in done.stdout.splitlines() if re.search(r"error|\*\*\*", line) and "libtool:" not in line]
        raise Fail(f"make failed with status {done.returncode} in {place}:\n" + "\n".join(bad[:25]))
    return done.stdout


def warnings(said: str) -> set[str]:
    """The compiler's warnings, without line numbers, so that base and patched compare."""
    return {re.sub(r":\d+(:\d+)?(?=[: ])", "", line) for line in said.splitlines() if "warning: " in line}


def compiles(of: str, base: Base, commit: str) -> None:
    """Build a commit, which may have no warning that the base does not have."""
    place = workplace(of, base)
    copy(base, commit, place)
    # Of what is up to date nothing is said.
    for name in applied.touched(base, commit):
        (place / name).touch()
    if new := warnings(make(place)) - warnings((place / BEFORE).read_text()):
        raise Fail("new warnings:\n" + "\n".join(sorted(new)))


def check(base: Base, tally: Tally, chosen: Collection[Topic]) -> None:
    """All of it, of some topics of the base that BASE= names; every patch and topic is a check of its own."""
    tally.suite, of = "check", project()
    with lock("source"):
        for step in apply_all(base, tally, chosen):
            space = git(base.repo, "diff", "--check", f"{step.commit}^", step.commit, check=False).stdout
            tally.that(f"{step.name}: its white space is well", space)
            build = functools.partial(compiles, of, base, step.commit)
            contents = applied.content(base, f"{step.commit}^"), applied.content(base, step.commit)
            key: tuple[Key, ...] = (of, base.key, *contents, CODE, *built(of))
            tally.run(f"{step.name}: builds, and no warning is new", once, build, *key)


def programs(of: str) -> pathlib.Path:
    """The directory of a project's programs for guests, with its topics' patches, on the packaged base."""
    wanted = bases.PROJECTS[of]
    base = bases.from_package(wanted)
    with lock("source"):
        commit = applied.commits(base, of)["patched"]
        content = applied.content(base, commit)
        made = cache() / "programs" / digest(of, base.key, content, *wanted.programs, *built(of), CODE)
        if not made.is_dir():
            place = workplace(of, base)
            copy(base, commit, place)
            make(place)
            with whole(made) as part:
                part.mkdir()
                for name in wanted.programs:
                    (found,) = place.glob(f"utils/*/{name}")
                    shutil.copy2(found, part)
    return made
