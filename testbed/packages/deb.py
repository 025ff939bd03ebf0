# SPDX-License-Identifier: GPL-2.0
"""The patched kernel as Debian packages: in Debian's own configuration, by the kernel's own `make bindeb-pkg`.

Debian's kernel has some four thousand modules, which two cores build for hours. What `lsmod` says on the server may
name those it needs (the kernel's own `make localmodconfig`). The packages that are tested are built so, too, and with
fewer of the other options.
"""

import dataclasses
import pathlib
import re
import shutil
import time

from ..machines import guest, kernel
from ..machines.kinds import KINDS
from ..series import applied, tree
from ..series import base as sources
from ..series.base import Base
from ..util import BUILD, Fail, cache, digest, lock, need_space, run, say, whole

HERE = pathlib.Path(__file__).parent
KIND = "deb"
NAME = "knfsd-queue"
FRAGMENT = HERE / "deb.config"
# What the guest needs of Debian's modules, and what it does not need of the rest.
GUEST = HERE / "deb.lsmod"
GUEST_FRAGMENT = HERE / "deb-guest.config"
# Gigabytes of a build with all modules, and of one with some.
SPACE = {"": 15.0, "some": 4.0}
LOADED = re.compile(r"^(\w+)\s+\d+\s+\d+", re.M)


@dataclasses.dataclass(frozen=True)
class Packages:
    """What `uname -r` says of the kernel, and its packages: the image's first, and the headers'."""

    release: str
    files: tuple[pathlib.Path, ...]


def loaded(lsmod: pathlib.Path) -> str:
    """The text of a file that lsmod's output was written to on a server."""
    if not lsmod.is_file():
        raise Fail(f"LSMOD={lsmod}: no such file: `lsmod >FILE` on the server writes it")
    text = lsmod.read_text(errors="replace")
    names = LOADED.findall(text)
    if not names:
        raise Fail(f"LSMOD={lsmod}: is not what lsmod prints")
    if "nfsd" not in names:
        raise Fail(f"LSMOD={lsmod}: has no nfsd: what is not loaded is not built, so run lsmod while the server runs")
    return text


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be built, and how."""

    commit: str
    # What `uname -r` says behind the version.
    suffix: str
    # Debian's configuration, and where the packages are kept.
    config: pathlib.Path
    kept: pathlib.Path


def plan(base: Base, lsmod: str = "", *more: pathlib.Path) -> Plan:
    """What deb() makes of the same; hold the source's lock. It is known before anything is built, and said."""
    config = sources.configuration(base)
    commit = applied.proposed(base)
    key = digest(applied.code(base, commit), base.revision, kernel.compiler(), config, lsmod, FRAGMENT, *more)
    found = Plan(commit, f"-{NAME}-{key[:8]}", config, cache() / "kernels" / f"{KIND}-{key}")
    modules = f"with {len(LOADED.findall(lsmod))} modules of a server's" if lsmod else "with all of Debian's modules"
    have = "are in the cache" if found.kept.is_dir() else "are not built yet"
    say(f"packages of {base.name} with {NAME}, {modules}, …{found.suffix}: {have}")
    return found


def deb(base: Base, lsmod: str = "", *more: pathlib.Path) -> Packages:
    """The kernel's packages in build/deb/, built unless the same have been.

    lsmod: see loaded(). more: fragments on top of FRAGMENT.
    """
    tree.check_exported()
    with lock("source"):
        made_of = plan(base, lsmod, *more)
        kept = made_of.kept
        if not kept.is_dir():
            build(base, made_of, lsmod, *more)
    made = []
    for path in sorted(kept.iterdir(), key=lambda path: "-image-" not in path.name):
        made.append(BUILD / KIND / path.name)
        made[-1].parent.mkdir(parents=True, exist_ok=True)
        kernel.link(path, made[-1])
    return Packages(made[0].name.partition("_")[0].removeprefix("linux-image-"), tuple(made))


def build(base: Base, of: Plan, lsmod: str, *more: pathlib.Path) -> None:
    """Build and keep them; see configure()."""
    # bindeb-pkg leaves its packages beside the build directory.
    place = cache() / "build" / f"{KIND}-{digest(base.key, kernel.compiler())}"
    out = place / "linux"
    need_space(cache(), SPACE["some" if lsmod else ""], "building Debian packages of a kernel")
    applied.checkout(base, of.commit)
    began = time.monotonic()
    log = BUILD / KIND / "make.log"
    say(f"building Debian packages of the patched kernel; what make says goes to {log}")
    env = {
        **kernel.make_env(),
        "KDEB_PKGVERSION": base.revision,
        "KDEB_CHANGELOG_DIST": guest.SUITE,
        "DEBFULLNAME": NAME,
        "DEBEMAIL": sources.GIT_ENV["GIT_COMMITTER_EMAIL"],
    }
    for path in place.glob("*_*"):
        path.unlink()
    with kernel.building(out):
        configure(base.repo, out, of.config, lsmod, *more)
        words = (f"LOCALVERSION={of.suffix}", "bindeb-pkg")
        count = kernel.make(base.repo, out, KINDS[KIND], "packages", log, *words, env=env)
    # What was packed is there a second time.
    shutil.rmtree(out / "debian")
    say(f"{count} objects and their packages in {time.monotonic() - began:.0f} s; {out} keeps the next build short")
    with whole(of.kept) as part:
        part.mkdir()
        # There is one more, of headers for programs: Debian has its own.
        for name in ("image", "headers"):
            (found,) = place.glob(f"linux-{name}-*{of.suffix}_*.deb")
            found.rename(part / found.name)
    for path in place.glob("*_*"):
        path.unlink()


def configure(src: pathlib.Path, out: pathlib.Path, config: pathlib.Path, lsmod: str, *more: pathlib.Path) -> None:
    """Leave out/.config: Debian's configuration with FRAGMENT, of its modules those of `lsmod`, if any, and `more`.

    What Debian has and cannot be built here is said.
    """
    merge(src, out, config, FRAGMENT)
    have = modules((out / ".config").read_text())
    if gone := sorted(modules(config.read_text()) - have):
        say(f"left out, because the tools here cannot build it: {', '.join(gone)}")
    if lsmod:
        (out / "lsmod").write_text(lsmod)
        # It asks what to do with options that it has made visible, and takes an empty line for their default.
        env = {**kernel.make_env(), "LSMOD": str(out / "lsmod")}
        run(*kernel.make_line(KINDS[KIND]), "-C", src, f"O={out}", "localmodconfig", env=env, stdin="\n" * 1000)
        kept = modules((out / ".config").read_text())
        say(f"{len(kept)} of the {len(have)} options that are modules are kept")
    if more:
        merge(src, out, out / ".config", *more)


def merge(src: pathlib.Path, out: pathlib.Path, config: pathlib.Path, *fragments: pathlib.Path) -> None:
    """Leave out/.config: a configuration with fragments, which it has to have as they are."""
    run(src / "scripts/kconfig/merge_config.sh", "-m", "-O", out, config, *fragments, env=kernel.make_env())
    run(*kernel.make_line(KINDS[KIND]), "-C", src, f"O={out}", "olddefconfig", env=kernel.make_env())
    if missing := kernel.lost(kernel.asked(fragments), (out / ".config").read_text()):
        names = ", ".join(path.name for path in fragments)
        raise Fail(f"options asked for in {names} did not survive olddefconfig:\n  " + "\n  ".join(missing))


def modules(config: str) -> set[str]:
    """The options of a .config that are built as modules."""
    return set(re.findall(r"^(CONFIG_\w+)=m$", config, re.M))
