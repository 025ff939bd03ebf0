# SPDX-License-Identifier: GPL-2.0
"""Is every topic a series a maintainer could take? Each patch and topic is a check of its own."""

import os
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence

from ..machines import kernel
from ..series import topics as store
from ..series import tree
from ..series.base import Base, git
from ..series.topics import Topic
from ..util import BUILD, ROOT, Fail, Tally, cache, digest, lane, lock, run
from .selftests import left_out

# What checkpatch cannot know here: whoever posts a patch signs it off, and the topic's own MAINTAINERS lines are in
# another of its patches.
CHECKPATCH = (
    "--strict",
    "--no-signoff",
    "--ignore",
    "FILE_PATH_CHANGES",
    "--terse",
    "--no-summary",
    "--show-types",
    "--showfile",
)
# ... nor that the packaged base has no history, that trace headers are laid out like that, that C99 spells it so, or
# that a test changes its own copy of what the kernel keeps const.
ALLOWED = re.compile(
    r"UNKNOWN_COMMIT_ID|trace[^:]*\.h:\d+: CHECK:(OPEN_ENDED_LINE|PARENTHESIS_ALIGNMENT)|CAMELCASE: .*<PRI[dux]64>"
    r"|_kunit\.c:\d+: WARNING:CONST_STRUCT"
)
# Debian 12's sparse predates __typeof_unqual__; without qualifiers to drop, __typeof__ means the same to it.
SPARSE = "sparse -D__typeof_unqual__=__typeof__"
SELFTESTS = store.SELFTESTS
# In the guest's init there is nobody to tell that a directory of its own root is missing (SC2164); a library that is
# left out is no fault of those that source it (SC1094), nor are the variables it sets (SC2154).
SHELLCHECK = (
    "shellcheck",
    "--severity=warning",
    "--exclude=SC2164,SC1094,SC2154",
    "--format=gcc",
    "--external-sources",
    "--source-path=SCRIPTDIR",
)
# What else a topic is compiled with at its end: {kind of kernel.COMPILED: make's words}. A second compiler that is
# asked for more warnings, and a machine where a long has 32 bits.
COMPILERS = {"clang": ("W=1",), "i386": ()}
FIXES = re.compile(r"^Fixes:\s*(.*)$", re.M)


def known(key: Iterable[str | pathlib.Path]) -> pathlib.Path:
    """A file that stands for a check that has passed; commits of the queue are the same wherever it is applied."""
    path = cache() / "checked" / digest(*key)
    path.parent.mkdir(exist_ok=True)
    return path


def once(function: Callable[[], object], *key: str | pathlib.Path) -> None:
    """Call a check unless it has passed before for the same key."""
    mark = known(key)
    if not mark.is_file():
        function()
        mark.touch()


def steps(base: Base, topics: Iterable[Topic]) -> Iterator[tuple[Topic, pathlib.Path, str]]:
    """[(topic, patch, commit)] of the queue applied on the base."""
    commits = git(
        base.repo, "rev-list", "--reverse", f"{base.commit}..{kernel.commits(base)['patched']}"
    ).stdout.split()
    for topic in topics:
        commits.pop(0)  # the cover letter
        for patch in topic.patches:
            yield topic, patch, commits.pop(0)


def touched(repo: pathlib.Path, commit: str, before: str | None = None) -> list[str]:
    """The files a commit, or all since `before`, adds or changes."""
    return git(repo, "diff", "--name-only", "--diff-filter=d", before or f"{commit}^", commit).stdout.split()


def code(names: Iterable[str]) -> list[str]:
    """Of files, those of the kernel itself."""
    return [name for name in names if not name.startswith(("tools/", "scripts/", "Documentation/"))]


def objects(names: Sequence[str], users: Iterable[str]) -> list[str]:
    """make's targets for what changed: each C file's object, and with a header its `users`, directories or objects."""
    names = code(names)
    found = {name.removesuffix(".c") + ".o" for name in names if name.endswith(".c")}
    whole = set(users) if any(name.endswith(".h") for name in names) else set()
    # make does not take a directory and an object in it at once
    return sorted(whole | {name for name in found if not name.startswith(tuple(whole))})


def targets(names: Iterable[str]) -> list[str]:
    """The directories of tools/testing/selftests that have a changed file and are built."""
    found = {name.removeprefix(SELFTESTS).split("/")[0] for name in names if name.startswith(SELFTESTS)}
    return sorted(found & set(kernel.targets()))


