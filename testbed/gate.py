# SPDX-License-Identifier: GPL-2.0
"""`make test`, the gate: what has to hold of every change. `make test-all`: all that can be tested."""

import concurrent.futures
import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

from .experiments import results
from .machines import guest
from .machines.kinds import KINDS, TESTED
from .packages import package
from .series import base as bases
from .series import topics as store
from .series import tree
from .series.base import PACKAGES, Base
from .suites import check, conformance, kunit, litmus, mutants, own, selftests, verdicts
from .util import BUILD, ROOT, TREE, Fail, Tally, lane, say

Part = Callable[[Base, Tally], object]
OWN = ("the testbed's own tests", "ruff and mypy")
# What takes a base, after what is checked of the patches: {step: what makes it}.
RUN: dict[str, Part] = {"KUnit": kunit.kunit, "selftests": selftests.selftests, "the README's figures": results.figures}


def gate(every: bool = False) -> Tally:
    """All that `make test` tests; every: see check.check()."""
    steps = ("the lane applies", *RUN) if lane() else (*OWN, *check.STEPS, "quoted results", *RUN)
    tally = Tally(steps)
    if not lane():
        # These are of the testbed, or of patches that a lane has none of its own of.
        with tally.step(OWN[0]), fetched():
            own.tests(tally)
        with tally.step(OWN[1]):
            own.lint(tally)
    tally.suite = "testbed"
    tally.run(f"{TREE.name}/ holds nothing that topics/ does not", tree.check_exported)
    base = tally.run("a base is found", bases.find)
    if not base:
        return tally
    say(f"the base is {base.name}")
    if lane():
        with tally.step("the lane applies"):
            whole(tally, "check.applies", check.applies, base)
    else:
        whole(tally, "check.check", functools.partial(check.check, every=every), base)
        with tally.step("quoted results"):
            whole(tally, "results.quoted", results.quoted, base)
    for name, part in RUN.items():
        with tally.step(name):
            whole(tally, name, part, base)
    return tally


@contextlib.contextmanager
def fetched() -> Iterator[None]:
    """Have what comes from the network fetched meanwhile; what fails there will be asked for again, and then said."""

    def fetch() -> None:
        with contextlib.suppress(Fail):
            bases.find()
            guest.root(store.guest_packages(store.series()))

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(fetch)
        yield


def whole(tally: Tally, name: str, part: Part, base: Base) -> None:
    """A part of the gate; one that breaks off is a failure, and the next one is made all the same."""
    tally.run(f"{name} came to its end", part, base, tally)


def everything(checkouts: Mapping[str, str]) -> int:
    """The gate and all that it leaves out, with nothing taken from what was judged before."""
    verdicts.Settings.fresh = True
    tally = gate(every=True)
    base = bases.find()
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
    with tally.step("mutants"):
        whole(tally, "mutants", mutants.mutants, base)
    with tally.step("conformance"):
        try:
            conformance.conformance(base, tally, checkouts)
        except Fail as fail:
            tally.that("conformance", fail)
    for version in filter(None, PACKAGES):
        with tally.step(f"LTS={version}"):
            line = [sys.executable, "-m", "testbed", "test"]
            done = subprocess.run(line, cwd=ROOT, env={**os.environ, "LTS": version})
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
    """Of the tests those of a topic or a script, of another kind of machine, with noise, or in a mode."""
    tally = Tally()
    selftests.check_mode(mode, kind)
    of, scripts = selftests.named(only, kind, mode) if only else ([], [])
    base = bases.find()
    # KUnit is of no mode, and Debian's kernels have none.
    if of and KINDS[kind].simulated and not mode:
        kunit.kunit(base, tally, of, kind=kind)
    if scripts or not only:
        of_kind(base, tally, kind, tuple(scripts), noise, mode)
    if only and not tally.cases:
        raise Fail(f"T={only}: the topic has neither KUnit suites nor selftests that run with KIND={kind}")
    return tally.close(None if only else BUILD / f"junit-{kind}{noise or ''}{mode}.xml")
