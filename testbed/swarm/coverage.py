# SPDX-License-Identifier: GPL-2.0
"""`make coverage`: which lines of the topics' code the tests execute, which a swarm's loads do, and which nothing does.

The kernel of KIND=coverage counts the lines of the objects that `counted` in topic.toml names. A boot leaves its counts
in a directory of its own and is not made again, so that a run which was killed goes on where it was. gcov-tool adds
counts up, and gcov says which lines they are of: both come with the compiler that placed the counters, and gcov says
where a function ends, which lcov and gcovr do not.
"""

import concurrent.futures
import dataclasses
import fnmatch
import itertools
import json
import os
import pathlib
import re
import shlex
import tempfile
from collections.abc import Collection, Iterable

from .. import schema
from ..machines import boot, guest, kernel
from ..machines.kinds import COUNTS, KINDS
from ..report.tables import table
from ..series import applied
from ..series import base as bases
from ..series import topics as store
from ..series.base import Base, git
from ..suites import selftests
from ..suites.verdicts import Key
from ..util import BUILD, Fail, digest, remove, run, say
from . import promises
from .judge import chosen
from .promises import Swarm
from .run import PLAIN, is_tool

PLACE = BUILD / "coverage"
TESTS, SEEDS = "tests", "seeds"
MANY, LARGEST = 100, 20
# Real seconds of a boot.
LIMIT = 1800
SCHEMA = schema.table({"reasons": schema.mapping(schema.STRING)})
LEFT = "counts.tar.gz"
# Neither headers, whose lines are of many objects, nor KUnit.
CODE = re.compile(r"^(?!.*/tests/).*(?<!_kunit)\.c$")
# Around a guest's script. debugfs says of no file how large it is, so that tar would find nothing there.
AROUND = """#!/bin/bash
bash /host{script}
status=$?
cp -r /sys/kernel/debug/gcov /tmp/counts
tar -C /tmp/counts -czf /results/{left} .
exit $status
"""
# {file: {line: how often it was executed}}
Lines = dict[str, dict[int, int]]
# {"file: function": its lines}
Functions = dict[str, set[int]]


@dataclasses.dataclass(frozen=True)
class Boot:
    """One guest that counts."""

    group: str
    name: str
    script: str
    # All that decides what is counted.
    key: tuple[Key, ...] = ()
    # Whether it boots for the sake of KUnit, some of whose cases wait for a thread that simulated time gives no turn.
    kunit: bool = False

    @property
    def where(self) -> pathlib.Path:
        return PLACE / self.group / self.name

    @property
    def counted(self) -> bool:
        return (self.where / LEFT).is_file()


def coverage(topic: str, seeds: str, first: str, record: bool) -> int:
    """Boot what has not been booted, and say what is reached; returns the exit status."""
    wanted = promises.find(topic)
    drawn = chosen(seeds, first, MANY)
    why = reasons(wanted.topic.home / "coverage.toml")
    base, what = bases.find(), kernel.flavour(COUNTS)
    image = kernel.kernels(base, what, only=("patched",))["patched"].resolve()
    root = guest.root(store.guest_packages(store.series()))
    every = boots(wanted, kernel.selftests(base), drawn, image, root)
    commit = applied.kept(base)
    notes, out = kernel.notes(kernel.kept(base, commit, what)), kernel.workplace(base, what)
    failed = made(every, image, root)
    functions: Functions = {}
    tests, loads = (
        parsed(executed([one for one in every if one.counted and one.group == group], notes, out), base.repo, functions)
        for group in (TESTS, SEEDS)
    )
    not_built = [path for path in sources(base, commit, what.counted) if path not in tests]
    text = "\n\n".join(
        [
            "# Lines that tests and random loads execute",
            f"On {base.name}, KIND=coverage: {said(every)}.",
            "Not counted, for it is not compiled there or has code in headers only: " + ", ".join(not_built) + ".",
            by_file(tests, loads),
            unreached(tests, loads, functions, why),
        ]
    )
    (PLACE / "coverage.md").write_text(text + "\n")
    (PLACE / "lines").write_text(annotated(base, commit, tests, loads))
    if record:
        (wanted.topic.results / "coverage.md").write_text(text + "\n")
    print(f"\n{text}\n")
    say(f"how often each line is executed: {PLACE / 'lines'}")
    for one, problem in failed.items():
        print(f"FAIL {one.group} {one.name}: {problem}")
    return int(bool(failed))


