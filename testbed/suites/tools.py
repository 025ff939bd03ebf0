# SPDX-License-Identifier: GPL-2.0
"""Programs of user space in guests, on base and patched.

Those of tools/ are run by tools.sh, against the kernel's server and NFS-Ganesha. Those that the topics of another base
change are run by guest.sh of each topic.
"""

import dataclasses
import json
import pathlib
import shlex

from ..machines import boot, guest, kernel
from ..machines.kinds import KINDS
from ..series import topics as store
from ..series.base import Base
from ..util import BUILD, TOOLS, Tally, say, threads
from . import userland
from .verdicts import Key, code, keep, kept

SCRIPT = pathlib.Path(__file__).with_suffix(".sh")
# What each script begins with.
CASES = SCRIPT.with_name("cases.sh")
KIND = "sim"
# What the guest needs beyond what every guest has.
PACKAGES = {
    "python3": "the tools are in Python",
    "python3-prometheus-client": "reads what nfsd-metrics prints",
    "nfs-ganesha": "a server that is not the kernel's, for nfs-floor",
    "nfs-ganesha-mem": "with it, for a file system in memory",
}


@dataclasses.dataclass(frozen=True)
class Run:
    """A script on a kernel: of tools/, or of a topic of another base, whose patched programs are in `programs`."""

    of: str
    on: str
    image: pathlib.Path
    script: pathlib.Path
    programs: pathlib.Path | None

    @property
    def results(self) -> pathlib.Path:
        return BUILD / f"{self.of}-{self.on}"

    @property
    def text(self) -> str:
        """What the guest runs."""
        places = {"TOOLS": TOOLS, "PROGRAMS": self.programs or TOOLS}
        lines = [f"{name}=/host{shlex.quote(str(path))}" for name, path in places.items()]
        sourced = [f". /host{shlex.quote(str(path))}" for path in (CASES, self.script)]
        return "\n".join(["#!/bin/bash", *lines, f"KERNEL={self.on}", *sourced]) + "\n"

    def key(self, root: pathlib.Path) -> tuple[Key, ...]:
        """What decides what the boot says, for it repeats: kernel, root, programs, scripts, and the code that boots."""
        files = [path for path in sorted(TOOLS.iterdir()) if path.is_file()]
        return (
            f"{self.of} on {self.on}",
            self.image,
            root.name,
            *guest.packages(root),
            self.programs.name if self.programs else "",
            *(self.script, CASES, *files),
            *code("machines"),
            pathlib.Path(__file__),
        )


def scripts() -> dict[str, pathlib.Path]:
    """{whose programs: the script that a guest runs them by}"""
    topics = {topic.name: topic.home / "guest.sh" for topic in store.applied(checked=False) if topic.base}
    return {"tools": SCRIPT, **{name: path for name, path in topics.items() if path.is_file()}}


def named(name: str) -> str:
    """Whose script it is that runs what T= names; "" if there is none."""
    return "tools" if name in [path.name for path in TOOLS.iterdir()] else name if name in scripts() else ""


def tools(base: Base, tally: Tally, only: str = "") -> None:
    """Each case of the scripts is a check. only: one of them."""
    tally.suite = "tools"
    bases = {topic.name: topic.base for topic in store.applied()}
    wanted = {of: path for of, path in scripts().items() if only in ("", of)}
    programs = {of: userland.programs(bases[of]) for of in wanted if of in bases}
    kernels = kernel.kernels(base, kernel.flavour(KIND), only=("base", "patched"))
    root = guest.root(PACKAGES)
    say(f"running the programs of {', '.join(wanted)} on {', '.join(kernels)}")
    runs = [Run(of, on, kernels[on], path, programs.get(of)) for of, path in wanted.items() for on in kernels]
    with threads() as pool:
        # Who names one wants to see it run.
        ended = {run: pool.submit(said, run, root, again=bool(only)) for run in runs}
    for run, future in ended.items():
        what, see = f"{run.of} on {run.on}", f"see {run.results}"
        found = tally.run(f"the guest that ran {what} is healthy", future.result)
        tally.that(f"{what} was run", "" if found else f"no case was made; {see}")
        for case, problem in (found or {}).items():
            tally.that(f"{what}: {case}", problem and f"{problem}; {see}")


def said(run: Run, root: pathlib.Path, again: bool = False) -> dict[str, str]:
    """{case: what is wrong with it} of a boot, which is made unless one that was well is kept; again: all the same."""
    key = run.key(root)
    if not again and (path := kept(key)):
        return json.loads(path.read_text())
    text = run.results.with_suffix(".sh")
    text.parent.mkdir(parents=True, exist_ok=True)
    text.write_text(run.text)
    boot.boot(run.image, text, run.results, KINDS[KIND].limit, KIND, root=root)
    found = read(run.results / "verdicts")
    if found and not any(found.values()):
        keep(key, found)
    return found


def read(path: pathlib.Path) -> dict[str, str]:
    """{case: what is wrong with it} of the script's lines."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return {line.removeprefix("not ").removeprefix("ok "): "it fails" * line.startswith("not ") for line in lines}
