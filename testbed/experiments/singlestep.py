# SPDX-License-Identifier: GPL-2.0
"""Counting a UML kernel's instructions one by one: it is a process, and can be single-stepped like any other."""

import bisect
import ctypes
import os
import pathlib
import signal
import subprocess
from collections import Counter
from typing import IO

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
libc.ptrace.restype = ctypes.c_long
TRACEME, PEEKTEXT, PEEKUSER, POKETEXT, POKEUSER, CONT, SINGLESTEP = 0, 1, 3, 4, 6, 7, 9
RIP = 16 * 8  # in struct user
ADDR_NO_RANDOMIZE = 0x0040000
PR_SET_PDEATHSIG = 1


def symbols(kernel: str) -> tuple[list[int], list[str]]:
    """(addresses, names) of the kernel's functions, in order."""
    lines = subprocess.run(["nm", "-n", kernel], check=True, capture_output=True, text=True).stdout.splitlines()
    found = [(int(words[0], 16), words[2]) for words in map(str.split, lines) if len(words) == 3 and words[1] in "tTwW"]
    return [address for address, _ in found], [name for _, name in found]


def count(
    argv: list[str], where: pathlib.Path, begin: str, end: str, stdout: IO[bytes], times: int = 1
) -> list[Counter[str]]:
    """Run the kernel in the directory `where`.

    Returns a Counter of instructions by function for each of the passes from `begin` to `end`.
    """
    addresses, names = symbols(argv[0])
    at = dict(zip(names, addresses))
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(stdout.fileno(), 1)
        os.dup2(stdout.fileno(), 2)
        # Without whoever counts, it would run on for ever
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # UML would start itself again, without the breakpoint
        libc.personality(ADDR_NO_RANDOMIZE)
        os.chdir(where)
        libc.ptrace(TRACEME, 0, 0, 0)
        os.execv(argv[0], argv)
    os.waitpid(child, 0)
    address = at[begin]
    text = libc.ptrace(PEEKTEXT, child, address, 0)
    libc.ptrace(POKETEXT, child, address, text & ~0xFF | 0xCC)
    passes: list[Counter[str]] = []
    pending, stepping = 0, False
    by_address: Counter[int] = Counter()
    while True:
        libc.ptrace(SINGLESTEP if stepping else CONT, child, 0, pending)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            break
        pending = os.WSTOPSIG(status)
        if pending != signal.SIGTRAP:
            continue
        pending = 0
        rip = libc.ptrace(PEEKUSER, child, RIP, 0)
        if not stepping:
            libc.ptrace(POKEUSER, child, RIP, address)
            libc.ptrace(POKETEXT, child, address, text)
            stepping = True
        elif rip == at[end]:
            by_name: Counter[str] = Counter()
            for one, number in by_address.items():
                by_name[names[bisect.bisect_right(addresses, one) - 1]] += number
            passes.append(by_name)
            by_address.clear()
            stepping = False
            if len(passes) < times:
                libc.ptrace(POKETEXT, child, address, text & ~0xFF | 0xCC)
        else:
            by_address[rip] += 1
    return passes
