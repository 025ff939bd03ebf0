# SPDX-License-Identifier: GPL-2.0
"""The smallest load that still breaks a promise, and how a swarm.toml has it as a case."""

import json
import pathlib
from typing import Any

from ..util import say, write
from .draw import Load
from .promises import Verdict
from .run import Runner, failing

# More runs than these do not make it much smaller.
MOST = 80


def shrink(runner: Runner, load: Load, broken: Verdict) -> Load:
    """What is left of a load when whatever is not needed to break a promise is taken away, a step at a time.

    A step has to leave a third of what is above the limit, or all ends just above it.
    """
    wanted, runs, again = 1 + (broken.off - 1) / 3, 0, True
    while again:
        again = False
        for new in runner.swarm.world.smaller(load):
            if runs == MOST:
                return load
            runs += 1
            ((_, _, verdicts, _),) = runner.judged({"smaller": new})
            worst = [one for one in failing(verdicts) if one.promise.name == broken.promise.name]
            if worst and worst[0].off >= wanted:
                say(f"after {runs} runs, {worst[0].off:.2f} times the limit: {json.dumps(new)}")
                load, again = new, True
                break
    return load


def text(value: Any) -> str:
    """A value as TOML on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {text(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(text, value)) + "]"
    return json.dumps(value)


def case(name: str, why: str, load: Load) -> str:
    """A case as a swarm.toml has it."""
    lines = ["[[cases]]", f"name = {text(name)}", f"why = {text(why)}", "[cases.load]"]
    lines += [f"{key} = {text(value)}" for key, value in load.items() if not isinstance(value, dict)]
    for key, table in load.items():
        if isinstance(table, dict):
            lines += [f"[cases.load.{key}]", *(f"{one} = {text(value)}" for one, value in table.items())]
    return "\n".join(lines) + "\n"


def keep(path: pathlib.Path, added: str) -> None:
    """Put a case at the end of a swarm.toml."""
    old = path.read_text()
    write(path, f"{old.rstrip()}\n\n{added}")