def compile_step(base: Base, topic: Topic, commit: str, names: Sequence[str], out: pathlib.Path) -> None:
    """Compile what a commit touches, as it stands at that commit, with every KUnit test on; selftests too."""
    kernel.checkout(base, commit)
    log = BUILD / "check" / f"{commit[:12]}.log"
    said = ""
    if made := objects(names, topic.compile):
        with kernel.building(out):
            kernel.configure(base.repo, out, kernel.everything())
            said += run(
                *kernel.make_line("check"),
                "-C",
                base.repo,
                f"O={out}",
                f"-j{len(os.sched_getaffinity(0))}",
                *made,
                env=kernel.make_env(),
                log=log,
            ).stdout
    if here := targets(names):
        with tempfile.TemporaryDirectory(dir=cache()) as place:
            said += kernel.install_selftests(base, here, pathlib.Path(place), log)
    if found := [line for line in said.splitlines() if "warning:" in line]:
        raise Fail("compiler warnings:\n" + "\n".join(found))


def checkpatch(base: Base, patch: pathlib.Path, commit: str) -> None:
    kernel.checkout(base, commit)
    said = run("perl", "scripts/checkpatch.pl", *CHECKPATCH, patch, cwd=base.repo, check=False).stdout
    if found := [
        line for line in said.splitlines() if re.search(r"(ERROR|WARNING|CHECK):", line) and not ALLOWED.search(line)
    ]:
        raise Fail("\n".join(found))


def warnings(base: Base, commit: str, names: Iterable[str], out: pathlib.Path) -> set[str]:
    """What kernel-doc and sparse say of files at a commit, without line numbers, so that base and patched compare."""
    kernel.checkout(base, commit)
    here = [
        name
        for name in names
        if (base.repo / name).is_file() and name.endswith((".c", ".h")) and not name.startswith(("tools/", "scripts/"))
    ]
    if not here:
        return set()
    said = run("python3", "scripts/kernel-doc", "-none", "-Wall", *here, cwd=base.repo, check=False).stdout
    compiled = [name.removesuffix(".c") + ".o" for name in here if name.endswith(".c")]
    if compiled:
        kernel.configure(base.repo, out, kernel.everything())
        said += run(
            *kernel.make_line("check"),
            "-C",
            base.repo,
            f"O={out}",
            "C=2",
            f"CHECK={SPARSE}",
            *compiled,
            env=kernel.make_env(),
            check=False,
        ).stdout
    if "not available or not up to date" in said:
        raise Fail(f"the kernel does not accept this sparse:\n{said}")
    # sparse says that of every MODULE_ macro, at any line that has one.
    return {line for line in complaints(said) if not line.endswith("error: bad constant expression")}


def complaints(said: str) -> set[str]:
    """The lines of a compiler's output that are a warning or an error, without line numbers."""
    lines = {re.sub(r":\d+(:\d+)?(?=[: ])", "", line.replace("../", "")) for line in said.splitlines()}
    # What make says it does ("  CC  lib/error.o") is no complaint.
    return {line for line in lines if re.search(r"warning|error", line, re.I) and not re.match(r"  [A-Z]", line)}


def static(base: Base, names: Sequence[str], out: pathlib.Path) -> None:
    """Fail when the queue brings a warning of kernel-doc's or sparse's that the base does not have."""
    where = kernel.commits(base)
    new = warnings(base, where["patched"], names, out) - warnings(base, where["base"], names, out)
    if new:
        raise Fail("new warnings:\n" + "\n".join(sorted(new)))


def compiled(base: Base, commit: str, names: Iterable[str], kind: str) -> set[str]:
    """What a compiler of COMPILERS complains of in C files, as they stand at a commit."""
    kernel.checkout(base, commit)
    what = kernel.everything(kind)
    out = kernel.workplace(base, what)
    made = [name.removesuffix(".c") + ".o" for name in names if (base.repo / name).is_file()]
    if not made:
        return set()
    log = BUILD / "check" / f"{commit[:12]}-{kind}.log"
    with kernel.building(out):
        kernel.configure(base.repo, out, what)
        done = run(
            *kernel.make_line(kind),
            "-C",
            base.repo,
            f"O={out}",
            "-k",
            f"-j{len(os.sched_getaffinity(0))}",
            *COMPILERS[kind],
            *made,
            env=kernel.make_env(),
            check=False,
            log=log,
        )
    found = complaints(done.stdout)
    if done.returncode and not any("error:" in line for line in found):
        raise Fail(f"make failed with status {done.returncode}; all it said is in {log}")
    return found


