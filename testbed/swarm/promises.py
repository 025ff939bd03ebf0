# SPDX-License-Identifier: GPL-2.0
"""topics/TOPIC/swarm.toml: which world is drawn, what is compared, what of it is promised. See docs/measuring.md."""

import dataclasses
import pathlib
import re
import types
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from .. import schema
from ..experiments import experiment as experiments
from ..experiments.experiment import Experiment
from ..series import topics as store
from ..series.topics import Topic
from ..util import Fail, digest
from . import faults, modes, paths, server
from .draw import Load

WORLDS: dict[str, ModuleType] = {"faults": faults, "modes": modes, "paths": paths, "server": server}
# A record is of these modules and of its own world's. The server is there for the modes, which measure on it.
MEASURES = ("draw", "run", "server")
# So many loads say what of the selftests any load runs.
FEW = 20
# {group: {figure: number}} of one run.
Figures = dict[str, dict[str, float]]
# What a promise may be held against beside another side and the figures of its own: the best of the other sides.
BEST = "best"
# How many times a limit of nothing is missed.
NONE = 1e9

NUMBER: schema.Schema = {"type": "number", "minimum": 0}
LIST: schema.Schema = {"type": "array", "minItems": 1, "items": schema.STRING}
PROMISE = schema.table(
    {"name": schema.STRING, "of": LIST, "figure": schema.STRING},
    side=schema.STRING,
    than=schema.STRING,
    most=NUMBER,
    least=NUMBER,
    plus=LIST,
    samples=schema.COUNT,
    share={"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
)
SEEDS: schema.Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}, "uniqueItems": True}
CASE: schema.Schema = {
    "type": "object",
    "required": ["name", "load"],
    "properties": {
        "name": {"type": "string", "pattern": f"^{experiments.PATTERN}$"},
        "why": schema.STRING,
        "load": {"type": "object"},
    },
    "additionalProperties": False,
}
# A promise that a seed or a case breaks today, or, if it has a share, that they break together.
KNOWN = schema.table({"promise": schema.STRING, "why": schema.STRING}, load=schema.STRING)
KEYS: dict[str, schema.Schema] = {
    "world": schema.STRING,
    "title": schema.STRING,
    "question": schema.STRING,
    "sides": {"type": "object", "minProperties": 2, "additionalProperties": schema.STRING},
    "promises": {"type": "array", "minItems": 1, "items": PROMISE},
    "gate": {**SEEDS, "minItems": 2, "maxItems": 2},
}
MAY: dict[str, schema.Schema] = {
    # The experiment whose variants a side's kernel may be.
    "kernels_of": schema.STRING,
    "limit": schema.COUNT,
    "cases": {"type": "array", "items": CASE},
    "known": {"type": "array", "items": KNOWN},
    # [first, last] of seeds that a rule was made by: no evidence for it.
    "tuned": {"type": "array", "items": {**SEEDS, "minItems": 2, "maxItems": 2}},
    # {fault that the topic's swarm/put-back.patch puts back: what has fixed it}
    "put_back": schema.mapping(schema.STRING),
}


