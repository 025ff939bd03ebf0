# SPDX-License-Identifier: GPL-2.0
"""The base: the source the series is applied to, as a git repository of our own in the cache.

It comes from KSRC=/path, a clean git tree of the user's, whose objects are borrowed (`git clone --shared`) and which is
never written to; or else from the newest package that the machine's Debian mirror offers of what PACKAGES or PROJECTS
has. The repository's working tree is the testbed's: kernels are built and patches are checked there.
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .. import host
from ..util import Fail, cache, digest, lane, lock, need_space, project, run, say, whole

Completed = subprocess.CompletedProcess[str]


@dataclasses.dataclass(frozen=True)
class Package:
    """A linux-source of Debian's: the kernel series it is of, and the suite that has it."""

    series: str
    suite: str
    # How a line of sources.list for it begins.
    archive = "deb"
    # Whether there is a package of it; else the base is a tree of the user's own.
    packaged = True

    @property
    def name(self) -> str:
        return f"linux-source-{self.series}"

    @property
    def home(self) -> str:
        """The directory of a topic that has what its lane has."""
        return f"lts-{self.series}"

    @property
    def title(self) -> str:
        """What it is the source of."""
        return "Linux"

    @property
    def stated(self) -> str:
        """What shows that a tree is one of these."""
        return "its top Makefile states no VERSION"

    def version(self, top: pathlib.Path) -> str | None:
        """The version that a source tree states, or None if it is none of these."""
        makefile = top / "Makefile"
        there = makefile.is_file() and (top / "Kbuild").is_file()
        return version(makefile.read_text(errors="replace")) if there else None

    def offered(self, apt: Sequence[str]) -> str | None:
        """The version that apt would fetch."""
        found = re.search(r"Candidate: (\d\S*)", run("apt-cache", *apt, "policy", self.name).stdout)
        return found[1] if found else None

    def fetch(self, apt: Sequence[str], offered: str, place: pathlib.Path) -> pathlib.Path:
        """Have apt fetch that version to a directory; returns the tarball of the source."""
        run("apt-get", *apt, "download", f"{self.name}={offered}", cwd=place)
        (deb,) = place.glob("*.deb")
        run("dpkg-deb", "-x", deb, place)
        (tarball,) = place.glob("usr/src/*.tar.xz")
        return tarball

    def tidy(self, top: pathlib.Path) -> None:
        """Make of an unpacked source a tree to work in: nothing that is new there may be overlooked."""
        # Debian's packaging ignores whatever is new at the top level.
        ignore = top / ".gitignore"
        ignore.write_text("".join(line for line in ignore.read_text().splitlines(True) if line != "/*\n"))

    @property
    def config(self) -> str:
        """The package beside it that has the configurations of Debian's own kernels."""
        return f"linux-config-{self.series}"


@dataclasses.dataclass(frozen=True)
class Branch(Package):
    """A branch of a repository, its `suite`. No package has it."""

    packaged = False

    @property
    def home(self) -> str:
        return self.series


@dataclasses.dataclass(frozen=True)
class Source(Package):
    """A source package of Debian's. What is taken of it is upstream's tarball, without what Debian changes."""

    # What its configure is told.
    configure: tuple[str, ...]
    # Patterns of the files that autoreconf makes. A tarball has them, a repository has not.
    generated: tuple[str, ...]
    # Those of its programs that a guest is to have.
    programs: tuple[str, ...]
    # What a mail's subject has beside the word PATCH.
    prefix: str
    archive = "deb-src"

    @property
    def name(self) -> str:
        return self.series

    @property
    def title(self) -> str:
        return self.series

    @property
    def stated(self) -> str:
        return "its configure.ac does not say so"

    def version(self, top: pathlib.Path) -> str | None:
        path = top / "configure.ac"
        stated = rf"^AC_INIT\(\[[\w ]*\b{self.series}\],\[([^\]]+)\]"
        found = re.search(stated, path.read_text(errors="replace"), re.M) if path.is_file() else None
        return found[1] if found else None

    def offered(self, apt: Sequence[str]) -> str | None:
        # Without the epoch, which no directory's name should have.
        found = re.findall(r"^Version: (?:\d+:)?(\S+)", run("apt-cache", *apt, "showsrc", self.name).stdout, re.M)
        return found[0] if found else None

    def fetch(self, apt: Sequence[str], offered: str, place: pathlib.Path) -> pathlib.Path:
        run("apt-get", *apt, "source", "-q", "--only-source", "--download-only", self.name, cwd=place)
        (tarball,) = place.glob(f"{self.name}_{offered.rpartition('-')[0]}.orig.tar.*z")
        return tarball

    def tidy(self, top: pathlib.Path) -> None:
        for pattern in self.generated:
            for path in top.rglob(pattern):
                path.unlink()
        (top / ".gitignore").write_text("".join(f"{pattern}\n" for pattern in self.generated))


