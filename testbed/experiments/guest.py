# SPDX-License-Identifier: GPL-2.0
"""A script of the experiment's own at each point of a sweep, which leaves its figures as JSON.

On real time it can be repeated: the kernels are booted in turns, so that what else the machine does falls on all of
them, each figure is a list of one for each turn, and what is shown is their median, least and most.
"""

import json
import pathlib
import re
import statistics
from typing import Any

from .. import schema
from ..machines import kinds
from ..series.base import Base
from ..util import TOOLS, Fail
from . import run, sweep
from .experiment import Experiment, machines
from .table import Bars, Grid, Point, Result, Table

MACHINES = machines()
GUEST = schema.table({"script": schema.STRING}, prepare=schema.STRING)
METRIC = schema.table(
    {"title": schema.STRING, "field": {"type": "string", "pattern": r"^\w+(\.\w+)*$"}},
    min={"type": "number"},
    max={"type": "number"},
    # As a multiple of the same on the first kernel, in the same turn.
    over_first={"const": True},
)
REQUIRED = {"guest": GUEST, "metrics": {"type": "array", "minItems": 1, "items": METRIC}}
BARS = schema.table(
    {
        "title": schema.STRING,
        "up": schema.STRING,
        "floor_name": schema.STRING,
        # What a bar is called, and the field it is of; all are multiples of what is called floor_name.
        "fields": {**schema.mapping(METRIC["properties"]["field"]), "minProperties": 1},
    }
)
GRID = schema.table(
    {
        "title": schema.STRING,
        "field": METRIC["properties"]["field"],
        # What the field is divided by.
        "unit": {"type": "number", "exclusiveMinimum": 0},
        # Names of the sweep: rows and columns of panels, a panel's ticks, and lines, one for each value and kernel.
        "rows": schema.STRING,
        "columns": schema.STRING,
        "across": schema.STRING,
        "lines": schema.STRING,
    },
    # Values of the rest of the sweep, and what the lines are called.
    at=schema.mapping({}),
    names=schema.mapping(schema.STRING),
)
OPTIONAL: dict[str, schema.Schema] = {"bars": BARS, "grid": GRID, "sweep": sweep.SWEEP}
# In the script {name} is the value at the point, {point} what the point's file is called; in what comes before the
# points {name} is all values. Other braces are the shell's.
BRACES = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")


def check(experiment: Experiment) -> None:
    data, where = experiment.data, experiment.where
    if experiment.repeats > 1 and kinds.simulated(experiment.machine):
        raise Fail(f"{where}: repeats: it is 1 on simulated time; what is to be repeated is a sweep")
    if len(experiment.kernels) < 2 and any("over_first" in metric for metric in data["metrics"]):
        raise Fail(f"{where}: metrics: over_first needs a kernel beside the first")
    used = set(BRACES.findall(data["guest"]["script"]))
    if "point" in data.get("sweep", {}):
        raise Fail(f"{where}: sweep: {{point}} is what a point's file is called: name it otherwise")
    for name in data.get("sweep", {}):
        if name not in used:
            raise Fail(
                f"{where}: sweep.{name} is not used: the script has no {{{name}}}, so all its points would be the same"
            )
    if "bars" in experiment.data and len(experiment.kernels) > 1:
        raise Fail(f"{where}: bars: they are of one kernel; there are {', '.join(experiment.kernels)}")
    if grid := data.get("grid"):
        named = [grid["rows"], grid["columns"], grid["across"], grid["lines"], *grid.get("at", {})]
        if sorted(named) != sorted(data.get("sweep", {})):
            raise Fail(f"{where}: grid: rows, columns, across, lines and at name each of the sweep once, and no other")
        for name, value in grid.get("at", {}).items():
            if value not in data["sweep"][name]:
                raise Fail(f"{where}: grid.at.{name}: {value} is no value of the sweep's")
    if "point" not in used:
        raise Fail(f"{where}: guest.script leaves no figures: it has to write /results/{{point}}.json")


def points(experiment: Experiment) -> list[Point]:
    return sweep.combinations(experiment.data.get("sweep", {}))


def script(experiment: Experiment, selftests: str) -> str:
    about = experiment.data["guest"]
    every = {name: " ".join(map(str, values)) for name, values in experiment.data.get("sweep", {}).items()}
    prepare = filled(about.get("prepare", ""), {**every, "selftests": selftests, "tools": str(TOOLS)})
    lines = ["#!/bin/bash", *([prepare] if prepare else [])]
    for point in points(experiment):
        values = {**{name: str(value) for name, value in point.items()}, "point": sweep.label(point)}
        lines += ["(", filled(about["script"], values), ") || exit 1"]
    return "\n".join(lines) + "\n"


