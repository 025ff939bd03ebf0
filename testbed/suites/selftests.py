# SPDX-License-Identifier: GPL-2.0
"""The topics' kselftests in the guest: on patched all must pass, on base the cases of fails-on-base must fail."""

import concurrent.futures
import os
import pathlib
import re
import shlex
from collections.abc import Collection, Iterable, Mapping

from .. import schema
from ..machines import boot, guest, kernel
from ..series import topics as store
from ..series.base import Base
from ..series.topics import Topic, listed
from ..util import BUILD, Fail, Tally, bar, lane, say

# Seconds of real time for a whole boot; for one script, of the guest's time.
LIMIT = {"sim": 1800, "debug": 7200, "x86": 10800, "debian": 10800, "deb": 10800}
# A counted clock goes on while the host looks for a file.
TIMEOUT = {"sim": 300, "debug": 300, "x86": 900, "debian": 20000, "deb": 20000}
# A kernel that looks for faults has none to compare with.
KERNELS = {"sim": ("base", "patched"), "debug": ("patched",), "x86": ("base", "patched")}
# Where a script may be left out, beside a lane.
LEAVE_OUT = (*TIMEOUT, "shellcheck")
# What has to fail on the base for a device of the one kind, has to for the same device of the other.
DEVICES = {"debian": "x86"}
LEAKS = pathlib.Path(boot.__file__).with_name("guest") / "leaks.sh"


def left_out(topics: Collection[Topic], kind: str, mode: str = "") -> dict[str, str]:
    """{script: why it is not run on this kind of machine, in this lane, or in this mode}"""
    here, found = {kind, f"lts-{lane()}", mode}, {}
    known = (*LEAVE_OUT, *modes(topics))
    for path in (topic.home / "left-out" for topic in topics):
        for line in listed(path):
            where, script, why = line.split(None, 2)
            if unknown := [one for one in where.split(",") if one not in known and not one.startswith("lts-")]:
                raise Fail(f"{schema.shown(path)}: {unknown[0]}: not one of {', '.join(known)} and lts-VERSION")
            if here & set(where.split(",")):
                found[script] = why
    return found


def fails_on_base(topics: Collection[Topic], kind: str) -> set[str]:
    """The cases that have to fail on the base, on this kind of machine."""
    names = dict.fromkeys(("fails-on-base", f"fails-on-base.{DEVICES.get(kind, kind)}", f"fails-on-base.{kind}"))
    cases = [case for topic in topics for name in names for case in listed(expectations(topic) / name)]
    return {case for case in cases if case.partition(": ")[0] not in left_out(topics, kind)}


def expectations(topic: Topic) -> pathlib.Path:
    """Where a topic says what has to fail on the base: in a lane its directory there, if that has such a list."""
    home = topic.lane(lane()).home if lane() else topic.home
    return home if (home / "fails-on-base").is_file() else topic.home


def selftests(
    base: Base, tally: Tally, kind: str = "sim", only: Collection[str] = (), noise: int = 0, mode: str = ""
) -> None:
    """All topics' selftests, on one guest of each kernel for each group of topics that share a configuration.

    only: paths of scripts below the selftests' directory; no other is run. noise: see disturbed(). mode: one of a
    topic's `modes`, which the base does not have.
    """
    tally.suite = "selftests"
    place = kernel.selftests(base)
    wanted = ("patched",) if mode else KERNELS[kind]
    for what, topics in kernel.flavours(kind).items():
        here = [path for path in only if path.rpartition("/")[0] in directories(topics)]
        if directories(topics) and (here or not only) and (not mode or mode in modes(topics)):
            images = kernel.kernels(base, what, only=wanted)
            judge(tally, what, topics, place, images, here, noise, mode)


def modes(topics: Iterable[Topic]) -> dict[str, str]:
    """{mode: shell that switches a guest to it}"""
    return {mode: lines for topic in topics for mode, lines in topic.modes.items()}


def check_mode(mode: str, kind: str) -> None:
    """Fail for a mode that no topic has, or for a machine whose tests know of none."""
    known = modes(store.series())
    if mode and mode not in known:
        raise Fail(f"MODE={mode}: no topic has such a mode; there is: {', '.join(sorted(known)) or 'none'}")
    if mode and kind not in KERNELS:
        raise Fail(f"MODE={mode}: not with KIND={kind}; with {', '.join(KERNELS)}")


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


def script(
    topics: Collection[Topic],
    kind: str,
    place: pathlib.Path,
    only: Collection[str] = (),
    noise: int = 0,
    mode: str = "",
) -> str:
    """What the guest runs: the kernel's own runner, over the topics' directories or over the scripts named."""
    lines = ["#!/bin/bash", *disturbed(noise), *(topic.prepare for topic in topics if topic.prepare)]
    if mode:
        # Tests in another mode than they say would be worth nothing.
        lines += ["set -e", modes(topics)[mode].rstrip(), "set +e"]
    # A collection at once, less some, is what 6.12's runner does not know.
    without, mine = left_out(topics, kind, mode), directories(topics)
    tests = [":".join(path.rsplit("/", 1)) for path in only] or [
        test
        for test in (place / "kselftest-list.txt").read_text().split()
        if test.partition(":")[0] in mine and test.partition(":")[2] not in without
    ]
    words = [f"-t {test}" for test in tests]
    # The runner's own status says nothing: what it prints is judged. It opens /dev/stdout again: a pipe.
    lines += [f"cd /host{place} && ./run_kselftest.sh {' '.join(words)} -o {TIMEOUT[kind]} 2>&1 | cat >/results/ktap"]
    if kind == "debug":
        lines += [f". /host{shlex.quote(str(LEAKS))}"]
    return "\n".join(lines) + "\n"


