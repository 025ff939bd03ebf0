# SPDX-License-Identifier: GPL-2.0
"""The topics' kselftests in the guest: on patched all must pass, on base the cases of fails-on-base must fail."""

import concurrent.futures
import dataclasses
import functools
import json
import math
import pathlib
import re
import shlex
from collections.abc import Collection, Iterable, Mapping

from .. import schema
from ..machines import boot, guest, kernel
from ..machines.kinds import KINDS, TESTED, Kind
from ..series import topics as store
from ..series.base import PACKAGES, Base
from ..series.topics import Topic, listed
from ..util import BUILD, Fail, Tally, bar, digest, lane, say, threads
from .verdicts import Key, code, keep, kept

LEAKS = pathlib.Path(boot.__file__).with_name("guest") / "leaks.sh"


def left_out(topics: Collection[Topic], kind: str, mode: str = "", on: str = "patched") -> dict[str, str]:
    """{script: why it is not run on this kind of machine, in this lane, in this mode, or on its base}

    kind-base is the base of a machine, where a script can end the kernel.
    """
    here, found = {kind, f"{kind}-{on}", f"lts-{lane()}", mode}, {}
    bases = (f"{name}-base" for name in TESTED if "base" in KINDS[name].kernels)
    known = (*TESTED, *bases, *modes(topics), *(f"lts-{version}" for version in PACKAGES if version))
    for path in (topic.home / "left-out" for topic in topics):
        for line in listed(path):
            if len(words := line.split(None, 2)) < 3:
                raise Fail(f'{schema.shown(path)}: "{line}": a line says where, which script, why: sim,x86 name.sh why')
            where, script, why = words
            if unknown := [one for one in where.split(",") if one not in known]:
                raise Fail(f"{schema.shown(path)}: {unknown[0]}: not one of {', '.join(known)}")
            if here & set(where.split(",")):
                found[script] = why
    return found


def fails_on_base(topics: Collection[Topic], kind: str) -> set[str]:
    """The cases that have to fail on the base, on this kind of machine."""
    names = dict.fromkeys(("fails-on-base", f"fails-on-base.{KINDS[kind].devices or kind}", f"fails-on-base.{kind}"))
    cases = [case for topic in topics for name in names for case in listed(expectations(topic) / name)]
    without = left_out(topics, kind, on="base")
    return {case for case in cases if case.partition(": ")[0] not in without}


def expectations(topic: Topic) -> pathlib.Path:
    """Where a topic says what has to fail on the base: in a lane its directory there, if that has such a list."""
    home = topic.lane(lane()).home if lane() else topic.home
    return home if (home / "fails-on-base").is_file() else topic.home


def selftests(
    base: Base, tally: Tally, kind: str = "sim", only: Collection[str] = (), noise: int = 0, mode: str = ""
) -> None:
    """All topics' selftests, on guests of each kernel.

    only: paths of scripts below the selftests' directory; no other is run. noise: see disturbed(). mode: one of a
    topic's `modes`, which the base does not have.
    """
    tally.suite = "selftests"
    topics, place = store.series(), kernel.selftests(base)
    wanted = ("patched",) if mode else KINDS[kind].kernels
    if directories(topics):
        judge(tally, kind, topics, place, kernel.kernels(base, kernel.flavour(kind), only=wanted), only, noise, mode)


def modes(topics: Iterable[Topic]) -> dict[str, str]:
    """{mode: shell that switches a guest to it}"""
    return {mode: lines for topic in topics for mode, lines in topic.modes.items()}


def check_mode(mode: str, kind: str) -> None:
    """Fail for a mode that no topic has, or for a machine whose tests know of none."""
    known = modes(store.series())
    if mode and mode not in known:
        raise Fail(f"MODE={mode}: no topic has such a mode; there is: {', '.join(sorted(known)) or 'none'}")
    if mode and KINDS[kind].packaged:
        others = ", ".join(name for name in TESTED if not KINDS[name].packaged)
        raise Fail(f"MODE={mode}: not with KIND={kind}; with {others}")


def directories(topics: Iterable[Topic]) -> list[str]:
    return list(dict.fromkeys(target for topic in topics for target in topic.selftests))


def disturbed(noise: int) -> list[str]:
    """Lines that leave a guest with other process numbers and other free memory, for each noise above 0 others.

    In simulated time a boot repeats the one before, so a case that needs luck has it each time on one machine, and on
    another never. What holds for several noises does not hang on that.
    """
    if not noise:
        return []
    return [
        f"for ((i = 0; i < {37 * noise}; i++)); do /bin/true; done",
        f"for ((i = 0; i < {11 * noise}; i++)); do head -c $((i * 7777)) /dev/zero >/tmp/noise$i; done",
        f"for ((i = 0; i < {11 * noise}; i += 2)); do rm /tmp/noise$i; done",
    ]


