# SPDX-License-Identifier: GPL-2.0
"""The base: the kernel the series is applied to, as a git repository of our own in the cache.

It comes from KSRC=/path, a clean git tree of the user's, whose objects are borrowed (`git clone --shared`) and which is
never written to; or else from the newest linux-source package that the machine's Debian mirror offers of the kernel
series in PACKAGES. The repository's working tree is the testbed's: kernels are built and patches are checked there.
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from .. import host
from ..util import Fail, cache, digest, lane, lock, need_space, run, say, whole

Completed = subprocess.CompletedProcess[str]


@dataclasses.dataclass(frozen=True)
class Package:
    """A linux-source of Debian's: the kernel series it is of, and the suite that has it."""

    series: str
    suite: str

    @property
    def name(self) -> str:
        return f"linux-source-{self.series}"

    @property
    def config(self) -> str:
        """The package beside it that has the configurations of Debian's own kernels."""
        return f"linux-config-{self.series}"


# {what LTS= names: the base of that lane}; "" is the base of the series itself.
PACKAGES = {"": Package("7.3", "trixie-backports"), "6.12": Package("6.12", "trixie")}

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
        *args,
        cwd=repo,
        env={**GIT_ENV, **(env or {})},
        **kwargs,
    )


@dataclasses.dataclass(frozen=True)
class Base:
    """A kernel to apply the series to: what to call it, where its repository is, and its commit there."""

    name: str
    repo: pathlib.Path
    commit: str
    # Whether it is Debian's linux-source, and no tree of the user's own.
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
    if lane() not in PACKAGES:
        raise Fail(f"LTS={lane()}: there is no such lane; there are: {', '.join(filter(None, PACKAGES))}")
    return PACKAGES[lane()]


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
    path = ksrc.expanduser().resolve()
    if not path.is_dir():
        raise Fail(f"KSRC={ksrc}: no such directory; give the top of a git tree of the kernel")
    if git(path, "rev-parse", "--show-prefix", check=False).stdout != "\n":
        raise Fail(
            f"KSRC={ksrc}: not the top of a git tree; the series is applied to a commit. `git init && git add -A && "
            "git commit` there makes one of an unpacked tarball"
        )
    makefile = path / "Makefile"
    kernel = version(makefile.read_text(errors="replace")) if makefile.is_file() else None
    if not kernel or not (path / "Kbuild").is_file():
        raise Fail(f"KSRC={ksrc}: not a kernel source tree (its top Makefile states no VERSION)")
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
            need_space(cache(), 4, "a copy of the kernel source")
            say(f"borrowing the objects of {path} at {commit[:12]} (Linux {kernel})")
            with whole(repo) as part:
                git(None, "clone", "-q", "--shared", "--no-checkout", path, part)
                git(part, "checkout", "-q", "--detach", commit)
    return Base(f"Linux {kernel} ({path.name} at {commit[:12]})", repo, commit)


def from_package() -> Base:
    """The newest linux-source of package() on the mirror, as a repository of one commit; asked for once a day."""
    wanted = package()
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
                    "the Debian mirror of this machine could not be reached, and no "
                    f"{wanted.name} is in the cache: check the network and `apt-get update`, or give a kernel tree of "
                    f"your own with KSRC=/path\n{apt}"
                )
    repo = cache() / "base" / f"{wanted.name}_{have}"
    commit = git(repo, "rev-parse", "base").stdout.strip()
    return Base(f"Linux {have.split('-')[0]} ({wanted.name} {have})", repo, commit, packaged=True)


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
    sources.write_text(f"{host.source(wanted.suite)}\n")
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
    policy = run("apt-cache", *apt, "policy", wanted.name).stdout
    found = re.search(r"Candidate: (\d\S*)", policy)
    if not found:
        others = run("apt-cache", *apt, "search", "--names-only", "^linux-source-[0-9]").stdout
        raise Fail(
            f"the Debian mirror of this machine has no {wanted.name} in {wanted.suite}: a release disappears from the "
            f"archive when the next one lands. It has:\n{others.rstrip() or '(none)'}\nGive a kernel tree of your own "
            "with KSRC=/path"
        )
    return apt, found[1]


def unpack(wanted: Package, offered: str, apt: list[str] | str) -> None:
    repo = cache() / "base" / f"{wanted.name}_{offered}"
    need_space(cache(), 5, "the kernel source")
    say(f"fetching {wanted.name} {offered} from the Debian mirror of this machine")
    with whole(repo) as part:
        part.mkdir()
        run("apt-get", *apt, "download", f"{wanted.name}={offered}", cwd=part)
        (deb,) = part.glob("*.deb")
        run("dpkg-deb", "-x", deb, part / "deb")
        (tarball,) = part.glob("deb/usr/src/*.tar.xz")
        say("unpacking it into a git repository")
        run("tar", "-xf", tarball, "--strip-components=1", "-C", part)
        run("rm", "-rf", deb, part / "deb")
        # Debian's packaging ignores whatever is new at the top level; in a tree to work in, nothing new may be
        # overlooked.
        ignore = part / ".gitignore"
        ignore.write_text("".join(line for line in ignore.read_text().splitlines(True) if line != "/*\n"))
        git(part, "init", "-q")
        git(part, "add", "-A", "-f", ".")
        when = {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}
        git(part, "commit", "-q", "-m", f"{wanted.name} {offered}", env=when)
        git(part, "branch", "-f", "base")


def configuration(base: Base) -> pathlib.Path:
    """The file with Debian's configuration of the kernel that the base is; of a tree of the user's, of its series."""
    wanted = package()
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
