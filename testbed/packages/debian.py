# SPDX-License-Identifier: GPL-2.0
"""A Debian machine in QEMU: with Debian's own kernel, without and with a package of modules; or with a kernel of ours.

Packages are installed beside the running system, in a root of its own, where dkms builds the modules: only what the
modules or the kernel do is emulated. All these kernels have 9p as modules, so Debian's own initramfs-tools makes what
mounts the root.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from .. import host
from ..machines import guest
from ..util import cache, digest, lock, need_space, say, whole

# Beyond what every guest has.
KERNEL = {"initramfs-tools": "the initial RAM disk, which mounts the root"}
MODULES = {**KERNEL, "dkms": "what is tested", "gcc": "dkms builds with it", "make": "the same"}
BACKPORTS = f"{guest.SUITE}-backports"
HOOK = pathlib.Path(__file__).with_name("package.sh")


@dataclasses.dataclass(frozen=True)
class Machine:
    """The roots, and what was seen while the packages were installed and purged."""

    place: pathlib.Path
    kernel: str

    def root(self, name: str) -> pathlib.Path:
        """Of "base", which never had the packages, or of "patched", which has them."""
        return self.place / name

    def image(self, name: str) -> pathlib.Path:
        return self.root(name) / "boot" / f"vmlinuz-{self.kernel}"

    def said(self, name: str) -> str:
        """What package.sh left: the files before and after, install.log, purge.log; dkms: make.log, other.log."""
        return (self.place / name).read_text(errors="replace")


def with_modules(package: pathlib.Path, kernel: str, needs: Mapping[str, str]) -> Machine:
    """Machines without and with a package of modules, for Debian's kernel whose `uname -r` is `kernel`.

    needs: {package: what for} of what the selftests want beyond what every guest has.
    """
    # linux-base is older in the suite than the kernel of its backports wants.
    more = [f"linux-base/{BACKPORTS}", f"linux-image-{kernel}", f"linux-headers-{kernel}"]
    return machine([package], kernel, {**MODULES, **needs}, more, ("base", "patched"))


def with_kernel(packages: Sequence[pathlib.Path], kernel: str) -> Machine:
    """A machine with packages of the kernel whose `uname -r` is `kernel`. Without them it has none."""
    return machine(packages, kernel, KERNEL, [], ("patched",))


def machine(
    packages: Sequence[pathlib.Path], kernel: str, why: Mapping[str, str], more: Sequence[str], roots: Sequence[str]
) -> Machine:
    """Machines that are made once for each set of packages."""
    names = [*guest.PACKAGES, *why, *more]
    place = cache() / "guest" / f"debian-{digest(*packages, HOOK, guest.STAGE1, *names)}"
    with lock("guest"):
        if not place.is_dir():
            need_space(cache(), 6, "Debian roots with a kernel")
            what = ", ".join(package.name for package in packages)
            say(f"installing {what} on Debian {guest.SUITE} for Linux {kernel}")
            with whole(place) as part:
                make(names, packages, part, place.with_suffix(".log"), roots)
    return Machine(place, kernel)


def make(
    names: Sequence[str],
    packages: Sequence[pathlib.Path],
    part: pathlib.Path,
    log: pathlib.Path,
    roots: Sequence[str],
) -> None:
    part.mkdir()
    files = " ".join(str(package) for package in packages)
    hooks = (f'--essential-hook={HOOK} initramfs "$1"', f'--customize-hook={HOOK} packages "$1" {part} {files}')
    sources = [host.source(name) for name in (guest.SUITE, BACKPORTS)]
    guest.bootstrap(names, part / "base.tar", log, *sources, hooks=hooks)
    for name in roots:
        guest.unpack(part / f"{name}.tar", part / name)
    for name in ("base", "patched"):
        (part / f"{name}.tar").unlink()
