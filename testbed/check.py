# SPDX-License-Identifier: GPL-2.0
"""Is every topic a series a maintainer could take? Each patch and topic is a check of its own."""

import os
import pathlib
import re
import tempfile

from . import kernel, queue
from .base import git
from .util import BUILD, Fail, cache, digest, lock, run

# What checkpatch cannot know here: whoever posts a patch signs it off, and the topic's own MAINTAINERS lines are in
# another of its patches.
CHECKPATCH = ("--strict", "--no-signoff", "--ignore", "FILE_PATH_CHANGES", "--terse", "--no-summary", "--show-types", "--showfile")
# ... nor that the packaged base has no history, that trace headers are laid out like that, that C99 spells it so, or that a test
# changes its own copy of what the kernel keeps const.
ALLOWED = re.compile(r"UNKNOWN_COMMIT_ID|trace[^:]*\.h:\d+: CHECK:(OPEN_ENDED_LINE|PARENTHESIS_ALIGNMENT)|CAMELCASE: .*<PRI[dux]64>"
                     r"|_kunit\.c:\d+: WARNING:CONST_STRUCT")
# Debian 12's sparse predates __typeof_unqual__; without qualifiers to drop, __typeof__ means the same to it.
SPARSE = "sparse -D__typeof_unqual__=__typeof__"
SELFTESTS = "tools/testing/selftests/nfsd/"


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


def objects(names):
    """make's targets for what changed: the object of each C file, or the directories that include a changed header."""
    names = [name for name in names if not name.startswith(("tools/", "scripts/", "Documentation/"))]
    found = {name.removesuffix(".c") + ".o" for name in names if name.endswith(".c")}
    whole = {"net/sunrpc/", "fs/nfsd/", "fs/lockd/", "fs/nfs/"} if any(name.endswith(".h") for name in names) else set()
    # make does not take a directory and an object in it at once
    return sorted(whole | {name for name in found if not name.startswith(tuple(whole))})


def compile_step(base, commit, names, out):
    """Compile what a commit touches, as it stands at that commit, with every KUnit test on; selftests too."""
    kernel.checkout(base, commit)
    log = BUILD / "check" / f"{commit[:12]}.log"
    said = ""
    if targets := objects(names):
        with kernel.building(out):
            kernel.configure(base.repo, out, "check")
            said += run(*kernel.make_line("check"), "-C", base.repo, f"O={out}", f"-j{len(os.sched_getaffinity(0))}", *targets, env=kernel.ENV, log=log).stdout
    if any(name.startswith(SELFTESTS) for name in names):
        with tempfile.TemporaryDirectory(dir=cache()) as place:
            said += kernel.install_selftests(base, pathlib.Path(place), log)
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
        kernel.configure(base.repo, out, "check")
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
    """Apply a topic on the base with only what its cover letter says it stands on; returns the last commit."""
    by_name = {t.name: t for t in topics}
    wanted, todo = set(), [topic.name]
    while todo:
        name = todo.pop()
        if name not in by_name:
            raise Fail(f"it stands on {name}, which is no topic of patches/series")
        if name not in wanted:
            wanted.add(name)
            todo += by_name[name].stands_on
    return queue.apply(base.repo, [t for t in topics if t.name in wanted], base.commit)


def check(base, tally):
    """All of it; every patch and topic is a check of its own."""
    topics = queue.series()
    out = kernel.workplace(base, "check")
    settings = (base.key, *(path.read_text() for path in kernel.fragments("check")))
    with lock("source"):
        tally.that("the base's history has none of the queue's patches", "\n".join(queue.merged(base, topics)))
        if not tally.run(f"the queue applies on {base.name}", kernel.commits, base):
            return
        for topic in topics:
            tally.run(f"{topic.name}: applies with what it stands on ({', '.join(topic.stands_on) or 'the base alone'})",
                      once, lambda: stands_alone(base, topics, topic), "alone", base.key, queue.queue_digest(), topic.name)
        for topic, patch, commit in steps(base, topics):
            name = f"{topic.name}/{patch.name}"
            tally.run(f"{name}: checkpatch", once, lambda: checkpatch(base, patch, commit), "checkpatch", commit)
            names = touched(base.repo, commit)
            if objects(names) or any(n.startswith(SELFTESTS) for n in names):
                tally.run(f"{name}: compiles", once, lambda: compile_step(base, commit, names, out), "compile", kernel.content(base, commit), *settings)
        patched = kernel.commits(base)["patched"]
        names = touched(base.repo, patched, base.commit)
        tally.run("no new warning of kernel-doc or sparse", once, lambda: static(base, names, out), "static", kernel.content(base, patched), *settings)
