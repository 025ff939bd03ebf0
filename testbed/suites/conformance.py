# SPDX-License-Identifier: GPL-2.0
"""What others test NFS servers with, on base and patched: pynfs, the Connectathon tests, LTP's NFS tests, fstests.

None is packaged, so the user names built checkouts. A suite runs in a guest of its own on each kernel, and
baselines/SUITE says what came of each test on the base when it was recorded. Only what is new is a failure: a test that
fails on patched alone, one that fails although the baseline has it as passed, and one that no longer runs.
"""

import dataclasses
import json
import pathlib
import re
import shlex
from collections.abc import Callable, Mapping
from xml.etree import ElementTree

from ..machines import boot, guest, kernel
from ..series.base import Base
from ..util import BUILD, Fail, Tally, run, say, threads

HERE = pathlib.Path(__file__).parent
BASELINES = HERE / "baselines"
SERVER = HERE / "conformance-server.sh"
KIND = "sim"
# What they need at run time, beyond what every guest has.
PACKAGES = {
    "python3": "pynfs",
    "python3-ply": "pynfs",
    "python3-standard-xdrlib": "pynfs: Python 3.13 has none of its own",
    "gcc": "LTP's nfs05 compiles on the mount",
    "make": "the same",
    "perl": "fstests' filters",
    "bc": "fstests",
    "gawk": "fstests",
    "attr": "fstests: extended attributes",
    "acl": "fstests: access control lists",
    "psmisc": "fstests: fuser, killall",
    "xxd": "fstests",
}
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclasses.dataclass(frozen=True)
class Suite:
    """A suite of tests of somebody else's."""

    name: str
    title: str
    # A file that its checkout has, and one that is there once it is built (LTP: once it is installed somewhere).
    source: str
    built: str
    # Real seconds for a boot.
    limit: int
    # {test: verdict} of what its guest left.
    read: Callable[[pathlib.Path], dict[str, str]]

    @property
    def variable(self) -> str:
        return self.name.upper()

    @property
    def script(self) -> pathlib.Path:
        return HERE / f"conformance-{self.name}.sh"

    @property
    def baseline(self) -> pathlib.Path:
        return BASELINES / self.name


def read_pynfs(results: pathlib.Path) -> dict[str, str]:
    """Of the JSON file of each run: 4.0-mode0.json and so on."""
    found = {}
    for path in sorted(results.glob("*.json")):
        try:
            cases = json.loads(path.read_text())["testcase"]
        except ValueError:  # a guest that has ended before it was written
            continue
        for case in cases:
            verdict = FAILED if "failure" in case else SKIPPED if case.get("skipped") else PASSED
            found[f"{path.stem} {case['code']}"] = verdict
    return found


def read_lines(results: pathlib.Path) -> dict[str, str]:
    """Of the file verdicts, a line a test: what came of it, and its name."""
    path = results / "verdicts"
    lines = path.read_text().splitlines() if path.is_file() else []
    return {name: verdict for verdict, _, name in (line.partition(" ") for line in lines)}


def read_fstests(results: pathlib.Path) -> dict[str, str]:
    """Of the report of each run in JUnit's XML: v3-mode0/result.xml and so on."""
    found = {}
    for path in sorted(results.glob("*/result.xml")):
        try:
            cases = ElementTree.parse(path).iter("testcase")
        except ElementTree.ParseError:  # as above
            continue
        for case in cases:
            tags = {child.tag for child in case}
            verdict = FAILED if tags & {"failure", "error"} else SKIPPED if "skipped" in tags else PASSED
            found[f"{path.parent.name} {case.get('name')}"] = verdict
    return found


SUITES = (
    Suite("pynfs", "pynfs", "nfs4.1/testserver.py", "nfs4.1/xdrdef/nfs4_pack.py", 3600, read_pynfs),
    Suite("cthon", "the Connectathon tests", "basic/test1.c", "special/bigfile2", 3600, read_lines),
    Suite("ltp", "LTP's NFS tests", "testcases/bin/nfs_lib.sh", "testcases/bin/nfs01_open_files", 5400, read_lines),
    Suite("fstests", "fstests", "tests/generic/001", "ltp/fsx", 10800, read_fstests),
    Suite("stress", "fsx and fsstress of fstests", "ltp/fsx.c", "ltp/fsstress", 5400, read_lines),
)


def checkouts(given: Mapping[str, str]) -> dict[Suite, pathlib.Path]:
    """{suite: its checkout} of {suite's name: path as the user gave it, "" for none}."""
    found = {}
    for suite in SUITES:
        if not given.get(suite.name):
            continue
        path = pathlib.Path(given[suite.name]).resolve()
        if not path.is_dir():
            raise Fail(f"{suite.variable}={given[suite.name]}: no such directory: name a checkout of {suite.title}")
        if not (path / suite.source).is_file():
            raise Fail(f"{suite.variable}={path}: is no checkout of {suite.title}: it has no {suite.source}")
        if not (path / suite.built).is_file():
            raise Fail(
                f"{suite.variable}={path}: is not built: it has no {suite.built}; build it there as its own README says"
            )
        found[suite] = path
    if not found:
        raise Fail(
            "nothing to run: name a built checkout of at least one: "
            + ", ".join(f"{suite.variable}=/path ({suite.title})" for suite in SUITES)
        )
    return found