def scripts(topics: Collection[Topic], kind: str, place: pathlib.Path, mode: str = "") -> list[str]:
    """The selftests, as `directory/name.sh`, that run on a kind of machine."""
    # A collection at once, less some, is what 6.12's runner does not know.
    without, mine = left_out(topics, kind, mode), directories(topics)
    lines = (line.partition(":") for line in (place / "kselftest-list.txt").read_text().split())
    return [f"{where}/{name}" for where, _, name in lines if where in mine and name not in without]


def script(
    topics: Collection[Topic], kind: str, place: pathlib.Path, tests: Collection[str], noise: int = 0, mode: str = ""
) -> str:
    """What a guest runs: the kernel's own runner, over tests."""
    lines = [
        "#!/bin/bash",
        *disturbed(noise),
        # Of what the topics prepare, some is for a clock that does not pass while code runs.
        f"CLOCK={KINDS[kind].clock}",
        *(topic.prepare for topic in topics if topic.prepare),
    ]
    if mode:
        # Tests in another mode than they say would be worth nothing.
        lines += ["set -e", modes(topics)[mode].rstrip(), "set +e"]
    words = " ".join(f"-t {test.replace('/', ':', 1)}" for test in tests)
    # The runner's own status says nothing: what it prints is judged. It opens /dev/stdout again: a pipe.
    lines += [f"cd /host{place} && ./run_kselftest.sh {words} -o {KINDS[kind].timeout} 2>&1 | cat >/results/ktap"]
    if kind == "debug":
        lines += [f". /host{shlex.quote(str(LEAKS))}"]
    return "\n".join(lines) + "\n"


@dataclasses.dataclass(frozen=True)
class Run:
    """Tests that run in one guest."""

    # "base" or "patched".
    on: str
    image: pathlib.Path
    tests: tuple[str, ...]
    text: str
    results: pathlib.Path
    # Where its KTAP is kept, if it repeats; else nothing.
    key: tuple[Key, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.results.name} on {self.on}"

    @property
    def timed(self) -> str:
        """What it takes is known by this name."""
        return f"{self.results.parent.name}/{self.results.name}"


def depends(
    kind: Kind, image: pathlib.Path, root: pathlib.Path, place: pathlib.Path, test: str, text: str
) -> tuple[Key, ...]:
    """The key of what a boot that repeats says: kernel, root, script, what that may call, and the code that boots."""
    listed_ones = {line.replace(":", "/", 1) for line in (place / "kselftest-list.txt").read_text().split()}
    said = (place / test).read_text(errors="replace")
    files = [
        path
        for path in sorted(place.rglob("*"))
        if path.is_file()
        and path.name != "kselftest-list.txt"
        # What is no test may be called by any; a test by one that names it.
        and ((name := str(path.relative_to(place))) == test or name not in listed_ones or path.name in said)
    ]
    # What repeats is User-mode Linux.
    own = [*(path for path in code("machines") if path.name != "qemu.py"), pathlib.Path(__file__)]
    return (
        "boot",
        kind.name,
        once_read(image, image.stat().st_mtime_ns),
        root.name,
        *guest.packages(root),
        *own,
        text.replace(str(place), ""),
        *(f"{path.relative_to(place)} {once_read(path, path.stat().st_mtime_ns)}" for path in files),
    )


@functools.cache
def once_read(path: pathlib.Path, when: int) -> str:
    """A key of a file that was changed at a time, which each test asks for."""
    return digest(path)


def runs(
    kind: Kind,
    topics: Collection[Topic],
    place: pathlib.Path,
    kernels: Mapping[str, pathlib.Path],
    wanted: Mapping[str, Collection[str]],
    noise: int,
    mode: str,
) -> list[Run]:
    """What has to be booted for the tests wanted of each kernel: where boots repeat, a guest for each test."""
    # A kernel of Debian's lies in the root that it is booted with.
    root = None if kind.packaged else guest.root(store.guest_packages(topics))
    found = []
    for on, image in kernels.items():
        where = BUILD / f"selftests-{on}-{kind.name}"
        batches: list[tuple[str, ...]] = [(test,) for test in wanted[on]] if kind.repeats else [tuple(wanted[on])]
        for tests in filter(None, batches):
            text = script(topics, kind.name, place, tests, noise, mode)
            results = where / pathlib.PurePath(tests[0]).stem if kind.repeats else where
            key = depends(kind, image, root, place, tests[0], text) if kind.repeats and root else ()
            found.append(Run(on, image, tests, text, results, key))
    return found