def filled(text: str, values: dict[str, str]) -> str:
    return BRACES.sub(lambda found: values.get(found[1], found[0]), text).rstrip()


def leaves(experiment: Experiment, point: Point) -> list[str]:
    return [f"{sweep.label(point)}.json"]


def read(experiment: Experiment, where: pathlib.Path, point: Point) -> Point:
    path = where / f"{sweep.label(point)}.json"
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Fail(f"{path}: the script left no JSON there: {error}") from error
    if not isinstance(found, dict) or found.keys() & point.keys():
        raise Fail(f"{path}: is no JSON object, or has a name of the sweep's")
    for metric in experiment.data["metrics"]:
        number(found, metric["field"], str(path))
    return found


def measure(experiment: Experiment, base: Base, out: pathlib.Path) -> Result:
    turns = [run.boots(experiment, base, out) for _ in range(experiment.repeats)]
    if len(turns) == 1:
        return turns[0]
    return {
        name: [
            {**point, **together([{key: one[key] for key in one.keys() - point.keys()} for one in ones])}
            for point, *ones in zip(points(experiment), *(turn[name] for turn in turns))
        ]
        for name in turns[0]
    }


def together(turns: list[Any]) -> Any:
    """The same figures of several turns: a list for each."""
    if isinstance(turns[0], dict):
        return {name: together([turn[name] for turn in turns]) for name in sorted(turns[0])}
    return turns


def numbers(found: Any, field: str, where: str) -> list[float]:
    """What a dotted name has in a point's JSON: a number, or one for each turn."""
    for name in field.split("."):
        if not isinstance(found, dict) or name not in found:
            raise Fail(f"{where}: has no {field}, which a metric names")
        found = found[name]
    values = found if isinstance(found, list) else [found]
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        raise Fail(f"{where}: {field} is no number")
    return values


def number(found: Any, field: str, where: str) -> float:
    """The median over the turns."""
    return statistics.median(numbers(found, field, where))


def grid(experiment: Experiment, result: Result) -> Grid:
    """Panels of one field over most of the sweep."""
    about = experiment.data["grid"]
    panels: dict[Any, Any] = {}
    # Points are in the sweep's order, so a line's values are in the order of its ticks.
    for built, points in result.items():
        for point in points:
            if any(point[name] != value for name, value in about.get("at", {}).items()):
                continue
            line = str(point[about["lines"]])
            panel = panels.setdefault(point[about["rows"]], {}).setdefault(point[about["columns"]], {})
            values = panel.setdefault(about.get("names", {}).get(line, line), {}).setdefault(built, [])
            values.append(number(point, about["field"], experiment.name) / about["unit"])
    return Grid(about["title"], experiment.data["sweep"][about["across"]], panels)


def picture(experiment: Experiment, result: Result) -> Bars | Grid | None:
    """A grid, or bars for each point, of one kernel; whoever has several of them wants curves."""
    if "grid" in experiment.data:
        return grid(experiment, result)
    if "bars" not in experiment.data:
        return None
    about, (points, *_) = experiment.data["bars"], result.values()
    ticks = [" ".join(str(point[name]) for name in experiment.data.get("sweep", {})) for point in points]
    values = {
        name: [number(point, field, experiment.name) for point in points] for name, field in about["fields"].items()
    }
    return Bars(about["title"], about["up"], ticks, values, 1, about["floor_name"])


def metrics(experiment: Experiment, result: Result) -> list[Table]:
    """A row for each point; each metric, kernel beside kernel; ! is what was not wanted."""
    names = list(experiment.data.get("sweep", {}))
    rows, first = [], next(iter(result))
    columns = [
        (metric, built)
        for metric in experiment.data["metrics"]
        for built in result
        if built != first or "over_first" not in metric
    ]
    for index, point in enumerate(result[first]):
        row = [point[name] for name in names]
        for metric, built in columns:
            values = numbers(result[built][index], metric["field"], experiment.name)
            if "over_first" in metric:
                over = numbers(result[first][index], metric["field"], experiment.name)
                values = [round(value / one, 3) for value, one in zip(values, over)]
            row.append(cell(values, metric))
        rows.append(row)
    return [Table([*names, *(f"{metric['title']}, {built}" for metric, built in columns)], rows)]


def cell(values: list[float], metric: dict[str, Any]) -> str:
    value = statistics.median(values)
    bad = value < metric.get("min", value) or value > metric.get("max", value)
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return shown + (f" ({min(values):g}-{max(values):g})" if len(values) > 1 else "") + (" !" if bad else "")
