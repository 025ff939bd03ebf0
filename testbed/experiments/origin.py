# SPDX-License-Identifier: GPL-2.0
"""Where a recorded result came from (NAME.origin.json beside NAME.json), and whether that is as it is today."""

import dataclasses
import json
import os
import pathlib
import re
from typing import Any

from ..machines import guest, kernel, kinds
from ..series import base as bases
from ..series import topics as store
from ..series.base import Base
from ..util import Fail, digest, run, write
from . import pieces
from .experiment import Experiment

Origin = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What has changed since a result was recorded; of today's series if nothing has."""

    # In this repository, of what the result is of: it has to be recorded again.
    changed: list[str]
    # Outside of it: the base, the guest's packages, the compiler.
    elsewhere: list[str]
    # In topics that the result is not of.
    others: list[str]

    @property
    def stale(self) -> bool:
        return bool(self.changed or self.elsewhere)

    def __str__(self) -> str:
        text = "stale: " + "; ".join([*self.changed, *self.elsewhere]) if self.stale else "of today's series"
        return text + (f" (topics that it is not of have changed: {', '.join(self.others)})" if self.others else "")


def path(experiment: Experiment) -> pathlib.Path:
    return experiment.recorded.with_name(f"{experiment.name}.origin.json")


def packages(root: pathlib.Path) -> dict[str, str]:
    """{package: version} of all that a guest's root has installed."""
    found = {}
    for stanza in "\n".join(path.read_text(errors="replace") for path in guest.packages(root)).split("\n\n"):
        fields = dict(re.findall(r"^(Package|Status|Version): (.+)$", stanza, re.M))
        if fields.get("Status", "").endswith(" installed") and "Version" in fields:
            found[fields["Package"]] = fields["Version"]
    return dict(sorted(found.items()))


def of_host(experiment: Experiment) -> dict[str, str]:
    """{package: version} of what decides the kind's figures on this machine."""
    names = getattr(experiment.kind, "HOST", ())
    return {name: run("dpkg-query", "-W", "-f", "${Version}", name, check=False).stdout for name in names}


def boots(experiment: Experiment) -> bool:
    return experiment.machine in kinds.KINDS


def series() -> dict[str, str]:
    """{topic: content} of the whole series."""
    return {topic.name: topic.content for topic in store.series()}


def configuration(experiment: Experiment) -> str:
    """A key of the options that the result's own topics ask for. Those of others, KUnit's too, are like their code."""
    if not boots(experiment):
        return ""
    of = store.closure(store.series(), experiment.topic.name)
    what = experiment.configured(kernel.flavour(experiment.machine, of if any(topic.configs for topic in of) else None))
    return digest(*(path for path in what.fragments if path.stem != kinds.SUITES))


def today(experiment: Experiment, base: Base) -> Origin:
    """The origin of a result of this base, this checkout and this machine; call it before the run."""
    return {
        "base": {"name": base.name, "packaged": base.packaged},
        "experiment": experiment.content,
        "machine": experiment.machine,
        "series": series(),
        "selftests": pieces.used(experiment),
        "configuration": configuration(experiment),
        "compiler": kernel.compiler(),
        "guest": packages(guest.root(experiment.packages)) if boots(experiment) else {},
        "host": of_host(experiment),
    }


def read(experiment: Experiment) -> Origin | None:
    """The origin of the recorded result; None if it is not known, or is that of other figures."""
    if not path(experiment).is_file() or not experiment.recorded.is_file():
        return None
    try:
        found = json.loads(path(experiment).read_text())
    except ValueError as error:
        raise Fail(f"{path(experiment)}: not JSON: {error}; `make record B={experiment.name}` makes it anew") from error
    return found if found.get("figures") == digest(experiment.recorded) else None


def keep(experiment: Experiment, result: pathlib.Path, origin: Origin) -> None:
    """Put a result and its origin in the place of the recorded ones; interrupted, it leaves the old, or no origin."""
    write(experiment.recorded, result.read_text())
    write(path(experiment), json.dumps({"figures": digest(experiment.recorded), **origin}, indent=1) + "\n")


def header(experiment: Experiment) -> str:
    """A line that says where the recorded result came from; "" if that is not known."""
    origin = read(experiment)
    if not origin:
        return ""
    return (
        f"Recorded on {origin['base']['name']}"
        + ("" if origin["base"]["packaged"] else ", which is not the packaged base")
        + f"; {path(experiment).name} says of what else."
    )


def present() -> Base | None:
    """The base, if it can be had without fetching anything."""
    if os.environ.get("KSRC") or bases.newest_have(bases.package()):
        return bases.find()
    return None


def judge(experiment: Experiment, base: Base | None) -> Judgement:
    """What has changed since the result was recorded; what cannot be looked at without fetching it is not."""
    if not experiment.recorded.is_file():
        return Judgement([f"not recorded: `make record B={experiment.name}`"], [], [])
    origin = read(experiment)
    if not origin:
        return Judgement([f"origin unknown: `make record B={experiment.name}`"], [], [])
    own = [topic.name for topic in experiment.topics]
    have, had = series(), origin["series"]
    changed = [f"the topic {name} has changed" for name in own if had.get(name) != have.get(name)]
    others = [name for name in unlike(had, have) if name not in own]
    if these := unlike(origin.get("selftests", {}), pieces.used(experiment)):
        changed.append(f"of the selftests {few(these)} has changed")
    if origin["experiment"] != experiment.content:
        changed.append(f"{experiment.where} or a file of its own has changed")
    if origin["configuration"] != configuration(experiment):
        changed.append("the kernel's configuration has changed")
    return Judgement(changed, elsewhere(experiment, origin, base), others)


def elsewhere(experiment: Experiment, origin: Origin, base: Base | None) -> list[str]:
    found = []
    if base and base.name != origin["base"]["name"]:
        found.append(f"other base: recorded on {origin['base']['name']}, this is {base.name}")
    if boots(experiment) and guest.place(experiment.packages).is_dir():
        found += differ("guest's packages", origin["guest"], packages(guest.root(experiment.packages)))
    found += differ("packages of this machine", origin["host"], of_host(experiment))
    # On simulated time the CPU costs nothing, so it changes no figure what compiled the kernel.
    if not kinds.simulated(experiment.machine) and origin["compiler"] != kernel.compiler():
        found.append(f"other compiler: recorded with {origin['compiler']}, this is {kernel.compiler()}")
    return found


def differ(what: str, had: dict[str, str], have: dict[str, str]) -> list[str]:
    """A line for packages of a record that are of another version now, or gone; one more changes no figure."""
    others = [
        f"{name} {version} (now {have.get(name) or 'none'})"
        for name, version in had.items()
        if have.get(name) != version
    ]
    return [f"other {what}: recorded with {few(others)}"] if others else []


def unlike(had: dict[str, str], have: dict[str, str]) -> list[str]:
    """The names that have not the same value in both."""
    return [name for name in dict.fromkeys([*have, *had]) if had.get(name) != have.get(name)]


def few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
