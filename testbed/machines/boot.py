# SPDX-License-Identifier: GPL-2.0
"""Booting a kernel, whatever the machine: one guest, one script, a real-time limit, and a console log.

uml.py and qemu.py say how their command lines look; all else about a guest is here.
"""

import contextlib
import ctypes
import errno
import functools
import os
import pathlib
import re
import signal
import struct
import subprocess
from collections.abc import Iterable, Iterator, Sequence

from ..util import APART, Fail, locking, remove, say, tail
from . import guest, qemu, uml
from .kinds import KINDS

# What no healthy guest says.
SICK = re.compile(
    r"Kernel panic|\bOops\b|\bBUG: |WARNING: |INFO: task .* blocked|Call Trace:|possible recursive locking"
    r"|possible circular locking|suspicious RCU|UBSAN:|KASAN:|ODEBUG:|INFO: trying to register non-static key"
    r"|inconsistent lock state|segfault at|Out of memory"
)

# What the kernel says with a stack of an allocation that failed, as tests make some do.
REFUSED = re.compile(
    r"^(__kmem_cache_create_args\(\w+\) failed with error -\d+|.*: vmalloc error: .*)\n"
    r"(CPU: .*\n|Hardware name: .*\n)*(Stack:\n( .*\n)*)?"
    r"Call Trace:\n( .*\n)*",
    re.M,
)


@contextlib.contextmanager
def machine(
    kind: str,
    image: pathlib.Path,
    script: pathlib.Path,
    results: pathlib.Path,
    words: Sequence[object],
    simulated: bool,
    terminal: bool = False,
    root: pathlib.Path | None = None,
) -> Iterator[tuple[list[str], list[int]]]:
    """(the command line that is the guest, the descriptors it needs); it is run within the context and in `results`."""
    # A kernel of Debian's lies in the root that it is booted with.
    root = root or (image.parent.parent if image.parent.name == "boot" else guest.root())
    if not KINDS[kind].qemu:
        uml.links(root, script, results)
        yield uml.command(image, simulated, words), []
        return
    with qemu.disks() as disks:
        yield qemu.command(image, root, script, results, disks, words, terminal, KINDS[kind].clock == "counted"), disks


def boot(
    image: pathlib.Path,
    script: pathlib.Path,
    results: pathlib.Path,
    limit: int = 300,
    kind: str = "sim",
    words: Sequence[object] = (),
    simulated: bool | None = None,
    root: pathlib.Path | None = None,
    quiet: bool = False,
) -> pathlib.Path:
    """Boot the kernel `image`, run the host's `script` in the guest, and return the directory `results`, its /results.

    limit is in seconds of real time; simulated=False has a kind whose clock is simulated run on real time. root is the
    guest's, if it is not the usual one. quiet: nothing is said of a boot that is as it should be.
    The directory is emptied first; it holds the console log `console` and the script's `exit` status whatever happens.
    A guest that panics, warns, hangs or fails is a Fail that shows the console's last lines.
    """
    image, script, results = (pathlib.Path(path).resolve() for path in (image, script, results))
    simulated = KINDS[kind].simulated if simulated is None else simulated
    remove(results)
    results.mkdir(parents=True)
    with machine(kind, image, script, results, words, simulated, root=root) as (line, held):
        if not quiet:
            say(f"booting; the console is {results / 'console'}")
        return run(line, results, limit, simulated, held)


def run(
    line: Sequence[str], results: pathlib.Path, limit: int, simulated: bool, held: Iterable[int] = ()
) -> pathlib.Path:
    """Run the command that is a guest, and judge it."""
    console = results / "console"
    # coreutils' timeout rather than our own clock: it outlives us, and it ends the guest's whole process group.
    with open(console, "wb") as out, cpu() if simulated else contextlib.nullcontext() as own:
        guest = subprocess.Popen(
            ["timeout", "--kill-after=10", str(limit), *line],
            cwd=results,
            stdin=subprocess.DEVNULL,
            stdout=out,
            pass_fds=tuple(held),
            stderr=subprocess.STDOUT,
            preexec_fn=functools.partial(in_child, simulated, own),
        )
        APART.add(guest)
        try:
            guest.wait()
        except BaseException:
            guest.terminate()
            raise
        finally:
            APART.discard(guest)
    verdict(console, results / "exit", guest.returncode, limit)
    return results


def verdict(console: pathlib.Path, status: pathlib.Path, returned: int, limit: int) -> None:
    """Raise Fail unless the guest ended by itself, healthy, and its script with status 0."""
    said = REFUSED.sub("", console.read_text(errors="replace"))
    sick = SICK.search(said)
    # `timeout` ends itself, too, when it has to kill.
    if returned in (124, 137, -signal.SIGKILL):
        problem = f"the guest did not end within {limit} s of real time and was killed"
    elif sick:
        problem = f'the guest is not healthy: its console says "{line_of(said, sick.start())}"'
    elif not status.is_file():
        problem = "the guest ended before its script did"
    elif status.read_text().strip() != "0":
        problem = f"the guest's script failed with status {status.read_text().strip()}"
    else:
        return
    lines = (
        said[max(0, said.rfind("\n", 0, sick.start()) - 200) :].splitlines()[:40] if sick else tail(said).splitlines()
    )
    raise Fail(f"{problem}; the whole console is in {console}:\n" + "\n".join(f"  | {text}" for text in lines))


def line_of(text: str, position: int) -> str:
    return text[text.rfind("\n", 0, position) + 1 : text.find("\n", position) % (len(text) + 1)].strip()


def prctl(*arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(*[ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]):
        raise OSError(ctypes.get_errno(), "prctl")


@contextlib.contextmanager
def cpu() -> Iterator[int | None]:
    """A CPU of the host's that no other boot has meanwhile, of this testbed or of another one, or None."""
    for own in sorted(os.sched_getaffinity(0)):
        with locking(f"cpu{own}") as (_, mine):
            if mine:
                yield own
                return
    yield None


def in_child(simulated: bool, own: int | None) -> None:
    """Before the kernel is executed: it shall end with the testbed, and in simulated time have no entropy.

    own is the CPU of the host's to run on: User-mode Linux and its processes take turns, and where each turn begins
    with waking another CPU a guest takes several times as long.
    """
    if own is not None:
        os.sched_setaffinity(0, {own})
    PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 1, 22, 38, 2
    # `timeout` passes the SIGTERM on to the guest's whole process group.
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM.value)
    if not simulated:
        return
    # UML seeds its random numbers by getrandom(2), and cookies, ports and hash seeds made from them order events that
    # are due at the same time. Where it fails, the guest's (simulated) clock is all the entropy there is.
    SYS_getrandom, LOAD_NR, JUMP_IF_EQUAL, RETURN, ALLOW, ERRNO_ENOSYS = (
        318,
        0x20,
        0x15,
        0x06,
        0x7FFF0000,
        0x50000 | errno.ENOSYS,
    )
    code = [
        (LOAD_NR, 0, 0, 0),
        (JUMP_IF_EQUAL, 0, 1, SYS_getrandom),
        (RETURN, 0, 0, ERRNO_ENOSYS),
        (RETURN, 0, 0, ALLOW),
    ]
    filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in code))
    program = ctypes.create_string_buffer(struct.pack("HP", len(code), ctypes.addressof(filters)))
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program)
