# SPDX-License-Identifier: GPL-2.0
"""Is every topic a series a maintainer could take? Each patch and topic is a check of its own."""

import os
import pathlib
import re
import tempfile

from ..machines import kernel
from ..series import topics as store
from ..series import tree
from ..series.base import git
from ..util import BUILD, Fail, cache, digest, lock, run

# What checkpatch cannot know here: whoever posts a patch signs it off, and the topic's own MAINTAINERS lines are in
# another of its patches.
CHECKPATCH = ("--strict", "--no-signoff", "--ignore", "FILE_PATH_CHANGES", "--terse", "--no-summary", "--show-types", "--showfile")
# ... nor that the packaged base has no history, that trace headers are laid out like that, that C99 spells it so, or that a test
# changes its own copy of what the kernel keeps const.
ALLOWED = re.compile(r"UNKNOWN_COMMIT_ID|trace[^:]*\.h:\d+: CHECK:(OPEN_ENDED_LINE|PARENTHESIS_ALIGNMENT)|CAMELCASE: .*<PRI[dux]64>"
                     r"|_kunit\.c:\d+: WARNING:CONST_STRUCT")
# Debian 12's sparse predates __typeof_unqual__; without qualifiers to drop, __typeof__ means the same to it.
SPARSE = "sparse -D__typeof_unqual__=__typeof__"
SELFTESTS = "tools/testing/selftests/"


def known(key):
    """A file that stands for a check that has passed; commits of the queue are the same wherever it is applied."""
    path = cache() / "checked" / digest(*key)
    path.parent.mkdir(exist_ok=True)
    return path


def once(function, *key):
    """Call a check unless it has passed before for the same key."""
    mark = known(key)
    if not mark.is_file():
        function()
        mark.touch()


def steps(base, topics):
    """[(topic, patch, commit)] of the queue applied on the base."""
    commits = git(base.repo, "rev-list", "--reverse", f"{base.commit}..{kernel.commits(base)['patched']}").stdout.split()
    for topic in topics:
        commits.pop(0)  # the cover letter
        for patch in topic.patches:
            yield topic, patch, commits.pop(0)


def touched(repo, commit, before=None):
    """The files a commit, or all since `before`, adds or changes."""
    return git(repo, "diff", "--name-only", "--diff-filter=d", before or f"{commit}^", commit).stdout.split()


def objects(names, directories):
    """make's targets for what changed: the object of each C file, and with a changed header `directories`, which include it."""
    names = [name for name in names if not name.startswith(("tools/", "scripts/", "Documentation/"))]
    found = {name.removesuffix(".c") + ".o" for name in names if name.endswith(".c")}
    whole = set(directories) if any(name.endswith(".h") for name in names) else set()
    # make does not take a directory and an object in it at once
    return sorted(whole | {name for name in found if not name.startswith(tuple(whole))})


def targets(names):
    """The directories of tools/testing/selftests that have a changed file and are built."""
    found = {name.removeprefix(SELFTESTS).split("/")[0] for name in names if name.startswith(SELFTESTS)}
    return sorted(found & set(kernel.targets()))


def compile_step(base, topic, commit, names, out):
    """Compile what a commit touches, as it stands at that commit, with every KUnit test on; selftests too."""
    kernel.checkout(base, commit)
    log = BUILD / "check" / f"{commit[:12]}.log"
    said = ""
    if made := objects(names, topic.compile):
        with kernel.building(out):
            kernel.configure(base.repo, out, kernel.everything())
            said += run(*kernel.make_line("check"), "-C", base.repo, f"O={out}", f"-j{len(os.sched_getaffinity(0))}", *made, env=kernel.ENV, log=log).stdout
    if here := targets(names):
        with tempfile.TemporaryDirectory(dir=cache()) as place:
            said += kernel.install_selftests(base, here, pathlib.Path(place), log)
    if found := [line for line in said.splitlines() if "warning:" in line]:
        raise Fail("compiler warnings:\n" + "\n".join(found))


