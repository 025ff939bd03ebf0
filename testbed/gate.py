# SPDX-License-Identifier: GPL-2.0
"""`make test`, the gate: what has to hold of every change. `make test-all`: all that can be tested."""

import contextlib
import functools
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping

from .experiments import results
from .machines import guest
from .machines.kinds import KINDS, TESTED
from .packages import deb, dkms, package
from .series import b4, post, tree
from .series import base as bases
from .series import topics as store
from .series.base import PACKAGED, PROJECTS, Base
from .series.topics import Topic
from .suites import check, conformance, kunit, links, litmus, mutants, own, selftests, tools, verdicts
from .swarm import judge, promises
from .util import BUILD, ROOT, TREE, Fail, Tally, lane, lock, run, say, threads

Part = Callable[[Base, Tally], object]
OWN, LINT = "the testbed's own tests", "ruff and mypy"
# What takes a base, after what is checked of the patches, and keeps every CPU busy: {step: what makes it}.
RUN: dict[str, Part] = {"selftests": selftests.selftests, "the README's figures": results.figures}
# The same for one CPU: it is made beside RUN.
ONE: dict[str, Part] = {"KUnit": kunit.gate}
# The same as RUN, of the series itself, for lanes have none.
DRAWN: dict[str, Part] = {"random loads": judge.gate}
# What takes its time, and is of `make test-all` alone.
LONG: dict[str, Part] = {"built in or modules": links.links}


def commands(base: Base, tally: Tally) -> None:
    """What the documents tell people to run, on the series itself, as far as that takes seconds.

    tests/test_commands.py reads it out of the documents, and runs there what needs no base.
    """
    tally.suite = "commands"
    topics = store.series()
    for topic in topics:
        for some in ("", *topic.first):
            on = post.posted(topics, topic.name, some)
            what = f"make post T={topic.name} V=1" + (f" P={some}" if some else "")
            tally.run(what, verdicts.once, functools.partial(mailed, base, on), *mailed_by(base, on))
    if base.packaged:
        tally.run("make dkms", verdicts.once, functools.partial(dkms.dkms, base), *modules_by(base, topics))
    with lock("source"):
        server = deb.loaded(deb.GUEST)
        tally.run("make deb knows what to build", deb.plan, base, server)
    for name, values in [("LTS", PACKAGED), ("BASE", PROJECTS)]:
        for value in values:
            line = [sys.executable, "-m", "testbed", "check"]
            # Each of them is of a package of its own.
            done = run(*line, cwd=ROOT, env={name: value, "KSRC": ""}, check=False)
            tally.that(f"make check {name}={value}", done.stdout if done.returncode else "")


def mailed_by(base: Base, topics: list[Topic]) -> tuple[verdicts.Key, ...]:
    """What decides that mailed() works: the last of the topics. That it goes onto the others is check's to say."""
    topic = topics[-1]
    names = " ".join(post.label(one) for one in topics)
    code = [pathlib.Path(module.__file__) for module in (post, b4, tree) if module.__file__]
    return "post", base.key, names, store.queue_digest([topic]), topic.home / "topic.toml", *code


def modules_by(base: Base, topics: list[Topic]) -> tuple[verdicts.Key, ...]:
    """What decides that `make dkms` works: the code of the modules, and which of it each patch changes."""
    code = []
    for topic in store.proposed(topics):
        files = [changed for path in topic.patches if (changed := dkms.changed(path))]
        code.append(f"{topic.name} {topic.content} {files}")
    return "dkms", base.key, *code, pathlib.Path(dkms.__file__)


def mailed(base: Base, topics: list[Topic]) -> None:
    """Write the first version of the last of the topics as `make post` does, to no place that stays."""
    with tempfile.TemporaryDirectory(prefix="knfsd-queue-") as place:
        post.write(base, topics, 1, post.blurb(topics[-1], topics, 1), pathlib.Path(place) / "mail")


def quoted(base: Base, tally: Tally) -> None:
    """Results that the README or a letter quotes are of today's series."""
    results.quoted(base, tally)
    judge.quoted(base, tally)


# What the documents say, for the series itself.
SAID: dict[str, Part] = {
    "quoted results": quoted,
    "what experiments measure": results.measurable,
    "mutants apply": mutants.apply,
}
# As ONE.
BESIDE: dict[str, Part] = {**ONE, "programs of user space": tools.tools, "commands of the documents": commands}


def gate(every: bool = False) -> Tally:
    """All that `make test` tests; every: see check.check()."""
    ours = (LINT, *check.STEPS, OWN, *SAID, *RUN, *BESIDE, *DRAWN)
    steps = ("the lane applies", *RUN, *ONE) if lane() else ours
    tally = Tally(steps)
    with fetched():
        judge_all(tally, every)
    return tally


def judge_all(tally: Tally, every: bool) -> None:
    """One step after the other, and beside those that leave a CPU without work another."""
    if lane():
        if base := find(tally):
            with tally.step("the lane applies"):
                whole(tally, "check.applies", check.applies, base)
            with beside(tally, of(base, ONE)):
                made(tally, RUN, base)
        return
    # These are of the testbed, or of patches that a lane has none of its own of.
    with tally.step(LINT):
        own.lint(tally)
    base = find(tally)
    if base:
        whole(tally, "check.check", functools.partial(check.check, every=every), base)
        made(tally, SAID, base)
    with beside(tally, {OWN: own_tests, **(of(base, BESIDE) if base else {})}):
        if base:
            made(tally, RUN, base)
    if base:
        made(tally, DRAWN, base)


