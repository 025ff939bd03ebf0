# SPDX-License-Identifier: GPL-2.0
"""User-mode Linux: the kernel is a program, and its clock may be simulated."""

import pathlib
from collections.abc import Sequence

from ..util import lane

MEMORY = "3G"


# The kernel seeds its random numbers with its command line as well, and what they decide shows in a figure's last
# digits. So the line names no place of the host's: these are seen from the directory of results, where it is run.
HERE, LINKS = "/proc/self/cwd", "from"


def links(root: pathlib.Path, script: pathlib.Path, results: pathlib.Path) -> None:
    """Leave in the directory of results what its guest is made from, for command()'s line and for a reader."""
    (results / LINKS).mkdir()
    (results / LINKS / "root").symlink_to(root)
    (results / LINKS / "run").symlink_to(script)


def command(kernel: pathlib.Path, simulated: bool, words: Sequence[object] = ()) -> list[str]:
    """The boot line, to be run in a directory of results that has its links(); the same wherever that is.

    Words NAME=value that the kernel does not know reach init as its environment.
    """
    # configs/uml.config gives con0 our stdin and stdout and closes every other console: anything else hangs the guest.
    line = [
        kernel,
        f"mem={MEMORY}",
        "root=/dev/root",
        "rootfstype=hostfs",
        f"rootflags={HERE}/{LINKS}/root",
        "ro",
        "init=/guest-init",
        "panic=-1",
        "kunit.enable=0",
        f"RESULTS={HERE}",
    ]
    # Time travel and SMP exclude each other. The guest's wall clock (ns) starts at a fixed date, or time stamps and
    # cookies made from it would differ from run to run.
    line += ["time-travel=inf-cpu", "time-travel-start=1700000000000000000"] if simulated else ["ncpus=2"]
    # A program takes little more than half as long by seccomp as by ptrace, which is all that 6.12 has; SMP needs it.
    if lane() != "6.12":
        line.append("seccomp=on")
    return [str(word) for word in [*line, *words]]
