# SPDX-License-Identifier: GPL-2.0
"""What a topic's tests are worth: every patch of topics/NAME/mutants/ is a fault, and a test has to notice it.

A fault in code is the business of the KUnit suites whose .kunitconfig the topic brings, on two CPUs, for some faults
show only there; one in a litmus test is herd7's. It is put into the series as far as the topic goes, since a later
topic may replace the code. A patch that begins with `Selftest: nfsd/name.sh` is for that selftest to notice, in a guest
with the whole series, as the selftests are of the whole series; a line `Machine: x86` says in which. What killed which
is written to build/mutants/TOPIC: of KUnit, the cases of the first suite that noticed.
"""

import concurrent.futures
import contextlib
import functools
import os
import pathlib
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator

from ..machines import boot, guest, kernel, kinds
from ..series import applied
from ..series import topics as store
from ..series.base import Base, git
from ..series.topics import Topic
from ..util import BUILD, Fail, Tally, lock, say, threads
from . import kunit as suites
from . import litmus, selftests, verdicts

# Real seconds for a suite. A hang is a way to notice, too; so on a machine that does something else it has longer.
LIMIT = 240
# User-mode Linux on two CPUs; with one, faults that need two consumers at once would live.
KIND, CPUS = "smp", 2
# Real seconds in a guest for each of the selftests that a fault names.
BOOT = 900


def faults(topic: Topic) -> list[pathlib.Path]:
    return sorted((topic.home / "mutants").glob("*.patch"))


def put_back(topic: Topic) -> pathlib.Path:
    """The patch of faults for the swarm to find, if the topic has one; it is of the whole series, as the swarm is."""
    return topic.home / "swarm" / "put-back.patch"


def recorded(topic: Topic) -> dict[str, list[str]]:
    """{fault: what killed it}, of what was kept from the last run of each."""
    path = topic.home / "mutants" / "killed"
    found: dict[str, list[str]] = {}
    name = ""
    for line in path.read_text().splitlines() if path.is_file() else ():
        if line.startswith(" "):
            found[name].append(line.strip())
        else:
            name = line
            found[name] = []
    return found


def mutants(base: Base, tally: Tally, names: Iterable[str] = (), new: bool = False) -> None:
    """Judge the mutants of the topics named, or of all that have any; new: only those that nothing is recorded of."""
    topics = store.series()
    have = [topic.name for topic in topics if faults(topic)]
    for name in names or have:
        topic = store.named(topics, name)
        if name not in have:
            raise Fail(f"topics/{name}/mutants/ has no patch in it; these have: {', '.join(have)}")
        judge(base, tally, topic, new)


def apply(base: Base, tally: Tally) -> None:
    """Whether each fault can be put into the series as it is now, as which it may have been judged long ago."""
    tally.suite = "mutants"
    topics = store.series()
    every = [(topic, fault) for topic in topics for fault in (*faults(topic), put_back(topic)) if fault.is_file()]
    them: list[verdicts.Key] = [fault for _, fault in every]
    key = "mutants apply", base.key, store.queue_digest(), pathlib.Path(__file__)
    verdicts.counted(tally, functools.partial(applying, base, tally, every), *key, *them)


def applying(base: Base, tally: Tally, every: Iterable[tuple[Topic, pathlib.Path]]) -> None:
    with lock("source"):
        ends = {step.topic.name: step.commit for step in applied.steps(base)}
        patched = applied.commits(base)["patched"]
        for topic, fault in every:
            commit = patched if scripts(fault) or fault == put_back(topic) else ends[topic.name]
            tally.run(f"{topic.name}/{fault.stem} applies", fits, base, commit, fault)


def fits(base: Base, commit: str, fault: pathlib.Path) -> None:
    """Raise Fail unless a fault applies to a commit."""
    with tempfile.TemporaryDirectory(prefix="knfsd-queue-") as place:
        # Of these files alone: an index of all takes a second.
        env = {"GIT_INDEX_FILE": f"{place}/index"}
        files = git(base.repo, "ls-tree", commit, "--", *files_of(base, fault)).stdout
        git(base.repo, "update-index", "--index-info", stdin=files, env=env)
        done = git(base.repo, "apply", "--cached", "--check", fault, check=False, env=env)
    if done.returncode:
        raise Fail(f"it does not apply to the series:\n{done.stdout.rstrip()}")


def files_of(base: Base, fault: pathlib.Path) -> list[str]:
    """The files that a fault changes; it may have no line `diff --git`."""
    return [line.split("\t")[2] for line in git(base.repo, "apply", "--numstat", fault).stdout.splitlines()]


