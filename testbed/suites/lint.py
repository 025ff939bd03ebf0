# SPDX-License-Identifier: GPL-2.0
"""The testbed's own Python: ruff and mypy, as pyproject.toml sets them up."""

import pathlib

from .. import host
from ..util import ROOT, Tally, cache, run

# Debian 12 has no ruff: this one comes from wherever the machine's pip finds packages, once.
RUFF = "0.17.6"
WHAT = ("testbed", "tests", "tools/nfsd-waits")


def ruff() -> pathlib.Path:
    """ruff of that version."""
    return host.from_pip("ruff", RUFF)


def lint(tally: Tally) -> None:
    """Each is a check."""
    tally.suite = "lint"
    tally.run("ruff finds nothing in the testbed", lambda: run(ruff(), "check", "--no-cache", "-q", *WHAT, cwd=ROOT))
    tally.run(
        "mypy finds nothing in the testbed",
        lambda: run("/usr/bin/mypy", f"--cache-dir={cache()}/tools/mypy", WHAT[0], cwd=ROOT),
    )
