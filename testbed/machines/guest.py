# SPDX-License-Identifier: GPL-2.0
"""The guest's root: Debian trixie by mmdebstrap, never written to once it is made."""

import os
import pathlib
from collections.abc import Iterable, Mapping

from .. import host
from ..util import cache, digest, lock, need_space, run, say, whole

SUITE = "trixie"
PACKAGES = {
    "nfs-kernel-server": "rpc.nfsd, rpc.mountd, exportfs: the server's own userland",
    "nfs-common": "mount.nfs",
    "rpcbind": "NFSv3 clients ask it for mountd's port",
    "xfsprogs": "mkfs.xfs",
    "e2fsprogs": "mkfs.ext4",
    "krb5-kdc": "a realm of the guest's own, for sec=krb5",
    "krb5-admin-server": "kadmin.local, which makes the realm's keys",
    "dmsetup": "disks whose properties change under a mounted file system",
    "iproute2": "ip",
    "ktls-utils": "tlshd, which does the handshakes of RPC with TLS",
    "openssl": "certificates for tlshd",
    "fio": "real load through a real mount",
    "kmod": "modprobe, which nfs-utils calls",
    "procps": "ps, pgrep, sysctl",
    "git": "`git status` as real work (the experiment work)",
    "tcc": "a compiler in one small program, to read headers with",
    "libc6-dev": "some thousand real headers, for the compiler and as a tree to walk",
}
NOTHING: Mapping[str, str] = {}
STAGE1 = pathlib.Path(__file__).with_name("guest") / "init.sh"


def place(more: Mapping[str, str] = NOTHING) -> pathlib.Path:
    """Where the root with packages beyond PACKAGES is, once it has been made."""
    return cache() / "guest" / digest(SUITE, " ".join([*PACKAGES, *more]), STAGE1)


def packages(root: pathlib.Path) -> list[pathlib.Path]:
    """The file that says which packages a root has, and in which versions; none if the root is not of dpkg's."""
    status = root / "var/lib/dpkg/status"
    return [status] if status.is_file() else []


def root(more: Mapping[str, str] = NOTHING) -> pathlib.Path:
    """The guest's root directory, made if it is not there; with packages beyond PACKAGES it is another one.

    It is unpacked from a tarball without device nodes or owners, so that it belongs to the user who made it, and
    can be deleted by plain rm; the guest sees those files as its root's own.
    """
    packages = [*PACKAGES, *more]
    made = place(more)
    with lock("guest"):
        if not made.is_dir():
            need_space(cache(), 1.5, "the guest's root")
            say(f"making the guest's root ({SUITE}, {', '.join(packages)})")
            tarball = made.with_suffix(".tar")
            with whole(tarball) as part:
                bootstrap(packages, part, made.with_suffix(".log"), host.mirror())
            with whole(made) as part:
                unpack(tarball, part)
            tarball.unlink()
    return made


def bootstrap(
    packages: Iterable[str], tarball: pathlib.Path, log: pathlib.Path, *sources: str, hooks: Iterable[str] = ()
) -> None:
    """Make a tarball of a Debian root with packages; sources are mmdebstrap's mirrors, hooks its options."""
    run(
        "mmdebstrap",
        "--variant=minbase",
        "--format=tar",
        f"--include={','.join(packages)}",
        '--aptopt=Acquire::Retries "5"',
        f"--keyring={host.KEYRING}",
        *hooks,
        SUITE,
        tarball,
        *sources,
        log=log,
        env={"TMPDIR": os.environ.get("TMPDIR", "/tmp")},
    )


def unpack(tarball: pathlib.Path, made: pathlib.Path) -> None:
    """A Debian root as a directory that a guest can be booted from."""
    made.mkdir()
    run("tar", "-xf", tarball, "-C", made, "--exclude=./dev/*", "--no-same-owner")
    for point in ("host", "results"):
        (made / point).mkdir()
    (made / "guest-init").write_bytes(STAGE1.read_bytes())
    (made / "guest-init").chmod(0o755)