def header(fault: pathlib.Path, word: str) -> list[str]:
    """What a fault says in a line `word: ...` before its diff."""
    found = re.search(rf"^{word}: (.+)$", fault.read_text().partition("\ndiff --git ")[0], re.M)
    return found[1].split() if found else []


def scripts(fault: pathlib.Path) -> list[str]:
    """The selftests that a fault names, of which one has to notice it; without any, KUnit has to."""
    return header(fault, "Selftest")


def machine(fault: pathlib.Path) -> str:
    """The kind of machine that runs them; not each has what a fault is about."""
    return kinds.named((header(fault, "Machine") or ["sim"])[0]).name


def judge(base: Base, tally: Tally, topic: Topic, new: bool = False) -> None:
    name = topic.name
    every = faults(topic)
    known = recorded(topic) if new else {}
    wanted = [fault for fault in every if fault.stem not in known]
    if not wanted:
        tally.that(f"{name}: all {len(every)} have been judged", "")
        return
    outcome = BUILD / "mutants" / name
    outcome.parent.mkdir(parents=True, exist_ok=True)
    outcome.write_text("".join(written(fault, known[fault.stem]) for fault in every if fault.stem in known))
    say(f"{name}: without a fault, then with each of {len(wanted)}")
    if of_kunit := [fault for fault in wanted if not scripts(fault)]:
        by_kunit(base, tally, topic, of_kunit, outcome)
    others = [fault for fault in wanted if scripts(fault)]
    for kind in dict.fromkeys(machine(fault) for fault in others):
        by_selftests(base, tally, topic, [fault for fault in others if machine(fault) == kind], outcome, kind)
    say(f"{outcome} says what killed which")


def written(fault: pathlib.Path, found: Iterable[str]) -> str:
    """What killed a fault, as recorded() reads it."""
    return f"{fault.stem}\n" + "".join(f"    {line}\n" for line in found)


def by_kunit(base: Base, tally: Tally, topic: Topic, wanted: list[pathlib.Path], outcome: pathlib.Path) -> None:
    """Judge faults that KUnit or herd7 has to notice."""
    name = topic.name
    commits = [step.commit for step in applied.steps(base, [topic])]
    code = [path for commit in commits for path in applied.touched(base, commit) if path.endswith(".c")]
    with lock("source"):
        image = kernel.executable(base, commits[-1], kernel.flavour(KIND), f"mutants/{name}-kernel")
        every = suites.names(image)
        began = time.monotonic()
        problem, counts = kunit(base, image, outcome.with_name(f"{name}-none.log"), LIMIT * len(every))
        limit = max(LIMIT, 2 * int(time.monotonic() - began))
        tally.that(f"{name}: without a fault all cases pass" + (f" ({counts})" if counts else ""), problem)
        if problem:
            return
        applied.checkout(base, commits[-1])
        for fault in wanted:
            tally.run(f"{name}/{fault.stem}", notice, base, commits[-1], code, fault, outcome, every, limit)


def by_selftests(
    base: Base, tally: Tally, topic: Topic, wanted: list[pathlib.Path], outcome: pathlib.Path, kind: str
) -> None:
    """Judge faults that selftests have to notice: while one guest runs, the next one's kernel is built."""
    name, what = topic.name, kernel.flavour(kind)
    place = kernel.selftests(base)
    topics = store.series()
    root = guest.root(store.guest_packages(topics))
    every = list(dict.fromkeys(script for fault in wanted for script in scripts(fault)))
    have = (place / "kselftest-list.txt").read_text().split()
    for script in every:
        if script.replace("/", ":", 1) not in have:
            raise Fail(f"topics/{name}/mutants: Selftest: {script} is none of the series'")

    def run(image: pathlib.Path, label: str, names: list[str]) -> list[str]:
        """The cases that failed, and whether the guest came to no good end."""
        where = outcome.with_name(f"{name}-{label}")
        text = where.with_suffix(".sh")
        text.write_text(selftests.script(topics, what.kind.name, place, names))
        try:
            boot.boot(image, text, where, BOOT * len(names), what.kind.name, root=root)
            found = []
        except Fail:
            found = ["a hang or a crash"]
        said = where / "ktap"
        cases = selftests.ktap(said.read_text(errors="replace")) if said.is_file() else {}
        if not cases and not found:
            raise Fail(f"no test was run; see {where}")
        return [case for case, verdict in cases.items() if verdict != "ok"] + found

    def build(commit: str) -> pathlib.Path:
        return kernel.executable(base, commit, what, f"mutants/{name}-kernel")

    with lock("source"), threads() as pool:
        patched = applied.commits(base)["patched"]
        sound = pool.submit(run, build(patched), "none", every)
        running: dict[pathlib.Path, concurrent.futures.Future[list[str]]] = {}

        def settle(fault: pathlib.Path) -> None:
            tally.run(f"{name}/{fault.stem}", killed, fault, running.pop(fault).result, outcome)

        for fault in wanted:
            try:
                image = build(applied.variant(base, patched, fault.stem, fault.read_text()))
            except Fail as fail:
                tally.that(f"{name}/{fault.stem}", fail)
                continue
            running[fault] = pool.submit(run, image, fault.stem, scripts(fault))
            # Now, since a long run may be stopped; in order, whoever was quicker.
            while running and next(iter(running.values())).done():
                settle(next(iter(running)))
    tally.that(f"{name}: without a fault all cases of {', '.join(every)} pass", "\n".join(sound.result()))
    for fault in list(running):
        settle(fault)


