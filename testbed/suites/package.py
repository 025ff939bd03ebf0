# SPDX-License-Identifier: GPL-2.0
"""The package of modules on a Debian machine: installed, loaded, judged by the selftests, and purged."""

import difflib
import pathlib
import re
from collections.abc import Collection

from ..machines import boot, debian, kernel
from ..series import dkms
from ..series.base import Base
from ..util import BUILD, Fail, Tally, lane
from . import selftests

KIND = "debian"
LIMIT = 1800
# What dkms itself makes when it builds the first module, and keeps for the next: its key.
DKMS_OWN = re.compile(r"\bvar/lib/dkms/mok\.(key|pub)$")
SCRIPT = pathlib.Path(boot.__file__).with_name("guest") / "modules.sh"


def package(base: Base, tally: Tally, only: Collection[str] = (), noise: int = 0) -> None:
    """Make the package and install it; then the selftests without and with it, or those named: see selftests()."""
    if lane():
        raise Fail(f"make dkms has no package for the lane {lane()}: unset LTS")
    tally.suite = "package"
    made = dkms.dkms(base)
    release = dkms.release(base)
    machine = tally.run(f"{made.name} can be installed and purged", debian.machine, made, release)
    if not machine:
        return
    for module in dkms.MODULES:
        tally.run(f"dkms has built and installed {module}", built, machine, module)
    tally.that("dkms refuses to build it for another kernel", refused(machine.said("other.log")))
    tally.that("purging it leaves no trace", traces(machine.said("before"), machine.said("after")))
    if not only:
        modules(tally, machine)
    what, topics = next(iter(kernel.flavours(KIND).items()))
    images = {name: machine.image(name) for name in ("base", "patched")}
    selftests.judge(tally, what, topics, kernel.selftests(base), images, only, noise)


def built(machine: debian.Machine, module: str) -> None:
    where = machine.root("patched") / "usr/lib/modules" / machine.kernel / "updates/dkms"
    if not list(where.glob(f"{module}.ko*")):
        raise Fail(f"there is no {module}.ko in {where}; dkms said:\n{machine.said('make.log')[-2000:]}")


def refused(said: str) -> str:
    """What is wrong with dkms's answer, if it is not the one that docs/administrators.md quotes."""
    words = " ".join(said.split())
    return "" if re.search("BUILD_EXCLUSIVE directive which does not match this kernel", words) else f"it said: {said}"


def traces(before: str, after: str) -> str:
    """The files that differ between two lists of them."""
    old, new = ([line for line in text.splitlines() if not DKMS_OWN.search(line)] for text in (before, after))
    return "\n".join(line for line in difflib.unified_diff(old, new, "before", "after", "", "", 0, ""))


def modules(tally: Tally, machine: debian.Machine) -> None:
    """Which modules are loaded, and that those of other sources are refused."""
    results = BUILD / "package"
    image = machine.image("patched")
    tally.run("the guest with the package is healthy", boot.boot, image, SCRIPT, results, LIMIT, KIND)
    said = results / "ktap"
    cases = selftests.ktap(said.read_text()) if said.is_file() else {}
    tally.that("the guest looked at the modules", "" if cases else f"no check was made; see {results}/console")
    for case, verdict in cases.items():
        tally.that(case, "" if verdict == "ok" else f"{verdict}; see {results}/console")
