# SPDX-License-Identifier: GPL-2.0
"""User-mode Linux: the kernel is a program, and its clock may be simulated."""

import pathlib
from collections.abc import Sequence

MEMORY = "3G"


def command(
    kernel: pathlib.Path,
    root: pathlib.Path,
    script: pathlib.Path,
    results: pathlib.Path,
    simulated: bool,
    words: Sequence[object] = (),
) -> list[str]:
    """The boot line. Words NAME=value that the kernel does not know reach init as its environment."""
    # configs/uml.config gives con0 our stdin and stdout and closes every other console: anything else hangs the guest.
    line = [
        kernel,
        f"mem={MEMORY}",
        "root=/dev/root",
        "rootfstype=hostfs",
        f"rootflags={root}",
        "ro",
        "init=/guest-init",
        "panic=-1",
        "kunit.enable=0",
        f"RUN={script}",
        f"RESULTS={results}",
    ]
    # SMP needs the seccomp userspace; time travel and SMP exclude each other. The guest's wall clock (ns) starts at a
    # fixed date, or time stamps and cookies made from it would differ from run to run.
    line += ["time-travel=inf-cpu", "time-travel-start=1700000000000000000"] if simulated else ["ncpus=2", "seccomp=on"]
    return [str(word) for word in [*line, *words]]