def judge(
    tally: Tally,
    what: kernel.Flavour,
    topics: Collection[Topic],
    place: pathlib.Path,
    kernels: Mapping[str, pathlib.Path],
    only: Collection[str] = (),
    noise: int = 0,
    mode: str = "",
) -> None:
    """Run the selftests of topics of a flavour and count each case."""
    kind = what.kind
    names = {path.rpartition("/")[2] for path in only}
    without = {} if only else left_out(topics, kind, mode)
    text = BUILD / f"selftests-{what.name}.sh"
    text.parent.mkdir(parents=True, exist_ok=True)
    text.write_text(script(topics, kind, place, only, noise, mode))
    # A kernel of Debian's lies in the root that it is booted with.
    root = None if kind in kernel.PACKAGED else guest.root(store.guest_packages(topics))
    say(
        "; ".join(
            [
                f"running {', '.join(sorted(names)) or 'the selftests'} on {', '.join(kernels)} ({what.name})"
                + (f", in the mode {mode}" if mode else ""),
                *(f"without {name}: {why}" for name, why in without.items()),
            ]
        )
    )
    expected = {
        case
        for case in fails_on_base(topics, kind)
        if (case.partition(": ")[0] in names if only else case.partition(": ")[0] not in without)
    }
    results = {name: BUILD / f"selftests-{name}-{what.name}" for name in kernels}
    # A guest of QEMU's keeps two CPUs busy, unless it has one.
    alone = kernel.for_qemu(kind) and not kernel.counted(kind)
    with concurrent.futures.ThreadPoolExecutor(1 if alone else len(os.sched_getaffinity(0))) as pool:
        boots = {
            name: pool.submit(boot.boot, path, text, results[name], LIMIT[kind], kind, root=root)
            for name, path in kernels.items()
        }
        watch(list(boots.values()), [where / "ktap" for where in results.values()])
    found = {}
    for name, ended in boots.items():
        tally.run(f"the guest that ran the selftests on {name} ({what.name}) is healthy", ended.result)
        said = results[name] / "ktap"
        found[name] = ktap(said.read_text(errors="replace")) if said.is_file() else {}
        silent = sorted(one for one in names if not any(case.partition(": ")[0] == one for case in found[name]))
        if silent or not found[name]:
            tally.that(f"selftests on {name}", f"{', '.join(silent) or 'no test'} was not run; see {said.parent}")
    for case, verdict in {**dict.fromkeys(sorted(expected), "was not run"), **found["patched"]}.items():
        tally.that(f"patched: {case}", "" if verdict == "ok" else f"{verdict}; see {results['patched']}/ktap")
    if "base" in found:
        for case in sorted(expected):
            verdict = found["base"].get(case, "was not run")
            tally.that(f"base: fails as it should: {case}", "" if verdict == "not ok" else f"on base it is: {verdict}")
        for case, verdict in found["base"].items() if only else ():
            print(f"     base: {verdict}: {case}", flush=True)
    if kind == "debug" and not only:
        leaks = results["patched"] / "leaks"
        tally.that(
            "patched: kmemleak finds nothing that nobody frees",
            leaks.read_text(errors="replace")
            if leaks.is_file()
            else f"it was not asked; see {results['patched']}/console",
        )


def watch(boots: Collection[concurrent.futures.Future[pathlib.Path]], ktaps: Collection[pathlib.Path]) -> None:
    """Show on a terminal how many scripts are done, until all boots have ended."""
    with bar(None, "selftests", "scripts") as progress:
        pending = set(boots)
        while pending:
            pending = concurrent.futures.wait(pending, timeout=0.5).not_done
            texts = [path.read_text(errors="replace") for path in ktaps if path.is_file()]
            plans = [int(found[1]) for text in texts if (found := re.search(r"^1\.\.(\d+)$", text, re.M))]
            progress.total = len(boots) * max(plans, default=0) or None
            progress.n = sum(len(re.findall(r"^(?:not )?ok \d", text, re.M)) for text in texts)
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


def named(name: str, kind: str, mode: str = "") -> tuple[list[Topic], list[str]]:
    """What T=name is: (topics whose KUnit suites are to be run, paths of selftests); Fail names what there is."""
    topics = store.series()
    brought = {
        path: topic for topic in topics for path in topic.scripts if path.rpartition("/")[0] in directories(topics)
    }
    tests = {path.rpartition("/")[2]: path for path in brought if path.rpartition("/")[2] != "lib.sh"}
    without = left_out(topics, kind, mode)
    if name in tests:
        if name in without:
            where = f"in the mode {mode}" if mode else f"on this machine ({kind})"
            raise Fail(f"{name} is not run {where}: {without[name]}")
        return [], [tests[name]]
    if name in [topic.name for topic in topics]:
        topic = store.named(topics, name)
        found = [path for script, path in tests.items() if brought[path] is topic or path in topic.scripts]
        return [topic], [path for path in found if path.rpartition("/")[2] not in without]
    raise Fail(
        f"T={name}: no topic and no selftest; topics: {', '.join(topic.name for topic in topics)}; "
        f"selftests: {', '.join(sorted(tests))}"
    )
