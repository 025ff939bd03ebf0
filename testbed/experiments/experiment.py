# SPDX-License-Identifier: GPL-2.0
"""Experiments: what topics/TOPIC/experiments/NAME.toml says, checked before anything is downloaded or built.

`kind` names the module, here or in nfs/, that measures. A kind has

    MACHINES                     where it can measure
    REQUIRED, OPTIONAL           the schema of its own keys and tables
    check(experiment)            what a schema cannot say; raises Fail
    points(experiment)           where it measures, as dicts
    metrics(experiment, result)  [Table] of a result

and, if it boots a guest for each kernel in the common way (run.py),

    script(experiment, selftests)      what the guest runs
    leaves(experiment, point)          the files in /results that say that a point is done
    read(experiment, where, point)     a point's figures, of a results directory

or else measure(experiment, base, out), which returns the result. It may have picture(experiment, result), which returns
what is drawn, dump(result), the text of a result file, ready(experiment, selftests), which raises Fail for what only
the selftests can tell, once they are built, and HOST, packages of this machine that decide its figures.
"""

import dataclasses
import functools
import importlib
import json
import pathlib
import pkgutil
import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from .. import schema
from ..machines import kernel
from ..machines.kinds import BOOTED
from ..series import topics as store
from ..series.topics import Topic
from ..util import Fail, digest