def compile_topic(base: Base, commit: str, names: Iterable[str], kind: str) -> None:
    """Fail when a compiler complains at a topic's end of what it does not complain of in the base."""
    now = compiled(base, commit, names, kind)
    # The base is compiled only where there is something to compare.
    where = {
        name
        for name in names
        if any(name in line or pathlib.PurePath(name).with_suffix(".o").name in line for line in now)
    }
    new = now - compiled(base, base.commit, sorted(where), kind) if now else set()
    if new:
        raise Fail("new warnings:\n" + "\n".join(sorted(new)))


def come_and_gone(repo: pathlib.Path, commits: Iterable[str]) -> list[str]:
    """The files that one of a topic's commits adds and a later one deletes."""
    there: set[str] = set()
    gone = []
    for commit in commits:
        for line in git(repo, "diff-tree", "-r", "-M", "--no-commit-id", "--name-status", commit).stdout.splitlines():
            how, *names = line.split("\t")
            if how == "D" and names[0] in there:
                gone.append(names[0])
            elif how == "A":
                there.add(names[0])
            elif how.startswith("R") and names[0] in there:
                there = there - {names[0]} | {names[1]}
    return gone


def has_history(base: Base) -> bool:
    return len(git(base.repo, "rev-list", "--max-count=2", base.commit).stdout.split()) > 1


def fixes(base: Base, patch: pathlib.Path) -> list[str]:
    """What is wrong with the Fixes: lines of a patch, in a base with history."""
    problems = []
    for line in FIXES.findall(message(patch)):
        named = re.fullmatch(r"([0-9a-f]{12,40}) \(\"(.+)\"\)", line)
        if not named:
            problems.append(
                f'Fixes: {line}: not 12 digits or more of a commit and its subject, as in: 0123456789ab ("subject")'
            )
            continue
        done = git(base.repo, "log", "-1", "--format=%s", named[1], "--", check=False)
        if done.returncode:
            problems.append(f"the base has no commit {named[1]}")
        elif done.stdout.strip() != named[2]:
            problems.append(f'{named[1]} is "{done.stdout.strip()}", not "{named[2]}"')
        elif git(base.repo, "merge-base", "--is-ancestor", named[1], base.commit, check=False).returncode:
            problems.append(f"{named[1]} is not in the base's history")
    return problems


def message(patch: pathlib.Path) -> str:
    return patch.read_text(errors="replace").partition("\n---\n")[0]


def check_fixes(base: Base, topics: Iterable[Topic], tally: Tally) -> None:
    """Every patch with a Fixes: line is a check, where the base's history allows."""
    patches = [(topic, patch) for topic in topics for patch in topic.patches if FIXES.search(message(patch))]
    if has_history(base):
        for topic, patch in patches:
            tally.that(f"{topic.name}/{patch.name}: Fixes:", "\n".join(fixes(base, patch)))
    elif patches:
        print(
            f"     Fixes: of {len(patches)} patches cannot be verified: {base.name} has no history; "
            "KSRC= a clone that has",
            flush=True,
        )


def shell_scripts(base: Base, topics: list[Topic], names: Iterable[str], tally: Tally) -> None:
    """shellcheck over the selftests that the series brings, as checked out, and over the testbed's own scripts."""
    own = [*sorted((ROOT / "testbed").rglob("*.sh")), *(ROOT / ".ci").glob("run")]
    without = left_out(topics, "shellcheck")
    for name, why in without.items():
        print(f"     shellcheck without {name}: {why}", flush=True)
    scripts = [name for name in names if name.startswith(SELFTESTS) and name.endswith(".sh")]
    for path in [*(base.repo / name for name in scripts if pathlib.PurePath(name).name not in without), *own]:
        done = run(*SHELLCHECK, path, cwd=path.parent, check=False)
        tally.that(
            f"shellcheck: {path.relative_to(ROOT if path in own else base.repo)}",
            done.stdout if done.returncode else "",
        )


