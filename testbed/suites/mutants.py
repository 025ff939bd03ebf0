# SPDX-License-Identifier: GPL-2.0
"""What a topic's tests are worth: every patch of topics/NAME/mutants/ is a fault, and a test has to notice it.

A fault in code is the business of the KUnit suites whose .kunitconfig the topic brings, on two CPUs, for some faults
show only there; one in a litmus test is herd7's. What noticed which is written to build/mutants/TOPIC.
"""

import contextlib
import os
import pathlib
import re
from collections.abc import Iterable, Iterator

from ..machines import kernel
from ..series import topics as store
from ..series.base import Base, git
from ..series.topics import Topic
from ..util import BUILD, Fail, Tally, lock, say, tail
from . import check, litmus
from . import kunit as suites

# Real seconds for a whole run of a topic's suites; a hang is a way to notice, too.
LIMIT = 240
# User-mode Linux's; with one, faults that need two consumers at once would live.
CPUS = 2


def faults(topic: Topic) -> list[pathlib.Path]:
    return sorted((topic.home / "mutants").glob("*.patch"))


def mutants(base: Base, tally: Tally, names: Iterable[str] = ()) -> None:
    """Judge the mutants of the topics named, or of all that have any."""
    topics = store.series()
    have = [topic.name for topic in topics if faults(topic)]
    for name in names or have:
        topic = store.named(topics, name)
        if name not in have:
            raise Fail(f"topics/{name}/mutants/ has no patch in it; these have: {', '.join(have)}")
        with lock("source"):
            judge(base, tally, topic)


def judge(base: Base, tally: Tally, topic: Topic) -> None:
    name = topic.name
    patched = kernel.commits(base)["patched"]
    brought = [
        path
        for one, _, commit in check.steps(base, store.series())
        if one.name == name
        for path in check.touched(base.repo, commit)
    ]
    configs = list(topic.kunit)
    outcome = BUILD / "mutants" / name
    outcome.parent.mkdir(parents=True, exist_ok=True)
    outcome.unlink(missing_ok=True)
    kernel.checkout(base, patched)
    say(f"{name}: without a fault, then with each of {len(faults(topic))}")
    problem, counts = kunit(base, configs, outcome.with_name(f"{name}-none.log"))
    tally.that(f"{name}: without a fault all cases pass" + (f" ({counts})" if counts else ""), problem)
    if problem:
        return
    code = [path for path in brought if path.endswith(".c")]
    for fault in faults(topic):
        tally.run(f"{name}/{fault.stem}", notice, base, configs, code, fault, outcome)
    say(f"{outcome} says what noticed which")


@contextlib.contextmanager
def broken(base: Base, fault: pathlib.Path, code: Iterable[str]) -> Iterator[list[str]]:
    """Put a fault into the checked-out source for a while; gives the files it changed.

    Times stay as they were, and of the objects only the topic's own and the fault's are made again: a header like
    mpscq.h is included by half of the kernel, for which a one-line fault makes no difference.
    """
    changed = [line.split("\t")[2] for line in git(base.repo, "apply", "--numstat", fault).stdout.splitlines()]
    paths = [base.repo / path for path in changed]
    was = {path: (path.read_bytes(), path.stat()) for path in paths if path.is_file()}

    def settle() -> None:
        for known, (_, stat) in was.items():
            os.utime(known, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        for path in {*code, *changed}:
            (suites.kunit_place(base, CPUS) / path).with_suffix(".o").unlink(missing_ok=True)

    applied = git(base.repo, "apply", fault, check=False)
    if applied.returncode:
        raise Fail(f"it does not apply to the queue:\n{applied.stdout.rstrip()}")
    settle()
    try:
        yield changed
    finally:
        for path, (data, _) in was.items():
            path.write_bytes(data)
        settle()


def notice(base: Base, configs: list[str], code: Iterable[str], fault: pathlib.Path, outcome: pathlib.Path) -> None:
    """Fail unless a test notices the fault; writes down which."""
    with broken(base, fault, code) as changed:
        if all(path.endswith(".litmus") for path in changed):
            found = [
                f"herd7: {path.rpartition('/')[2]}: {said}"
                for path in changed
                if (said := litmus.judge(base.repo, path))
            ]
        else:
            log = outcome.with_name(f"{outcome.name}-{fault.stem}.log")
            kunit(base, configs, log)
            found = killers(log.read_text())
    if not found:
        raise Fail("it lives: no test notices")
    print("     " + "\n     ".join(found), flush=True)
    with open(outcome, "a") as text:
        text.write(f"{fault.stem}\n" + "".join(f"    {line}\n" for line in found))


def kunit(base: Base, configs: list[str], log: pathlib.Path) -> tuple[str, str | None]:
    """Run the suites on two CPUs; returns (what is wrong, the counts as kunit.py says them)."""
    done = suites.run_kunit(base, configs, log, CPUS, LIMIT)
    if "ERROR:root:" in done.stdout or not re.search(r"Starting KUnit Kernel", done.stdout):
        raise Fail(f"it does not build; {log} has it all:\n{tail(done.stdout)}")
    counts = suites.kunit_counts(done.stdout)
    if not counts or done.returncode or set(counts) - {"passed"}:
        return f"kunit.py: {counts}, status {done.returncode}; see {log}", None
    return "", f"{counts['passed']} on {CPUS} CPUs"


def killers(text: str) -> list[str]:
    """What noticed, of kunit.py's output: the cases that failed, and whether the kernel then hung or crashed."""
    found = re.findall(r"^\[[\d:]+\] \[FAILED\] (\w+)$", text, re.M)
    return found + ["a hang or a crash"] * bool(re.search(r"^\[[\d:]+\] =+ \[CRASHED\] ", text, re.M))
