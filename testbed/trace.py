# SPDX-License-Identifier: GPL-2.0
"""The server's trace events, read as what a rule sees: how many requests of a transport are in flight when it is queued."""

import re

# A request ends when its reply is sent or it is dropped; a dispatch also ends when it found no whole record.
ENDS = {"svc_send", "svc_drop", "svcsock_tcp_recv_eagain", "svcsock_tcp_recv_short", "svcsock_tcp_recv_err"}


def depth(lines):
    """{"requests", "queued", "idle"}: replies sent, how often a transport was queued, and how often with nothing of it in flight.

    A dispatch takes a slot (xpt_nr_rqsts), which the end of the request gives back. The server traces every attempt to queue a
    transport: one that is BUSY, or has nothing to read, is not queued.
    """
    flight = {}
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