# {what LTS= names: the base of that lane}; "" is the base of the series itself.
PACKAGES = {
    "": Package("7.3", "trixie-backports"),
    "6.12": Package("6.12", "trixie"),
    "nfsd-testing": Branch("nfsd-testing", "https://git.kernel.org/pub/scm/linux/kernel/git/cel/linux.git"),
}
# The lanes that need no tree of the user's own.
PACKAGED = [name for name, package in PACKAGES.items() if name and package.packaged]
# {what BASE= and a topic's `base` name: the project that such topics are patches of}
PROJECTS = {
    "nfs-utils": Source(
        "nfs-utils",
        "trixie",
        # The server's programs, and no more than they need.
        configure=(
            "--disable-gss",
            "--disable-svcgss",
            "--disable-nfsv4",
            "--disable-nfsdcld",
            "--disable-nfsdcltrack",
            "--disable-junction",
            "--disable-ldap",
            "--disable-caps",
            "--disable-sbin-override",
            "--without-tcp-wrappers",
            "--without-systemd",
        ),
        generated=(
            "Makefile.in",
            "aclocal.m4",
            "autom4te.cache",
            "compile",
            "config.guess",
            "config.h.in",
            "config.sub",
            "configure",
            "depcomp",
            "install-sh",
            "libtool.m4",
            "lt*.m4",
            "ltmain.sh",
            "missing",
            "test-driver",
        ),
        programs=("nfsdctl", "exportfs", "mountd"),
        prefix="nfs-utils",
    )
}

# Of the configurations in linux-config, that of linux-image-amd64.
CONFIGURATION = "config.amd64_none_amd64.xz"

# The repository's history depends on nobody's settings, so that a patch comes out the same everywhere.
GIT_ENV = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "knfsd-queue",
    "GIT_AUTHOR_EMAIL": "knfsd-queue@example.invalid",
    "GIT_COMMITTER_NAME": "knfsd-queue",
    "GIT_COMMITTER_EMAIL": "knfsd-queue@example.invalid",
    "GIT_EDITOR": "true",
}


def git(repo: pathlib.Path | None, *args: object, env: Mapping[str, str] | None = None, **kwargs: Any) -> Completed:
    """Run git in `repo` free of the user's settings; see util.run()."""
    return run(
        "git",
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "advice.detachedHead=false",
        "-c",
        "gc.auto=0",
        # In a cache that was copied or unpacked, each file has another inode: without these two a checkout would write
        # all of them again, and make compile them.
        "-c",
        "core.checkStat=minimal",
        "-c",
        "core.trustctime=false",
        *args,
        cwd=repo,
        env={**GIT_ENV, **(env or {})},
        **kwargs,
    )


@dataclasses.dataclass(frozen=True)
class Base:
    """A source to apply the series to: what to call it, where its repository is, and its commit there."""

    name: str
    repo: pathlib.Path
    commit: str
    # Whether it is of a package of Debian's, and no tree of the user's own.
    packaged: bool = False

    @property
    def key(self) -> str:
        return digest(self.name, self.commit)

    @property
    def revision(self) -> str:
        """The version of Debian's package; of a tree of the user's own, the one that a package would begin with."""
        return self.name.rstrip(")").rpartition(" ")[2] if self.packaged else f"{self.name.split()[1]}-1"


def package() -> Package:
    """The package that the base is made of, if no tree of the user's is."""
    if project() and lane():
        raise Fail("LTS= and BASE= name two bases: leave one of them out")
    if project():
        return PROJECTS[known(project())]
    return of_lane(lane())


def of_lane(name: str) -> Package:
    """The base of a lane that there is."""
    if name not in PACKAGES:
        raise Fail(f"LTS={name}: there is no such lane; there are: {', '.join(filter(None, PACKAGES))}")
    return PACKAGES[name]


def prefix() -> list[str]:
    """What stands in a mail's subject beside the word PATCH."""
    return [PROJECTS[project()].prefix] if project() else []


