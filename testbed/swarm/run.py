# SPDX-License-Identifier: GPL-2.0
"""Running loads: a guest for each load and side, as many at once as there are CPUs; each result is kept as it comes."""

import concurrent.futures
import json
import os
import pathlib
from collections.abc import Iterable, Iterator

from ..experiments import run as runs
from ..machines import boot, guest, kernel
from ..series.base import Base
from ..suites.verdicts import code, fresh
from ..util import BUILD, Fail, digest, remove, whole
from .draw import Load
from .promises import Figures, Swarm, Verdict, judge

# What follows is of no trace, or of one.
PLAIN = """
traced_begin() { :; }
traced_end() { :; }
"""
TRACED = """
traced_begin()
{
	echo 131072 >/sys/kernel/tracing/buffer_size_kb
	for event in /sys/kernel/tracing/events/sunrpc/svc*/enable; do
		echo 1 >$event
	done
}
traced_end()
{
	echo 0 >/sys/kernel/tracing/tracing_on
	cat /sys/kernel/tracing/trace >/results/trace
}
"""


class Runner:
    """The kernels of a swarm, and what came of loads on them."""

    def __init__(self, swarm: Swarm, base: Base, trace: bool = False) -> None:
        self.swarm, self.trace = swarm, trace
        self.place = BUILD / "swarm" / swarm.topic.name
        made = kernels(base, swarm)
        self.kernels = {side: made[kernel] for side, kernel in swarm.sides.items()}
        self.selftests = runs.selftests(base, swarm.experiment)
        self.root = guest.root(swarm.experiment.packages)
        self.words = tuple(swarm.experiment.data.get("boot", ()))
        # What decides a figure beside the script. Of the selftests no test does.
        tools = sorted(path for path in pathlib.Path(self.selftests).rglob("*") if is_tool(path))
        packages = self.root / "var/lib/dpkg/status"
        tools += [*code("swarm", "machines"), *([packages] if packages.is_file() else [])]
        every = dict.fromkeys(self.kernels.values())
        self.keys = {kernel: digest(kernel, self.root.name, *self.words, *tools) for kernel in every}

    def script(self, side: str, load: Load) -> str:
        return (TRACED if self.trace else PLAIN) + self.swarm.world.script(load, side, self.swarm.data)

    def one(self, side: str, load: Load, name: str) -> Figures:
        """The figures of a load on a side, from what is kept or from a guest."""
        script = self.script(side, load)
        kept = self.place / "kept" / f"{digest(self.keys[self.kernels[side]], side, script)}.json"
        if kept.is_file() and not self.trace and not fresh():
            return json.loads(kept.read_text())
        where = self.place / f"{name}-{side}"
        text = where.with_suffix(".sh")
        text.parent.mkdir(parents=True, exist_ok=True)
        text.write_text(f"#!/bin/bash\nselftests={self.selftests} side={side}\n{script}")
        boot.boot(self.kernels[side], text, where, self.swarm.limit, words=self.words, root=self.root, quiet=True)
        found = self.swarm.world.read(where, load)
        with whole(kept) as part:
            part.write_text(json.dumps(found))
        if not self.trace:
            remove(where)
            remove(text)
        return found

    def both(self, loads: dict[str, Load]) -> Iterator[tuple[str, dict[str, Figures | Fail]]]:
        """(name, {side: figures, or why there are none}) of each load, as they come to their ends."""
        waiting = {name: dict.fromkeys(self.kernels) for name in loads}
        done: dict[str, dict[str, Figures | Fail]] = {name: {} for name in loads}
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            running = {
                pool.submit(self.one, side, loads[name], name): (name, side) for name in loads for side in waiting[name]
            }
            try:
                for future in concurrent.futures.as_completed(running):
                    name, side = running[future]
                    try:
                        done[name][side] = future.result()
                    except Fail as fail:
                        done[name][side] = fail
                    if len(done[name]) == len(self.kernels):
                        yield name, {side: done[name][side] for side in self.kernels}
            finally:
                pool.shutdown(cancel_futures=True)

    def judged(self, loads: dict[str, Load]) -> Iterator[tuple[str, dict[str, Figures], list[Verdict], str]]:
        """(name, figures of each side, verdicts, why there are none) of each load, as they come."""
        for name, sides in self.both(loads):
            ran = {side: found for side, found in sides.items() if not isinstance(found, Fail)}
            why = "\n".join(f"{side}: {found}" for side, found in sides.items() if isinstance(found, Fail))
            yield name, ran, [] if why else judge(self.swarm, loads[name], ran), why


def kernels(base: Base, swarm: Swarm) -> dict[str, pathlib.Path]:
    """{kernel: executable}; those of the series without the source, at which another may be for long, once there."""
    if set(swarm.sides.values()) <= {"base", "patched"} and "config" not in swarm.experiment.data:
        return kernel.kernels(base, swarm.experiment.flavour())
    return runs.kernels(base, swarm.experiment)


def is_tool(path: pathlib.Path) -> bool:
    """Whether a file of the installed selftests is more than a test: a program, or what tests share."""
    shared = path.parent.name == "kselftest" or not os.access(path, os.X_OK)
    return path.is_file() and (path.suffix != ".sh" or shared)


def failing(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Those that were not kept, the worst first."""
    return sorted((one for one in verdicts if not one.kept), key=lambda one: -one.off)
