# SPDX-License-Identifier: GPL-2.0
"""Several loads of nfsload's on an NFS server, each with metrics of its own."""

import pathlib
from collections.abc import Callable
from typing import Any

from ... import schema
from ...util import Fail
from .. import sweep
from ..experiment import Experiment, machines
from ..table import Line, Panels, Point, Result, Table
from . import nfsload, server
from .nfsload import group, rate

MACHINES = machines()
Metric = dict[str, Any]
# The one number of a point that a metric is.
NUMBERS: dict[str, Callable[[Point, Metric], float]] = {
    "burst": lambda point, metric: group(point, metric["of"])["burst_ns"]["p50"],
    "bursts": lambda point, metric: group(point, metric["of"])["burst_ns"]["mean"],
    "time": lambda point, metric: group(point, metric["of"])["elapsed_ns"],
    "share": lambda point, metric: each(point, metric["of"]) / each(point, metric["over"]),
    "part": lambda point, metric: (
        group(point, metric["of"])["interval"]["requests"] / point["total"]["interval_requests"]
    ),
    "longest": lambda point, metric: group(point, metric["of"])["latency_ns"]["max"],
    "rate": lambda point, metric: rate(point),
    "queued": lambda point, metric: point["pool"]["queued"] / point["total"]["requests"],
    "woken": lambda point, metric: point["pool"]["woken"] / point["total"]["requests"],
}
# What the others are of: a group, or two of them.
GROUPS = {
    "burst": ("of",),
    "bursts": ("of",),
    "time": ("of",),
    "share": ("of", "over"),
    "part": ("of",),
    "longest": ("of",),
}

WANTED: schema.Schema = {
    "type": ["number", "array", "string"],
    "items": {"type": "number"},
    "minItems": 1,
    "minimum": 0,
    "pattern": "^base$",
    "description": 'min and max are a number, a list of one for each point, or "base"',
}
AT: schema.Schema = {"type": "object", "minProperties": 1, "additionalProperties": sweep.VALUE}
METRIC = schema.table(
    {"what": {"enum": list(NUMBERS)}},
    of=schema.STRING,
    over=schema.STRING,
    title=schema.STRING,
    floor=AT,
    base={"type": "boolean"},
    skip=AT,
    min=WANTED,
    max=WANTED,
    panel=schema.STRING,
)
SCENARIO = schema.table(
    {
        "name": sweep.PLAIN,
        "title": schema.STRING,
        "groups": nfsload.GROUPS,
        "metrics": {"type": "array", "minItems": 1, "items": METRIC},
    },
    sweep=sweep.SWEEP,
)
REQUIRED = {
    "server": server.SERVER,
    "files": server.FILES,
    "load": schema.table({"version": schema.STRING}),
    "scenarios": {"type": "array", "minItems": 1, "items": SCENARIO},
    # In each, the heading of a column and the kernel it shows.
    "tables": {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {**schema.mapping(schema.STRING), "minProperties": 1},
    },
}
OPTIONAL = nfsload.ONCE
ready, leaves = nfsload.ready, nfsload.leaves


def check(experiment: Experiment) -> None:
    data, where = experiment.data, experiment.where
    server.check(experiment)
    names = [one["name"] for one in data["scenarios"]]
    for name in names:
        if names.count(name) > 1:
            raise Fail(f"{where}: there are two scenarios {name}")
    for table, columns in data["tables"].items():
        for heading, kernel in columns.items():
            if kernel not in experiment.kernels:
                raise Fail(
                    f"{where}: tables.{table}.{heading}: there is no kernel "
                    f"{kernel}{schema.meant(kernel, experiment.kernels)}; "
                    f"there are: {', '.join(experiment.kernels)}"
                )
    for one in data["scenarios"]:
        titles = [one["title"], *(metric["title"] for metric in one["metrics"] if "title" in metric)]
        sweep.check(one.get("sweep", {}), one["groups"], titles, f"{where}: scenario {one['name']}")
    for one in data["scenarios"]:
        for metric in one["metrics"]:
            check_metric(experiment, one, metric)


def check_metric(experiment: Experiment, scenario: dict[str, Any], metric: Metric) -> None:
    """Fail unless what it refers to is there: groups, floor, skip, a limit for each line, a kernel to compare with."""
    where = f"{experiment.where}: scenario {scenario['name']}: metric {metric['what']}"
    needs = GROUPS.get(metric["what"], ())
    for key in ("of", "over"):
        if (key in metric) != (key in needs):
            raise Fail(f"{where}: " + (f"needs {key}: a group" if key in needs else f"has no {key}"))
    for key in needs:
        for point in where_shown(scenario, metric, points(experiment)):
            have = nfsload.bursts(groups(experiment, point))
            if metric[key] not in have:
                raise Fail(
                    f"{where}: {key}: there is no group {metric[key]} at {sweep.label(point)}; there are: "
                    f"{', '.join(have)}"
                )
            if metric["what"] in ("burst", "bursts") and not have[metric[key]]:
                raise Fail(f"{where}: {key}: the group {metric[key]} has no burst=")
    own = scenario.get("sweep", {})
    for key in ("floor", "skip"):
        check_place(experiment, f"{where}: {key}", metric.get(key, {}), own, key)
    shown = where_shown(scenario, metric, points(experiment))
    if not shown:
        raise Fail(f"{where}: skip or floor leaves no point to show")
    for key in ("min", "max"):
        if isinstance(metric.get(key), list) and len(metric[key]) != len(shown):
            raise Fail(
                f"{where}: {key} has {len(metric[key])} numbers for {len(shown)} points "
                f"({', '.join(map(sweep.label, shown))})"
            )
    if "base" in (metric.get("min"), metric.get("max")) or metric.get("base"):
        if "base" not in experiment.kernels:
            raise Fail(f"{where}: compares with the kernel base, which is none of the experiment's")


