# SPDX-License-Identifier: GPL-2.0
"""Litmus tests: what the queue claims about memory order, judged by herd7 on the kernel's own model."""

import pathlib
import re
from collections.abc import Sequence

from .. import host
from ..series import applied
from ..series.base import Base
from ..util import Tally, cache, digest, lock, need_space, run, say, whole

# The oldest Debian release that has a herd7 which the kernel's model works with.
SUITE = "forky"
PACKAGE = "herdtools7"


def herd() -> list[object]:
    """herd7 as the beginning of a command line. Its root's dynamic loader runs it, which anybody may."""
    root = cache() / "herd" / digest(SUITE, PACKAGE)
    with lock("herd"):
        if not root.is_dir():
            need_space(cache(), 0.5, "herd7")
            say(f"fetching {PACKAGE} of {SUITE}")
            with whole(root.with_suffix(".tar")) as tarball:
                # A mirror that stands still is as good for this as one that is up to date.
                run(
                    "mmdebstrap",
                    "--variant=extract",
                    '--aptopt=Acquire::Check-Valid-Until "false"',
                    "--format=tar",
                    f"--include={PACKAGE}",
                    "--quiet",
                    f"--keyring={host.KEYRING}",
                    SUITE,
                    tarball,
                    host.mirror(),
                )
                with whole(root) as part:
                    part.mkdir()
                    run("tar", "-xf", tarball, "-C", part, "--exclude=./dev/*", "--no-same-owner")
            root.with_suffix(".tar").unlink()
    usr = root / "usr"
    return [
        next(usr.glob("lib*/ld-linux-x86-64.so.2")),
        "--library-path",
        usr / "lib/x86_64-linux-gnu",
        usr / "bin/herd7",
        "-set-libdir",
        usr / "share/herdtools7/herd",
    ]


def judge(source: pathlib.Path, name: str, command: Sequence[object] | None = None) -> str:
    """What is wrong with the litmus test `name` of a checked-out source; "" if herd7 finds what the test says."""
    wanted = re.search(r"Result: (Always|Sometimes|Never)\b", (source / name).read_text())
    if not wanted:
        return "it does not say what its result is to be"
    said = run(
        *(command or herd()), "-conf", "linux-kernel.cfg", source / name, cwd=source / "tools/memory-model", check=False
    ).stdout
    found = re.search(r"^Observation \S+ (Always|Sometimes|Never) (\d+) (\d+)$", said, re.M)
    if not found:
        return f"herd7 gives no result:\n{said.rstrip()}"
    if "Flag data-race" in said:
        return "herd7 finds a data race"
    return (
        ""
        if found[1] == wanted[1]
        else f"it says {wanted[1]}; herd7 says {found[1]} ({found[2]} executions of {int(found[2]) + int(found[3])})"
    )


def litmus(base: Base, tally: Tally) -> None:
    """Every litmus test that the queue brings or changes."""
    command = herd()
    version = run(*command, "-version").stdout.split(",")[0]
    with lock("source"):
        patched = applied.commits(base)["patched"]
        names = [name for name in applied.touched(base, patched, base.commit) if name.endswith(".litmus")]
        applied.checkout(base, patched)
        say(f"herd7 {version} on the model of {base.name}")
        for name in names:
            tally.that(name.removeprefix("Documentation/"), judge(base.repo, name, command))