def known(name: str) -> str:
    """The name of a project that there is."""
    if name not in PROJECTS:
        raise Fail(f"BASE={name}: there is no such base beside the kernel; there is: {', '.join(PROJECTS)}")
    return name


def find() -> Base:
    """The base asked for by KSRC, or the packaged one."""
    ksrc = os.environ.get("KSRC")
    return from_tree(pathlib.Path(ksrc)) if ksrc else from_package()


def version(makefile: str) -> str | None:
    """The version a kernel's top Makefile states ("7.3.4", "7.4.0-rc1"), or None if it is no such Makefile."""
    found = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION) *= *(\S*)$", makefile, re.M))
    if not {"VERSION", "PATCHLEVEL", "SUBLEVEL"} <= found.keys():
        return None
    return "{VERSION}.{PATCHLEVEL}.{SUBLEVEL}".format(**found) + found.get("EXTRAVERSION", "")


def from_tree(ksrc: pathlib.Path) -> Base:
    wanted, path = package(), pathlib.Path(os.path.expanduser(ksrc)).resolve()
    if not path.is_dir():
        raise Fail(f"KSRC={ksrc}: no such directory; give the top of a git tree of {wanted.title}")
    asked = git(path, "rev-parse", "--show-prefix", check=False)
    if asked.returncode and "not a git repository" not in asked.stdout:
        raise Fail(f"KSRC={ksrc}: git says:\n{asked.stdout.rstrip()}")
    if asked.stdout != "\n":
        raise Fail(
            f"KSRC={ksrc}: not the top of a git tree; the series is applied to a commit. `git init && git add -A && "
            "git commit` there makes one of an unpacked tarball"
        )
    if not (stated := wanted.version(path)):
        raise Fail(f"KSRC={ksrc}: not a source tree of {wanted.title} ({wanted.stated})")
    dirty = git(path, "status", "--porcelain", "--untracked-files=no", env={"GIT_OPTIONAL_LOCKS": "0"}).stdout
    if dirty:
        raise Fail(
            f"KSRC={ksrc}: has changes that are not committed, and they would be left out:\n{dirty.rstrip()}\n"
            "Commit them or `git stash` them first"
        )
    commit = git(path, "rev-parse", "HEAD").stdout.strip()
    repo = cache() / "base" / f"tree-{commit[:16]}-{digest(str(path))[:8]}"
    with lock("base"):
        if git(repo, "cat-file", "-e", f"{commit}^{{tree}}", check=False).returncode if repo.is_dir() else True:
            need_space(cache(), 4, "a copy of the source")
            say(f"borrowing the objects of {path} at {commit[:12]} ({wanted.title} {stated})")
            with whole(repo) as part:
                git(None, "clone", "-q", "--shared", "--no-checkout", path, part)
                git(part, "checkout", "-q", "--detach", commit)
    return Base(f"{wanted.title} {stated} ({path.name} at {commit[:12]})", repo, commit)


def from_package(wanted: Package | None = None) -> Base:
    """The newest source that the mirror has of a package, or of package(), as a repository; asked for once a day."""
    wanted = wanted or package()
    if not wanted.packaged:
        raise Fail(
            f"LTS={wanted.series}: no package has it: give KSRC=/path, a clone of {wanted.suite} at {wanted.series}"
        )
    checked = cache() / "apt" / f"checked-{wanted.series}"
    with lock("base"):
        have = newest_have(wanted)
        if not have or not checked.exists() or time.time() - checked.stat().st_mtime > 24 * 3600:
            apt, offered = candidate(wanted)
            if offered:
                if not (cache() / "base" / f"{wanted.name}_{offered}").is_dir():
                    unpack(wanted, offered, apt)
                checked.touch()
                have = offered
            elif have:
                say(f"the Debian mirror could not be reached; using {wanted.name} {have} from the cache")
            else:
                raise Fail(
                    f"the Debian mirror of this machine could not be reached, and no {wanted.name} is in the cache: "
                    f"check the network and `apt-get update`, or give a tree of your own with KSRC=/path\n{apt}"
                )
    repo = cache() / "base" / f"{wanted.name}_{have}"
    commit = git(repo, "rev-parse", "base").stdout.strip()
    return Base(f"{wanted.title} {have.split('-')[0]} ({wanted.name} {have})", repo, commit, packaged=True)


