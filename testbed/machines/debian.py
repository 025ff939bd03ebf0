# SPDX-License-Identifier: GPL-2.0
"""A Debian machine with Debian's own kernel, without and with a package of modules, in QEMU.

The package is installed beside the running system, in a root of its own, where dkms builds the modules: only what the
modules do is emulated. Debian's kernel has 9p as modules, so its own initramfs-tools makes what mounts the root.
"""

import dataclasses
import pathlib

from .. import host
from ..util import cache, digest, lock, need_space, say, whole
from . import guest

# Beyond what every guest has.
PACKAGES = {
    "dkms": "what is tested",
    "gcc": "dkms builds with it",
    "make": "the same",
    "initramfs-tools": "the initial RAM disk, which mounts the root",
}
BACKPORTS = f"{guest.SUITE}-backports"
HOOK = pathlib.Path(__file__).with_name("guest") / "package.sh"


@dataclasses.dataclass(frozen=True)
class Machine:
    """The roots, and what was seen while the package was installed and purged."""

    place: pathlib.Path
    kernel: str

    def root(self, name: str) -> pathlib.Path:
        """Of "base", which never had the package, or of "patched", which has it."""
        return self.place / name

    def image(self, name: str) -> pathlib.Path:
        return self.root(name) / "boot" / f"vmlinuz-{self.kernel}"

    def said(self, name: str) -> str:
        """What guest/package.sh left: the files before and after, install.log, make.log, other.log, purge.log."""
        return (self.place / name).read_text(errors="replace")


def machine(package: pathlib.Path, kernel: str) -> Machine:
    """Machines with the kernel whose `uname -r` is `kernel`; made once for each package."""
    # linux-base is older in the suite than the kernel of its backports wants.
    names = [*guest.PACKAGES, *PACKAGES, f"linux-base/{BACKPORTS}", f"linux-image-{kernel}", f"linux-headers-{kernel}"]
    place = cache() / "guest" / f"debian-{digest(package, HOOK, guest.STAGE1, *names)}"
    with lock("guest"):
        if not place.is_dir():
            need_space(cache(), 6, "two Debian roots with a kernel")
            say(f"installing {package.name} on Debian {guest.SUITE} with Linux {kernel}")
            with whole(place) as part:
                make(names, package, part, place.with_suffix(".log"))
    return Machine(place, kernel)


def make(names: list[str], package: pathlib.Path, part: pathlib.Path, log: pathlib.Path) -> None:
    part.mkdir()
    hooks = (f'--essential-hook={HOOK} initramfs "$1"', f'--customize-hook={HOOK} package "$1" {package} {part}')
    sources = [host.source(name) for name in (guest.SUITE, BACKPORTS)]
    guest.bootstrap(names, part / "base.tar", log, *sources, hooks=hooks)
    for name in ("base", "patched"):
        guest.unpack(part / f"{name}.tar", part / name)
        (part / f"{name}.tar").unlink()