def reasons(path: pathlib.Path) -> dict[str, str]:
    """{"file: function": why nothing reaches it}"""
    data = schema.parse(path) if path.is_file() else {"reasons": {}}
    schema.check(data, SCHEMA, path)
    return data["reasons"]


def boots(
    wanted: Swarm, place: pathlib.Path, seeds: Iterable[int], image: pathlib.Path, root: pathlib.Path
) -> list[Boot]:
    """KUnit, each selftest of KIND=sim, and each load on patched; in turns, so that a killed run has some of both."""
    topics = store.series()
    tests = [Boot(TESTS, "kunit", "", (image,), True)]
    for one in selftests.scripts(topics, "sim", place):
        text = selftests.script(topics, "sim", place, [one])
        key = selftests.depends(KINDS[COUNTS], image, root, place, one, text)
        tests.append(Boot(TESTS, one.replace("/", "-").removesuffix(".sh"), text, key))
    side = next(side for side, name in wanted.sides.items() if name == "patched")
    tools = digest(image, root.name, *sorted(path for path in place.rglob("*") if is_tool(path)))
    loads = []
    for seed in map(str, seeds):
        text = wanted.world.script(wanted.load(seed), side, wanted.data)
        loads.append(Boot(SEEDS, seed, f"selftests={place} side={side}\n{PLAIN}{text}", (tools, text)))
    return [one for pair in itertools.zip_longest(tests, loads) for one in pair if one]


def made(every: Collection[Boot], image: pathlib.Path, root: pathlib.Path) -> dict[Boot, str]:
    """Make the boots that have not been made; returns {one that failed: why}. It is made again the next time."""
    failed = {}
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        running = {pool.submit(make, one, image, root): one for one in every}
        try:
            for done, future in enumerate(concurrent.futures.as_completed(running), 1):
                one = running[future]
                if problem := future.result():
                    failed[one] = problem
                say(f"{done} of {len(every)}: {one.group} {one.name}{f': {problem}' if problem else ''}")
        finally:
            pool.shutdown(cancel_futures=True)
    return failed


def make(one: Boot, image: pathlib.Path, root: pathlib.Path) -> str:
    """Make a boot, unless it was made and was well; returns what is wrong."""
    mark, own = one.where / "made", digest(AROUND, *one.key)
    if mark.is_file() and mark.read_text() == own:
        return ""
    script, around = one.where.with_suffix(".sh"), one.where.with_suffix(".around.sh")
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f"#!/bin/bash\n{one.script}")
    around.write_text(AROUND.format(script=shlex.quote(str(script.resolve())), left=LEFT))
    try:
        words = (f"kunit.enable={int(one.kunit)}",)
        boot.boot(image, around, one.where, LIMIT, COUNTS, words, not one.kunit, root, quiet=True)
    except Fail as fail:
        return str(fail).splitlines()[0]
    ktap = one.where / "ktap"
    cases = selftests.ktap(ktap.read_text(errors="replace")) if ktap.is_file() else {}
    if bad := [case for case, verdict in cases.items() if verdict != "ok"]:
        return f"not ok: {', '.join(bad)}"
    mark.write_text(own)
    return ""


def executed(counted: Iterable[Boot], notes: pathlib.Path, out: pathlib.Path) -> str:
    """What gcov says of the sum of some boots, whose kernel was built in `out`: a line of JSON for each object."""
    with tempfile.TemporaryDirectory(dir=PLACE) as name:
        place, total = pathlib.Path(name), pathlib.Path(name) / "total"
        for one in counted:
            more, both = place / "more", place / "both"
            more.mkdir()
            run("tar", "-C", more, "-xzf", one.where / LEFT)
            if total.is_dir():
                run("gcov-tool", "merge", "-o", both, total, more)
                remove(total)
                remove(more)
                more = both
            more.rename(total)
        # gcov looks for the notes beside the counts.
        top = total / out.resolve().relative_to("/")
        top.mkdir(parents=True, exist_ok=True)
        run("rsync", "-r", f"{notes}/", f"{top}/")
        files = sorted(str(path.relative_to(top)) for path in top.rglob("*.gcno"))
        return run("gcov", "--json-format", "--stdout", *files, cwd=top).stdout