@dataclasses.dataclass(frozen=True)
class Promise:
    """What is promised of a figure of all groups that are of certain classes."""

    name: str
    of: tuple[str, ...]
    figure: str
    side: str
    # A side, BEST, or a figure of the same group; "": the limit is the number itself.
    than: str = ""
    most: float | None = None
    least: float | None = None
    plus: tuple[str, ...] = ()
    # Of fewer than so many nothing is said.
    samples: int = 1
    # Which part of all groups has to be within the limit, if not each of them: no load breaks it alone.
    share: float | None = None

    @property
    def limit(self) -> str:
        sign, number = ("≤", self.most) if self.most is not None else ("≥", self.least)
        text = f"{sign} {number:g}" + (f" {self.than}" if self.than else "") + "".join(f" + {one}" for one in self.plus)
        return text + (f", of {self.share:.0%}" if self.share else "")


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What became of a promise: `off` is how many times the limit is missed; 1 or less is kept."""

    promise: Promise
    group: str
    value: float
    limit: float
    # The same figure, or what it was held against.
    reference: float
    off: float

    @property
    def within(self) -> bool:
        return self.off <= 1

    @property
    def kept(self) -> bool:
        return self.within or self.promise.share is not None


@dataclasses.dataclass(frozen=True)
class Swarm:
    """A checked swarm.toml."""

    topic: Topic
    path: pathlib.Path
    world: ModuleType
    data: dict[str, Any]
    promises: tuple[Promise, ...]

    @property
    def sides(self) -> dict[str, str]:
        """{what is compared: the kernel it is on}, what all else is compared with first."""
        return self.data["sides"]

    @property
    def cases(self) -> dict[str, Load]:
        return {one["name"]: one["load"] for one in self.data.get("cases", [])}

    def known(self, load: str | None) -> dict[str, str]:
        """{promise that a load breaks today: why}; of no load, those with a share."""
        every = self.data.get("known", [])
        return {one["promise"]: one["why"] for one in every if one.get("load") == load}

    def tuned(self, seeds: Iterable[int]) -> list[int]:
        """Those of `seeds` that a rule was made by."""
        ranges = [range(first, last + 1) for first, last in self.data.get("tuned", [])]
        return [seed for seed in seeds if any(seed in one for one in ranges)]

    @property
    def put_back(self) -> dict[str, str]:
        return self.data.get("put_back", {})

    @property
    def kinds(self) -> tuple[str, ...]:
        """The machines that it may be on, the usual one first."""
        return getattr(self.world, "KINDS", ("sim",))

    @property
    def limit(self) -> int:
        """Seconds of real time for a boot."""
        return self.data.get("limit", 600)

    @property
    def experiment(self) -> Experiment:
        """What it is to those that build kernels and say where a result came from."""
        here = pathlib.Path(__file__).parent
        rooms = [path for name in {*MEASURES, self.data["world"]} for path in here.glob(f"{name}.*")]
        data = {
            "kind": "swarm",
            "title": self.data["title"],
            "machine": self.kinds[0],
            "repeats": 1,
            "kernels": {name: name for name in dict.fromkeys(self.sides.values())},
            # What is drawn, and how it is measured; not what is thought of it.
            "world": digest(*sorted(rooms)),
            **{key: self.data[key] for key in (*self.world.SETTINGS, *self.world.MAY) if key in self.data},
        }
        path, closure = self.path, tuple(store.closure(store.series(), self.topic.name))
        if model := self.data.get("kernels_of"):
            other = experiments.find(model)
            data |= {key: other.data[key] for key in ("variants", "config", "packages") if key in other.data}
            path = other.path
        kind: Any = types.SimpleNamespace(script=lambda *_: self.scripts())
        return Experiment("swarm", path, self.topic, closure, kind, data)

    def scripts(self) -> str:
        """What guests run for each side: of some loads, for what of the selftests one runs any of a few says."""
        some = [*map(str, range(1, FEW + 1)), *self.cases]
        return "\n".join(self.world.script(self.load(one), side, self.data) for one in some for side in self.sides)

    def load(self, which: str) -> Load:
        """The load of a seed or a case."""
        return self.cases[which] if which in self.cases else self.world.draw(int(which))


def find(topic: str) -> Swarm:
    """The swarm.toml of a topic, checked."""
    have = {one.name: one for one in store.series()}
    path = store.TOPICS / topic / "swarm.toml"
    with_one = [name for name in have if (store.TOPICS / name / "swarm.toml").is_file()]
    if topic not in have:
        raise Fail(f"there is no topic {topic}{schema.meant(topic, have)}; with a swarm.toml: {', '.join(with_one)}")
    if topic not in with_one:
        raise Fail(f"the topic {topic} has no swarm.toml; with one there are: {', '.join(with_one)}")
    return read(have[topic], path)


def every() -> list[Swarm]:
    paths = [(topic, store.TOPICS / topic.name / "swarm.toml") for topic in store.series()]
    return [read(topic, path) for topic, path in paths if path.is_file()]


def read(topic: Topic, path: pathlib.Path) -> Swarm:
    """A swarm.toml, checked; whatever is wrong with it is one line."""
    data, where = schema.parse(path), schema.shown(path)
    name = data.get("world")
    if name not in WORLDS:
        raise Fail(
            f"{where}: world: {name!r} is none{schema.meant(str(name), WORLDS)}; there are: {', '.join(WORLDS)}"
            if "world" in data
            else f"{where}: world: is missing; there are: {', '.join(WORLDS)}"
        )
    world = WORLDS[name]
    schema.check(data, schema.table({**KEYS, **world.SETTINGS}, **{**MAY, **world.MAY}), path)
    sides = list(data["sides"])
    promises: list[Promise] = []
    for number, one in enumerate(data["promises"]):
        promise = Promise(
            one["name"],
            tuple(one["of"]),
            one["figure"],
            one.get("side", sides[-1]),
            one.get("than", ""),
            one.get("most"),
            one.get("least"),
            tuple(one.get("plus", ())),
            one.get("samples", 1),
            one.get("share"),
        )
        check_promise(promise, world, sides, f"{where}: promises.[{number}]")
        if promise.name in [other.name for other in promises]:
            raise Fail(f"{where}: promises.[{number}]: there are two promises {promise.name!r}")
        promises.append(promise)
    found = Swarm(topic, path, world, data, tuple(promises))
    check_cases(found, where)
    return found


def check_promise(promise: Promise, world: ModuleType, sides: list[str], where: str) -> None:
    if (promise.most is None) == (promise.least is None):
        raise Fail(f"{where}: give most or least")
    for name in promise.of:
        if name not in world.CLASSES:
            raise Fail(
                f"{where}: of: no group is {name}{schema.meant(name, world.CLASSES)}; what is drawn is "
                f"{', '.join(world.CLASSES)}"
            )
    for key, names, known in (
        ("figure", [promise.figure], list(world.FIGURES)),
        ("side", [promise.side], sides),
        ("than", [promise.than] if promise.than else [], [*sides, BEST, *world.FIGURES]),
        ("plus", list(promise.plus), list(world.FIGURES)),
    ):
        for name in names:
            if name not in known:
                raise Fail(
                    f"{where}: {key}: there is no {name}{schema.meant(name, known)}; there are: {', '.join(known)}"
                )
    if promise.than == promise.side:
        raise Fail(f"{where}: than: {promise.than} is the side that the promise is about")


def check_cases(found: Swarm, where: str) -> None:
    names = [one["name"] for one in found.data.get("cases", [])]
    for name in names:
        if names.count(name) > 1:
            raise Fail(f"{where}: there are two cases {name}")
        if name.isdigit():
            raise Fail(f"{where}: the case {name}: a number is a seed: give it a name")
    for name, load in found.cases.items():
        try:
            schema.check(load, found.world.LOAD, found.path)
            found.world.check(load)
        except Fail as fail:
            raise Fail(f"{where}: the case {name}: {str(fail).removeprefix(where + ': ')}") from fail
    entries = [(one.get("load"), one["promise"]) for one in found.data.get("known", [])]
    for number, (which, name) in enumerate(entries):
        here = f"{where}: known.[{number}]"
        if which is not None and which not in names and not re.fullmatch("0|[1-9][0-9]*", which):
            raise Fail(f"{here}: load: {which} is no seed, and no case{schema.meant(which, names)}")
        of = [promise.name for promise in found.promises if (promise.share is None) == (which is not None)]
        if name not in of:
            what = "with a share" if which is None else "of a load"
            raise Fail(f"{here}: promise: there is no {name!r} {what}{schema.meant(name, of)}")
        if entries.count((which, name)) > 1:
            raise Fail(f"{here}: there are two of {name!r}" + (f" and {which}" if which else ""))


def judge(swarm: Swarm, load: Load, ran: dict[str, Figures]) -> list[Verdict]:
    """What became of each promise for each group that it is about; `ran` has the figures of each side."""
    found = []
    is_of = swarm.world.classes(load)
    for promise in swarm.promises:
        for group, own in ran[promise.side].items():
            if not set(promise.of) <= is_of[group] or promise.figure not in own:
                continue
            others = {side: figures[group] for side, figures in ran.items() if side != promise.side}
            if min(one.get("count", promise.samples) for one in (own, *others.values())) < promise.samples:
                continue
            one = verdict(promise, group, own, others)
            # What takes no simulated time has no multiple to be held to.
            if one.limit or promise.than not in own:
                found.append(one)
    return found


def verdict(promise: Promise, group: str, own: dict[str, float], others: dict[str, dict[str, float]]) -> Verdict:
    """One promise of one group, by its own figures and those of the other sides."""
    value, plus = own[promise.figure], sum(own[name] for name in promise.plus)
    factor = promise.least if promise.most is None else promise.most
    assert factor is not None
    same = [one[promise.figure] for one in others.values()]
    if promise.than == BEST:
        reference = max(same) if promise.most is None else min(same)
    elif promise.than in others:
        reference = others[promise.than][promise.figure]
    else:
        reference = own[promise.than] if promise.than else 1
    limit = factor * reference + plus
    over = (limit, value) if promise.most is None else (value, limit)
    return Verdict(promise, group, value, limit, reference, over[0] / over[1] if over[1] else NONE * (over[0] > 0))