PATTERN = r"[a-z0-9][a-z0-9-]*"
KERNEL = r"[A-Za-z0-9][A-Za-z0-9=._-]*"
KERNELS: schema.Schema = {
    "type": ["array", "object"],
    "minItems": 1,
    "minProperties": 1,
    "uniqueItems": True,
    "items": schema.STRING,
    "propertyNames": {"pattern": f"^{KERNEL}$"},
    "additionalProperties": schema.STRING,
}
COMMON = {
    "kind": schema.STRING,
    "title": schema.STRING,
    "question": schema.STRING,
    "machine": schema.STRING,
    "repeats": schema.COUNT,
}
MAY = {
    "like": schema.STRING,
    "exact": {"type": "boolean"},
    "limit": schema.COUNT,
    "kernels": KERNELS,
    # Words for the guest kernel's command line.
    "boot": {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": r"^\S+$"}},
    # One of its own files: options that its kernels have beyond their flavour's.
    "config": schema.STRING,
    # {Debian package that the guest needs, beyond what every guest has: what for}
    "packages": schema.mapping(schema.STRING),
    "variants": {
        "type": "array",
        "minItems": 1,
        "uniqueItems": True,
        "items": {"type": "string", "pattern": f"^{KERNEL}$"},
    },
}
# What decides how a result is shown and judged, not what is measured.
SHOWN = {"title", "question", "tables", "headline", "bars", "grid", "metrics", "limit", "exact", "like"}


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A checked experiment."""

    name: str
    path: pathlib.Path
    topic: Topic
    # The topics that it measures: its own, those that its kernels name, and all that they depend on, in order.
    topics: tuple[Topic, ...]
    kind: ModuleType
    data: dict[str, Any]

    @property
    def where(self) -> str:
        return schema.shown(self.path)

    @property
    def title(self) -> str:
        return self.data["title"]

    @property
    def machine(self) -> str:
        return self.data["machine"]

    @property
    def repeats(self) -> int:
        return self.data["repeats"]

    @property
    def limit(self) -> int:
        """Seconds of real time for a boot."""
        return self.data.get("limit", 600)

    @property
    def packages(self) -> dict[str, str]:
        return self.data.get("packages", {})

    def flavour(self, machine: str = "") -> kernel.Flavour:
        """What its kernels are built as, for its machine or another one."""
        return self.configured(kernel.flavour(machine or self.machine))

    def configured(self, what: kernel.Flavour) -> kernel.Flavour:
        """A flavour with the experiment's own options, too."""
        own = (self.file(self.data["config"]),) if "config" in self.data else ()
        return dataclasses.replace(what, configs=what.configs + own)

    @property
    def exact(self) -> bool:
        """Whether two runs give the same bytes."""
        return self.data.get("exact", True)

    @property
    def recorded(self) -> pathlib.Path:
        """Where its recorded result is kept."""
        return self.topic.results / f"{self.name}.json"

    @property
    def place(self) -> pathlib.Path:
        """The directory of its own files."""
        return self.path.with_suffix("")

    @property
    def kernels(self) -> dict[str, str]:
        """{name: what it is}, see known_kernel()."""
        asked = self.data.get("kernels", ["base", "patched", *self.data.get("variants", [])])
        return dict(asked) if isinstance(asked, dict) else {name: name for name in asked}

    @property
    def points(self) -> list[dict[str, Any]]:
        return self.kind.points(self)

    def file(self, name: str) -> pathlib.Path:
        """One of its own files."""
        path = self.place / name
        if not path.is_file():
            raise Fail(f"{self.where}: names {name}; there is no {schema.shown(path)}")
        return path

    def variants(self) -> dict[str, str]:
        """{variant: patch}: NAME/VARIANT.patch beside it; for a variant P=V, P.patch with V in the place of VALUE."""
        found = {}
        for variant in self.data.get("variants", []):
            stem, _, value = variant.partition("=")
            text = self.file(f"{stem}.patch").read_text()
            if bool(value) != ("VALUE" in text):
                raise Fail(
                    f"{self.where}: variants: {variant}: {stem}.patch has {'no' if value else 'a'} VALUE to fill in: "
                    f"{'name it ' + stem if value else 'give it one, as ' + stem + '=1'}"
                )
            found[variant] = text.replace("VALUE", value)
        return found

    @property
    def content(self) -> str:
        """A key of what it measures: its TOML but for what only says how that is shown, and its own files."""
        files = sorted(self.place.rglob("*")) if self.place.is_dir() else []
        parts: list[str | pathlib.Path] = [canonical(self.data)]
        for path in files:
            if path.is_file():
                parts += [str(path.relative_to(self.place)), path]
        return digest(*parts)


def canonical(data: dict[str, Any]) -> str:
    """What is measured, as a text that is the same in whatever order the TOML has its tables."""
    kept = {name: data[name] for name in sorted(data) if name not in SHOWN}
    if "scenarios" in kept:
        kept["scenarios"] = [
            {name: value for name, value in one.items() if name not in SHOWN} for one in kept["scenarios"]
        ]
    return json.dumps(kept)


@functools.cache
def kinds() -> dict[str, ModuleType]:
    """{name: module} of every kind of measurement: the modules here that say on which machines they measure."""
    package = __name__.rpartition(".")[0]
    found = [
        importlib.import_module(one.name)
        for one in pkgutil.walk_packages([str(pathlib.Path(__file__).parent)], f"{package}.")
    ]
    return {one.__name__.rpartition(".")[2]: one for one in found if hasattr(one, "MACHINES")}


def everywhere() -> dict[str, tuple[Topic, pathlib.Path]]:
    """{name: (topic, path)} of all experiments; a name stands once among all topics, for it is how one is asked for."""
    found: dict[str, tuple[Topic, pathlib.Path]] = {}
    for topic in store.series():
        for path in sorted((topic.home / "experiments").glob("*.toml")):
            if not re.fullmatch(PATTERN, path.stem):
                raise Fail(f"{schema.shown(path)}: an experiment's name is of a-z, 0-9 and -")
            if path.stem in found:
                raise Fail(f"{schema.shown(path)}: {schema.shown(found[path.stem][1])} has the same name: rename one")
            found[path.stem] = (topic, path)
    return found


def place(name: str) -> tuple[Topic, pathlib.Path]:
    have = everywhere()
    if name not in have:
        raise Fail(f"there is no experiment {name}{schema.meant(name, have)}; there are: {', '.join(sorted(have))}")
    return have[name]


def names(asked: Sequence[str] = (), topics: Sequence[str] = ()) -> list[str]:
    """The experiments that B= names, or those of the topics that T= names; all of them if neither names any."""
    have = everywhere()
    if asked and topics:
        raise Fail("B= names experiments, and T= all of a topic: give one of the two")
    for name in topics:
        topic = store.named(store.series(), name)
        if topic not in [of for of, _ in have.values()]:
            raise Fail(f"T={name}: topics/{name}/experiments/ has no experiment")
    of_topics = [name for name, (topic, _) in have.items() if topic.name in topics]
    return list(dict.fromkeys(asked)) or of_topics or sorted(have)


def merged(path: pathlib.Path, seen: tuple[pathlib.Path, ...] = ()) -> dict[str, Any]:
    """The data of a TOML, with what it does not say as the experiment has it that it is like."""
    if path in seen:
        raise Fail(f"{schema.shown(path)}: like: {' is like '.join(one.stem for one in (*seen, path))}: no end")
    data = schema.parse(path)
    if not isinstance(data.get("like", ""), str):
        raise Fail(f"{schema.shown(path)}: like: {data['like']!r} is no name of an experiment")
    if "like" not in data:
        return data
    try:
        model = place(data["like"])[1]
    except Fail as fail:
        raise Fail(f"{schema.shown(path)}: like: {fail}") from fail
    other = merged(model, (*seen, path))
    return {
        **other,
        **{
            key: {**other[key], **value} if isinstance(value, dict) and isinstance(other.get(key), dict) else value
            for key, value in data.items()
        },
    }


def find(name: str) -> Experiment:
    """The experiment of that name, checked."""
    topic, path = place(name)
    return load(topic, path)


def load(topic: Topic, path: pathlib.Path) -> Experiment:
    """The experiment of a file, checked; whatever is wrong with it is one line."""
    data, where = merged(path), schema.shown(path)
    kind = data.get("kind")
    if kind not in kinds():
        raise Fail(
            f"{where}: kind: "
            + (
                f"{kind!r} is no kind of measurement{schema.meant(str(kind), kinds())}"
                if "kind" in data
                else "is missing"
            )
            + f"; there are: {', '.join(sorted(kinds()))}"
        )
    module = kinds()[kind]
    schema.check(data, table(module), path)
    if data["machine"] not in module.MACHINES:
        raise Fail(
            f"{where}: machine: {data['machine']} is none that the kind {kind} measures "
            f"on{schema.meant(data['machine'], module.MACHINES)}; "
            f"there are: {', '.join(module.MACHINES)}"
        )
    topics = store.series()
    found = Experiment(path.stem, path, topic, tuple(store.closure(topics, topic.name)), module, data)
    for word, what in found.kernels.items():
        if not re.fullmatch(KERNEL, word) and not isinstance(data.get("kernels"), list):
            raise Fail(f"{where}: kernels: {word}: a name is of letters, digits, '=', '.', '_' and '-'")
        known_kernel(found, what, topics)
    more = [named for what in found.kernels.values() if (named := topic_named(what, topics))]
    found = dataclasses.replace(found, topics=tuple(store.closure(topics, topic.name, *more)))
    found.variants()
    if "config" in data:
        found.file(data["config"])
    module.check(found)
    return found


def table(kind: ModuleType) -> schema.Schema:
    """The schema of a kind's experiments: what is common to all, with the kind's own in its place."""
    may = {name: one for name, one in {**MAY, **kind.OPTIONAL}.items() if name not in kind.REQUIRED}
    return schema.table({**COMMON, **kind.REQUIRED}, **may)


def topic_named(what: str, topics: list[Topic]) -> str:
    """The topic that a kernel is made with: TOPIC of `before TOPIC`, `TOPIC` and `TOPIC:N`; "" for the others."""
    name = what.removeprefix("before ").partition(":")[0]
    return name if name in [topic.name for topic in topics] else ""


def known_kernel(experiment: Experiment, what: str, topics: list[Topic]) -> None:
    """Fail unless `what` is base, patched, `before TOPIC`, `TOPIC`, `TOPIC:N` (its first N patches) or a variant."""
    if what in ("base", "patched", *experiment.data.get("variants", [])):
        return
    name = topic_named(what, topics)
    if not name:
        known = [
            "base",
            "patched",
            *experiment.data.get("variants", []),
            *(f"{form}{topic.name}" for topic in topics for form in ("before ", "")),
        ]
        raise Fail(
            f"{experiment.where}: kernels: there is no kernel {what}{schema.meant(what, known)}; there are base, "
            f"patched, "
            "`before TOPIC`, `TOPIC` (alone on what it depends on), `TOPIC:N` (its first N patches) and the variants"
        )
    _, colon, number = what.partition(":")
    many = len(store.named(topics, name).patches)
    if colon and (what.startswith("before ") or not re.fullmatch("[1-9][0-9]*", number) or int(number) > many):
        raise Fail(f"{experiment.where}: kernels: {what}: {name} has {many} patches; `{name}:N` is with its first N")


def machines(*also: str) -> tuple[str, ...]:
    """All machines that boot; `also` is put before them."""
    return (*also, *BOOTED)


def all_of_them() -> list[Experiment]:
    """Every experiment, checked, and with them what topic.toml files say of experiments."""
    found = [load(topic, path) for topic, path in everywhere().values()]
    quoted()
    return found


def shown() -> list[str]:
    """The experiments whose first table the README shows, between marks of their name."""
    return list(dict.fromkeys(name for topic in store.series() for name in topic.readme))


def quoted() -> dict[str, list[str]]:
    """{experiment: who quotes it}: what topic.toml files have in `readme` and `quotes`."""
    have = everywhere()
    found: dict[str, list[str]] = {}
    for topic in store.series():
        for key, who in (("readme", "the README"), ("quotes", f"the cover letter of {topic.name}")):
            for name in getattr(topic, key):
                if name not in have:
                    raise Fail(
                        f"topics/{topic.name}/topic.toml: {key}: there is no experiment "
                        f"{name}{schema.meant(name, have)}; "
                        f"there are: {', '.join(sorted(have))}"
                    )
                found.setdefault(name, []).append(who)
    return found