def own_tests(tally: Tally) -> None:
    """As whole(): they need no base."""
    tally.run(f"{OWN} came to their end", own.tests, tally)


def find(tally: Tally) -> Base | None:
    """The base, if there is one."""
    tally.suite = "testbed"
    tally.run(f"{TREE.name}/ holds nothing that topics/ does not", tree.check_exported)
    base = tally.run("a base is found", bases.find)
    if base:
        say(f"the base is {base.name}")
    return base


def made(tally: Tally, parts: Mapping[str, Part], base: Base) -> None:
    for name, part in parts.items():
        with tally.step(name):
            whole(tally, name, part, base)


def of(base: Base, parts: Mapping[str, Part]) -> dict[str, Callable[[Tally], object]]:
    """Parts of one base, for beside()."""
    return {name: functools.partial(whole, name=name, part=part, base=base) for name, part in parts.items()}


@contextlib.contextmanager
def beside(tally: Tally, parts: Mapping[str, Callable[[Tally], object]]) -> Iterator[None]:
    """Make parts meanwhile. What they take of the time is what is left of them afterwards."""
    found = {name: Tally() for name in parts}
    with threads(1) as pool:
        ended = {name: pool.submit(part, found[name]) for name, part in parts.items()}
        yield
        for name, future in ended.items():
            with tally.step(name):
                future.result()
                tally.cases += found[name].cases


@contextlib.contextmanager
def fetched() -> Iterator[None]:
    """Have what comes from the network fetched meanwhile; what fails there will be asked for again."""

    def fetch() -> None:
        try:
            bases.find()
            guest.root(store.guest_packages(store.series()))
            guest.root()
            if not lane():
                guest.root(tools.PACKAGES)
                for wanted in promises.every():
                    guest.root(wanted.experiment.packages)
        except Fail as fail:
            say(f"nothing more is fetched ahead of its use: {fail}")

    with threads(1) as pool:
        pool.submit(fetch)
        yield


def whole(tally: Tally, name: str, part: Part, base: Base) -> None:
    """A part of the gate; one that breaks off is a failure, and the next one is made all the same."""
    tally.run(f"{name} came to its end", part, base, tally)


def everything(checkouts: Mapping[str, str]) -> int:
    """The gate and all that it leaves out, with nothing taken from what was judged before."""
    others = any(checkouts.values())
    if others:
        conformance.checkouts(checkouts)
    os.environ[verdicts.FRESH] = "1"
    tally = gate(every=True)
    base = bases.find()
    for name, part in LONG.items():
        with tally.step(name):
            whole(tally, name, part, base)
    with tally.step("litmus tests"):
        whole(tally, "litmus", litmus.litmus, base)
    for cpus in range(2, kunit.MOST_CPUS + 1, 2):
        with tally.step(f"KUnit on {cpus} CPUs"):
            whole(tally, f"KUnit on {cpus} CPUs", functools.partial(kunit.kunit, cpus=cpus), base)
    for mode in selftests.modes(store.series()):
        with tally.step(f"selftests, MODE={mode}"):
            whole(tally, mode, functools.partial(selftests.selftests, mode=mode), base)
    for noise in (1, 2):
        with tally.step(f"selftests, NOISE={noise}"):
            whole(tally, f"NOISE={noise}", functools.partial(selftests.selftests, noise=noise), base)
    for kind in TESTED[1:]:
        with tally.step(f"KIND={kind}"):
            whole(tally, f"KIND={kind}", functools.partial(of_kind, kind=kind), base)
    with tally.step("random loads, 50 a topic"):
        whole(tally, "swarm", judge.every, base)
    with tally.step("mutants"):
        whole(tally, "mutants", mutants.mutants, base)
    if others:
        with tally.step("conformance"):
            whole(tally, "conformance", functools.partial(conformance.conformance, given=checkouts), base)
    for version in PACKAGED:
        with tally.step(f"LTS={version}"):
            line = [sys.executable, "-m", "testbed", "test"]
            done = subprocess.run(line, cwd=ROOT, env={**os.environ, "LTS": version, "KSRC": ""})
            tally.that(f"LTS={version}", f"status {done.returncode}: see above" if done.returncode else "")
    return tally.close(BUILD / "junit-all.xml")


def of_kind(base: Base, tally: Tally, kind: str, only: tuple[str, ...] = (), noise: int = 0, mode: str = "") -> None:
    """The tests of another kind of machine."""
    if kind in package.SUITES:
        package.SUITES[kind](base, tally, only, noise)
        return
    if KINDS[kind].checks and not (mode or only):
        kunit.kunit(base, tally, kind=kind)
    selftests.selftests(base, tally, kind, only, noise, mode)


def some(kind: str, only: str, noise: int, mode: str) -> int:
    """Of the tests those of a topic, a script or a program, of another kind of machine, with noise, or in a mode."""
    tally = Tally()
    if of_user_space := tools.named(only):
        if (kind, noise, mode) != (tools.KIND, 0, ""):
            raise Fail(f"T={only}: a program is tested with KIND={tools.KIND}, without NOISE= and MODE=")
        tools.tools(bases.find(), tally, of_user_space)
        return tally.close()
    selftests.check_mode(mode, kind)
    of, scripts = selftests.named(only, kind, mode) if only else ([], [])
    base = bases.find()
    # KUnit is of no mode, and Debian's kernels have none.
    if of and KINDS[kind].simulated and not mode:
        kunit.kunit(base, tally, of, kind=kind)
    if scripts or not only:
        of_kind(base, tally, kind, tuple(scripts), noise, mode)
    return tally.close(None if only else BUILD / f"junit-{kind}{noise or ''}{mode}.xml")
