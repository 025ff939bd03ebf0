# SPDX-License-Identifier: GPL-2.0
"""The testbed's own Python: ruff and mypy, as pyproject.toml sets them up."""

import pathlib

from ..util import ROOT, Tally, cache, lock, run, say, whole

# Debian 12 has no ruff: this one comes from wherever the machine's pip finds packages, once.
RUFF = "0.17.6"
WHAT = ("testbed", "tests")


def ruff() -> pathlib.Path:
    """ruff of that version, in a place of its own."""
    place = cache() / "tools" / f"ruff-{RUFF}"
    with lock("tools"):
        if not place.is_dir():
            say(f"installing ruff {RUFF} with pip")
            with whole(place) as part:
                run("/usr/bin/python3", "-m", "venv", part)
                run(
                    part / "bin" / "python3",
                    "-m",
                    "pip",
                    "install",
                    "-q",
                    "--disable-pip-version-check",
                    f"ruff=={RUFF}",
                )
    return place / "bin" / "ruff"


def lint(tally: Tally) -> None:
    """Each is a check."""
    tally.suite = "lint"
    tally.run("ruff finds nothing in the testbed", lambda: run(ruff(), "check", "--no-cache", "-q", *WHAT, cwd=ROOT))
    tally.run(
        "mypy finds nothing in the testbed",
        lambda: run("/usr/bin/mypy", f"--cache-dir={cache()}/tools/mypy", WHAT[0], cwd=ROOT),
    )
