# SPDX-License-Identifier: GPL-2.0
"""A Debian machine with Debian's own kernel, without and with a package of modules, in QEMU.

The package is installed beside the running system, in a root of its own, where dkms builds the modules: only what the
modules do is emulated. Debian's kernel has 9p as modules, so its own initramfs-tools makes what mounts the root.
"""

import dataclasses
import os
import pathlib

from .. import host
from ..util import cache, digest, lock, need_space, run, say, whole
from . import guest

PACKAGES = {
    "dkms": "what is tested",
    "gcc": "dkms builds with it",
    "make": "the same",
    "openssl": "dkms signs with it",
    "initramfs-tools": "the initial RAM disk, which mounts the root",
    "nfs-kernel-server": "rpc.nfsd, rpc.mountd, exportfs",
    "nfs-common": "mount.nfs",
    "rpcbind": "NFSv3",
    "xfsprogs": "mkfs.xfs",
    "e2fsprogs": "mkfs.ext4",
    "dmsetup": "the selftests' disks",
    "krb5-kdc": "a realm of the guest's own, for sec=krb5",
    "krb5-admin-server": "kadmin.local, which makes the realm's keys",
    "ktls-utils": "tlshd, which does the handshakes of RPC with TLS",
    "fio": "the selftests' load through a mount",
    "iproute2": "ip",
    "kmod": "modprobe",
    "procps": "ps, pgrep, sysctl",
}
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
    names = [*PACKAGES, f"linux-base/{guest.SUITE}-backports", f"linux-image-{kernel}", f"linux-headers-{kernel}"]
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
    suites = [
        f"deb [signed-by={host.KEYRING}] {host.mirror()} {name} main"
        for name in (guest.SUITE, f"{guest.SUITE}-backports")
    ]
    run(
        "mmdebstrap",
        "--variant=minbase",
        "--format=tar",
        "--quiet",
        f"--include={','.join(names)}",
        f"--essential-hook={HOOK} initramfs \"$1\"",
        f"--customize-hook={HOOK} package \"$1\" {package} {part}",
        guest.SUITE,
        part / "base.tar",
        *suites,
        log=log,
        env={"TMPDIR": os.environ.get("TMPDIR", "/tmp")},
    )
    for name in ("base", "patched"):
        guest.unpack(part / f"{name}.tar", part / name)
        (part / f"{name}.tar").unlink()
