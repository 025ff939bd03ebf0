# SPDX-License-Identifier: GPL-2.0
"""The series as a Debian package of modules: dkms builds them for the kernel that the base is the source of.

What the kernel itself holds cannot be replaced by a module, so a patch of that is left out, and said. Debian's kernel
has no MODVERSIONS: nothing would keep a module that was built for other structures from being loaded beside ours. So
the RPC server's exported symbols get a suffix that says which sources they are of. A module of any others asks for a
symbol that there is not, and is refused.
"""

import pathlib
import re
import tempfile
from collections.abc import Collection, Iterable

from ..series import applied, tree
from ..series import topics as store
from ..series.base import Base, git
from ..series.topics import Topic
from ..util import BUILD, Fail, digest, lock, run, say, whole

NAME = "knfsd-queue"
# What Debian appends to the version in `uname -r`. Nothing else was tried.
FLAVOUR = "+deb13-amd64"
# {module: its directory}: all that know what a connection, a pool or a request of the RPC server looks like, and those
# that the series changes.
MODULES = {
    "sunrpc": "net/sunrpc",
    "auth_rpcgss": "net/sunrpc/auth_gss",
    "rpcsec_gss_krb5": "net/sunrpc/auth_gss",
    "rpcrdma": "net/sunrpc/xprtrdma",
    "lockd": "fs/lockd",
    "nfsd": "fs/nfsd",
    "nfsv4": "fs/nfs",
}
SOURCES = ("net/sunrpc/", "fs/lockd/", "fs/nfsd/", "fs/nfs/")
# Headers of the RPC server: the package has the patched ones, and they are found first. See also theirs().
HEADERS = (
    "include/linux/sunrpc/",
    "include/linux/lockd/",
    "include/linux/nfslocalio.h",  # Debian's kernel is built without NFS_LOCALIO, so what uses it is in the package
    "include/trace/events/sunrpc.h",
    "include/trace/events/rpcrdma.h",
)
# No part of a kernel that Debian builds. KUnit is not configured there.
PROSE = re.compile(r"^(Documentation|tools)/|^MAINTAINERS$|_kunit\.c$|\.?kunitconfig$|/tests/(Makefile|Kconfig)$")
# What Debian's configuration leaves out of these modules: it has no NFS_LOCALIO.
NOT_CONFIGURED = ("fs/nfs/localio.c", "fs/nfsd/localio.c")
EXPORTED = re.compile(r"^EXPORT_SYMBOL(?:_GPL)?\((svc_\w+)\);", re.M)

KBUILD = """\
# SPDX-License-Identifier: GPL-2.0
# The package's headers are found before the kernel's.
LINUXINCLUDE := -include $(KBUILD_EXTMOD)/include/renamed.h -I$(KBUILD_EXTMOD)/include \\
\t-I$(KBUILD_EXTMOD)/include/uapi $(LINUXINCLUDE)
obj-m := net/sunrpc/ fs/lockd/ fs/nfsd/ fs/nfs/
"""
# Of the directories, what is not in MODULES stays the kernel's own.
NOT_BUILT = (
    "CONFIG_NFS_FS",
    "CONFIG_NFS_V2",
    "CONFIG_NFS_V3",
    "CONFIG_PNFS_FILE_LAYOUT",
    "CONFIG_PNFS_BLOCK",
    "CONFIG_PNFS_FLEXFILE_LAYOUT",
)

DKMS_CONF = """\
PACKAGE_NAME="{name}"
PACKAGE_VERSION="{version}"
AUTOINSTALL="yes"
# Its sources are this kernel's, and its modules replace this kernel's.
BUILD_EXCLUSIVE_KERNEL="^{release}$"
BUILD_EXCLUSIVE_ARCH="^x86_64$"
MAKE[0]="make -C $kernel_source_dir M=$dkms_tree/$PACKAGE_NAME/$PACKAGE_VERSION/build {variables} modules"
CLEAN="true"
{modules}
"""

CONTROL = """\
Package: {name}-dkms
Version: {version}
Section: kernel
Priority: optional
Architecture: all
Maintainer: {maintainer}
Depends: dkms (>= 3.0), linux-headers-{kernel}
Recommends: openssl, mokutil
Description: NFS server modules with the patches of knfsd-queue, for Linux {kernel}
 Replaces {modules} of that kernel,
 and of no other. Without the package the kernel's own are used again.
"""

