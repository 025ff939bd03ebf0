# SPDX-License-Identifier: GPL-2.0
"""The server's trace events: how many requests of a transport are in flight when it is queued, how many wait."""

import pathlib
import re
from collections.abc import Iterable
from typing import Any

from ...util import Fail

# A request ends when its reply is sent or it is dropped; a dispatch also ends when it found no whole record.
ENDS = {"svc_send", "svc_drop", "svcsock_tcp_recv_eagain", "svcsock_tcp_recv_short", "svcsock_tcp_recv_err"}


def depth(lines: Iterable[str]) -> dict[str, int]:
    """{"requests", "queued", "idle"}: replies sent, transports queued, and how often with nothing of it in flight.

    A dispatch takes a slot (xpt_nr_rqsts), which the end of the request gives back. The server traces every attempt
    to queue a transport: one that is BUSY, or has nothing to read, is not queued.
    """
    flight: dict[str, int] = {}
    found = {"requests": 0, "queued": 0, "idle": 0}
    for line in lines:
        event = re.search(r" (svc\w+): .*?\b(?:client|addr)=(\S+)", line)
        if not event:
            continue
        name, client = event.groups()
        now = flight.setdefault(client, 0)
        if name == "svc_xprt_enqueue":
            flags = set(line.partition("flags=")[2].split()[0].split("|"))
            if "BUSY" not in flags and flags & {"DATA", "DEFERRED"}:
                found["queued"] += 1
                found["idle"] += now == 0
        elif name == "svc_xprt_dequeue":
            flight[client] += 1
        elif name in ENDS:
            # Of one that was there when tracing began only the end is seen
            flight[client] = max(now - 1, 0)
            found["requests"] += name == "svc_send"
    return found


# What makes a transport one to queue, unless it is BUSY.
READY = {"CONN", "CLOSE", "HANDSHAKE", "DATA", "DEFERRED"}


def waiting(lines: Iterable[str]) -> dict[str, Any]:
    """How many transports wait in a pool's queue, of lines "EVENT FLAG|FLAG…" in order, of one CPU.

    {"queued": transports queued, "longest", "median": how many waited when one was, that one included, "refills":
    dequeues that found no entry in order and reversed all that had come since, as the base's queue does, "refill":
    the most that one of them reversed, "left": how many were queued and not dequeued}
    """
    lengths: list[int] = []
    refills: list[int] = []
    ordered = length = 0
    for line in lines:
        event, _, flags = line.strip().partition(" ")
        words = set(flags.split("|"))
        if event == "svc_xprt_enqueue" and words & READY and "BUSY" not in words:
            length += 1
            lengths.append(length)
        elif event == "svc_xprt_no_write_space":
            length -= 1
            lengths.pop()
        elif event == "svc_xprt_dequeue":
            if not ordered:
                refills.append(length)
                ordered = length
            ordered -= 1
            length -= 1
    return {
        "queued": len(lengths),
        "longest": max(lengths, default=0),
        "median": sorted(lengths)[len(lengths) // 2] if lengths else 0,
        "refills": len(refills),
        "refill": max(refills, default=0),
        "left": length,
    }


def complete(stem: pathlib.Path) -> None:
    """Fail if the trace buffer overflowed."""
    lost = stem.with_name(stem.name + ".lost").read_text().split()
    if int(lost[-1]):
        raise Fail(f"{stem}: the trace lost {lost[-1]} events: a larger buffer is needed")
