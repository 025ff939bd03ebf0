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
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from .. import schema
from ..series import applied
from ..series import topics as store
from ..series.base import Base, git
from ..series.topics import Topic
from ..util import BUILD, HELD, Fail, bar, cache, digest, lock, need_space, own_name, run, say, tail, whole
from .kinds import CONFIGS, COUNTS, KINDS, SUITES, Kind

# Debian's compilers by their own names, through ccache, so that no command in a build directory differs.
CCACHED = pathlib.Path(__file__).with_name("compilers")


@dataclasses.dataclass(frozen=True)
class Flavour:
    """What is built: a kernel for a kind of machine, with the options that topics ask for."""

    kind: Kind
    configs: tuple[pathlib.Path, ...]
    # Objects whose lines are counted, as patterns of make's: a path without its suffix.
    counted: tuple[str, ...] = ()

    @property
    def image(self) -> str:
        """What an executable of this flavour is called in build/NAME/."""
        return "linux" if self.kind.name == "sim" else f"linux-{self.kind.name}"

    @property
    def words(self) -> tuple[str, ...]:
        """What make is told beyond what every kernel of the kind is. Kbuild asks it of each object."""
        wanted = f"GCOV_PROFILE=$(if $(filter {' '.join(self.counted)},$(obj)/$(target-stem)),y)"
        return (wanted,) if self.counted else ()

    @property
    def fragments(self) -> list[pathlib.Path]:
        """The fragments merged over tinyconfig, in order, with the topics': A.x86.config, too, beside an A.config."""
        beside = [path.with_suffix(f".{name}.config") for path in self.configs for name in self.kind.fragments]
        topics = [*self.configs, *(path for path in beside if path.is_file())]
        return [
            path
            for name in self.kind.fragments
            for path in (topics if name == "topics" else [CONFIGS / f"{name}.config"])
        ]

    def suites(self, base: Base, commit: str) -> str:
        """What the topics' .kunitconfig files ask for, as a commit has them; options of the kind's own come first."""
        if SUITES not in self.kind.fragments:
            return ""
        asked = "".join(applied.read(base, commit, name) for name in suites())
        options = list(dict.fromkeys(re.findall(r"^CONFIG_\w+=.+$", asked, re.M)))
        return "".join(f"{option}\n" for option in options)


def flavour(kind: str = "sim", topics: Iterable[Topic] | None = None) -> Flavour:
    """A kind's kernel with the options of topics: of all, unless some are named."""
    found = list(topics or store.series())
    counted = [path for topic in found for path in topic.counted] if COUNTS in KINDS[kind].fragments else []
    return Flavour(KINDS[kind], tuple(path for topic in found for path in topic.configs), tuple(dict.fromkeys(counted)))


def suites(topics: Iterable[Topic] | None = None) -> list[str]:
    """The .kunitconfig files of the topics given, or of all."""
    return list(dict.fromkeys(name for topic in topics or store.series() for name in topic.kunit))


def make_env() -> dict[str, str]:
    """What make is run with. A kernel's text must not depend on where and when it was built, nor on a user's settings.

    ccache keeps what was compiled, for most of a kernel is the same after the next patch, and on the next base.
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
        "PATH": f"{CCACHED}:{os.environ.get('PATH', os.defpath)}",
        "CCACHE_DIR": str(cache() / "ccache"),
        "CCACHE_MAXSIZE": "5G",
        # Directories are in nothing but the names that a debugger shows.
        "CCACHE_NOHASHDIR": "1",
    }


def make_line(kind: Kind) -> tuple[str, ...]:
    """make, for what a kind is compiled for. Packages have a version of their own."""
    return ("make", *kind.make, *(() if kind.packaged else ("LOCALVERSION=",)))


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


def merge(base: Base, out: pathlib.Path, kind: Kind, fragments: Iterable[pathlib.Path]) -> None:
    """Leave out/.config: tinyconfig with fragments over it, as far as Kconfig lets them."""
    make = (*make_line(kind), "-C", base.repo, f"O={out}")
    run(*make, "tinyconfig", env=make_env())
    script = base.repo / "scripts/kconfig/merge_config.sh"
    run(script, "-m", "-O", out, out / ".config", *fragments, env=make_env())
    run(*make, "olddefconfig", env=make_env())


def configure(base: Base, commit: str, out: pathlib.Path, what: Flavour) -> None:
    """Leave out/.config for the checked-out commit; not touched if neither fragments nor Kconfig files changed."""
    out.mkdir(parents=True, exist_ok=True)
    key, own = out / "configured", out / "suites.config"
    suites = what.suites(base, commit)
    made_of = digest(*what.fragments, suites, git(base.repo, "ls-files", "-s", "*Kconfig*").stdout)
    if key.is_file() and key.read_text() == made_of:
        return
    key.unlink(missing_ok=True)
    own.write_text(suites)
    fragments = [*what.fragments, *([own] if suites else [])]
    merge(base, out, what.kind, fragments)
    missing = lost(asked(fragments), (out / ".config").read_text())
    if missing:
        raise Fail(
            f"options asked for in {', '.join(schema.shown(path) for path in fragments)} "
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
    kind: Kind,
    title: str,
    log: pathlib.Path,
    *words: object,
    env: Mapping[str, str] | None = None,
) -> int:
    """Run the kernel's make with a progress bar that counts objects; everything it says goes to `log`.

    words: more of make's, if the target is not its first one.
    """
    total = None if (out / "vmlinux").is_file() else kind.objects
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


def workplace(base: Base, what: Flavour) -> pathlib.Path:
    """The build directory of a base's working tree and a flavour; make itself sees what changed."""
    return cache() / "build" / f"{what.kind.name}-{digest(base.key, str(base.repo), compiler())}"