# dkms's own, as every package of modules calls it.
POSTINST = """\
#!/bin/sh
set -e
[ "$1" != configure ] || /usr/lib/dkms/common.postinst {name} {version} "" "" "$2"
"""
PRERM = """\
#!/bin/sh
set -e
case "$1" in
remove|upgrade|deconfigure) dkms remove -m {name} -v {version} --all || true ;;
esac
"""


def release(base: Base) -> str:
    """What `uname -r` says of the kernel whose source the base is."""
    if not base.packaged:
        raise Fail(
            f"make dkms is for Debian's own kernel, and the base is {base.name}: "
            "unset KSRC, or build that tree as a whole with `git am`"
        )
    return base.name.split()[1] + FLAVOUR


def ours(path: str) -> bool:
    """Whether a file of the kernel is in the package, wherever it is included."""
    return path.startswith((*SOURCES, *HEADERS))


def changed(patch: pathlib.Path) -> list[str]:
    """The files that a patch changes in a kernel that Debian builds."""
    return [path for path in store.changes(patch) if not PROSE.search(path)]


def theirs(base: Base, topics: list[Topic]) -> set[str]:
    """The other headers that the series changes and the package may have: in the base only the modules include them.

    A header that is new there may be for the kernel's own code, too. It is not in the package.
    """
    patches = [path for topic in topics for patch in topic.patches for path in changed(patch)]
    headers = {path for path in patches if re.match(r"include/.*\.h$", path) and not ours(path)}
    # The name it is included by.
    names = {path: re.sub(r"^include/(uapi/)?", "", path) for path in headers}
    if not names:
        return set()
    # For words, not for a pattern: that takes git minutes.
    words = [word for name in sorted(set(names.values())) for word in ("-e", name)]
    said = git(base.repo, "grep", "-F", *words, base.commit, "--", "*.[chS]", ":!tools", ":!Documentation", check=False)
    users = [found.split(":", 2)[1:] for found in said.stdout.splitlines()]
    found = {
        path: [user for user, text in users if re.match(rf"\s*#\s*include\s+[<\"](uapi/)?{re.escape(name)}[>\"]", text)]
        for path, name in names.items()
    }
    return {path for path, files in found.items() if files and all(map(ours, files))}


def sort(topics: list[Topic], more: Collection[str] = ()) -> dict[str, list[str]]:
    """{patch that the package cannot have: the files that are the kernel's own}; `more` is what theirs() found.

    Fail for one that changes both them and the modules: half of a patch is another patch.
    """
    out: dict[str, list[str]] = {}
    for topic in topics:
        for patch in topic.patches:
            files = changed(patch)
            kernels = [path for path in files if not ours(path) and path not in more]
            name = f"{topic.name}/{patch.name}"
            if kernels and len(kernels) < len(files):
                raise Fail(
                    f"{name} changes the modules and {', '.join(kernels)}, which is the kernel's own: "
                    "no package of modules can have it; split the patch, or park the topic"
                )
            if kernels:
                out[name] = kernels
    return out


def uncompiled(topics: Iterable[Topic], log: str) -> list[str]:
    """The sources that a patch of the package changes, and that no module has by dkms's make.log."""
    patched = {path for topic in topics for patch in topic.patches for path in changed(patch) if ours(path)}
    made = set(re.findall(r"^ *CC \[M\] +(\S+)\.o$", log, re.M))
    sources = {path for path in patched if path.endswith(".c")}.difference(NOT_CONFIGURED)
    return sorted(path for path in sources if path[:-2] not in made)


def carried(topics: list[Topic]) -> list[str]:
    """A line each for the topics that the package has, has a part of, and has nothing of.

    It needs no base: sort() refuses what is neither the kernel's own nor the modules'.
    """
    whole, part, none, tests = [], [], [], []
    for topic in topics:
        code = [files for patch in topic.patches if (files := changed(patch))]
        mine = [files for files in code if any(map(ours, files))]
        if topic.experiment:
            none.append(f"{topic.name} (an experiment)")
        elif not code:
            tests.append(topic.name)
        elif not mine:
            none.append(f"{topic.name} (code of the kernel's own)")
        elif len(mine) < len(code):
            part.append(f"{topic.name} ({len(mine)} of {len(code)} patches)")
        else:
            whole.append(topic.name)
    kinds = {"whole": whole, "in part": part, "not": none, "tests alone, which need no package": tests}
    return [f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names]


