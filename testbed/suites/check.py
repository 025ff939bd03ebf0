# SPDX-License-Identifier: GPL-2.0
"""Is every topic a series a maintainer could take? Each patch and topic is a check of its own."""

import functools
import os
import pathlib
import re
import tempfile
from collections.abc import Collection, Iterable, Sequence

from .. import schema
from ..machines import kernel
from ..machines.kinds import KINDS
from ..series import applied, tree
from ..series import lane as lanes
from ..series import topics as store
from ..series.applied import Step
from ..series.base import Base, git
from ..series.topics import Topic
from ..util import BUILD, ROOT, Fail, Tally, lane, lock, run, tail, threads
from .verdicts import Key, keep, kept, once, value

# A verdict is of this code, too.
CODE = pathlib.Path(__file__)
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
# So many patches are given to one checkpatch: it takes a second until it looks at the first one.
AT_ONCE = 12
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
# What else the series is compiled with: {kind: make's words}. A second compiler is asked for more warnings.
COMPILERS = {"clang": ("W=1",), "i386": ()}
# The parts of a whole check, in order.
STEPS = (
    "the patches apply",
    "checkpatch",
    "the base's kernel",
    "each patch compiles",
    "the patched kernel",
    "kernel-doc and sparse",
    "clang and 32 bits",
    "shellcheck",
)
# So many patches are compiled in one build directory: a second one takes as long to make.
FEW = 30
# What is made of every object of a configuration, and is not linked.
EVERYTHING = "vmlinux_o"
FIXES = re.compile(r"^Fixes:\s*(.*)$", re.M)


def code(names: Iterable[str]) -> list[str]:
    """Of files, those of the kernel itself."""
    return [name for name in names if not name.startswith(("tools/", "scripts/", "Documentation/"))]


def objects(names: Iterable[str]) -> list[str]:
    """make's targets for the C files that changed."""
    return sorted(name.removesuffix(".c") + ".o" for name in code(names) if name.endswith(".c"))


def headers(names: Iterable[str]) -> list[str]:
    return [name for name in code(names) if name.endswith(".h")]


def programs(names: Iterable[str]) -> list[str]:
    """The directories of tools/testing/selftests with a changed file that something is built from."""
    built = [name for name in names if name.startswith(SELFTESTS) and not name.endswith(".sh")]
    return sorted({name.removeprefix(SELFTESTS).split("/")[0] for name in built} & set(kernel.targets()))


def depends(base: Base, commit: str, own: Collection[str]) -> tuple[Key, ...]:
    """The key of what C files' objects are made of: themselves, and all that the series changes beside C files."""
    blobs = applied.blobs(base, commit)
    texts = [name for name in blobs if name in own or not name.endswith((".c", ".sh")) and not applied.prose(name)]
    return (*(f"{name} {blobs[name]}" for name in sorted(texts)), base.key, kernel.compiler(), CODE)


def asked(kind: str) -> tuple[Key, ...]:
    words = KINDS[kind].make
    others = [version(word.partition("=")[2]) for word in words if word.startswith("CC=")]
    return (kind, *words, *others, *kernel.flavour(kind).fragments, *kernel.suites())


def sparse() -> tuple[Key, ...]:
    return SPARSE, version("sparse")


@functools.cache
def version(program: str) -> str:
    """What a compiler or checker says of itself."""
    return run(program, "--version").stdout


def warned(said: str) -> None:
    if found := [line for line in said.splitlines() if "warning:" in line]:
        raise Fail("compiler warnings:\n" + "\n".join(found))


def compile_step(base: Base, commit: str, made: Sequence[str], dated: Iterable[str] = ()) -> None:
    """Compile some objects, as they stand at a commit, every KUnit test on; of EVERYTHING what includes `dated`."""
    what = kernel.flavour()
    applied.checkout(base, commit)
    applied.date(base, dated)
    log = BUILD / "check" / f"{commit[:12]}.log"
    done = kernel.compile(base, commit, kernel.workplace(base, what), what, made, log)
    if done.returncode:
        bad = [line for line in done.stdout.splitlines() if re.search(r"error|\*\*\*", line)]
        raise Fail(f"make failed with status {done.returncode}; all it said is in {log}:\n" + "\n".join(bad[:25]))
    warned(done.stdout)