def newest_have(wanted: Package) -> str | None:
    have = sorted((cache() / "base").glob(f"{wanted.name}_*"), key=lambda p: p.stat().st_mtime)
    have = [p for p in have if not p.name.endswith(".part")]
    return have[-1].name.split("_", 1)[1] if have else None


def candidate(wanted: Package) -> tuple[list[str] | str, str | None]:
    """(apt's options, the version it would install): a private apt state, so that the machine's own is not touched.

    The version is None when the mirror cannot be reached; when it can and has no such package, that is a Fail.
    """
    home = cache() / "apt"
    for sub in ("state/lists/partial", "cache/archives/partial"):
        (home / sub).mkdir(parents=True, exist_ok=True)
    sources = home / "sources.list"
    sources.write_text(f"{host.source(wanted.suite, wanted.archive)}\n")
    apt = [
        "-o",
        f"Dir::State={home}/state",
        "-o",
        "Dir::State::status=/dev/null",
        "-o",
        f"Dir::Cache={home}/cache",
        "-o",
        f"Dir::Etc::sourcelist={sources}",
        "-o",
        "Dir::Etc::sourceparts=/dev/null",
        "-o",
        "APT::Sandbox::User=",
        "-o",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
    ]
    update = run("apt-get", *apt, "update", "-q", "--error-on=any", check=False)
    if update.returncode:
        return update.stdout, None
    if not (offered := wanted.offered(apt)):
        others = run("apt-cache", *apt, "search", "--names-only", f"^{wanted.name.rstrip('.0123456789')}").stdout
        raise Fail(
            f"the Debian mirror of this machine has no {wanted.name} in {wanted.suite}: a release disappears from the "
            f"archive when the next one lands. It has:\n{others.rstrip() or '(none)'}\nGive a tree of your own "
            "with KSRC=/path"
        )
    return apt, offered


def unpack(wanted: Package, offered: str, apt: list[str] | str) -> None:
    repo = cache() / "base" / f"{wanted.name}_{offered}"
    need_space(cache(), 5, "the source")
    say(f"fetching {wanted.name} {offered} from the Debian mirror of this machine")
    with tempfile.TemporaryDirectory(dir=cache()) as scratch, whole(repo) as part:
        tarball = wanted.fetch(list(apt), offered, pathlib.Path(scratch))
        say("unpacking it into a git repository")
        part.mkdir()
        run("tar", "-xf", tarball, "--strip-components=1", "-C", part)
        wanted.tidy(part)
        git(part, "init", "-q")
        git(part, "add", "-A", "-f", ".")
        when = {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}
        git(part, "commit", "-q", "-m", f"{wanted.name} {offered}", env=when)
        git(part, "branch", "-f", "base")


def configuration(base: Base) -> pathlib.Path:
    """The file with Debian's configuration of the kernel that the base is; of a tree of the user's, of its series."""
    wanted = package() if package().packaged else PACKAGES[""]
    with lock("base"):
        place = cache() / "base"
        version = base.revision if base.packaged else None
        kept = place / f"{wanted.config}_{version}"
        if not version or not kept.is_file():
            apt, offered = candidate(wanted)
            have = [path for path in place.glob(f"{wanted.config}_*") if path.suffix != ".part"]
            have.sort(key=lambda path: path.stat().st_mtime)
            if not offered and not version and have:
                say(f"the Debian mirror could not be reached; using {have[-1].name} from the cache")
                return have[-1]
            if not offered:
                raise Fail(
                    f"the Debian mirror of this machine could not be reached, and {wanted.config} is not in the cache: "
                    f"check the network and `apt-get update`\n{apt}"
                )
            version = version or offered
            kept = place / f"{wanted.config}_{version}"
            if not kept.is_file():
                unpack_configuration(wanted, version, apt, kept)
    return kept


def unpack_configuration(wanted: Package, version: str, apt: list[str] | str, kept: pathlib.Path) -> None:
    say(f"fetching {wanted.config} {version} from the Debian mirror of this machine")
    with tempfile.TemporaryDirectory(dir=cache()) as scratch:
        place = pathlib.Path(scratch)
        run("apt-get", *apt, "download", f"{wanted.config}={version}", cwd=place)
        (deb,) = place.glob("*.deb")
        run("dpkg-deb", "-x", deb, place)
        (packed,) = place.glob(f"usr/src/*/{CONFIGURATION}")
        with whole(kept) as part:
            part.write_text(run("xz", "-dc", packed).stdout)
