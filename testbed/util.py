# SPDX-License-Identifier: GPL-2.0
"""What every other module of the testbed leans on: the caches, running commands, and failing clearly."""

import concurrent.futures
import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TextIO, TypeVar

ROOT = pathlib.Path(__file__).resolve().parent.parent


def lane() -> str:
    """What LTS= names: the long-term kernel that a lane of the series is for; "" for the series itself."""
    return os.environ.get("LTS", "")


def project() -> str:
    """What BASE= names: a project beside the kernel that topics are patches of; "" for the kernel."""
    return os.environ.get("BASE", "")


# A lane and a project have their own, so that none takes another's kernels or work for its own.
BUILD = ROOT / "build" / (lane() or project())
# The programs for administrators.
TOOLS = ROOT / "tools"
TREE = ROOT / f"tree-{lane() or project()}".rstrip("-")

P = ParamSpec("P")
T = TypeVar("T")


class Fail(Exception):
    """Something the user can act on: the message says what happened and what to do."""


def cache() -> pathlib.Path:
    """The directory of everything that can be made again: outside git, keyed by what made it, safe to delete."""
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    path = pathlib.Path(home) / "knfsd-queue"
    for what, place in {"XDG_CACHE_HOME": path, "the checkout": ROOT}.items():
        if re.search(r"[\s:]", str(place)):
            raise Fail(f"{place}: the kernel's make takes no path with white space or a colon: move {what}")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Fail(
            f"{path}: cannot be made: {error.strerror}: set XDG_CACHE_HOME to a directory that you may write to"
        ) from error
    return path


def say(text: str) -> None:
    # In one piece, for another thread may say something, too.
    print(f"==> {text}\n", end="", flush=True)


def digest(*parts: str | bytes | pathlib.Path) -> str:
    """A key of 16 hex digits for what made something; a part is a string, bytes or the path of a file."""
    h = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, pathlib.Path) else part.encode() if isinstance(part, str) else part
        h.update(len(data).to_bytes(8, "big") + data)
    return h.hexdigest()[:16]