def made(run: Run, kind: Kind, root: pathlib.Path | None, again: bool, tally: Tally) -> str:
    """Leave the KTAP of a boot, which is made unless one that was well is kept; Fail if the guest is not healthy.

    again: whether it is made all the same. The tally is told how long it took. Returns "kept" or "made".
    """
    if run.key and not again and (path := kept(run.key)):
        run.results.mkdir(parents=True, exist_ok=True)
        (run.results / "ktap").write_text(json.loads(path.read_text()))
        return "kept"
    run.results.parent.mkdir(parents=True, exist_ok=True)
    text = run.results.with_name(f"{run.results.name}.sh")
    text.write_text(run.text)
    with tally.timed(run.timed):
        boot.boot(run.image, text, run.results, kind.limit, kind.name, root=root)
    return "made"


def said(run: Run) -> dict[str, str]:
    path = run.results / "ktap"
    return ktap(path.read_text(errors="replace")) if path.is_file() else {}


def judge(
    tally: Tally,
    kind_name: str,
    topics: Collection[Topic],
    place: pathlib.Path,
    kernels: Mapping[str, pathlib.Path],
    only: Collection[str] = (),
    noise: int = 0,
    mode: str = "",
) -> None:
    """Run the selftests of topics and count each case. On the base, those that have to fail there, or those named."""
    kind = KINDS[kind_name]
    names = {path.rpartition("/")[2] for path in only}
    without = {} if only else left_out(topics, kind.name, mode)
    expected = {
        case
        for case in fails_on_base(topics, kind.name)
        if (case.partition(": ")[0] in names if only else case.partition(": ")[0] not in without)
    }
    every = list(only) or scripts(topics, kind.name, place, mode)
    failing = {case.partition(": ")[0] for case in expected}
    not_on_base = {name: why for name, why in left_out(topics, kind.name, mode, "base").items() if name not in without}
    wanted = {
        on: every
        if on == "patched"
        else [
            test for test in every if (name := test.rpartition("/")[2]) not in not_on_base and (only or name in failing)
        ]
        for on in kernels
    }
    root = None if kind.packaged else guest.root(store.guest_packages(topics))
    say(
        "; ".join(
            [
                f"running {', '.join(sorted(names)) or 'the selftests'} on {', '.join(kernels)} ({kind.name})"
                + (f", in the mode {mode}" if mode else ""),
                *(f"without {name}: {why}" for name, why in without.items()),
                *(f"on base without {name}: {why}" for name, why in not_on_base.items() if not only or name in names),
            ]
        )
    )
    todo = runs(kind, topics, place, kernels, wanted, noise, mode)
    # A guest of QEMU's keeps two CPUs busy, unless it has one.
    with threads(1 if kind.qemu and kind.clock == "real" else 0) as pool:
        took = tally.durations()
        # The longest first, so that no CPU is without work at the end; what is not known may be long, and the more so
        # what the runner's own list leaves out, which stands last.
        begun = sorted(todo, key=lambda run: (-took.get(run.timed, math.inf), -every.index(run.tests[0])))
        # Who names a script wants to see it run.
        ended = {run: pool.submit(made, run, kind, root, bool(only), tally) for run in begun}
        watch(list(ended.values()), [run.results / "ktap" for run in todo] if not kind.repeats else [])
    found: dict[str, dict[str, str]] = {on: {} for on in kernels}
    for run in todo:
        healthy = tally.run(f"the guest that ran {run.label} is healthy", ended[run].result)
        cases = said(run)
        found[run.on] |= cases
        scripts_said = {case.partition(": ")[0] for case in cases}
        silent = [test.rpartition("/")[2] for test in run.tests if test.rpartition("/")[2] not in scripts_said]
        if silent:
            tally.that(f"{run.label}", f"{', '.join(silent) or 'no test'} was not run; see {run.results}")
        elif healthy == "made" and run.key and not wrong(run.on, cases, expected):
            keep(run.key, (run.results / "ktap").read_text(errors="replace"))
    where = BUILD / f"selftests-patched-{kind.name}"
    for case, verdict in {**dict.fromkeys(sorted(expected), "was not run"), **found["patched"]}.items():
        tally.that(f"patched: {case}", "" if verdict == "ok" else f"{verdict}; see {where}")
    if "base" in found:
        for case in sorted(expected):
            verdict = found["base"].get(case, "was not run")
            tally.that(f"base: fails as it should: {case}", "" if verdict == "not ok" else f"on base it is: {verdict}")
        for case, verdict in found["base"].items() if only else ():
            print(f"     base: {verdict}: {case}", flush=True)
    if kind.name == "debug" and not only:
        leaks = where / "leaks"
        tally.that(
            "patched: kmemleak finds nothing that nobody frees",
            leaks.read_text(errors="replace") if leaks.is_file() else f"it was not asked; see {where}/console",
        )