def checkpatch(base, patch, commit):
    kernel.checkout(base, commit)
    said = run("perl", "scripts/checkpatch.pl", *CHECKPATCH, patch, cwd=base.repo, check=False).stdout
    if found := [line for line in said.splitlines() if re.search(r"(ERROR|WARNING|CHECK):", line) and not ALLOWED.search(line)]:
        raise Fail("\n".join(found))


def warnings(base, commit, names, out):
    """What kernel-doc and sparse say of files at a commit, without line numbers, so that base and patched compare."""
    kernel.checkout(base, commit)
    here = [name for name in names if (base.repo / name).is_file() and name.endswith((".c", ".h"))
            and not name.startswith(("tools/", "scripts/"))]
    if not here:
        return set()
    said = run("python3", "scripts/kernel-doc", "-none", "-Wall", *here, cwd=base.repo, check=False).stdout
    code = [name.removesuffix(".c") + ".o" for name in here if name.endswith(".c")]
    if code:
        kernel.configure(base.repo, out, kernel.everything())
        said += run(*kernel.make_line("check"), "-C", base.repo, f"O={out}", "C=2", f"CHECK={SPARSE}", *code, env=kernel.ENV, check=False).stdout
    if "not available or not up to date" in said:
        raise Fail(f"the kernel does not accept this sparse:\n{said}")
    lines = {re.sub(r":\d+(:\d+)?(?=[: ])", "", line.replace("../", "")) for line in said.splitlines()}
    # ... and it says this of every MODULE_ macro, at any line that has one.
    return {line for line in lines if re.search(r"warning|error", line, re.I) and not line.endswith("error: bad constant expression")}


def static(base, names, out):
    """Fail when the queue brings a warning of kernel-doc's or sparse's that the base does not have."""
    where = kernel.commits(base)
    new = warnings(base, where["patched"], names, out) - warnings(base, where["base"], names, out)
    if new:
        raise Fail("new warnings:\n" + "\n".join(sorted(new)))


def stands_alone(base, topics, topic):
    """Apply a topic on the base with only the topics it depends on; returns the last commit."""
    return tree.apply(base.repo, store.closure(topics, topic.name), base.commit)


def agree(topic):
    said = tree.stands_on(topic.name, topic.letter)
    if sorted(said) != sorted(topic.depends_on):
        raise Fail(f"topic.toml: {', '.join(topic.depends_on) or 'nothing'}; the cover letter's `Stands on:`: {', '.join(said) or 'the base alone'}")
    gone = [name for name in topic.kunit if not any(f"+++ b/{name}\n" in path.read_text(errors="replace") for path in topic.patches)]
    if gone:
        raise Fail(f"topic.toml: kunit: no patch of the topic brings or changes {', '.join(gone)}")


def check(base, tally):
    """All of it; every patch and topic is a check of its own."""
    topics = store.series()
    out = kernel.workplace(base, kernel.everything())
    settings = (base.key, *kernel.everything().fragments)
    with lock("source"):
        tally.that("the base's history has none of the queue's patches", "\n".join(tree.merged(base, topics)))
        if not tally.run(f"the queue applies on {base.name}", kernel.commits, base):
            return
        for topic in topics:
            tally.run(f"{topic.name}: topic.toml and the cover letter agree on what it depends on", agree, topic)
            tally.run(f"{topic.name}: applies with what it depends on ({', '.join(topic.depends_on) or 'the base alone'})",
                      once, lambda: stands_alone(base, topics, topic), "alone", base.key, store.queue_digest(), topic.name)
        for topic, patch, commit in steps(base, topics):
            name = f"{topic.name}/{patch.name}"
            tally.run(f"{name}: checkpatch", once, lambda: checkpatch(base, patch, commit), "checkpatch", commit)
            names = touched(base.repo, commit)
            if objects(names, topic.compile) or targets(names):
                tally.run(f"{name}: compiles", once, lambda: compile_step(base, topic, commit, names, out), "compile", kernel.content(base, commit), *settings)
        patched = kernel.commits(base)["patched"]
        names = touched(base.repo, patched, base.commit)
        tally.run("no new warning of kernel-doc or sparse", once, lambda: static(base, names, out), "static", kernel.content(base, patched), *settings)
