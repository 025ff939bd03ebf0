# SPDX-License-Identifier: GPL-2.0
"""The figures that the README and the cover letters quote, held against what is recorded.

topics/NAME/figures.toml has the quotes: text as it stands in the document, with # for each figure, and for each # where
in topics/NAME/results its number is. A number that no result has is quoted with its source instead. docs/reference.md
explains the keys.
"""

import dataclasses
import pathlib
import re
import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .. import schema, util
from ..series.topics import COVER, Topic, applied, listed
from ..util import ROOT, Fail

README = ROOT / "README.md"
NUMBER = r"\d+(?:\.\d+)?"
# A number with one of these behind it is a figure, and so is every number in a column of a table.
UNITS = (
    r"ms|us|ns|s|seconds?|minutes?|hours?|x|times|%|ops/s|a second|cycles|instructions|KiB|MiB|GiB"
    r"|requests|replies|dispatches|wake-ups|faults|cases|fail|pass"
)
FIGURE = re.compile(rf"(?<![\w.#/-])\d[\d,]*(?:\.\d+)?(?=(?:\s|-)?\s*(?:{UNITS})(?![\w/]))")
COLUMN = re.compile(rf"(?:(?<=\t)|(?<=  )|(?<=\| )){NUMBER}(?![\w.])|{NUMBER}(?= *\|)")
UNIT: dict[str, Callable[[float], float]] = {
    "ns": lambda value: value,
    "us": lambda value: value / 1e3,
    "ms": lambda value: value / 1e6,
    "s": lambda value: value / 1e9,
    "%": lambda value: 100 * value,
    "% more": lambda value: 100 * (value - 1),
    "% less": lambda value: 100 * (1 - value),
}
OF: dict[str, Callable[[list[float]], float]] = {
    "median": statistics.median,
    "min": min,
    "max": max,
    "mean": statistics.mean,
    "sum": sum,
}

FIGURE_KEYS: dict[str, schema.Schema] = {
    "result": schema.STRING,
    "kernel": schema.STRING,
    "field": schema.STRING,
    "per": schema.STRING,
    "at": {"type": "object"},
    "of": {"enum": list(OF)},
    "unit": {"enum": list(UNIT)},
    "digits": {"type": "integer", "minimum": 0},
    "files": schema.STRINGS,
    "lines": schema.STRING,
    "begin": schema.STRING,
}
# What a figure is divided by: the same with these keys changed.
FIGURE_KEYS["over"] = schema.table({}, **FIGURE_KEYS)
ROWS = {"type": "array", "minItems": 1, "items": schema.table({}, **FIGURE_KEYS)}
QUOTE = schema.table(
    {"text": schema.STRING},
    source=schema.STRING,
    rows=ROWS,
    figures=ROWS,
    each={"type": "array", "minItems": 1},
    **{"in": {"enum": ["letter", "README.md"]}},
    **FIGURE_KEYS,
)
TOML = schema.table({"quote": {"type": "array", "items": QUOTE}})


@dataclasses.dataclass(frozen=True)
class Found:
    """A figure where it stands in a document."""

    start: int
    end: int
    said: str
    # As it has to be; None for a number that is quoted with its source.
    recorded: str | None