def wrong(on: str, cases: Mapping[str, str], expected: Collection[str]) -> bool:
    """Whether a kernel's cases came out otherwise than they should: such a boot is made again."""
    if on == "base":
        return any(verdict != "not ok" for case, verdict in cases.items() if case in expected)
    return any(verdict != "ok" for verdict in cases.values())


def watch(boots: Collection[concurrent.futures.Future[str]], ktaps: Collection[pathlib.Path]) -> None:
    """Show on a terminal how many boots are done, or of long ones how many scripts, until all have ended."""
    with bar(len(boots), "selftests", "scripts" if ktaps else "guests") as progress:
        pending = set(boots)
        while pending:
            pending = concurrent.futures.wait(pending, timeout=0.5).not_done
            texts = [path.read_text(errors="replace") for path in ktaps if path.is_file()]
            plans = [int(found[1]) for text in texts if (found := re.search(r"^1\.\.(\d+)$", text, re.M))]
            if ktaps:
                progress.total = sum(plans) if len(plans) == len(boots) else None
            done = sum(len(re.findall(r"^(?:not )?ok \d", text, re.M)) for text in texts)
            progress.n = done if ktaps else len(boots) - len(pending)
            progress.refresh()


def ktap(text: str) -> dict[str, str]:
    """{"script: case": "ok" | "not ok" | "skipped"} of run_kselftest.sh's output; a script without cases is its own."""
    verdicts: dict[str, str] = {}
    cases: dict[str, str] = {}
    for line in text.splitlines():
        found = re.match(r"(# )?(ok|not ok) \d+ -? ?(.*?)(?:\s+#\s*(.*))?$", line)
        if not found:
            continue
        nested, verdict, name, directive = found.groups()
        verdict = "skipped" if directive and re.match(r"(SKIP|TODO|XFAIL)", directive) else verdict
        if nested:
            cases[name.strip()] = verdict
            continue
        script = name.rpartition(": ")[2].strip()
        verdicts.update({f"{script}: {case}": said for case, said in cases.items()})
        # A script that failed although its cases passed (a time-out, a crash) or that ran none counts by itself.
        if not cases or verdict == "not ok" and "not ok" not in cases.values():
            verdicts[script] = verdict
        cases = {}
    return verdicts


def nothing(topics: Collection[Topic], topic: Topic, scripts: Collection[str], without: Mapping[str, str]) -> str:
    """Why there is nothing to run of a topic."""
    if scripts:
        return "all its selftests are left out here: " + "; ".join(f"{name}: {without[name]}" for name in scripts)
    users = [other.name for other in topics if topic.name in other.depends_on]
    return (
        "it has no tests of its own: its topic.toml names no `kunit` that runs here, and none of its patches brings a "
        "selftest in a directory that `selftests` names"
        + (f"; these depend on it, and may test it: {', '.join(users)}" if users else "")
    )


def named(name: str, kind: str, mode: str = "") -> tuple[list[Topic], list[str]]:
    """What T=name is: (topics whose KUnit suites are to be run, paths of selftests); Fail names what there is."""
    topics = store.series()
    brought = {
        path: topic for topic in topics for path in topic.scripts if path.rpartition("/")[0] in directories(topics)
    }
    libraries = {path for topic in topics for path in topic.libraries}
    tests = {path.rpartition("/")[2]: path for path in brought if path not in libraries}
    without = left_out(topics, kind, mode)
    if name in tests:
        if name in without:
            where = f"in the mode {mode}" if mode else f"on this machine ({kind})"
            raise Fail(f"{name} is not run {where}: {without[name]}")
        return [], [tests[name]]
    if name in [topic.name for topic in topics]:
        topic = store.named(topics, name)
        found = [path for script, path in tests.items() if brought[path] is topic or path in topic.scripts]
        runs = [path for path in found if path.rpartition("/")[2] not in without]
        # KUnit is of no mode, and not run in QEMU.
        if not runs and (not topic.kunit or mode or not KINDS[kind].simulated):
            raise Fail(f"T={name}: {nothing(topics, topic, [path.rpartition('/')[2] for path in found], without)}")
        return [topic], runs
    raise Fail(
        f"T={name}: no topic and no selftest; topics: {', '.join(topic.name for topic in topics)}; "
        f"selftests: {', '.join(sorted(tests))}"
    )