def parsed(said: str, source: pathlib.Path, functions: Functions) -> Lines:
    """The lines of C files of which gcov said something, but for tests; adds their functions."""
    lines: Lines = {}
    for text in said.splitlines():
        if not text.startswith("{"):
            continue
        # Behind the JSON stands what gcov says of the next object, if that has no code.
        for file in json.JSONDecoder().raw_decode(text)[0]["files"]:
            name = os.path.relpath(os.path.join(source, file["file"]), source)
            if not CODE.search(name):
                continue
            counts = lines.setdefault(name, {})
            for line in file["lines"]:
                at = line["line_number"]
                counts[at] = counts.get(at, 0) + line["count"]
                if "function_name" in line:
                    functions.setdefault(f"{name}: {line['function_name']}", set()).add(at)
    return lines


def sources(base: Base, commit: str, counted: Iterable[str]) -> list[str]:
    """The C files of a commit whose objects are counted, if they are compiled."""
    patterns = [f"{one.replace('%', '*')}.*" for one in counted]
    every = git(base.repo, "ls-tree", "-r", "--name-only", commit).stdout.splitlines()
    return [path for path in every if CODE.search(path) and any(fnmatch.fnmatch(path, one) for one in patterns)]


def said(every: Collection[Boot]) -> str:
    """What was booted and is counted, in words."""
    have = [one for one in every if one.counted]
    parts = []
    for group, what in ((TESTS, "KUnit and selftests"), (SEEDS, "seeds")):
        names = [one.name for one in have if one.group == group]
        parts.append(f"{len(names)} of {sum(one.group == group for one in every)} {what}")
    seeds = [int(one.name) for one in have if one.group == SEEDS]
    return ", ".join(parts) + (f", {min(seeds)} to {max(seeds)}" if seeds else "")


def reached(lines: Lines, file: str) -> set[int]:
    return {at for at, count in lines.get(file, {}).items() if count}


def by_file(tests: Lines, loads: Lines) -> str:
    """A line for each file, and one for all: how many lines there are, and what part of them is executed."""
    rows: list[list[str]] = []
    total = [0, 0, 0, 0]
    for file in sorted(tests):
        sets = [set(tests[file]), reached(tests, file), reached(loads, file)]
        numbers = [*map(len, sets), len(sets[1] | sets[2])]
        total = [a + b for a, b in zip(total, numbers, strict=True)]
        rows.append(row(file, numbers))
    return table(["file", "lines", "tests, %", "seeds, %", "either, %"], [*rows, row("all", total)], (0,))


def row(name: str, numbers: list[int]) -> list[str]:
    whole = numbers[0]
    return [name, str(whole), *(f"{100 * part / whole:.1f}" if whole else "" for part in numbers[1:])]


def unreached(tests: Lines, loads: Lines, functions: Functions, why: dict[str, str]) -> str:
    """The largest functions that nothing reaches, each with the reason that is known, and reasons that are none."""
    either = {file: reached(tests, file) | reached(loads, file) for file in tests}
    found = {name: len(lines) for name, lines in functions.items() if not lines & either[name.partition(": ")[0]]}
    largest = sorted(found, key=lambda name: (-found[name], name))
    rows = [[name, str(found[name]), why.get(name, "")] for name in largest[:LARGEST]]
    parts = [
        f"Nothing reaches {len(found)} of {len(functions)} functions, with {sum(found.values())} lines. The largest:",
        table(["function", "lines", "why"], rows, (0, 2)),
    ]
    if stale := [name for name in why if name not in found]:
        parts.append("Reached, or no more there, so that no reason is needed: " + ", ".join(stale) + ".")
    if more := [f"{name} ({found[name]})" for name in largest[LARGEST:]]:
        parts.append("The others: " + ", ".join(more) + ".")
    return "\n\n".join(parts)


def annotated(base: Base, commit: str, tests: Lines, loads: Lines) -> str:
    """Each file, with how often tests and loads execute each line in front of it."""
    parts = []
    for file in sorted(tests):
        parts.append(f"{file}\n")
        for at, text in enumerate(applied.read(base, commit, file).splitlines(), 1):
            counts = [f"{lines[file].get(at, '')}" if file in lines else "" for lines in (tests, loads)]
            parts.append(f"{counts[0]:>10} {counts[1]:>10} {at:>5} {text}\n")
    return "".join(parts)
