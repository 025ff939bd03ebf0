# SPDX-License-Identifier: GPL-2.0
"""What every other module of the testbed leans on: the caches, running commands, and failing clearly."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
TREE = ROOT / "tree"




class Fail(Exception):
    """Something the user can act on: the message says what happened and what to do."""


def cache():
    """The directory of everything that can be made again: outside git, keyed by what made it, safe to delete."""
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    path = pathlib.Path(home) / "knfsd-queue"
    path.mkdir(parents=True, exist_ok=True)
    return path


def say(text):
    print(f"==> {text}", flush=True)


def digest(*parts):
    """A key of 16 hex digits for what made something; a part is a string, bytes or the path of a file."""
    h = hashlib.sha256()
    for part in parts:
        if isinstance(part, pathlib.Path):
            part = part.read_bytes()
        elif isinstance(part, str):
            part = part.encode()
        h.update(len(part).to_bytes(8, "big") + part)
    return h.hexdigest()[:16]


def run(*argv, cwd=None, env=None, log=None, check=True, stdin=None):
    """Run a command and return its CompletedProcess, with stdout as text and stderr in it.

    A command that fails raises Fail with its last lines; with log=PATH everything it printed is kept there.
    """
    argv = [str(a) for a in argv]
    try:
        done = subprocess.run(argv, cwd=cwd, env={**os.environ, **(env or {})}, text=True, errors="replace", pass_fds=HELD,
                              input=stdin if stdin is not None else "", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except FileNotFoundError as error:
        raise Fail(f"{error.filename}: not found; `make setup` installs what the testbed needs") from error
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(done.stdout)
    if check and done.returncode:
        raise Fail(f"`{' '.join(argv)}` failed with status {done.returncode}"
                   + (f", all it printed is in {log}" if log else "") + f":\n{tail(done.stdout)}")
    return done


def tail(text, lines=25):
    return "\n".join(text.splitlines()[-lines:])


# Descriptors of the locks this process holds. Every child gets them: a make that outlives a killed testbed holds on to the
# lock, so that the next one does not build in the same directory beside it.
HELD = []


@contextlib.contextmanager
def lock(name):
    """One process at a time works on what `name` stands for; a second one waits and says so."""
    path = cache() / "locks" / name
    path.parent.mkdir(exist_ok=True)
    with open(path, "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that works on {name}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        HELD.append(handle.fileno())
        try:
            yield
        finally:
            HELD.remove(handle.fileno())


@contextlib.contextmanager
def whole(path):
    """Make a directory or file under a name of its own and move it to `path` only when it is whole.

    Whatever kills the maker leaves nothing at `path`; the leftover is swept by the next one. Hold a lock around it.
    """
    part = path.with_name(path.name + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    remove(part)
    yield part
    remove(path)
    part.rename(path)


def remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def need_space(path, gigabytes, what):
    """Fail early and plainly rather than half-way with a full disk."""
    free = shutil.disk_usage(path).free / 1e9
    if free < gigabytes:
        raise Fail(f"{what} needs {gigabytes} GB in {path}, which has {free:.1f} GB free: "
                   "free some, or set XDG_CACHE_HOME to a larger disk")


def bar(total, what, unit):
    """A progress bar on a terminal; nothing in a log."""
    from tqdm import tqdm
    return tqdm(total=total, desc=what, unit=" " + unit, dynamic_ncols=True, disable=None)


class Tally:
    """Counts what passed and failed, and prints each as it is known."""

    def __init__(self):
        self.passed = self.failed = 0

    def that(self, what, problems):
        if problems:
            self.failed += 1
            print(f"FAIL {what}\n" + "\n".join(f"     {line}" for line in str(problems).splitlines()), flush=True)
        else:
            self.passed += 1
            print(f"ok   {what}", flush=True)

    def run(self, what, function, *args, **kwargs):
        """Count a function that raises Fail when the check does not hold; returns what it returned."""
        try:
            result = function(*args, **kwargs)
        except Fail as fail:
            self.that(what, fail)
            return None
        self.that(what, "")
        return result

    def add(self, passed, failed):
        """Count the tests of a runner that prints its own."""
        self.passed += passed
        self.failed += failed

    def close(self):
        """Print the closing line; returns the exit status."""
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        return 1 if self.failed or not self.passed else 0
