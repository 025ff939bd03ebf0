# SPDX-License-Identifier: GPL-2.0
"""KUnit: the topics' suites, in the kernel that the selftests run on, judged by the kernel's own parser."""

import functools
import json
import pathlib
import re
import subprocess
from collections.abc import Iterable
from typing import Any

from ..machines import kernel
from ..series.base import Base
from ..series.topics import Topic
from ..util import BUILD, Fail, Tally, run, say, tail
from .verdicts import counted

# What a kernel is built for that has more than one; how many there are is said when it boots.
MOST_CPUS = 4
# Real seconds of a boot; checkers take their time.
LIMIT, LONG = 600, 3600
PARSER = "tools/testing/kunit/kunit.py"
SICK = re.compile(r"BUG:|KASAN|UBSAN|ODEBUG")


def kunit(
    base: Base, tally: Tally, topics: Iterable[Topic] | None = None, only: str = "", kind: str = "sim", cpus: int = 1
) -> None:
    """Boot patched for its KUnit suites; a case counts as one test. All run, whichever topics want theirs.

    only: a glob of suites' names. cpus: up to MOST_CPUS of User-mode Linux's.

    What the kernel said is kept as build/kunit.ktap, and what the parser made of it as build/kunit.log.
    """
    tally.suite = "KUnit"
    if not kernel.suites(topics):
        return
    what = kernel.flavour("smp" if cpus > 1 else kind)
    image = kernel.kernels(base, what, only=("patched",))["patched"]
    log = BUILD / f"kunit{'debug' if kind == 'debug' else ''}.log"
    say(f"running KUnit ({only or 'all suites'}, {what.kind.name}); the console is {log.with_suffix('.ktap')}")
    done = boot(base, image, log, cpus, LONG if kind == "debug" else LIMIT, only)
    shown = r"=====|\[PASSED\]|FAILED|ERROR|Testing complete" if only else r"=====|FAILED|ERROR|Testing complete"
    print("\n".join(line for line in done.stdout.splitlines() if re.search(shown, line)), flush=True)
    found = cases(json.loads(verdicts(log).read_text())) if verdicts(log).is_file() else {}
    if only and not found:
        raise Fail(f"S={only}: no suite of that name; there are: {', '.join(names(image)) or f'none, see {log}'}")
    if not found:
        tally.that("KUnit", f"no test was run (status {done.returncode}); {log} has it all:\n{tail(done.stdout)}")
        return
    tally.add("KUnit", found)
    if bad := [name for name, problem in found.items() if problem]:
        print(f"     KUnit: {', '.join(bad)}; {log} has it all", flush=True)
    elif done.returncode:
        tally.that("KUnit", f"the parser failed with status {done.returncode}; {log} has it all")
    if kind == "debug":
        said = log.with_suffix(".ktap").read_text(errors="replace").splitlines()
        tally.that("KUnit: no checker of the kernel's complains", "\n".join(line for line in said if SICK.search(line)))


def gate(base: Base, tally: Tally) -> None:
    """The same, not again while kernel, parser and this code are as they were when all cases passed."""
    tally.suite = "KUnit"
    image = kernel.kernels(base, kernel.flavour(), only=("patched",))["patched"]
    parser = sorted((base.repo / PARSER).parent.glob("*.py"))
    counted(tally, functools.partial(kunit, base, tally), "KUnit", image, pathlib.Path(__file__), *parser)


def command(image: pathlib.Path, cpus: int, limit: int, only: str = "", *words: str) -> list[str]:
    """A kernel that runs KUnit suites, on real time, and ends; words: more of its command line."""
    # With more than one CPU, User-mode Linux needs the seccomp userspace.
    several = [f"ncpus={cpus}", "seccomp=on"] if cpus > 1 else []
    chosen = [f"kunit.filter_glob={only}"] if only else []
    line = [str(image.resolve()), "mem=1G", "kunit.enable=1", "kunit_shutdown=halt", *several, *chosen, *words]
    return ["timeout", "--kill-after=10", str(limit), *line]


def verdicts(log: pathlib.Path) -> pathlib.Path:
    return log.with_suffix(".json")


def boot(
    base: Base, image: pathlib.Path, log: pathlib.Path, cpus: int = 1, limit: int = LIMIT, only: str = ""
) -> subprocess.CompletedProcess[str]:
    """Boot a kernel for its suites, and have kunit.py read its console, which is kept beside `log` as .ktap."""
    console = log.with_suffix(".ktap")
    verdicts(log).unlink(missing_ok=True)
    run(*command(image, cpus, limit, only), check=False, log=console)
    return run("python3", base.repo / PARSER, "parse", f"--json={verdicts(log)}", console, check=False, log=log)


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


def names(image: pathlib.Path) -> list[str]:
    """The suites that a kernel has."""
    said = run(*command(image, 1, LIMIT, "", "kunit.action=list"), check=False).stdout
    return sorted({found[1] for line in said.splitlines() if (found := re.fullmatch(r"([\w-]+)\.\w+", line.strip()))})


def counts(text: str) -> dict[str, int] | None:
    """{"passed": N, "failed": N, …} of kunit.py's closing line; None if it has none."""
    found = re.search(r"Testing complete\. Ran \d+ tests: (.*)", text)
    return {kind: int(number) for kind, number in re.findall(r"(\w+): (\d+)", found[1])} if found else None
