# SPDX-License-Identifier: GPL-2.0
"""Booting a kernel: one guest, one script, a real-time limit, and a console log that is always left behind."""

import ctypes
import errno
import functools
import pathlib
import re
import signal
import struct
import subprocess

from . import guest
from ..util import Fail, remove, tail

MEMORY = "3G"
# What no healthy guest says.
SICK = re.compile(r"Kernel panic|\bOops\b|\bBUG: |WARNING: |INFO: task .* blocked|Call Trace:|possible recursive locking"
                  r"|possible circular locking|suspicious RCU|UBSAN:|KASAN:|segfault at|Out of memory")


def command(kernel, root, script, results, simulated, words):
    """The boot line. Words NAME=value that the kernel does not know reach init as its environment."""
    # configs/uml.config gives con0 our stdin and stdout and closes every other console: anything else hangs the guest.
    line = [kernel, f"mem={MEMORY}", "root=/dev/root", "rootfstype=hostfs", f"rootflags={root}", "ro", "init=/guest-init",
            "panic=-1", "kunit.enable=0", f"RUN={script}", f"RESULTS={results}"]
    # SMP needs the seccomp userspace; time travel and SMP exclude each other. The guest's wall clock (ns) starts at a
    # fixed date, or time stamps and cookies made from it would differ from run to run.
    line += ["time-travel=inf-cpu", "time-travel-start=1700000000000000000"] if simulated else ["ncpus=2", "seccomp=on"]
    return [str(word) for word in line + list(words)]


def prctl(*arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(*[ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]):
        raise OSError(ctypes.get_errno(), "prctl")


def in_child(simulated):
    """Before the kernel is executed: it shall end with the testbed, and in simulated time have no entropy of the host's."""
    PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 1, 22, 38, 2
    # `timeout` passes the SIGTERM on to the guest's whole process group.
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if not simulated:
        return
    # UML seeds its random numbers by getrandom(2), and cookies, ports and hash seeds made from them order events that are
    # due at the same time. Where it fails, the guest's (simulated) clock is all the entropy there is.
    SYS_getrandom, LOAD_NR, JUMP_IF_EQUAL, RETURN, ALLOW, ERRNO_ENOSYS = 318, 0x20, 0x15, 0x06, 0x7fff0000, 0x50000 | errno.ENOSYS
    code = [(LOAD_NR, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, SYS_getrandom), (RETURN, 0, 0, ERRNO_ENOSYS), (RETURN, 0, 0, ALLOW)]
    filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in code))
    program = ctypes.create_string_buffer(struct.pack("HP", len(code), ctypes.addressof(filters)))
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program)


def boot(kernel, script, results, limit=300, simulated=True, words=()):
    """Boot `kernel`, run the host's `script` in the guest with `results` as /results, and return the results directory.

    limit is in seconds of real time. The directory is emptied first; it holds the console log `console` and the script's `exit`
    status whatever happens. A guest that panics, warns, hangs or fails is a Fail that shows the console's last lines.
    """
    results = pathlib.Path(results).resolve()
    line = command(pathlib.Path(kernel).resolve(), guest.root(), pathlib.Path(script).resolve(), results, simulated, words)
    return run(line, results, limit, simulated)


def run(line, results, limit, simulated, descriptors=()):
    """Run the command that is a guest, of whatever kind, and judge it."""
    remove(results)
    results.mkdir(parents=True)
    console = results / "console"
    # coreutils' timeout rather than our own clock: it outlives us, and it ends the guest's whole process group.
    with open(console, "wb") as out:
        done = subprocess.run(["timeout", "--kill-after=10", str(limit), *line], stdin=subprocess.DEVNULL, stdout=out, pass_fds=descriptors,
                              stderr=subprocess.STDOUT, preexec_fn=functools.partial(in_child, simulated))
    verdict(console, results / "exit", done.returncode, limit)
    return results


def verdict(console, status, returned, limit):
    """Raise Fail unless the guest ended by itself, healthy, and its script with status 0."""
    said = console.read_text(errors="replace")
    sick = SICK.search(said)
    if returned in (124, 137):
        problem = f"the guest did not end within {limit} s of real time and was killed"
    elif sick:
        problem = f"the guest is not healthy: its console says \"{line_of(said, sick.start())}\""
    elif not status.is_file():
        problem = "the guest ended before its script did"
    elif status.read_text().strip() != "0":
        problem = f"the guest's script failed with status {status.read_text().strip()}"
    else:
        return
    lines = said[max(0, said.rfind("\n", 0, sick.start()) - 200):].splitlines()[:40] if sick else tail(said).splitlines()
    raise Fail(f"{problem}; the whole console is in {console}:\n" + "\n".join(f"  | {text}" for text in lines))


def line_of(text, position):
    return text[text.rfind("\n", 0, position) + 1:text.find("\n", position) % (len(text) + 1)].strip()
