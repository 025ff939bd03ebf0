# SPDX-License-Identifier: GPL-2.0
"""What a swarm is worth: topics/TOPIC/swarm/put-back.patch puts back faults that the series fixes, and seeds find them.

It makes one kernel, which has the fault that its command line says: put_back=FAULT. Which there are is in swarm.toml.
Seeds are asked in order, on patched and on that kernel. A fault is found by the first seed that breaks a promise there
and none on patched.
"""

import os
import pathlib
from collections.abc import Iterator

from ..machines import kernel
from ..series import applied
from ..series.base import Base
from ..suites.mutants import put_back
from ..util import Fail, Tally, lock, say
from .guests import Guests
from .promises import Swarm, Verdict
from .run import Runner, failing


def mutants(wanted: Swarm, base: Base, tally: Tally, kind: str, seeds: range, keep: bool = False) -> None:
    """Look for each fault with so many seeds; keep: write down which found it."""
    if not wanted.put_back:
        raise Fail(f"the topic {wanted.topic.name} has no faults to put back: `put_back` in its swarm.toml")
    patched, lines = Guests(wanted, base, kind=kind), []
    image = built(wanted, base, kind)
    for fault, fixed in wanted.put_back.items():
        say(f"{fault}: at most {len(seeds)} seeds from {seeds[0]}; {fixed}")
        broken = Guests(wanted, base, kind=kind, image=image, words=(f"put_back={fault}",))
        said = ""
        for seed, verdict in first(patched, broken, seeds):
            said = f"seed {seed}, after {seed - seeds[0] + 1}: {verdict.group}: {verdict.promise.name}"
        tally.that(f"{fault} is found: {said}" if said else fault, "" if said else "no seed finds it")
        lines += [fault, f"    {said or f'not found by {len(seeds)} seeds from {seeds[0]}'}"]
    if keep:
        put_back(wanted.topic).with_name("found").write_text("\n".join(lines) + "\n")


def built(wanted: Swarm, base: Base, kind: str) -> pathlib.Path:
    """The kernel that has the faults."""
    with lock("source"):
        patched = applied.commits(base)["patched"]
        commit = applied.variant(base, patched, "faults that were fixed", put_back(wanted.topic).read_text())
        return kernel.executable(base, commit, kernel.flavour(kind), f"swarm/{wanted.topic.name}-kernel")


def first(patched: Runner, broken: Runner, seeds: range) -> Iterator[tuple[int, Verdict]]:
    """The first seed that finds what is broken, and what it says; nothing if none does."""
    at_once = len(os.sched_getaffinity(0))
    for begin in range(0, len(seeds), at_once):
        some = {str(seed): patched.swarm.load(str(seed)) for seed in seeds[begin : begin + at_once]}
        found = {name: failing(verdicts) for name, _, verdicts, _ in broken.judged(some)}
        suspect = {name: load for name, load in some.items() if found[name]}
        sound = {name for name, _, verdicts, why in patched.judged(suspect) if not why and not failing(verdicts)}
        for name in some:
            if name in sound:
                yield int(name), found[name][0]
                return
