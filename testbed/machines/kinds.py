# SPDX-License-Identifier: GPL-2.0
"""The kinds of machine (KIND=): what kernel each has, how it is made and booted, and how long its tests may take."""

import dataclasses
import pathlib

from .. import schema
from ..util import Fail

CONFIGS = pathlib.Path(__file__).with_name("configs")
# The fragment that has the suites of KUnit that the topics bring: the kernel of a commit has those that are there.
SUITES = "suites"
# The one that counts lines: those of the objects that the topics name.
COUNTS = "coverage"


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of machine, or of kernel that is compiled and never booted."""

    name: str
    about: str
    # Files of configs/ merged over tinyconfig, in order; "topics" stands for the topics' own. None for what comes as
    # Debian packages, which bring their own configuration, and is booted in QEMU from the root they are in.
    fragments: tuple[str, ...]
    # make's words.
    make: tuple[str, ...] = ("ARCH=um", "SUBARCH=x86_64")
    # "simulated": it jumps to the next timer, and code takes no time. "counted": each instruction takes a nanosecond,
    # for Debian's kernels have no other way to tell the time of a disk. "real": the host's.
    clock: str = "simulated"
    # Whether it is a machine that qemu.py emulates; all others are User-mode Linux.
    qemu: bool = False
    # How many objects a first build makes, about: only the progress bar wants to know. None: it depends on the modules.
    objects: int | None = 1300
    # Seconds of real time for a boot that runs selftests; 0 if none are run there.
    limit: int = 0
    # Seconds of the guest's time for one script.
    timeout: int = 300
    # Kernels that its selftests run on. One that looks for faults has none to compare with.
    kernels: tuple[str, ...] = ("base", "patched")
    # The kind whose cases fail on the base here, too, for they are of its disks.
    devices: str = ""

    @property
    def packaged(self) -> bool:
        return not self.fragments

    @property
    def simulated(self) -> bool:
        return self.clock == "simulated"

    @property
    def booted(self) -> bool:
        """Whether it is built here and booted: what `make kernels`, shell and experiments can be of."""
        return bool(self.fragments) and self.clock != "none"

    @property
    def checks(self) -> bool:
        """Whether it is there to look for faults alone, with nothing to compare."""
        return self.simulated and self.kernels == ("patched",)

    @property
    def repeats(self) -> bool:
        """Whether a boot gives the same verdicts each time, so that one that was made need not be made again."""
        return self.simulated and not self.checks

    @property
    def image(self) -> str:
        """What is booted, in a build directory."""
        return "arch/x86/boot/bzImage" if self.qemu else "linux"


X86, I386 = ("ARCH=x86_64",), ("ARCH=i386",)
EVERY = (
    Kind("sim", "User-mode Linux on simulated time", ("base", "topics", "uml", SUITES), limit=1800),
    Kind("smp", "the same on two CPUs and real time", ("base", "topics", "uml", "smp", SUITES), clock="real"),
    Kind(
        "debug",
        "simulated time, with KASAN, UBSAN, lockdep and kmemleak",
        ("base", "topics", "uml", "debug", SUITES),
        limit=7200,
        kernels=("patched",),
    ),
    Kind(
        "coverage",
        "simulated time, with a count of how often each line is executed",
        ("base", "topics", "uml", COUNTS, SUITES),
        kernels=("patched",),
    ),
    Kind(
        "x86",
        "QEMU, two CPUs on real time",
        ("base", "topics", "x86"),
        X86,
        "real",
        qemu=True,
        objects=2060,
        limit=10800,
        timeout=900,
    ),
    # A counted clock goes on while the host looks for a file.
    Kind(
        "debian",
        "QEMU, Debian's own kernel without and with the package of modules",
        (),
        X86,
        "counted",
        qemu=True,
        limit=10800,
        timeout=20000,
        devices="x86",
    ),
    Kind(
        "deb", "QEMU, the packages of a kernel", (), X86, "counted", qemu=True, objects=None, limit=10800, timeout=20000
    ),
    # A second compiler, which warns of other things, and a machine where a long has 32 bits.
    Kind("clang", "compiled only", ("base", "topics", "x86", "kunit"), (*X86, "CC=clang-19"), "none"),
    Kind("i386", "compiled only", ("base", "topics", "i386", "kunit"), I386, "none"),
)
KINDS = {kind.name: kind for kind in EVERY}
BOOTED = tuple(kind.name for kind in EVERY if kind.booted)
TESTED = tuple(kind.name for kind in EVERY if kind.limit)


def named(name: str) -> Kind:
    if name not in KINDS:
        raise Fail(f"KIND={name}: there is no such machine{schema.meant(name, KINDS)}; there are: {', '.join(BOOTED)}")
    return KINDS[name]


def simulated(name: str) -> bool:
    """Whether a machine's clock is simulated; what is no kind of guest has the clock of the host."""
    return name in KINDS and KINDS[name].simulated
