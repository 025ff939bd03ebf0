# SPDX-License-Identifier: GPL-2.0
"""What the host must have: Debian packages, each with the reason it was chosen."""

import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterable, Mapping

from .util import Fail, cache, lock, run, say, whole

PACKAGES = {
    "gcc": "the kernel's compiler",
    "make": "the kernel's build",
    "ccache": "what was compiled once need not be compiled again",
    "flex": "the kernel's build (Kconfig)",
    "bison": "the kernel's build (Kconfig)",
    "bc": "the kernel's build (timeconst.h)",
    "libc6-dev": "User-mode Linux is a host program; so are the selftests",
    "perl": "checkpatch.pl and the kernel's build",
    "git": "the queue is kept, applied and exported with git am and format-patch",
    "rsync": "the kernel's `make headers` and kselftest's install step",
    "xz-utils": "linux-source packages are xz tarballs",
    "libelf-dev": "objtool, which is part of building for x86-64",
    "qemu-system-x86": "the machine with two CPUs and other disks (KIND=x86); emulated, so that no KVM is needed",
    "sparse": "the kernel's own static checker",
    "clang-19": "a second compiler, which warns of other things; the kernel wants 17 or later",
    "shellcheck": "reads the selftests, and the scripts of the guest",
    "gdb": "make gdb",
    "valgrind": "counts instructions and cache misses of kernel code in a user program (kind counts)",
    "mmdebstrap": "makes the guest in one step, touches no service, needs no root",
    "uidmap": "lets mmdebstrap work for a user who is not root",
    "debian-archive-keyring": "signs the suites the guest and the kernel source come from",
    "python3": "the testbed (3.11 or later)",
    "python3-ply": "checkpatch's check of licence tags",
    "python3-git": "the same",
    "python3-jsonschema": "says what is wrong with a topic.toml or an experiment, by a schema that is data itself",
    "python3-tqdm": "progress bars",
    "python3-matplotlib": "the pictures; the SVG is the same for the same data",
    "python3-pytest": "the testbed's own tests",
    "python3-pytest-xdist": "the same, two at a time on each CPU",
    "python3-prometheus-client": "reads what tools/nfsd-metrics prints; promtool would come with a daemon",
    "python3-junitparser": "the JUnit file of all checks, for a CI to read",
    "python3-venv": "a place for ruff, which Debian 12 has not, and b4, which is too old there",
    "python3-pip": "the same",
    "mypy": "reads the testbed's types",
}

# What make deb needs beyond these.
DEB = {
    "debhelper": "the kernel's `make bindeb-pkg`",
    "kmod": "depmod, for the modules in a package",
    "libssl-dev": "the program that signs modules",
    "openssl": "the key they are signed with",
    "libdw-dev": "`make bindeb-pkg` asks for it",
    "dpkg-dev": "the same",
}

# What building nfs-utils needs beyond these.
USERLAND = {
    "autoconf": "makes configure of configure.ac",
    "automake": "makes Makefile.in of Makefile.am",
    "libtool": "its own libraries",
    "pkgconf": "configure finds libraries by it",
    "libtirpc-dev": "RPC: mountd, exportfs and mount.nfs",
    "libnl-3-dev": "nfsdctl speaks netlink",
    "libnl-genl-3-dev": "the same",
    "libreadline-dev": "nfsdctl has a prompt",
    "libxml2-dev": "configure asks for it",
    "libsqlite3-dev": "mountd and exportfs keep the file system identifiers of re-exports in it",
    "libmount-dev": "nfsrahead",
    "uuid-dev": "configure asks for it",
    "libblkid-dev": "mountd knows file systems by their UUIDs",
    "libevent-dev": "configure wants it, whatever is built",
}


def missing(wanted: Iterable[str]) -> list[str]:
    """Those packages that are not installed."""
    said = run("dpkg-query", "-W", "-f", "${Package} ${Status}\\n", *wanted, check=False).stdout
    have = {line.split()[0] for line in said.splitlines() if line.endswith(" ok installed")}
    return [name for name in wanted if name not in have]


def as_root(*argv: str) -> None:
    """Run a command as root, through sudo where needed, with its output shown."""
    if os.geteuid():
        if not shutil.which("sudo"):
            raise Fail(f"`{' '.join(argv)}` needs root, and there is no sudo: run it as root, then come back")
        argv = ("sudo", *argv)
    if subprocess.run(
        argv, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, stdin=subprocess.DEVNULL
    ).returncode:
        raise Fail(
            f"`{' '.join(argv)}` failed: see above; the network or the machine's apt configuration may be at fault"
        )


def setup(wanted: Mapping[str, str] = PACKAGES) -> None:
    """Install those packages that are missing; nothing is started, no setting is changed."""
    if not shutil.which("dpkg-query") or not shutil.which("apt-get"):
        raise Fail(
            "this is not a Debian machine; the testbed was made on Debian 12. Elsewhere, install by hand what "
            "these packages hold and put the programs on PATH: " + " ".join(wanted)
        )
    if not missing(wanted):
        return
    with lock("packages"):  # Another of our commands may be installing the same.
        if absent := missing(wanted):
            say("installing " + ", ".join(f"{name} ({wanted[name]})" for name in absent))
            as_root("apt-get", "update", "-q")
            # The machine's own apt may be installing something: wait for ten minutes at most.
            wait = ("-o", "DPkg::Lock::Timeout=600")
            as_root("apt-get", "install", "-q", "-y", "--no-install-recommends", *wait, *absent)


def from_pip(name: str, version: str) -> pathlib.Path:
    """The program `name` of that version, in a place of its own; it comes from where the machine's pip looks, once."""
    place = cache() / "tools" / f"{name}-{version}"
    with lock("tools"):
        if not place.is_dir():
            say(f"installing {name} {version} with pip")
            with whole(place) as part:
                run("/usr/bin/python3", "-m", "venv", part)
                pip = (part / "bin" / "python3", "-m", "pip", "install", "-q", "--disable-pip-version-check")
                run(*pip, f"{name}=={version}")
                program = part / "bin" / name
                # A script's first line names the Python beside it, by the place's name until now.
                program.write_bytes(program.read_bytes().replace(f"#!{part}/".encode(), f"#!{place}/".encode(), 1))
    return place / "bin" / name


KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def mirror() -> str:
    """The address of the Debian archive this machine's own apt uses."""
    for attempt in range(2):
        done = run(
            "apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)", "Created-By: Packages", check=False
        )
        for line in done.stdout.splitlines():
            if line.startswith("Debian|Debian|"):
                return line.split("|")[2]
        if attempt == 0:
            with lock("packages"):
                as_root("apt-get", "update", "-q")
    raise Fail(
        "this machine's apt knows no Debian mirror (`apt-get indextargets` names none of origin Debian): add one "
        "to /etc/apt/sources.list.d"
    )


def source(suite: str, archive: str = "deb") -> str:
    """A line of sources.list for a suite of that archive."""
    return f"{archive} [signed-by={KEYRING}] {mirror()} {suite} main"
