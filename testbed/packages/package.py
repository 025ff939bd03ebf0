# SPDX-License-Identifier: GPL-2.0
"""What an administrator installs on a Debian machine, in a guest: installed, booted, judged by selftests, and purged.

That is a package of modules for Debian's own kernel (make dkms, KIND=debian), or packages of a kernel (make deb,
KIND=deb).
"""

import difflib
import pathlib
import re
from collections.abc import Callable, Collection, Mapping

from .. import host
from ..machines import boot, kernel, shell
from ..series import topics as store
from ..series.base import Base
from ..suites import selftests
from ..util import BUILD, Fail, Tally, lane
from . import deb, debian, dkms

LIMIT = 1800
# What dkms itself makes when it builds the first module, and keeps for the next: its key.
DKMS_OWN = re.compile(r"\bvar/lib/dkms/mok\.(key|pub)$")
HERE = pathlib.Path(__file__).parent


def modules(base: Base, tally: Tally, only: Collection[str] = (), noise: int = 0) -> None:
    """Make the package and install it; then the selftests without and with it, or those named: see selftests()."""
    if lane():
        raise Fail(f"make dkms has no package for the lane {lane()}: unset LTS")
    tally.suite = "package"
    made = dkms.dkms(base)
    release = dkms.release(base)
    kind = "debian"
    topics = store.series()
    needs = store.guest_packages(topics)
    machine = tally.run(f"{made.name} can be installed and purged", debian.with_modules, made, release, needs)
    if not machine:
        return
    for module in dkms.MODULES:
        tally.run(f"dkms has built and installed {module}", built, machine, module)
    missing = dkms.uncompiled(store.proposed(topics), machine.said("make.log"))
    tally.that("each source that a patch changes is part of a module", ", ".join(missing))
    tally.that("dkms refuses to build it for another kernel", refused(machine.said("other.log")))
    tally.that("purging it leaves no trace", traces(machine.said("before"), machine.said("after")))
    if not only:
        looked(tally, machine.image("patched"), HERE / "modules.sh", kind)
    images = {name: machine.image(name) for name in ("base", "patched")}
    selftests.judge(tally, kind, topics, kernel.selftests(base), images, only, noise)


def built(machine: debian.Machine, module: str) -> None:
    where = machine.root("patched") / "usr/lib/modules" / machine.kernel / "updates/dkms"
    if not list(where.glob(f"{module}.ko*")):
        raise Fail(f"there is no {module}.ko in {where}; dkms said:\n{machine.said('make.log')[-2000:]}")


def refused(said: str) -> str:
    """What is wrong with dkms's answer, if it is not the one that docs/installing.md quotes."""
    words = " ".join(said.split())
    return "" if re.search("BUILD_EXCLUSIVE directive which does not match this kernel", words) else f"it said: {said}"


def traces(before: str, after: str) -> str:
    """The files that differ between two lists of them."""
    old, new = ([line for line in text.splitlines() if not DKMS_OWN.search(line)] for text in (before, after))
    return "\n".join(line for line in difflib.unified_diff(old, new, "before", "after", "", "", 0, ""))


def kernels(base: Base, tally: Tally, only: Collection[str] = (), noise: int = 0) -> None:
    """Build the kernel's packages with the guest's modules and install them; then the topics' selftests for them."""
    kind = deb.KIND
    tally.suite = "packages"
    host.setup(host.DEB)
    made = tally.run("the kernel's packages are built", deb.deb, base, deb.loaded(deb.GUEST), deb.GUEST_FRAGMENT)
    if not made:
        return
    name = made.files[0].name
    machine = tally.run(f"{name} can be installed and purged", debian.with_kernel, made.files, made.release)
    if not machine:
        return
    tally.that("purging it leaves no trace", traces(machine.said("before"), machine.said("after")))
    image = machine.image("patched")
    place = kernel.selftests(base)
    topics = store.series()
    if not only:
        text = BUILD / f"package-{kind}.sh"
        inside = HERE / "kernel.sh"
        lines = ["#!/bin/bash", f"export RELEASE={made.release}", *shell.server(topics, place), f". /host{inside}"]
        text.write_text("\n".join(lines) + "\n")
        looked(tally, image, text, kind)
        only = [script for topic in topics for script in topic.packages]
    selftests.judge(tally, kind, topics, place, {"patched": image}, only, noise)


def looked(tally: Tally, image: pathlib.Path, script: pathlib.Path, kind: str) -> None:
    """Boot a machine with what was installed, and count what the script says of it."""
    results = BUILD / f"package-{kind}"
    tally.run("the guest with what was installed is healthy", boot.boot, image, script, results, LIMIT, kind)
    said = results / "ktap"
    cases = selftests.ktap(said.read_text()) if said.is_file() else {}
    tally.that("the guest looked at it", "" if cases else f"no check was made; see {results}/console")
    for case, verdict in cases.items():
        tally.that(case, "" if verdict == "ok" else f"{verdict}; see {results}/console")


# {KIND: what `make test` does}
SUITES: Mapping[str, Callable[[Base, Tally, Collection[str], int], None]] = {"debian": modules, deb.KIND: kernels}