def build_programs(base: Base, commit: str, names: Sequence[str]) -> None:
    """Build and install selftests as they stand at a commit."""
    applied.checkout(base, commit)
    with tempfile.TemporaryDirectory(prefix="knfsd-queue-") as place:
        log = BUILD / "check" / f"{commit[:12]}-selftests.log"
        warned(kernel.install_selftests(base, names, pathlib.Path(place), log))


def checkpatch(base: Base, patches: Sequence[pathlib.Path]) -> list[str]:
    """What checkpatch.pl complains of in some patches; it does not say in which."""
    # It takes a python3 without Debian's libraries for one that finds each licence tag right.
    env = {"PATH": os.defpath}
    done = run("perl", "scripts/checkpatch.pl", *CHECKPATCH, *patches, cwd=base.repo, env=env, check=False)
    if done.returncode not in (0, 1):
        raise Fail(f"checkpatch.pl ended with status {done.returncode}:\n{tail(done.stdout)}")
    lines = done.stdout.splitlines()
    return [line for line in lines if re.search(r"(ERROR|WARNING|CHECK):", line) and not ALLOWED.search(line)]


def complained(base: Base, patches: Sequence[pathlib.Path]) -> dict[pathlib.Path, list[str]]:
    """{patch: what checkpatch.pl complains of}, without those that it finds nothing in."""
    found: dict[pathlib.Path, list[str]] = {}
    with threads() as pool:
        some = [patches[at : at + AT_ONCE] for at in range(0, len(patches), AT_ONCE)]
        for asked, said in zip(some, pool.map(functools.partial(checkpatch, base), some)):
            alone = {path: lines for path in asked if said and (lines := checkpatch(base, [path]))}
            if said and not alone:
                raise Fail("checkpatch.pl complains of patches together, and of none alone:\n" + "\n".join(said))
            found |= alone
    return found


def checkpatches(base: Base, patches: Sequence[Step], tally: Tally) -> None:
    """checkpatch.pl over patches; it needs nothing of a patch's own commit."""
    tools = [base.repo / "scripts" / name for name in ("checkpatch.pl", "spelling.txt", "const_structs.checkpatch")]
    judge: tuple[Key, ...] = (base.key, CODE, *(path for path in tools if path.is_file()))
    keys: dict[pathlib.Path, tuple[Key, ...]] = {step.patch: ("checkpatch", step.patch, *judge) for step in patches}
    new = [path for path, key in keys.items() if not kept(key)]
    found = tally.run("checkpatch came to its end", complained, base, new)
    for step in patches:
        unasked = found is None and step.patch in new
        problem = "it was not asked" if unasked else "\n".join((found or {}).get(step.patch, []))
        tally.that(f"{step.name}: checkpatch", problem)
        if not problem:
            keep(keys[step.patch])


def complaints(said: str) -> set[str]:
    """The lines of a compiler's output that are a warning or an error, without line numbers."""
    lines = {re.sub(r":\d+(:\d+)?(?=[: ])", "", line.replace("../", "")) for line in said.splitlines()}
    # What make says it does ("  CC  lib/error.o") is no complaint.
    return {line for line in lines if re.search(r"warning|error", line, re.I) and not re.match(r"  [A-Z]", line)}


def said_of(base: Base, commit: str, names: Iterable[str], kind: str) -> set[str]:
    """What a compiler of COMPILERS complains of in C files, as they stand at a commit."""
    made = [name for name in objects(names) if applied.read(base, commit, name.removesuffix(".o") + ".c")]
    if not made:
        return set()
    what = kernel.flavour(kind)
    applied.checkout(base, commit)
    log = BUILD / "check" / f"{commit[:12]}-{kind}.log"
    done = kernel.compile(base, commit, kernel.workplace(base, what), what, made, log, *COMPILERS[kind])
    found = complaints(done.stdout)
    if done.returncode and not any("error:" in line for line in found):
        raise Fail(f"make failed with status {done.returncode}; all it said is in {log}")
    return found