def conformance(base: Base, tally: Tally, given: Mapping[str, str], record: bool = False) -> None:
    """Run the suites that are given on base and patched, and judge them; record keeps what came of base."""
    tally.suite = "conformance"
    found = checkouts(given)
    what = kernel.flavour(KIND)
    root = guest.root(PACKAGES)
    kernels = kernel.kernels(base, what, only=("base", "patched"))
    for suite in SUITES:
        if suite not in found:
            say(f"{suite.title}: not run: {suite.variable}= names no checkout")
            continue
        # Of another version's tests the baseline says nothing.
        other = "" if record else another(suite, version(found[suite]))
        if other:
            say(f"{suite.title}: {other}: patched is compared with base alone")
        said = run_suite(suite, found[suite], kernels, root, tally)
        if record and said["base"]:
            suite.baseline.parent.mkdir(exist_ok=True)
            suite.baseline.write_text(written(suite, version(found[suite]), said["base"]))
            say(f"{suite.baseline} has what came of {len(said['base'])} tests on base")
        known = baseline(suite)
        tally.that(
            f"{suite.name}: there is a baseline",
            "" if known else f"{suite.baseline} is not there: RECORD=1 makes it from what the base does",
        )
        if other:
            known = {}
        problems = judge(known, said["base"], said["patched"])
        for name, problem in problems.items():
            tally.that(f"{suite.name}: {name}", problem)
        kinds = [sum(verdict == kind for verdict in said["patched"].values()) for kind in (PASSED, FAILED, SKIPPED)]
        say(f"{suite.title} on patched: {kinds[0]} passed, {kinds[1]} failed, {kinds[2]} skipped")
        if known and (new := said["patched"].keys() - known.keys()):
            say(f"{suite.title}: {len(new)} tests are not in the baseline: {', '.join(sorted(new)[:5])} …")


def version(checkout: pathlib.Path) -> str:
    """What a checkout says it is."""
    installed = checkout / "Version"
    if installed.is_file():
        return installed.read_text().strip()
    done = run("git", "-C", checkout, "log", "-1", "--format=%h of %cs", check=False)
    return done.stdout.strip() if not done.returncode else "no git checkout"


def another(suite: Suite, what: str) -> str:
    """What is to be said of a checkout that is not of the baseline's version; "" if it is."""
    head = suite.baseline.read_text().partition("\n")[0] if suite.baseline.is_file() else ""
    recorded = re.search(r"\((.+)\) on the base", head)
    # However many digits a checkout shows of its commit.
    of, here = (text.partition(" ")[0] for text in (recorded[1] if recorded else "", what))
    if not recorded or of.startswith(here) or here.startswith(of):
        return ""
    return f"this is {what}, the baseline is of {recorded[1]}"


def script(suite: Suite, checkout: pathlib.Path) -> str:
    """What the guest runs."""
    return (
        "\n".join(
            [
                "#!/bin/bash",
                f"SUITE=/host{shlex.quote(str(checkout))}",
                *(f". /host{shlex.quote(str(path))}" for path in (SERVER, suite.script)),
            ]
        )
        + "\n"
    )


def run_suite(
    suite: Suite, checkout: pathlib.Path, kernels: Mapping[str, pathlib.Path], root: pathlib.Path, tally: Tally
) -> dict[str, dict[str, str]]:
    """{kernel: {test: verdict}} of a boot of each."""
    text = BUILD / f"conformance-{suite.name}.sh"
    text.write_text(script(suite, checkout))
    say(f"running {suite.title} ({version(checkout)}) on {', '.join(kernels)}")
    where = {name: BUILD / f"conformance-{suite.name}-{name}" for name in kernels}
    with threads() as pool:
        boots = {
            name: pool.submit(boot.boot, image, text, where[name], suite.limit, KIND, root=root)
            for name, image in kernels.items()
        }
    for name, ended in boots.items():
        tally.run(f"the guest that ran {suite.title} on {name} is healthy", ended.result)
    return {name: suite.read(place) for name, place in where.items()}


def judge(known: Mapping[str, str], base: Mapping[str, str], patched: Mapping[str, str]) -> dict[str, str]:
    """{test: what is wrong with it, or ""}, of a baseline and of what came of each test on each kernel."""
    problems = {}
    for name in sorted({*known, *base, *patched}):
        expected, before, now = (found.get(name) for found in (known, base, patched))
        if now is None and (expected or before):
            problem = "it no longer runs on patched" if before else "it no longer runs on either kernel"
        elif now == SKIPPED and PASSED in (expected, before):
            problem = f"it is skipped on {'patched' if before == PASSED else 'both kernels'}, and was not"
        elif now == FAILED and before == PASSED:
            problem = "it fails on patched alone"
        elif now == FAILED and before != FAILED:
            problem = f"it fails on patched; on base it is {before or 'not run'}"
        elif now == FAILED and expected == PASSED:
            problem = "it fails on both kernels; the baseline has it as passed"
        else:
            problem = ""
        problems[name] = problem
    return problems


def baseline(suite: Suite) -> dict[str, str]:
    """{test: verdict} as recorded; {} if nothing was."""
    if not suite.baseline.is_file():
        return {}
    lines = [line for line in suite.baseline.read_text().splitlines() if line and not line.startswith("#")]
    return {name: verdict for verdict, _, name in (line.partition(" ") for line in lines)}


def written(suite: Suite, what: str, found: Mapping[str, str]) -> str:
    """The text of a baseline."""
    head = f"# What came of {suite.title} ({what}) on the base; written by `make conformance RECORD=1`.\n"
    return head + "".join(f"{verdict} {name}\n" for name, verdict in sorted(found.items()))