@dataclasses.dataclass(frozen=True)
class Quote:
    """A sentence, or lines of a table, and what its numbers have to be."""

    topic: Topic
    data: dict[str, Any]

    @property
    def document(self) -> pathlib.Path:
        return README if self.data.get("in") == "README.md" else self.topic.home / "patches" / COVER

    @property
    def pattern(self) -> re.Pattern[str]:
        """The quote's text: any white space is as good as any other, # is a number."""
        parts = re.split(r"(\s+|#)", self.data["text"].strip())
        words = (r"\s+" if part.isspace() else f"({NUMBER})" if part == "#" else re.escape(part) for part in parts)
        return re.compile(r"(?<![\w.])" + "".join(words))

    def figures(self) -> Iterator[dict[str, Any]]:
        """What says where each # is recorded, in order: each row's figures, with the row's and the quote's keys."""
        data = self.data
        shared = {key: data[key] for key in FIGURE_KEYS.keys() & data.keys()}
        for row in data.get("rows", [{}]):
            for figure in data.get("figures", [{}]):
                for each in data.get("each", [None]):
                    yield put(merged(merged(shared, row), figure), each)

    def numbers(self) -> list[str]:
        return [] if "source" in self.data else [shown(self.topic, figure) for figure in self.figures()]

    def find(self, text: str) -> list[Found]:
        """The quote's figures in the document's text, the whole quote first; Fail unless it stands there once."""
        where = f'{schema.shown(self.topic.home / "figures.toml")}: "{" ".join(self.data["text"].split())[:70]}"'
        places = list(self.pattern.finditer(text))
        if len(places) != 1:
            raise Fail(
                f"{where} stands {len(places)} times in {schema.shown(self.document)}: "
                "quote what is there, as far as it takes to be found once"
            )
        place, numbers = places[0], self.numbers()
        if "source" not in self.data and len(numbers) != len(place.groups()):
            raise Fail(f"{where} has {len(place.groups())} #, and {len(numbers)} figures are said to be recorded")
        if "source" in self.data and place.groups():
            raise Fail(f"{where} has a #, and its source is no result: write the number")
        found = [Found(*place.span(i), place[i], number) for i, number in enumerate(numbers, 1)]
        return [Found(*place.span(), place[0], None), *found]


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """`other`'s keys over `one`'s; the point of the sweep is put together of both, without what is "any" there."""
    both = {**one, **other}
    if "at" in one and "at" in other:
        both["at"] = {key: value for key, value in {**one["at"], **other["at"]}.items() if value != "any"}
    return both


def put(figure: dict[str, Any], each: Any) -> dict[str, Any]:
    """The figure with `each` in the place of {} in its field and in its point."""
    if each is None:
        return figure
    figure = {**figure, "at": {key: each if value == "{}" else value for key, value in figure.get("at", {}).items()}}
    return {**figure, "field": figure["field"].replace("{}", str(each))} if "field" in figure else figure


