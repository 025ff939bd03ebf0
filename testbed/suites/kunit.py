# SPDX-License-Identifier: GPL-2.0
"""KUnit: the kernel's own runner over the topics' suites, and what it says."""

import json
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any

from ..machines import kernel
from ..series import topics as store
from ..series.base import Base
from ..series.topics import Topic
from ..util import BUILD, Fail, Tally, cache, digest, lock, run, say, tail

# What a kernel is built for that has more than one; how many there are is said when it boots.
MOST_CPUS = 4


def suites(topics: Iterable[Topic] | None = None) -> list[str]:
    """The .kunitconfig files of the topics given, or of all."""
    return list(dict.fromkeys(name for topic in topics or store.series() for name in topic.kunit))


def kunit(
    base: Base,
    tally: Tally,
    topics: Iterable[Topic] | None = None,
    only: str = "",
    kind: str = "sim",
    cpus: int = 1,
) -> None:
    """kunit.py over every .kunitconfig of the topics, in one build; a case counts as one test.

    only: a glob of suites' names. cpus: up to MOST_CPUS of User-mode Linux's.

    What the kernel said is kept as build/kunit.ktap, and what kunit.py made of it as build/kunit.log.
    """
    tally.suite = "KUnit"
    # debug.config asks for what only all topics' options together have.
    configs = suites(None if kind == "debug" else topics)
    if not configs:
        return
    debug = "debug" if kind == "debug" else ""
    log, verdicts = BUILD / f"kunit{debug}.log", BUILD / f"kunit{debug}.json"
    BUILD.mkdir(parents=True, exist_ok=True)
    verdicts.unlink(missing_ok=True)
    with lock("source"):
        kernel.checkout(base, kernel.commits(base)["patched"])
        say(f"running KUnit ({only or 'all suites'}): {', '.join(configs)}; the console is {log.with_suffix('.ktap')}")
        done = run_kunit(
            base, configs, log, cpus, limit=3600 if debug else 600, only=only, debug=bool(debug), verdicts=verdicts
        )
        said = kunit_place(base, cpus, bool(debug)) / "test.log"
        if said.is_file():
            shutil.copyfile(said, log.with_suffix(".ktap"))
        shown = r"=====|\[PASSED\]|FAILED|ERROR|Testing complete" if only else r"=====|FAILED|ERROR|Testing complete"
        print("\n".join(line for line in done.stdout.splitlines() if re.search(shown, line)), flush=True)
        if only and not kunit_counts(done.stdout):
            raise Fail(
                f"S={only}: no suite of that name; there are: {', '.join(names(base, configs)) or f'none, see {log}'}"
            )
    found = cases(json.loads(verdicts.read_text())) if verdicts.is_file() else {}
    if not found:
        tally.that(
            "KUnit", f"kunit.py ran no test (status {done.returncode}); its output is in {log}:\n{tail(done.stdout)}"
        )
        return
    bad = [name for name, problem in found.items() if problem]
    tally.add("KUnit", found)
    if bad or done.returncode:
        print(f"     kunit.py: {', '.join(bad) or 'all passed'}, status {done.returncode}; its output is in {log}")
        if not bad:
            tally.that("KUnit", f"kunit.py failed with status {done.returncode}")
    if debug:
        sick = [
            line
            for line in log.with_suffix(".ktap").read_text(errors="replace").splitlines()
            if re.search(r"BUG:|KASAN|UBSAN|ODEBUG", line)
        ]
        tally.that("KUnit: no checker of the kernel's complains", "\n".join(sick))


def cases(group: Any, path: str = "") -> dict[str, str]:
    """{suite.case: problem} of the JSON that kunit.py writes; one that was skipped is a problem."""
    found: dict[str, str] = {}
    for number, one in enumerate(group.get("test_cases", ())):
        name = f"{path}{one['name']}"
        # Parameters may share a name, and each counts.
        found[name if name not in found else f"{name} ({number})"] = (
            "" if one["status"] == "PASS" else str(one["status"]).lower()
        )
    for one in group.get("sub_groups", ()):
        found |= cases(one, f"{path}{one['name']}.")
    return found


def names(base: Base, configs: Sequence[str]) -> list[str]:
    """The suites that the kernel which kunit.py built last has."""
    said = run(*kunit_py(base, "exec", ()), "--list_suites", cwd=base.repo, env=kernel.make_env(), check=False).stdout
    return sorted(line for line in said.splitlines() if re.fullmatch(r"[\w.-]+", line))


def kunit_place(base: Base, cpus: int, debug: bool = False) -> pathlib.Path:
    """kunit.py's build directory."""
    return (
        cache()
        / "build"
        / f"kunit{'-smp' if cpus > 1 else ''}{'-debug' if debug else ''}-{digest(base.key, kernel.compiler())}"
    )


def kunit_py(base: Base, verb: str, configs: Iterable[object], cpus: int = 1, debug: bool = False) -> list[str]:
    """A command line of kunit.py's for the checked-out source; run it in base.repo with the source's lock held."""
    words = ["python3", "tools/testing/kunit/kunit.py", verb, f"--build_dir={kunit_place(base, cpus, debug)}"]
    if verb == "exec":
        return words
    # 6.12's User-mode Linux does not say that its CPU takes what is misaligned, which some of its structures are.
    added = ["UBSAN_ALIGNMENT=n", *(["SMP=y", f"NR_CPUS={MOST_CPUS}"] if cpus > 1 else [])]
    checkers = [kernel.CONFIGS / "debug.config"] if debug else []
    return [
        *words,
        f"--jobs={len(os.sched_getaffinity(0))}",
        *[f"--kconfig_add=CONFIG_{option}" for option in added],
        *[f"--kunitconfig={name}" for name in [*configs, *checkers]],
    ]


# With more than one CPU, User-mode Linux needs the seccomp userspace.
def kunit_boot(cpus: int) -> list[str]:
    return [f"ncpus={cpus}", "seccomp=on"] if cpus > 1 else []


def run_kunit(
    base: Base,
    configs: Iterable[str],
    log: pathlib.Path,
    cpus: int = 1,
    limit: int = 600,
    only: str = "",
    debug: bool = False,
    verdicts: pathlib.Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run kunit.py over `configs`, or the suites of them that `only` globs; verdicts: where JSON of them is wanted."""
    words = [
        f"--timeout={limit}",
        *[f"--kernel_args={word}" for word in kunit_boot(cpus)],
        *([f"--json={verdicts}"] if verdicts else []),
        *([only] if only else []),
    ]
    with kernel.building(kunit_place(base, cpus, debug)):
        return run(
            *kunit_py(base, "run", configs, cpus, debug),
            *words,
            cwd=base.repo,
            env=kernel.make_env(),
            check=False,
            log=log,
        )


def kunit_counts(text: str) -> dict[str, int] | None:
    """{"passed": N, "failed": N, …} of kunit.py's closing line; None if it has none."""
    found = re.search(r"Testing complete\. Ran \d+ tests: (.*)", text)
    return {kind: int(number) for kind, number in re.findall(r"(\w+): (\d+)", found[1])} if found else None