def check_place(experiment: Experiment, where: str, wanted: Point, own: dict[str, list[Any]], key: str) -> None:
    """Fail unless a floor or skip is of points there are."""
    values = own
    if "scenario" in wanted:
        scenarios = {one["name"]: one for one in experiment.data["scenarios"]}
        if key == "skip" or wanted["scenario"] not in scenarios:
            name = str(wanted["scenario"])
            there = f"there is no scenario {name}{schema.meant(name, scenarios)}; there are: {', '.join(scenarios)}"
            raise Fail(f"{where}: " + ("a metric skips points of its own scenario" if key == "skip" else there))
        values = scenarios[wanted["scenario"]].get("sweep", {})
        if missing := values.keys() - wanted.keys():
            raise Fail(
                f"{where}: says nothing of {', '.join(sorted(missing))}, so it is no one point of {wanted['scenario']}"
            )
    for name, value in wanted.items():
        if name != "scenario" and value not in values.get(name, ()):
            raise Fail(
                f"{where}: {name} = {value} is no point of the sweep "
                f"({', '.join(map(str, values.get(name, ()))) or f'there is no {name}'})"
            )


def points(experiment: Experiment) -> list[Point]:
    return [
        {"scenario": one["name"], **point}
        for one in experiment.data["scenarios"]
        for point in sweep.combinations(one.get("sweep", {}))
    ]


def groups(experiment: Experiment, point: Point) -> list[str]:
    texts = next(one["groups"] for one in experiment.data["scenarios"] if one["name"] == point["scenario"])
    return nfsload.filled(texts, point)


def script(experiment: Experiment, selftests: str) -> str:
    calls = [line for point in points(experiment) for line in nfsload.counting(experiment, point)]
    return "\n".join([*server.up(experiment, selftests), *calls]) + "\n"


def read(experiment: Experiment, where: pathlib.Path, point: Point) -> Point:
    return {**nfsload.replies(where, point), "pool": nfsload.pool(where, point)}


def each(point: Point, name: str) -> float:
    """A connection's requests while the foreground was active, on the average of a group."""
    found = group(point, name)
    return found["interval"]["requests"] / found["conns"]


def metrics(experiment: Experiment, result: Result) -> list[Table]:
    """A line for each metric, a column for each kernel; ! is what was not wanted."""
    found = lines(experiment, result)
    tables = []
    for name, columns in experiment.data["tables"].items():
        rows = []
        for line in found:
            wanted = " ".join(
                f"{sign} {bound:g}" for bound, sign in ((line.min, "≥"), (line.max, "≤")) if bound is not None
            )
            cells = [f"{line.values[kernel]:.3g}" + ("" if line.met(kernel) else " !") for kernel in columns.values()]
            rows.append([line.title, wanted, *cells])
        tables.append(
            Table(
                ["", "wanted", *columns],
                rows,
                f"{name} (times as multiples of the same client's alone; ! marks what is not as wanted)",
            )
        )
    return tables


def picture(experiment: Experiment, result: Result) -> Panels | None:
    panels: dict[str, list[Line]] = {}
    for line in lines(experiment, result):
        if "panel" in line.metric:
            panels.setdefault(line.metric["panel"], []).append(line)
    return Panels(experiment.data["tables"], panels) if panels else None


def where_shown(scenario: dict[str, Any], metric: Metric, places: list[Point]) -> list[Point]:
    """The points at which a metric is shown: all of the scenario's, but not the floor itself, for it would say one."""
    names = ["scenario", *scenario.get("sweep", {})]
    skip = {"scenario": scenario["name"], **metric.get("skip", metric.get("floor", {"scenario": None}))}
    own = [{name: point[name] for name in names} for point in places if point["scenario"] == scenario["name"]]
    return [point for point in own if not skip.items() <= point.items()]


def lines(experiment: Experiment, result: Result) -> list[Line]:
    """An experiment's metrics line by line."""
    found = []
    for scenario in experiment.data["scenarios"]:
        for metric in scenario["metrics"]:
            for index, point in enumerate(where_shown(scenario, metric, next(iter(result.values())))):
                values = {kernel: value(metric, point, result, kernel) for kernel in result}
                title = metric.get("title", scenario["title"]).format(**point)
                least, most = (limit(metric.get(key), index, values) for key in ("min", "max"))
                found.append(Line(title, metric, point, values, least, most))
    return found


def value(metric: Metric, point: Point, result: Result, kernel: str) -> float:
    """A metric at a point on a kernel, rounded to what is shown of it."""
    number = NUMBERS[metric["what"]]
    found = number(at(result[kernel], point), metric)
    if "floor" in metric:
        floor = metric["floor"]
        found /= number(at(result[kernel], floor if "scenario" in floor else point | floor), metric)
    if metric.get("base"):
        found /= number(at(result["base"], point), metric)
    return round(found, 2)


def at(places: list[Point], wanted: Point) -> Point:
    """The point that has these values, among others or not."""
    return next(point for point in places if wanted.items() <= point.items())


def limit(wanted: Any, index: int, values: dict[str, float]) -> float | None:
    if wanted == "base":
        return values["base"]
    return wanted[index] if isinstance(wanted, list) else wanted
