# SPDX-License-Identifier: GPL-2.0
"""Kernels: base and patched, built one after the other in one build directory, so that the second is incremental."""

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Container, Iterable, Iterator, Mapping

from .. import schema
from ..series import topics as store
from ..series import tree
from ..series.base import Base, git
from ..series.topics import Topic
from ..util import BUILD, HELD, Fail, bar, cache, digest, lock, need_space, run, say, tail, whole

CONFIGS = pathlib.Path(__file__).with_name("configs")
# What a kind of kernel is: the fragments merged over tinyconfig, in order; "topics" stands for the topics' own.
KINDS = {
    "sim": ("base", "topics", "uml"),
    "smp": ("base", "topics", "uml", "smp"),
    "debug": ("base", "topics", "uml", "debug"),
    "x86": ("base", "topics", "x86"),
}
# What comes as Debian packages, which bring their own configuration, and is booted in QEMU from the root they are in.
PACKAGED = ("debian", "deb")
# What is compiled and never booted: {name: (its fragments, make's words for it)}.
COMPILED = {
    "check": (("base", "topics", "uml", "kunit"), ("ARCH=um", "SUBARCH=x86_64")),
    "clang": (("base", "topics", "x86", "kunit"), ("ARCH=x86_64", "CC=clang-19")),
    "i386": (("base", "topics", "i386", "kunit"), ("ARCH=i386",)),
}
# Debian's compilers by their own names, through ccache, so that no command in a build directory differs.
CCACHE = "/usr/lib/ccache"
# How many a first build makes, about: only the progress bar wants to know. Of a package it depends on the modules.
OBJECTS: dict[str, int | None] = {"x86": 2060, "deb": None}


@dataclasses.dataclass(frozen=True)
class Flavour:
    """What is built: a kernel for a kind of machine, with the options that a group of topics asks for."""

    kind: str
    # The topic whose fragment tells this group from others; "" for the group that comes first in the order.
    group: str
    configs: tuple[pathlib.Path, ...]

    @property
    def name(self) -> str:
        return self.kind + (f"-{self.group}" if self.group else "")

    @property
    def image(self) -> str:
        """What an executable of this flavour is called in build/NAME/."""
        return "linux" if self.name == "sim" else f"linux-{self.name.removeprefix('sim-')}"

    @property
    def fragments(self) -> list[pathlib.Path]:
        """The fragments merged over tinyconfig, in order, with the topics': A.x86.config, too, beside an A.config."""
        names = COMPILED[self.kind][0] if self.kind in COMPILED else KINDS[self.kind]
        beside = [path.with_suffix(f".{name}.config") for path in self.configs for name in names]
        own = [*self.configs, *(path for path in beside if path.is_file())]
        return [path for name in names for path in (own if name == "topics" else [CONFIGS / f"{name}.config"])]


def flavours(kind: str = "sim") -> dict[Flavour, list[Topic]]:
    """{flavour: [topics]}: topics with the same fragments share kernels; one that has none uses the first group's."""
    topics = store.series()
    asked = {
        topic.name: tuple(path for one in store.closure(topics, topic.name) for path in one.configs) for topic in topics
    }
    first = next((configs for configs in asked.values() if configs), ())
    groups: dict[tuple[pathlib.Path, ...], list[Topic]] = {}
    for topic in topics:
        groups.setdefault(asked[topic.name] or first, []).append(topic)
    return {
        Flavour(kind, "" if configs == first else configs[-1].relative_to(store.TOPICS).parts[0], configs): found
        for configs, found in groups.items()
    }


def flavour(topic: str, kind: str = "sim") -> Flavour:
    """The flavour that a topic's tests and experiments are run on."""
    return next(found for found, topics in flavours(kind).items() if topic in [one.name for one in topics])


def everything(kind: str = "check") -> Flavour:
    """The flavour of COMPILED with every topic's options and every KUnit test."""
    return Flavour(kind, "", tuple(path for topic in store.series() for path in topic.configs))


def make_env() -> dict[str, str]:
    """What make is run with. A kernel's text must not depend on where and when it was built, nor on a user's settings.

    ccache keeps what was compiled, for most of a kernel is the same in the next flavour and after the next patch.
    """
    return {
        "KBUILD_BUILD_TIMESTAMP": "1970-01-01",
        # How often there was a build: the guest seeds its random numbers with what uname says.
        "KBUILD_BUILD_VERSION": "1",
        "KBUILD_BUILD_USER": "knfsd-queue",
        "KBUILD_BUILD_HOST": "testbed",
        "MAKEFLAGS": "",
        "MAKELEVEL": "",
        "KCFLAGS": "",
        "LC_ALL": "C",
        "PATH": f"{CCACHE}:{os.environ.get('PATH', os.defpath)}",
        "CCACHE_DIR": str(cache() / "ccache"),
        "CCACHE_MAXSIZE": "5G",
        # Directories are in nothing but the names that a debugger shows.
        "CCACHE_NOHASHDIR": "1",
    }