def tell_compiler(base: Base, commit: str, files: dict[str, list[str]], kind: str, tally: Tally) -> None:
    """Another compiler on {topic: its C files} at a commit; each complaint that the base has not is its file's topic's.

    What one compiles is the whole series; what a topic has changed, and what it is made of, is the key of its verdict.
    """
    keys: dict[str, tuple[Key, ...]] = {
        topic: (kind, *depends(base, commit, names), *asked(kind), *COMPILERS[kind]) for topic, names in files.items()
    }
    names = sorted({name for topic, key in keys.items() if not kept(key) for name in files[topic]})
    new: set[str] = set()
    if names:
        new = said_of(base, commit, names, kind)
        # The base is compiled only where there is something to compare.
        there = [name for name in names if of_file(new, name)]
        new -= said_of(base, base.commit, there, kind) if there else set()
    astray = new - {line for name in names for line in of_file(new, name)}
    for topic, key in keys.items():
        own = [line for name in files[topic] for line in of_file(new, name)]
        problem = "" if kept(key) else "\n".join(sorted({*own, *astray}))
        tally.that(f"{topic}: no new warning for {kind}", problem)
        if not problem:
            keep(key)


def of_file(lines: Iterable[str], name: str) -> list[str]:
    """Of what a compiler said, the lines about a C file or its object."""
    words = (name, name.removesuffix(".c") + ".o")
    return [line for line in lines if any(word in line for word in words)]


def read_by(base: Base, commit: str, names: Iterable[str]) -> set[str]:
    """What kernel-doc and sparse say of files at a commit, without line numbers, so that base and patched compare."""
    applied.checkout(base, commit)
    here = [name for name in code(names) if (base.repo / name).is_file() and name.endswith((".c", ".h"))]
    if not here:
        return set()
    said = run("python3", "scripts/kernel-doc", "-none", "-Wall", *here, cwd=base.repo).stdout
    if made := objects(here):
        what = kernel.flavour()
        log = BUILD / "check" / f"{commit[:12]}-sparse.log"
        words = ("C=2", f"CHECK={SPARSE}")
        said += kernel.compile(base, commit, kernel.workplace(base, what), what, made, log, *words).stdout
    if "not available or not up to date" in said:
        raise Fail(f"the kernel does not accept this sparse:\n{said}")
    # sparse says that of every MODULE_ macro, at any line that has one.
    return {line for line in complaints(said) if not line.endswith("error: bad constant expression")}


def before(base: Base, names: Sequence[str]) -> set[str]:
    """What kernel-doc and sparse say of files in the base."""
    return set(value(lambda: sorted(read_by(base, base.commit, names)), "before", base.key, CODE, *sparse(), *names))


def static(base: Base, commit: str, names: Sequence[str]) -> None:
    """Fail when a commit brings a warning of kernel-doc's or sparse's that the base does not have."""
    if new := read_by(base, commit, names) - before(base, names):
        raise Fail("new warnings:\n" + "\n".join(sorted(new)))


def kept_wrongly(base: Base, wrapper: pathlib.Path) -> None:
    """Fail for a C file with .incbin, which no compiler says it has read, that the compilers' wrapper does not name.

    In arch/ such files are assembler, which it always compiles.
    """
    where = ("*.[ch]", ":!arch", ":!tools", ":!Documentation")
    found = git(base.repo, "grep", "-lF", ".incbin", "--", *where, check=False).stdout.split()
    named = wrapper.read_text()
    if unknown := [name for name in found if f"*{name}" not in named]:
        raise Fail(f"{', '.join(unknown)}: name it in {schema.shown(wrapper)}, beside kernel/configs.c")


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


def shellcheck(path: pathlib.Path) -> None:
    done = run(*SHELLCHECK, path, cwd=path.parent, check=False)
    if done.returncode:
        raise Fail(done.stdout or f"shellcheck ended with status {done.returncode}, and said nothing")


def shell_scripts(base: Base, names: Iterable[str], tally: Tally) -> None:
    """shellcheck over the selftests that the series brings, as checked out, and over the testbed's own scripts."""
    ours = ROOT / "testbed"
    own = [*sorted(ours.rglob("*.sh")), *ours.rglob("compilers/gcc"), *(ROOT / ".ci").glob("run")]
    scripts = [name for name in names if name.startswith(SELFTESTS) and name.endswith(".sh")]
    judge = version(SHELLCHECK[0])
    for path in [*(base.repo / name for name in scripts), *own]:
        # What a script may source.
        beside = [one for one in sorted(path.parent.glob("*.sh")) if not os.access(one, os.X_OK)]
        key: tuple[Key, ...] = ("shellcheck", judge, CODE, path, *beside)
        what = f"shellcheck: {path.relative_to(ROOT if path in own else base.repo)}"
        tally.run(what, once, functools.partial(shellcheck, path), *key)