def renamed(where: pathlib.Path, suffix: str) -> str:
    """A header that gives each symbol of the RPC server's, but those that name a trace point, the suffix."""
    text = "\n".join(path.read_text(errors="replace") for path in sorted(where.rglob("*.[ch]")))
    points = set(re.findall(r"\btrace_(svc_\w+)", text))
    names = sorted(set(EXPORTED.findall(text)) - points)
    if not names:
        raise Fail("the series leaves the RPC server no exported symbol: modules could not be told apart")
    return "/* Symbols of these sources only: see dkms.conf. */\n" + "".join(
        f"#define {name} {name}_{suffix}\n" for name in names
    )


def source(base: Base, head: str, place: pathlib.Path, version: str, more: Collection[str]) -> None:
    """Write the sources as dkms wants them below /usr/src: `head` is the base with the series."""
    wanted = (*HEADERS, *sorted(more))
    headers = git(base.repo, "diff", "--name-only", "--diff-filter=d", base.commit, head, "--", *wanted).stdout.split()
    archive = place / "sources.tar"
    place.mkdir(parents=True)
    git(base.repo, "archive", "-o", archive, head, *(path.rstrip("/") for path in SOURCES), *headers)
    run("tar", "-xf", archive, "-C", place)
    archive.unlink()
    (place / "include").mkdir(exist_ok=True)
    (place / "include" / "renamed.h").write_text(renamed(place, version.rpartition("+")[2]))
    (place / "Kbuild").write_text(KBUILD)
    modules = "\n".join(
        f'BUILT_MODULE_NAME[{i}]="{name}"\nBUILT_MODULE_LOCATION[{i}]="{where}"\nDEST_MODULE_LOCATION[{i}]="/updates/dkms"'
        for i, (name, where) in enumerate(MODULES.items())
    )
    conf = DKMS_CONF.format(
        name=NAME,
        version=version,
        release=re.escape(release(base)).replace("\\-", "-"),
        variables=" ".join(f"{name}=" for name in NOT_BUILT),
        modules=modules,
    )
    (place / "dkms.conf").write_text(conf)


def dkms(base: Base) -> pathlib.Path:
    """Make build/knfsd-queue-dkms_VERSION_all.deb; returns its path. Says which patches it cannot have."""
    kernel = release(base)
    series = store.series()
    topics = store.proposed(series)
    tree.check_exported()
    more = theirs(base, topics)
    left = sort(topics, more)
    with tempfile.TemporaryDirectory(prefix="knfsd-queue-") as scratch, lock("source"):
        head = applied.proposed(base)
        # Neither a letter nor a selftest makes it another package.
        version = f"{kernel.split('+')[0]}+{digest(base.key, applied.code(base, head), pathlib.Path(__file__))[:8]}"
        made = BUILD / f"{NAME}-dkms_{version}_all.deb"
        place = pathlib.Path(scratch)
        place.chmod(0o755)
        source(base, head, place / "usr/src" / f"{NAME}-{version}", version, more)
        words = {"name": NAME, "version": version, "kernel": kernel, "maintainer": tree.ADDRESS}
        scripts = place / "DEBIAN"
        scripts.mkdir()
        (scripts / "control").write_text(CONTROL.format(**words, modules=", ".join(MODULES)))
        for name, text in (("postinst", POSTINST), ("prerm", PRERM)):
            (scripts / name).write_text(text.format(**words))
            (scripts / name).chmod(0o755)
        with whole(made) as part:
            run("dpkg-deb", "--root-owner-group", "-Zxz", "--build", place, part, env={"SOURCE_DATE_EPOCH": "0"})
    for name, files in left.items():
        say(f"left out: {name}: {', '.join(files)} is the kernel's own, no module")
    for line in carried(series):
        say(f"topics in the package, {line}")
    say(f"{made} has {', '.join(MODULES)} for {kernel}: `apt install {made}`, then boot again")
    return made