def number(topic: Topic, figure: dict[str, Any]) -> float:
    """The recorded number of a figure, in the unit that the result has it in."""
    if "files" in figure:
        return sum(1 for pattern in figure["files"] for _ in topic.home.glob(pattern))
    if "lines" in figure:
        paths = topic.home.glob(figure["lines"])
        return sum(line.startswith(figure.get("begin", "")) for path in paths for line in listed(path))
    values = recorded(topic, figure)
    if "over" in figure:
        others = recorded(topic, merged(figure, figure["over"]))
        values = [one / other for one, other in zip(values, others * (len(values) // len(others)), strict=True)]
    if "of" not in figure and len(values) > 1:
        where = schema.shown(result(topic, figure))
        raise Fail(f"{where}: {len(values)} numbers fit {figure}: say with `of` which is meant")
    return OF[figure.get("of", "min")](values)


def result(topic: Topic, figure: dict[str, Any]) -> pathlib.Path:
    """The result file that a figure is in: the topic's own, or another's."""
    missing = [key for key in ("result", "kernel", "field") if key not in figure]
    if missing:
        raise Fail(f"{schema.shown(topic.home / 'figures.toml')}: lacks {', '.join(missing)}: {figure}")
    name = f"{figure['result']}.json"
    for home in (topic.home, *sorted(topic.home.parent.iterdir())):
        if (home / "results" / name).is_file():
            return home / "results" / name
    raise Fail(f"{name}: no topic has recorded such a result: `make record B={figure['result']}`")


def recorded(topic: Topic, figure: dict[str, Any]) -> list[float]:
    """The numbers that a figure's kernel, point and field are, of each point or each repeat."""
    path = result(topic, figure)
    where = f"{schema.shown(path)}: {figure['kernel']}"
    data = schema.result(path, f"make record B={figure['result']}").get(figure["kernel"])
    if data is None:
        raise Fail(f"{where}: there is no such kernel in it")
    wanted = figure.get("at", {})
    points = [point for point in data if fits(point, wanted)] if isinstance(data, list) else [data]
    if not points:
        raise Fail(f"{where} has no point with {wanted}")
    found = []
    for point in points:
        values = followed(point, figure["field"])
        per = followed(point, figure["per"]) if "per" in figure else [1]
        if not values or not per:
            raise Fail(f"{where}: there is no {figure['field']} or no {figure.get('per', 'such field')} at {wanted}")
        found += [value / per[0] for value in values]
    return found


def fits(point: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether a point has these values; of a list, one."""
    return all(point.get(key) in (value if isinstance(value, list) else [value]) for key, value in wanted.items())


def followed(value: Any, field: str) -> list[float]:
    """What stands at the end of `a.b.c`, keys of tables and names of members: a number, or all that are there."""
    for key in field.split("."):
        if isinstance(value, list):
            value = next((one for one in value if one.get("name") == key), {})
        else:
            value = (value or {}).get(key)
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else [] if value is None else [value]


def shown(topic: Topic, figure: dict[str, Any]) -> str:
    """A figure as it is to be quoted."""
    return f"{UNIT[figure.get('unit', 'ns')](number(topic, figure)):.{figure.get('digits', 0)}f}"


def quotes(topics: Iterable[Topic]) -> list[Quote]:
    """Every quote of every topic's figures.toml."""
    found = []
    for topic in topics:
        path = topic.home / "figures.toml"
        if path.is_file():
            data = schema.parse(path)
            schema.check(data, TOML, path)
            found += [Quote(topic, one) for one in data["quote"]]
    return found


def scanned(path: pathlib.Path) -> str:
    """A document's text with all that is generated blanked out, so that what is left is where it was."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0])

    text = re.sub(r"<!-- (\w+) -->.*?<!-- /\1 -->", blank, path.read_text(), flags=re.S)
    if path.name == COVER:
        text = re.sub(r"\A.*?\n\n|\n---\n.*\Z", blank, text, flags=re.S)
    return text


def undeclared(text: str, covered: Iterable[Found]) -> dict[int, list[str]]:
    """{line: the numbers with a unit, or in a column, that no quote holds}."""
    spans = [(one.start, one.end) for one in covered]
    begin = 0
    places = [one.span() for one in FIGURE.finditer(text)]
    for line in text.splitlines(keepends=True):
        indent = len(line) - len(line.lstrip())
        columns = [one.span() for one in COLUMN.finditer(line) if one.start() > indent]
        places += [(begin + start, begin + end) for start, end in columns]
        begin += len(line)
    found: dict[int, list[str]] = {}
    for start, end in sorted(set(places)):
        if not any(first <= start and end <= last for first, last in spans):
            found.setdefault(text.count("\n", 0, start) + 1, []).append(text[start:end])
    return found


def documents(topics: Iterable[Topic]) -> dict[pathlib.Path, list[Quote]]:
    """{document: the quotes that are to be in it}: the README and every cover letter."""
    topics = list(topics)
    found: dict[pathlib.Path, list[Quote]] = {README: [], **{topic.home / "patches" / COVER: [] for topic in topics}}
    for quote in quotes(topics):
        found[quote.document].append(quote)
    return found


def problems(topics: Iterable[Topic] | None = None) -> list[str]:
    """A line for each figure that is not as recorded, quote that is not there, and number that nobody vouches for."""
    said = []
    for path, there in documents(topics or applied()).items():
        where, text, covered = schema.shown(path), scanned(path), []
        for quote in there:
            try:
                whole, *found = quote.find(text)
            except Fail as fail:
                said.append(str(fail))
                continue
            covered.append(whole)
            words = " ".join(whole.said.split())[:70]
            for one in found:
                if one.said != one.recorded:
                    line = text.count("\n", 0, one.start) + 1
                    said.append(f'{where}:{line}: says {one.said}, recorded is {one.recorded}, in "{words}"')
        for line, numbers in undeclared(text, covered).items():
            said.append(f"{where}:{line}: {', '.join(numbers)}: in no figures.toml with a record or a source")
    return said


def write(topics: Iterable[Topic] | None = None) -> int:
    """Put the recorded numbers into the documents; columns stay in line. Returns how many were changed."""
    changed = 0
    for path, there in documents(topics or applied()).items():
        text = path.read_text()
        wrong = [one for quote in there for one in quote.find(scanned(path))[1:] if one.said != one.recorded]
        for one in sorted(wrong, key=lambda found: -found.start):
            assert one.recorded is not None
            start, new = one.start, one.recorded
            # A number that grows or shrinks takes or leaves the spaces before it, but one.
            while len(new) > one.end - start and text[start - 2 : start] == "  ":
                start -= 1
            pad = " " * (one.end - start - len(new)) if text[start - 2 : start].isspace() else ""
            text = text[:start] + pad + new + text[one.end :]
        changed += len(wrong)
        util.write(path, text)
    return changed