def kernels(
    base: Base, what: Flavour, variants: dict[str, str] | None = None, only: Container[str] | None = None
) -> dict[str, pathlib.Path]:
    """Build the kernels of a flavour; returns {"base": path, "patched": path} of executables, see executable().

    variants is {name: patch}: as many kernels more, each of patched with a test-only patch.
    only: of all those, the ones wanted.
    """
    variants = variants or {}
    # What has been built needs no source, at which another process may be for long.
    patched = applied.kept(base)
    where = {"base": base.commit, "patched": patched}
    where |= {
        name: patched and applied.branch(base, applied.variant_branch(patched, patch))
        for name, patch in variants.items()
    }
    wanted = [name for name in where if only is None or name in only]
    if all(where[name] and kept(base, where[name], what).is_file() for name in wanted):
        return {name: executable(base, where[name], what, name) for name in wanted}
    with lock("source"):
        where = applied.commits(base)
        where |= {name: applied.variant(base, where["patched"], name, patch) for name, patch in variants.items()}
        return {name: executable(base, where[name], what, name) for name in wanted}


def kept(base: Base, commit: str, what: Flavour) -> pathlib.Path:
    """Where the cache has the kernel of a commit, once it is built."""
    words = (*what.kind.make, what.suites(base, commit), *what.counted)
    key = digest(applied.code(base, commit), compiler(), *what.fragments, *words)
    return cache() / "kernels" / f"{what.kind.name}-{key}"


def executable(base: Base, commit: str, what: Flavour, name: str) -> pathlib.Path:
    """The kernel of a commit in the cache, where no other command changes it; build/NAME/ has it for people to find.

    Hold the source's lock, for it is built unless kept() is there.
    """
    made = kept(base, commit, what)
    if not made.is_file():
        build(base, commit, what, name, made)
    path = BUILD / name / what.image
    path.parent.mkdir(parents=True, exist_ok=True)
    link(made, path)
    return made


def link(made: pathlib.Path, path: pathlib.Path) -> None:
    temporary = own_name(path)
    temporary.unlink(missing_ok=True)
    try:
        os.link(made, temporary)
    except OSError:
        shutil.copy2(made, temporary)
    temporary.rename(path)
    temporary.unlink(missing_ok=True)  # of two names of the same file, rename() leaves both


def build(base: Base, commit: str, what: Flavour, name: str, place: pathlib.Path) -> None:
    out, kind = workplace(base, what), what.kind
    need_space(cache(), 3 if not (out / "vmlinux").is_file() else 0.5, "building a kernel")
    applied.checkout(base, commit)
    began = time.monotonic()
    log = BUILD / name / f"make-{kind.name}.log"
    say(f"building the {name} kernel ({kind.name}); what make says goes to {log}")
    with building(out):
        configure(base, commit, out, what)
        count = make(base.repo, out, kind, f"{name} kernel", log, *what.words)
    say(f"{name} kernel: {count} objects in {time.monotonic() - began:.0f} s")
    if what.counted:
        with whole(notes(place)) as part:
            run("rsync", "-rm", "--include=*/", "--include=*.gcno", "--exclude=*", f"{out}/", part)
    with whole(place) as part:
        shutil.copy2(out / kind.image, part)


def notes(image: pathlib.Path) -> pathlib.Path:
    """The directory of what says which lines a kept kernel's counters are of."""
    return image.with_name(f"{image.name}.gcno")


def compile(
    base: Base, commit: str, out: pathlib.Path, what: Flavour, targets: Sequence[str], log: pathlib.Path, *words: str
) -> subprocess.CompletedProcess[str]:
    """Make some targets of the checked-out commit in a build directory; what make said is kept in `log`, too.

    Objects are made anew, for nothing is said of one that is up to date.
    """
    with building(out):
        configure(base, commit, out, what)
        for target in targets:
            (out / target).unlink(missing_ok=True)
        jobs = f"-j{len(os.sched_getaffinity(0))}"
        line = (*make_line(what.kind), "-C", base.repo, f"O={out}", "-k", jobs)
        return run(*line, *words, *targets, env=make_env(), check=False, log=log)


def targets() -> list[str]:
    """The directories of tools/testing/selftests that the topics' tests are in."""
    return list(dict.fromkeys(target for topic in store.series() for target in topic.selftests))


def selftests(base: Base) -> pathlib.Path:
    """Build and install the topics' kselftests; returns the directory that holds run_kselftest.sh."""

    def place(commit: str) -> pathlib.Path:
        return cache() / "selftests" / digest(applied.selftests(base, commit), compiler(), " ".join(targets()))

    # As for kernels
    commit = applied.kept(base)
    if not commit or not place(commit).is_dir():
        with lock("source"):
            commit = applied.commits(base)["patched"]
            if not place(commit).is_dir():
                say("building the selftests")
                applied.checkout(base, commit)
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
        said = run(
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
    list_extended(names, place)
    return said


def list_extended(names: Iterable[str], place: pathlib.Path) -> None:
    """Have the kernel's runner know the scripts, too, that are not in its list for they take long."""
    path = place / "kselftest-list.txt"
    known = path.read_text().split()
    found = [
        f"{name}:{script.name}"
        for name in names
        for script in sorted((place / name).glob("*.sh"))
        if os.access(script, os.X_OK)
    ]
    path.write_text("".join(f"{line}\n" for line in [*known, *(line for line in found if line not in known)]))