def agree(topics: list[Topic], topic: Topic) -> None:
    said = tree.depends_on(topic.name, topic.letter)
    if sorted(said) != sorted(topic.depends_on):
        raise Fail(
            f"topic.toml: {', '.join(topic.depends_on) or 'nothing'}; the cover letter's `Depends on:`: "
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


def check(base: Base, tally: Tally, chosen: Collection[Topic] | None = None, every: bool = False) -> None:
    """All of it, or of some topics; every patch and topic is a check of its own.

    every: with each patch all that includes its headers is compiled, and the other compilers see each topic's end; else
    the last patch is where that is done.
    """
    tally.suite = "check"
    chosen = store.series() if chosen is None else chosen
    with lock("source"):
        with tally.step("the patches apply"):
            steps = apply_all(base, tally, chosen)
            if not steps:
                return
            first = applied.first(base, chosen)
            names = {step.commit: applied.touched(base, step.commit) for step in [*first, *steps]}
        end, all_names = steps[-1].commit, sorted({name for found in names.values() for name in found})
        key: tuple[Key, ...] = ("static", *depends(base, end, all_names), *asked("sim"), *sparse())
        with tally.step("checkpatch"):
            applied.checkout(base, end)
            checkpatches(base, steps, tally)
        # In one build directory, from the base to the end of the series: each step compiles what it changes.
        with tally.step("the base's kernel"):
            wrapper = kernel.CCACHED / "gcc"
            read_in: tuple[Key, ...] = ("incbin", applied.code(base, end), base.key, CODE, wrapper)
            look = functools.partial(kept_wrongly, base, wrapper)
            tally.run("ccache keeps no C file that takes another in by .incbin", once, look, *read_in)
            tally.run("the base's kernel is built", kernel.executable, base, base.commit, kernel.flavour(), "base")
            if not kept(key):
                tally.run("kernel-doc and sparse read the base", before, base, all_names)
        with tally.step("each patch compiles"):
            changed = {step.commit: headers(names[step.commit]) for step in steps if every} | {end: headers(all_names)}
            compile_all(base, [*first, *steps], names, changed, tally)
        with tally.step("the patched kernel"):
            patched = applied.commits(base)["patched"]
            tally.run("the patched kernel is built", kernel.executable, base, patched, kernel.flavour(), "patched")
        with tally.step("kernel-doc and sparse"):
            read = functools.partial(static, base, end, all_names)
            tally.run("no new warning of kernel-doc or sparse", once, read, *key)
        with tally.step("clang and 32 bits"):
            files = {
                topic.name: sorted(
                    {
                        name
                        for step in steps
                        if step.topic.name == topic.name
                        for name in code(names[step.commit])
                        if name.endswith(".c")
                    }
                )
                for topic in chosen
            }
            files = {topic: found for topic, found in files.items() if found}
            for kind in COMPILERS:
                if every:
                    ends = {step.topic.name: step.commit for step in steps}
                    for topic_name, found in files.items():
                        tell_compiler(base, ends[topic_name], {topic_name: found}, kind, tally)
                elif files:
                    tell_compiler(base, end, files, kind, tally)
        with tally.step("shellcheck"):
            applied.checkout(base, end)
            shell_scripts(base, all_names, tally)


def apply_all(base: Base, tally: Tally, chosen: Collection[Topic]) -> list[Step]:
    """Apply patches of any base, with all that is checked before one is built; [] if they do not apply."""
    topics = store.series()
    tally.that("the base's history has none of the queue's patches", "\n".join(tree.merged(base, topics)))
    if not tally.run(f"the queue applies on {base.name}", applied.commits, base):
        return []
    steps = applied.steps(base, chosen)
    for topic in chosen:
        stands_alone(base, topics, topic, tally)
        gone = come_and_gone(base.repo, [step.commit for step in steps if step.topic.name == topic.name])
        tally.that(f"{topic.name}: no patch adds what a later one deletes", "\n".join(gone))
    check_fixes(base, chosen, tally)
    return steps


def stands_alone(base: Base, topics: list[Topic], topic: Topic, tally: Tally) -> None:
    what = f"{topic.name}: topic.toml and the cover letter agree on what it depends on"
    tally.run(what, agree, topics, topic)
    closure = store.closure(topics, topic.name)
    patches = [patch for one in closure for patch in one.patches]
    what = f"{topic.name}: applies with what it depends on ({', '.join(topic.depends_on) or 'the base alone'})"
    key: tuple[Key, ...] = ("alone", base.key, CODE, *patches)
    tally.run(what, once, functools.partial(tree.applies, base.repo, closure, base.commit), *key)


def compile_all(
    base: Base, steps: Sequence[Step], names: dict[str, list[str]], changed: dict[str, list[str]], tally: Tally
) -> None:
    """Patches, in order; names: {commit: the files it changes}, changed: {commit: headers whose users are compiled}.

    For half of what a patch takes make has one CPU alone. So where there are many, the first half of them has a working
    tree and a build directory of its own; the second half ends where the patched kernel begins.
    """

    def some(base: Base, steps: Iterable[Step]) -> None:
        for step in steps:
            compiles(base, step, names[step.commit], tally)
            if changed.get(step.commit):
                users(base, step, changed[step.commit], tally)

    new = [
        at
        for at, step in enumerate(steps)
        if objects(names[step.commit]) and not kept(compiled_from(base, step, names[step.commit]))
    ]
    half = new[len(new) // 2] if len(new) > FEW else 0
    with threads(1) as pool:
        beside = pool.submit(some, applied.second(base) if half else base, steps[:half])
        some(base, steps[half:])
        beside.result()


def compiled_from(base: Base, step: Step, names: Sequence[str]) -> tuple[Key, ...]:
    return "compile", *depends(base, step.commit, names), *asked("sim")


def compiles(base: Base, step: Step, names: Sequence[str], tally: Tally) -> None:
    """A patch's own objects, and the programs of the selftests it changes."""
    if made := objects(names):
        key = compiled_from(base, step, names)
        tally.run(f"{step.name}: compiles", once, functools.partial(compile_step, base, step.commit, made), *key)
    if dirs := programs(names):
        sources = [
            f"{name} {blob}"
            for name, blob in sorted(applied.blobs(base, step.commit).items())
            if name.startswith(("tools/", "include/uapi/")) and not name.endswith(".sh")
        ]
        what = f"{step.name}: the selftests of {', '.join(dirs)} are built"
        build = functools.partial(build_programs, base, step.commit, dirs)
        tally.run(what, once, build, "programs", *sources, *dirs, base.key, kernel.compiler(), CODE)


def users(base: Base, step: Step, changed: Sequence[str], tally: Tally) -> None:
    """All objects whose headers have changed."""
    key: tuple[Key, ...] = ("users", applied.code(base, step.commit), base.key, kernel.compiler(), CODE, *asked("sim"))
    build = functools.partial(compile_step, base, step.commit, [EVERYTHING], changed)
    tally.run(f"{step.name}: all that includes its headers compiles", once, build, *key)


def applies(base: Base, tally: Tally, chosen: Collection[Topic] | None = None) -> None:
    """What is checked of a lane, all of it or of some topics: it applies, and what it changes in a patch is clean.

    What else holds of it is said.
    """
    tally.suite = "check"
    chosen = store.series() if chosen is None else chosen
    names = {topic.name for topic in chosen}
    with lock("source"):
        if not tally.run(f"the lane applies on {base.name}", applied.commits, base):
            return
        steps = [step for step in applied.steps(base) if step.topic.name in names and step.patch not in step.topic.own]
        applied.checkout(base, applied.commits(base)["patched"])
        checkpatches(base, steps, tally)
    for topic in chosen:
        for name, why in topic.lane(lane()).without.items():
            print(f"     without {topic.name}/{name}: {why}", flush=True)
    for line in lanes.carried():
        print(f"     {line}", flush=True)
