# SPDX-License-Identifier: GPL-2.0
"""A guest to look into: with a terminal, or under gdb. Both run on real time, or nobody could type."""

import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import termios
from collections.abc import Sequence

from ..series import topics as store
from ..series.base import Base
from ..series.topics import Topic
from ..util import BUILD, Fail, remove, say
from . import boot, guest, kernel
from .kinds import BOOTED, KINDS

INSIDE = pathlib.Path(__file__).with_name("guest") / "shell.sh"
# User-mode Linux is told of page faults, timers and its processes' system calls by signals.
SIGNALS = ("SIGSEGV", "SIGUSR1", "SIGUSR2", "SIGIO", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGCHLD", "SIGWINCH")


def flavour(topic: str, kind: str) -> tuple[kernel.Flavour, list[Topic]]:
    """What to boot, and the topics whose shell belongs there: one and what it depends on, or all."""
    topics = store.series()
    return kernel.flavour(kind), store.closure(topics, store.named(topics, topic).name) if topic else topics


def server(topics: Sequence[Topic], tests: pathlib.Path) -> list[str]:
    """Lines that bring up what the topics say has to be up, in the directory of their selftests."""
    first = next((target for topic in topics for target in topic.selftests), "")
    return [
        f"cd /host{shlex.quote(str(tests / first))} || exit 1",
        *(topic.prepare for topic in topics if topic.prepare),
        *(topic.shell.rstrip() for topic in topics if topic.shell),
    ]


def script(topics: Sequence[Topic], kind: str, tests: pathlib.Path, size: tuple[int, int], term: str) -> str:
    """What the guest runs: what the topics say has to be up, then a prompt."""
    setting = {
        "TERMINAL": "ttyS0" if KINDS[kind].qemu else "tty0",
        "COLUMNS": size[0],
        "LINES": size[1],
        "TERM": term,
        "CLOCK": KINDS[kind].clock,
    }
    return (
        "\n".join(
            [
                "#!/bin/bash",
                "# Variables and functions that come now are there at the prompt, too.",
                "set -a",
                *(f"{name}={shlex.quote(str(value))}" for name, value in setting.items()),
                *server(topics, tests),
                "set +a",
                f". /host{shlex.quote(str(INSIDE))}",
            ]
        )
        + "\n"
    )


def shell(base: Base, topic: str = "", kind: str = "sim", name: str = "patched") -> None:
    """A prompt in a guest that runs the kernel `name`; returns when the guest has been left."""
    if not sys.stdin.isatty():
        raise Fail("make shell needs a terminal: run it by hand, or give it one with script(1)")
    what, topics = flavour(topic, kind)
    results, image, text = prepare(base, what, topics, name)
    say(
        f"{name} ({what.kind.name}); Ctrl-D or `exit` ends it, dmesg has what the kernel says; "
        f"the host is below /host, and {results} is /results"
    )
    before = termios.tcgetattr(sys.stdin)
    try:
        with (
            boot.machine(
                kind, image, text, results, ("quiet", "loglevel=1"), simulated=False, terminal=True, root=root(topics)
            ) as (line, held),
            open(results / "console", "ab") as log,
        ):
            # In our process group, or the terminal would not be the guest's.
            subprocess.run(line, cwd=results, stderr=log, pass_fds=held)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
    if (results / "dmesg").is_file():
        boot.verdict(results / "dmesg", results / "exit", 0, 0)


def root(topics: Sequence[Topic]) -> pathlib.Path:
    """The guest's root, in which the topics' selftests run too."""
    return guest.root(store.guest_packages(topics))


def prepare(
    base: Base, what: kernel.Flavour, topics: Sequence[Topic], name: str
) -> tuple[pathlib.Path, pathlib.Path, pathlib.Path]:
    """(the results' directory, the kernel, the guest's script), built and written."""
    size = shutil.get_terminal_size()
    tests = kernel.selftests(base)
    image = kernel.kernels(base, what, only=(name,))[name].resolve()
    results = BUILD / f"shell-{what.kind.name}"
    remove(results)
    results.mkdir(parents=True)
    text = results.with_suffix(".sh")
    text.write_text(script(topics, what.kind.name, tests, (size.columns, size.lines), "xterm"))
    return results.resolve(), image, text.resolve()


def gdb_line(image: pathlib.Path, line: Sequence[str]) -> list[str]:
    """gdb with the guest's command line: `run` boots it."""
    # By gdb's Python, or it would print a table for each.
    handle = f"python for name in {SIGNALS}: gdb.execute(f'handle {{name}} nostop noprint pass', to_string=True)"
    return [
        "gdb",
        "-q",
        "-ex",
        "set pagination off",
        "-ex",
        "set print inferior-events off",
        "-ex",
        handle,
        "--args",
        str(image),
        *line[1:],
    ]


def gdb(base: Base, topic: str = "", kind: str = "sim", name: str = "patched") -> None:
    """gdb on User-mode Linux, with the guest's command line."""
    if KINDS[kind].qemu:
        raise Fail(
            f"make gdb is for User-mode Linux; KIND={kind} is not: "
            f"{', '.join(one for one in BOOTED if not KINDS[one].qemu)} are"
        )
    what, topics = flavour(topic, kind)
    results, image, text = prepare(base, what, topics, name)
    text.write_text(text.read_text().replace(str(INSIDE), str(INSIDE.with_name("wait.sh"))))
    say(
        f"{name} ({what.kind.name}); `break FUNCTION`, then `run`; the server comes up as in make shell; "
        "Ctrl-C stops the kernel; "
        f"its console is {results}/console" + ("" if kind == "debug" else "; KIND=debug has lines and variables")
    )
    # Ctrl-C is gdb's business alone; a handler, other than SIG_IGN, is not handed down to it.
    signal.signal(signal.SIGINT, lambda *_: None)
    with open(results / "console", "wb") as console:
        # The terminal is gdb's: as the guest's console it would take Ctrl-C for a character.
        words = [f"con0=null,fd:{console.fileno()}"]
        with boot.machine(kind, image, text, results, words, simulated=False, root=root(topics)) as (line, held):
            subprocess.run(gdb_line(image, line), cwd=results, pass_fds=[*held, console.fileno()])