def for_qemu(kind: str) -> bool:
    """Whether a kind is for a machine that qemu.py emulates; all others are User-mode Linux."""
    return kind in PACKAGED or "uml" not in KINDS[kind]


def counted(kind: str) -> bool:
    """Whether a kind's clock counts instructions: Debian's kernels have no other way to tell the time of a disk."""
    return kind in PACKAGED


def simulated(kind: str) -> bool:
    """Whether a kind's clock is simulated; what is no kind of guest has the clock of the host."""
    return kind in KINDS and not for_qemu(kind) and "smp" not in KINDS[kind]


def make_line(kind: str) -> tuple[str, ...]:
    """make, for what a kind is compiled for."""
    words = (
        COMPILED[kind][1] if kind in COMPILED else ("ARCH=x86_64",) if for_qemu(kind) else ("ARCH=um", "SUBARCH=x86_64")
    )
    # Packages have a version of their own.
    return ("make", *words, *(() if kind in PACKAGED else ("LOCALVERSION=",)))


def image(kind: str) -> str:
    """What is booted, in a build directory."""
    return "arch/x86/boot/bzImage" if for_qemu(kind) else "linux"


def asked(fragments: Iterable[pathlib.Path]) -> dict[str, str]:
    """{option: value asked for} over fragments; "n" for `# CONFIG_X is not set`."""
    options = {}
    for fragment in fragments:
        for line in fragment.read_text().splitlines():
            if found := re.fullmatch(r"(CONFIG_\w+)=(.+)", line):
                options[found[1]] = found[2]
            elif found := re.fullmatch(r"# (CONFIG_\w+) is not set", line):
                options[found[1]] = "n"
    return options


def lost(options: dict[str, str], config: str) -> list[str]:
    """The options of `options` that the text of a .config does not have as asked."""
    have = dict(re.findall(r"^(CONFIG_\w+)=(.+)$", config, re.M))
    return [
        f"{name}={value} (is {have.get(name, 'n')})" for name, value in options.items() if have.get(name, "n") != value
    ]


def configure(src: pathlib.Path, out: pathlib.Path, what: Flavour) -> None:
    """Leave out/.config as the fragments say; not touched if neither they nor any Kconfig of the source changed."""
    out.mkdir(parents=True, exist_ok=True)
    key = out / "configured"
    made_of = digest(*what.fragments, git(src, "ls-files", "-s", "*Kconfig*").stdout)
    if key.is_file() and key.read_text() == made_of:
        return
    key.unlink(missing_ok=True)
    make = (*make_line(what.kind), "-C", src, f"O={out}")
    run(*make, "tinyconfig", env=make_env())
    run(src / "scripts/kconfig/merge_config.sh", "-m", "-O", out, out / ".config", *what.fragments, env=make_env())
    run(*make, "olddefconfig", env=make_env())
    missing = lost(asked(what.fragments), (out / ".config").read_text())
    if missing:
        raise Fail(
            f"options asked for in {', '.join(schema.shown(path) for path in what.fragments)} "
            "did not survive olddefconfig:\n  "
            + "\n  ".join(missing)
            + "\nA dependency is missing there, or this kernel has renamed or dropped the option"
        )
    key.write_text(made_of)


def sweep(out: pathlib.Path) -> None:
    """Remove what a killed build may have left half-written, and keep what it finished.

    Kbuild writes .X.cmd after X, so an X without a .cmd as new was not finished. What was being written in the build's
    last ten seconds, .cmd files included, is not trusted either; headers in include/ are put in place by rename.
    """
    mark = out / "building"
    if not mark.exists():
        return
    say("the last build was killed: removing what it was writing")
    began = mark.stat().st_mtime - 1
    times = {
        pathlib.Path(top, name): pathlib.Path(top, name).lstat().st_mtime
        for top, _, files in os.walk(out)
        for name in files
    }
    times = {
        path: when
        for path, when in times.items()
        if when >= began and path.name not in (".config", "configured", "building")
    }
    newest = max(times.values(), default=0)
    for path, when in times.items():
        unfinished = (
            not path.name.startswith(".")
            and out / "include" not in path.parents
            and times.get(path.with_name(f".{path.name}.cmd"), 0) < when
        )
        if unfinished or when >= newest - 10:
            path.unlink()