def run(
    *argv: object,
    cwd: pathlib.Path | None = None,
    env: Mapping[str, str] | None = None,
    log: pathlib.Path | None = None,
    check: bool = True,
    stdin: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command and return its CompletedProcess, with stdout as text and stderr in it.

    A command that fails raises Fail with its last lines; with log=PATH everything it printed is kept there. It speaks
    English, for what it says is read.
    """
    words = [str(a) for a in argv]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**os.environ, "LC_ALL": "C.UTF-8", **(env or {})},
            text=True,
            errors="replace",
            pass_fds=HELD,
            input=stdin if stdin is not None else "",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except FileNotFoundError as error:
        raise Fail(f"{error.filename}: not found; `make setup` installs what the testbed needs") from error
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(done.stdout)
    if check and done.returncode:
        raise Fail(
            f"`{' '.join(words)}` failed with status {done.returncode}"
            + (f", all it printed is in {log}" if log else "")
            + f":\n{tail(done.stdout)}"
        )
    return done


# Commands in process groups of their own, which a terminal's Ctrl-C does not reach.
APART: set[subprocess.Popen[bytes]] = set()


@contextlib.contextmanager
def threads(count: int = 0) -> Iterator[concurrent.futures.ThreadPoolExecutor]:
    """A pool of threads, one for each CPU if no count is given.

    If its user breaks off, what has not begun is not begun; after a Ctrl-C what runs is ended.
    """
    with concurrent.futures.ThreadPoolExecutor(count or len(os.sched_getaffinity(0))) as pool:
        try:
            yield pool
        except BaseException as why:
            pool.shutdown(wait=False, cancel_futures=True)
            if isinstance(why, KeyboardInterrupt):
                for command in list(APART):
                    command.terminate()
            raise


def tail(text: str, lines: int = 25) -> str:
    return "\n".join(text.splitlines()[-lines:])


# Descriptors of the locks this process holds. Every child gets them: a make that outlives a killed testbed holds on to
# the lock, so that the next one does not build in the same directory beside it. They are LOW at least: below mmdebstrap
# a shell is told to write to the next free one, and it knows those of one digit alone.
HELD: list[int] = []
LOW = 100


@contextlib.contextmanager
def locking(name: str) -> Iterator[tuple[TextIO, bool]]:
    """The open file of a lock, and whether this process has got the lock, which it has until the file is closed."""
    path = cache() / "locks" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = True
        except BlockingIOError:
            mine = False
        yield handle, mine


@contextlib.contextmanager
def lock(name: str, what: str = "") -> Iterator[None]:
    """One process at a time works on what `name` stands for, or `what` in words; a second one waits and says so."""
    with locking(name) as (handle, mine):
        if not mine:
            say(f"waiting for another process that works on {what or name}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        held = fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, LOW)
        HELD.append(held)
        try:
            yield
        finally:
            HELD.remove(held)
            os.close(held)
            # A command that another thread runs meanwhile has got this file, too, and may be waiting for the lock.
            fcntl.flock(handle, fcntl.LOCK_UN)


@contextlib.contextmanager
def whole(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Make a directory or file under a name of its own and move it to `path` only when it is whole.

    Whatever kills the maker leaves nothing at `path`; the leftover is swept by the next one. Hold a lock around it.
    """
    part = path.with_name(path.name + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    remove(part)
    yield part
    remove(path)
    part.rename(path)


def own_name(path: pathlib.Path) -> pathlib.Path:
    """A name beside a file's that no other process or thread uses."""
    return path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")


def write(path: pathlib.Path, text: str) -> None:
    """Have a file say something, of which nobody sees a part. It needs no lock: others may write it meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = own_name(path)
    part.write_text(text)
    part.replace(path)


def remove(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def need_space(path: pathlib.Path, gigabytes: float, what: str) -> None:
    """Fail early and plainly rather than half-way with a full disk."""
    free = shutil.disk_usage(path).free / 1e9
    if free < gigabytes:
        raise Fail(
            f"{what} needs {gigabytes} GB in {path}, which has {free:.1f} GB free: "
            "free some, or set XDG_CACHE_HOME to a larger disk"
        )


def bar(total: int | None, what: str, unit: str) -> Any:
    """A progress bar on a terminal; nothing in a log."""
    from tqdm import tqdm

    return tqdm(total=total, desc=what, unit=" " + unit, dynamic_ncols=True, disable=None)


@dataclasses.dataclass(frozen=True)
class Case:
    """One check that was counted: "" is no problem."""

    suite: str
    name: str
    problem: str


class Tally:
    """Counts what passed and failed, and prints each as it is known."""

    # Seconds that each step took the last time it was made; what is not known here is left out of the forecast.
    KNOWN = "durations.json"
    # So many failures are said again at the end: whoever sees only a log's last lines sees them.
    AGAIN = 8

    def __init__(self, steps: Sequence[str] = ()) -> None:
        """steps: those that will be made, if what they take is to be said."""
        self.cases: list[Case] = []
        self.ahead = list(steps)
        self.took: dict[str, float] = {}
        # The same of what runs beside other things in a step; no table has it.
        self.beside: dict[str, float] = {}
        # What the checks that follow are a part of; only the JUnit file shows it.
        self.suite = "testbed"

    @property
    def failed(self) -> int:
        return sum(bool(case.problem) for case in self.cases)

    @property
    def passed(self) -> int:
        return len(self.cases) - self.failed

    def that(self, what: str, problems: object) -> None:
        """Count a check by what is wrong: nothing, if it is empty."""
        problem = (str(problems) or "nothing is said of why") if problems else ""
        self.cases.append(Case(self.suite, what, problem))
        if problem:
            lines = [f"FAIL {what}", *(f"     {line}" for line in problem.splitlines())]
        else:
            lines = [f"ok   {what}"]
        # In one piece, for another thread may say something, too.
        print("\n".join(lines) + "\n", end="", flush=True)

    def run(self, what: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Count a function that raises Fail when the check does not hold; returns what it returned.

        A full disk is a failure, too.
        """
        try:
            result = function(*args, **kwargs)
        except (Fail, OSError) as fail:
            self.that(what, fail)
            return None
        self.that(what, "")
        return result

    def add(self, suite: str, found: Mapping[str, str]) -> None:
        """Count the cases of a runner that prints its own: {name: problem, "" for none}."""
        self.cases += [Case(suite, name, problem) for name, problem in found.items()]

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Around a part of a long run: a line when it ends says what it took, and what those ahead took last time."""
        began, before = time.monotonic(), self.failed
        try:
            yield
        finally:
            self.took[name] = self.took.get(name, 0) + time.monotonic() - began
            if name in self.ahead:
                self.ahead = [one for one in self.ahead if one != name]
                known = self.durations()
                left = sum(known.get(one, 0) for one in self.ahead)
                after = f"; about {minutes(left)} to go" if left else ""
                bad = f", {self.failed - before} failed" if self.failed > before else ""
                say(f"{name}: {minutes(self.took[name])}{bad}{after}")

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Around what runs beside others: it is known next time what it took."""
        began = time.monotonic()
        yield
        self.beside[name] = time.monotonic() - began

    def durations(self) -> dict[str, float]:
        path = cache() / self.KNOWN
        try:
            found = json.loads(path.read_text()) if path.is_file() else {}
        except ValueError:
            found = {}
        return found if isinstance(found, dict) else {}

    def close(self, junit: pathlib.Path | None = None) -> int:
        """Print where the time went, what failed and the closing line; a JUnit file if asked for; the exit status."""
        if len(self.took) > 1 or self.beside:
            write(cache() / self.KNOWN, json.dumps({**self.durations(), **self.took, **self.beside}))
        if len(self.took) > 1:
            print(
                "\n".join(
                    [
                        "",
                        "where the time went:",
                        *(
                            f"  {minutes(took):>8}  {name}"
                            for name, took in sorted(self.took.items(), key=lambda one: -one[1])
                        ),
                        f"  {minutes(sum(self.took.values())):>8}  in all",
                    ]
                ),
                flush=True,
            )
        if junit:
            write_junit(self.cases, junit)
            say(f"every check is in {junit}")
        bad = [case for case in self.cases if case.problem]
        for case in bad[: self.AGAIN]:
            print(printable(f"FAIL {case.suite}: {case.name}: {case.problem.splitlines()[0][:200]}"))
        if len(bad) > self.AGAIN:
            print(f"FAIL and {len(bad) - self.AGAIN} more, above")
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        return 1 if self.failed or not self.passed else 0


def minutes(seconds: float) -> str:
    """A duration as people say it."""
    return f"{int(seconds) // 60} min {int(seconds) % 60:02} s" if seconds >= 60 else f"{seconds:.0f} s"


def write_junit(cases: list[Case], path: pathlib.Path) -> None:
    """One JUnit file of all cases; what happened before is not kept."""
    from junitparser import Failure, JUnitXml, TestCase, TestSuite

    suites = {name: TestSuite(name) for name in dict.fromkeys(case.suite for case in cases)}
    for case in cases:
        one = TestCase(printable(case.name))
        one.classname = case.suite
        if case.problem:
            text = printable(case.problem)
            failure = Failure(text.splitlines()[0])
            failure.text = text
            one.result = [failure]
        suites[case.suite].add_testcase(one)
    found = JUnitXml()
    for suite in suites.values():
        found.add_testsuite(suite)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as part:
        found.write(str(part), pretty=True)


def read_junit(path: pathlib.Path) -> dict[str, str]:
    """{case: problem} of a JUnit file of another runner's; a skipped case is a problem."""
    from junitparser import JUnitXml, TestSuite

    try:
        whole_file = JUnitXml.fromfile(str(path))
    except SyntaxError as error:  # as its parser names what is no XML
        raise Fail(f"{path}: what wrote it did not come to its end: {error}") from error
    suites = [whole_file] if isinstance(whole_file, TestSuite) else list(whole_file)
    return {
        f"{case.classname}.{case.name}": "\n".join(
            f"{type(result).__name__.lower()}: {result.message}" for result in case.result
        )
        for suite in suites
        for case in suite
    }


def printable(text: str) -> str:
    """Without the characters that XML cannot hold, which a console may."""
    return "".join(char for char in text if char >= " " or char in "\n\t")
