# SPDX-License-Identifier: GPL-2.0
"""The testbed's own Python: ruff and mypy, as pyproject.toml sets them up, and pytest over tests/."""

import functools
import os
import pathlib
import subprocess
import sys

from .. import host
from ..util import BUILD, ROOT, TOOLS, Tally, cache, read_junit, run, say
from . import verdicts

# Debian 12 has no ruff: this one comes from wherever the machine's pip finds packages, once.
RUFF = "0.17.6"
PROGRAMS = tuple(f"tools/{path.name}" for path in sorted(TOOLS.glob("*")))
WHAT = ("testbed", "tests", *PROGRAMS)


def ruff() -> pathlib.Path:
    """ruff of that version."""
    return host.from_pip("ruff", RUFF)


def lint(tally: Tally) -> None:
    """Each is a check."""
    tally.suite = "lint"
    tally.run("ruff finds nothing in the testbed", lambda: run(ruff(), "check", "--no-cache", "-q", *WHAT, cwd=ROOT))
    tally.run("it is in ruff's format", lambda: run(ruff(), "format", "--check", "--no-cache", "-q", *WHAT, cwd=ROOT))
    # Each of the tools is a program of its own, and its name is that of no module.
    for what in ("testbed", *PROGRAMS):
        tally.run(
            f"mypy finds nothing in {what}",
            lambda: run("/usr/bin/mypy", f"--cache-dir={cache()}/tools/mypy", what, cwd=ROOT),
        )


def tests(tally: Tally) -> None:
    """pytest over tests/; not again while every file of the checkout is as it was when all passed."""
    say("the testbed's own tests")
    tally.suite = "pytest"
    verdicts.counted(tally, functools.partial(judged, tally), "pytest", verdicts.checkout())


def judged(tally: Tally) -> None:
    """Each test is a check, and so is that pytest came to a good end."""
    found, status = pytest()
    tally.add("pytest", found)
    if not found or status and not any(found.values()):
        tally.that("the testbed's own tests", f"pytest ended with status {status}")


def pytest() -> tuple[dict[str, str], int]:
    """{test: problem, "" for none}, and the status of pytest."""
    report = BUILD / "pytest.xml"
    report.unlink(missing_ok=True)
    # Some wait more than they compute. Those of a group run one after the other, and share what they look at.
    workers = (f"-n{2 * len(os.sched_getaffinity(0))}", "--dist=loadgroup")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *workers, "-p", "no:cacheprovider", f"--junitxml={report}", "tests"],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    )
    print(done.stdout, flush=True)
    return read_junit(report) if report.is_file() else {}, done.returncode