@contextlib.contextmanager
def building(out: pathlib.Path) -> Iterator[None]:
    """Around a make in `out`: marks it, so that the next one knows if it was killed. A failed make cleans up itself."""
    out.mkdir(parents=True, exist_ok=True)
    sweep(out)
    (out / "building").touch()
    try:
        yield
    except Fail:
        (out / "building").unlink()
        raise
    (out / "building").unlink()


def make(
    src: pathlib.Path,
    out: pathlib.Path,
    kind: str,
    title: str,
    log: pathlib.Path,
    *words: object,
    env: Mapping[str, str] | None = None,
) -> int:
    """Run the kernel's make with a progress bar that counts objects; everything it says goes to `log`.

    words: more of make's, if the target is not its first one.
    """
    total = None if (out / "vmlinux").is_file() else OBJECTS.get(kind, 1240)
    log.parent.mkdir(parents=True, exist_ok=True)
    argv = [*make_line(kind), "-C", src, f"O={out}", f"-j{len(os.sched_getaffinity(0))}", *words]
    count = 0
    with open(log, "w", buffering=1) as text, bar(total, title, "objects") as progress:
        build = subprocess.Popen(
            [str(a) for a in argv],
            env={**os.environ, **(env or make_env())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=HELD,
        )
        for line in build.stdout or ():
            text.write(line)
            if re.match(r"  (CC|AS|HOSTCC) ", line):
                count += 1
                progress.update()
        status = build.wait()
    if status:
        errors = [line for line in log.read_text().splitlines() if re.search(r"error|\*\*\*|No space", line)]
        raise Fail(
            f"{title}: make failed with status {status}; all it said is in {log}:\n"
            + tail("\n".join(errors) or log.read_text())
        )
    return count


def compiler() -> str:
    return run("gcc", "--version").stdout.splitlines()[0]


def branch(base: Base, name: str) -> str:
    """The commit of a branch in base.repo; "" if there is none."""
    return git(base.repo, "rev-parse", "--verify", "-q", f"refs/heads/{name}^{{commit}}", check=False).stdout.strip()


def queue_branch() -> str:
    return f"queue-{store.queue_digest()}"


def commits(base: Base) -> dict[str, str]:
    """{"base": commit, "patched": commit} in base.repo, after applying the whole queue there."""
    name = queue_branch()
    head = branch(base, name)
    if not head:
        say("applying the queue")
        head = tree.apply(base.repo, store.series(), base.commit)
        git(base.repo, "branch", "-f", name, head)
    return {"base": base.commit, "patched": head}


def variant_branch(commit: str, patch: str) -> str:
    return f"variant-{digest(commit, patch)}"


def variant(base: Base, commit: str, name: str, patch: str) -> str:
    """The commit that a test-only patch makes of `commit`, in base.repo."""
    known_as = variant_branch(commit, patch)
    if made := branch(base, known_as):
        return made
    # Without the working tree, where files that came and went again would have to be compiled again.
    with tempfile.TemporaryDirectory(dir=cache()) as place:
        index = {"GIT_INDEX_FILE": f"{place}/index"}
        git(base.repo, "read-tree", commit, env=index)
        applied = git(base.repo, "apply", "--cached", "-", stdin=patch, check=False, env=index)
        if applied.returncode:
            raise Fail(f"the patch of the variant {name} does not apply to the queue:\n{applied.stdout.rstrip()}")
        files = git(base.repo, "write-tree", env=index).stdout.strip()
    when = {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}
    made = git(base.repo, "commit-tree", files, "-p", commit, "-m", f"test only: {name}", env=when).stdout.strip()
    git(base.repo, "branch", "-f", known_as, made)
    return made


def content(base: Base, commit: str) -> str:
    """What identifies a commit's files: a patch whose message alone has changed makes the same kernel."""
    return git(base.repo, "rev-parse", f"{commit}^{{tree}}").stdout.strip()


def checkout(base: Base, commit: str) -> None:
    git(base.repo, "checkout", "-q", "--force", "--detach", commit)
    git(base.repo, "clean", "-fdq")


def workplace(base: Base, what: Flavour) -> pathlib.Path:
    """The build directory of a base and a flavour; make itself sees what changed."""
    return cache() / "build" / f"{what.name}-{digest(base.key, compiler())}"


def kernels(
    base: Base, what: Flavour, variants: dict[str, str] | None = None, only: Container[str] | None = None
) -> dict[str, pathlib.Path]:
    """Build the kernels of a flavour; returns {"base": path, "patched": path} of executables in build/.

    variants is {name: patch}: as many kernels more, each of patched with a test-only patch.
    only: of all those, the ones wanted.
    """
    variants = variants or {}
    # What has been built needs no source, at which another process may be for long.
    patched = branch(base, queue_branch())
    where = {"base": base.commit, "patched": patched}
    where |= {name: patched and branch(base, variant_branch(patched, patch)) for name, patch in variants.items()}
    wanted = [name for name in where if only is None or name in only]
    if all(where[name] and kept(base, where[name], what).is_file() for name in wanted):
        return {name: executable(base, where[name], what, name) for name in wanted}
    with lock("source"):
        where = commits(base)
        where |= {name: variant(base, where["patched"], name, patch) for name, patch in variants.items()}
        return {name: executable(base, where[name], what, name) for name in wanted}


def kept(base: Base, commit: str, what: Flavour) -> pathlib.Path:
    """Where the cache has the kernel of a commit, once it is built."""
    return cache() / "kernels" / f"{what.kind}-{digest(content(base, commit), compiler(), *what.fragments)}"


def executable(base: Base, commit: str, what: Flavour, name: str) -> pathlib.Path:
    """The kernel of a commit in build/NAME/; hold the source's lock, for it is built unless kept() is there."""
    made = kept(base, commit, what)
    if not made.is_file():
        build(base, commit, what, name, made)
    path = BUILD / name / what.image
    path.parent.mkdir(parents=True, exist_ok=True)
    link(made, path)
    return path


def link(made: pathlib.Path, path: pathlib.Path) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    try:
        os.link(made, temporary)
    except OSError:
        shutil.copy2(made, temporary)
    temporary.rename(path)
    temporary.unlink(missing_ok=True)  # of two names of the same file, rename() leaves both


def build(base: Base, commit: str, what: Flavour, name: str, place: pathlib.Path) -> None:
    out = workplace(base, what)
    need_space(cache(), 3 if not (out / "vmlinux").is_file() else 0.5, "building a kernel")
    checkout(base, commit)
    began = time.monotonic()
    log = BUILD / name / f"make-{what.name}.log"
    say(f"building the {name} kernel ({what.name}); what make says goes to {log}")
    with building(out):
        configure(base.repo, out, what)
        count = make(base.repo, out, what.kind, f"{name} kernel", log)
    say(f"{name} kernel: {count} objects in {time.monotonic() - began:.0f} s")
    with whole(place) as part:
        shutil.copy2(out / image(what.kind), part)


def targets() -> list[str]:
    """The directories of tools/testing/selftests that the topics' tests are in."""
    return list(dict.fromkeys(target for topic in store.series() for target in topic.selftests))


def selftests(base: Base) -> pathlib.Path:
    """Build and install the topics' kselftests; returns the directory that holds run_kselftest.sh."""
    def place(commit: str) -> pathlib.Path:
        return cache() / "selftests" / digest(content(base, commit), compiler(), " ".join(targets()))

    # As for kernels
    commit = branch(base, queue_branch())
    if not commit or not place(commit).is_dir():
        with lock("source"):
            commit = commits(base)["patched"]
            if not place(commit).is_dir():
                say("building the selftests")
                checkout(base, commit)
                with whole(place(commit)) as part:
                    install_selftests(base, targets(), part, BUILD / "selftests-make.log")
    return place(commit)


def install_selftests(base: Base, names: Iterable[str], place: pathlib.Path, log: pathlib.Path) -> str:
    """Build selftests of the checked-out source into `place`; returns what make said. The source is not written to."""
    for name in names:
        if not (base.repo / "tools/testing/selftests" / name / "Makefile").is_file():
            raise Fail(
                f"a topic.toml names the selftests {name}; "
                f"the patched kernel has no tools/testing/selftests/{name}/Makefile"
            )
    with tempfile.TemporaryDirectory(dir=cache()) as out:
        return run(
            "make",
            "-C",
            base.repo / "tools/testing/selftests",
            f"TARGETS={' '.join(names)}",
            f"O={out}",
            "install",
            f"KSFT_INSTALL_PATH={place}",
            env=make_env(),
            log=log,
        ).stdout