def stands_alone(base: Base, topics: list[Topic], topic: Topic) -> str:
    """Apply a topic on the base with only the topics it depends on; returns the last commit."""
    return tree.apply(base.repo, store.closure(topics, topic.name), base.commit, tree.ALONE)


def agree(topics: list[Topic], topic: Topic) -> None:
    said = tree.stands_on(topic.name, topic.letter)
    if sorted(said) != sorted(topic.depends_on):
        raise Fail(
            f"topic.toml: {', '.join(topic.depends_on) or 'nothing'}; the cover letter's `Stands on:`: "
            f"{', '.join(said) or 'the base alone'}"
        )
    patches = [path for one in store.closure(topics, topic.name) for path in one.patches]
    gone = [
        name
        for name in topic.kunit
        if not any(f"+++ b/{name}\n" in path.read_text(errors="replace") for path in patches)
    ]
    if gone:
        raise Fail(
            f"topic.toml: kunit: no patch of the topic, or of one that it depends on, brings or changes "
            f"{', '.join(gone)}"
        )


def check(base: Base, tally: Tally) -> None:
    """All of it; every patch and topic is a check of its own."""
    tally.suite = "check"
    topics = store.series()
    out = kernel.workplace(base, kernel.everything())
    settings: tuple[str | pathlib.Path, ...] = (base.key, *kernel.everything().fragments)
    with lock("source"):
        tally.that("the base's history has none of the queue's patches", "\n".join(tree.merged(base, topics)))
        if not tally.run(f"the queue applies on {base.name}", kernel.commits, base):
            return
        for topic in topics:
            what = f"{topic.name}: topic.toml and the cover letter agree on what it depends on"
            tally.run(what, agree, topics, topic)
            tally.run(
                f"{topic.name}: applies with what it depends on ({', '.join(topic.depends_on) or 'the base alone'})",
                once,
                lambda: stands_alone(base, topics, topic),
                "alone",
                base.key,
                store.queue_digest(),
                topic.name,
            )
        check_fixes(base, topics, tally)
        ends: dict[str, list[str]] = {topic.name: [] for topic in topics}
        for topic, patch, commit in steps(base, topics):
            ends[topic.name].append(commit)
            name = f"{topic.name}/{patch.name}"
            tally.run(f"{name}: checkpatch", once, lambda: checkpatch(base, patch, commit), "checkpatch", commit)
            names = touched(base.repo, commit)
            if objects(names, topic.compile) or targets(names):
                tally.run(
                    f"{name}: compiles",
                    once,
                    lambda: compile_step(base, topic, commit, names, out),
                    "compile",
                    kernel.content(base, commit),
                    *settings,
                )
        for topic in topics:
            tally.that(
                f"{topic.name}: no patch adds what a later one deletes",
                "\n".join(come_and_gone(base.repo, ends[topic.name])),
            )
            last = ends[topic.name][-1]
            names = sorted(
                {
                    name
                    for commit in ends[topic.name]
                    for name in code(touched(base.repo, commit))
                    if name.endswith(".c")
                }
            )
            for kind in COMPILERS if names else ():
                tally.run(
                    f"{topic.name}: no new warning for {kind}",
                    once,
                    lambda: compile_topic(base, last, names, kind),
                    kind,
                    kernel.content(base, last),
                    base.key,
                    *kernel.everything(kind).fragments,
                )
        patched = kernel.commits(base)["patched"]
        names = touched(base.repo, patched, base.commit)
        tally.run(
            "no new warning of kernel-doc or sparse",
            once,
            lambda: static(base, names, out),
            "static",
            kernel.content(base, patched),
            *settings,
        )
        kernel.checkout(base, patched)
        shell_scripts(base, topics, names, tally)


def applies(base: Base, tally: Tally) -> None:
    """What is checked of a lane: it applies, and what it changes in a patch is clean. What it is without is said."""
    tally.suite = "check"
    topics = store.series()
    with lock("source"):
        if not tally.run(f"the lane applies on {base.name}", kernel.commits, base):
            return
        for topic, patch, commit in steps(base, topics):
            if patch not in topic.own:
                name = f"{topic.name}/{patch.name}"
                tally.run(f"{name}: checkpatch", once, lambda: checkpatch(base, patch, commit), "checkpatch", commit)
    for topic in topics:
        for name, why in topic.lane(lane()).without.items():
            print(f"     without {topic.name}/{name}: {why}", flush=True)