@contextlib.contextmanager
def broken(base: Base, fault: pathlib.Path, code: Iterable[str]) -> Iterator[list[str]]:
    """Put a fault into the checked-out source for a while; gives the files it changed.

    Times stay as they were, and of the objects only the topic's own and the fault's are made again: a header like
    mpscq.h is included by half of the kernel, for which a one-line fault makes no difference.
    """
    changed = files_of(base, fault)
    paths = [base.repo / path for path in changed]
    was = {path: (path.read_bytes(), path.stat()) for path in paths if path.is_file()}

    def settle() -> None:
        for known, (_, stat) in was.items():
            os.utime(known, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        for path in {*code, *changed}:
            (kernel.workplace(base, kernel.flavour(KIND)) / path).with_suffix(".o").unlink(missing_ok=True)

    done = git(base.repo, "apply", fault, check=False)
    if done.returncode:
        raise Fail(f"it does not apply to the series as far as its topic:\n{done.stdout.rstrip()}")
    settle()
    try:
        yield changed
    finally:
        for path, (data, _) in was.items():
            path.write_bytes(data)
        settle()


def notice(
    base: Base,
    commit: str,
    code: Iterable[str],
    fault: pathlib.Path,
    outcome: pathlib.Path,
    every: Iterable[str],
    limit: int,
) -> None:
    """Fail unless one of the KUnit suites notices the fault; writes down which cases of the first that does.

    limit: real seconds for a suite; one that takes longer has noticed.
    """
    with broken(base, fault, code) as changed:
        if all(path.endswith(".litmus") for path in changed):
            found = [
                f"herd7: {path.rpartition('/')[2]}: {said}"
                for path in changed
                if (said := litmus.judge(base.repo, path))
            ]
        else:
            log, what = outcome.with_name(f"{outcome.name}-{fault.stem}.log"), kernel.flavour(KIND)
            out = kernel.workplace(base, what)
            with kernel.building(out):
                kernel.configure(base, commit, out, what)
                kernel.make(base.repo, out, what.kind, fault.stem, log.with_suffix(".make"))
            found = []
            for suite in every:
                kunit(base, out / what.kind.image, log, limit, suite)
                if found := killers(log.read_text()):
                    break
    killed(fault, lambda: found, outcome)


def killed(fault: pathlib.Path, by: Callable[[], list[str]], outcome: pathlib.Path) -> None:
    """Fail if nothing killed a fault; writes down what did."""
    found = by()
    if not found:
        raise Fail("it lives: no test notices")
    print("     " + "\n     ".join(found), flush=True)
    with open(outcome, "a") as text:
        text.write(written(fault, found))


def kunit(base: Base, image: pathlib.Path, log: pathlib.Path, limit: int, only: str = "") -> tuple[str, str | None]:
    """Run the suites of a kernel on two CPUs; returns (what is wrong, the counts as kunit.py says them)."""
    done = suites.boot(base, image, log, CPUS, limit, only)
    counts = suites.counts(done.stdout)
    if not counts or done.returncode or set(counts) - {"passed"}:
        return f"kunit.py: {counts}, status {done.returncode}; see {log}", None
    return "", f"{counts['passed']} on {CPUS} CPUs"


def killers(text: str) -> list[str]:
    """What killed a fault, of kunit.py's output: the cases that failed, and whether the kernel then hung or crashed."""
    found = re.findall(r"^\[[\d:]+\] \[FAILED\] (\w+)$", text, re.M)
    return found + ["a hang or a crash"] * bool(re.search(r"^\[[\d:]+\] =+ \[CRASHED\] ", text, re.M))
