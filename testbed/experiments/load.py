# SPDX-License-Identifier: GPL-2.0
"""An exact load on an NFS server, by nfsload: over one sweep, or in several scenarios with metrics of their own."""

import json
import pathlib
import shlex
from collections.abc import Callable
from typing import Any

from .. import schema
from ..util import Fail
from . import nfsload, server, sweep
from .experiment import Experiment, machines
from .table import Curves, Line, Panels, Point, Result, Table, ms

MACHINES = machines()
POOL = "/proc/fs/nfsd/pool_stats"
# A group that a point leaves out.
NONE = {"conns=0", "burst=0", "window=0"}

Metric = dict[str, Any]
# The one number of a point that a metric is.
NUMBERS: dict[str, Callable[[Point, Metric], float]] = {
    "burst": lambda point, metric: group(point, metric["of"])["burst_ns"]["p50"],
    "bursts": lambda point, metric: group(point, metric["of"])["burst_ns"]["mean"],
    "time": lambda point, metric: group(point, metric["of"])["elapsed_ns"],
    "share": lambda point, metric: each(point, metric["of"]) / each(point, metric["over"]),
    "part": lambda point, metric: group(point, metric["of"])["interval"]["requests"]
    / point["total"]["interval_requests"],
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
LIST: schema.Schema = {"type": "array", "minItems": 1, "items": schema.STRING}
SCENARIO = schema.table({"name": sweep.PLAIN, "title": schema.STRING, "groups": LIST,
                         "metrics": {"type": "array", "minItems": 1, "items": METRIC}}, sweep=sweep.SWEEP)
LOAD = schema.table({"version": {"enum": list(nfsload.VERSIONS)}}, groups=LIST)
REQUIRED = {"server": server.SERVER, "files": server.FILES, "load": LOAD}
OPTIONAL = {
    "repeats": {"const": 1, "description": "it is 1: two runs of a load give the same figures"},
    "sweep": sweep.SWEEP,
    "scenarios": {"type": "array", "minItems": 1, "items": SCENARIO},
    "tables": {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {**schema.mapping(schema.STRING), "minProperties": 1},
    },
    "headline": schema.table(
        {
            "of": schema.STRING,
            "title": schema.STRING,
            "across": schema.STRING,
            "up": schema.STRING,
            "caption": schema.STRING,
        }
    ),
}


# What it says.

def check(experiment: Experiment) -> None:
    data, where = experiment.data, experiment.where
    server.check(experiment)
    if ("groups" in data["load"]) == ("scenarios" in data):
        raise Fail(f"{where}: give load.groups, with a sweep if need be, or [[scenarios]]")
    if "scenarios" in data:
        check_scenarios(experiment)
    else:
        for key in ("tables",):
            if key in data:
                raise Fail(f"{where}: {key} goes with [[scenarios]]")
        sweep.check(data.get("sweep", {}), data["load"]["groups"], (), where)
    parsed = [accepted(experiment, point) for point in points(experiment)]
    if "headline" in data:
        check_headline(experiment, parsed)


def check_headline(experiment: Experiment, parsed: list[list[nfsload.Group]]) -> None:
    """It is of one sweep, on base and patched, and at the sweep's first value nobody else is there."""
    where, of = f"{experiment.where}: headline", experiment.data["headline"]["of"]
    if (
        "scenarios" in experiment.data
        or len(experiment.data.get("sweep", {})) != 1
        or not {"base", "patched"} <= experiment.kernels.keys()
    ):
        raise Fail(f"{where}: it goes with a sweep of one name, and is of the kernels base and patched")
    for groups in parsed:
        if not any(group.name == of and group.burst for group in groups):
            raise Fail(f"{where}: of: there is no group {of} with burst= at every point")
    if len(parsed[0]) != 1:
        raise Fail(
            f"{where}: the sweep's first value is to leave {of} alone, and leaves "
            f"{', '.join(group.name for group in parsed[0])}"
        )


def check_scenarios(experiment: Experiment) -> None:
    data, where = experiment.data, experiment.where
    if "sweep" in data or "tables" not in data:
        raise Fail(
            f"{where}: "
            + (
                "each of [[scenarios]] has a sweep of its own: remove [sweep]"
                if "sweep" in data
                else "[[scenarios]] need [tables]: in each, the heading of a column and the kernel it shows"
            )
        )
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
            have = {group.name: group for group in accepted(experiment, point)}
            if metric[key] not in have:
                raise Fail(
                    f"{where}: {key}: there is no group {metric[key]} at {sweep.label(point)}; there are: "
                    f"{', '.join(have)}"
                )
            if metric["what"] in ("burst", "bursts") and not have[metric[key]].burst:
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
            raise Fail(f"{where}: " + ("a metric skips points of its own scenario" if key == "skip" else
                       f"there is no scenario {wanted['scenario']}{schema.meant(str(wanted['scenario']), scenarios)}; "
                       f"there are: {', '.join(scenarios)}"))
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
    data = experiment.data
    if "scenarios" in data:
        return [
            {"scenario": one["name"], **point}
            for one in data["scenarios"]
            for point in sweep.combinations(one.get("sweep", {}))
        ]
    return sweep.combinations(data.get("sweep", {}))


def groups(experiment: Experiment, point: Point) -> list[str]:
    """nfsload's arguments at a point of the sweep; a group without connections is left out."""
    data = experiment.data
    texts = next((one["groups"] for one in data.get("scenarios", []) if one["name"] == point.get("scenario")), None)
    filled = [text.format(**point) for text in texts or data["load"]["groups"]]
    return [text for text in filled if not NONE & set(text.partition(":")[2].split(","))]


def accepted(experiment: Experiment, point: Point) -> list[nfsload.Group]:
    """The groups at a point; a Fail says what nfsload would refuse."""
    try:
        return nfsload.command(groups(experiment, point), experiment.data["load"]["version"], server.sizes(experiment))
    except nfsload.Refused as refused:
        raise Fail(f"{experiment.where}: at {sweep.label(point)}, nfsload would refuse this: {refused}") from refused


# The guest.

def script(experiment: Experiment, selftests: str) -> str:
    lines = ["#!/bin/bash", *server.made(experiment, selftests), *server.started(experiment)]
    for point in points(experiment):
        where = f"/results/{sweep.label(point)}"
        lines += (
            counting(experiment, point, where) if "scenarios" in experiment.data else [call(experiment, point, where)]
        )
    return "\n".join(lines) + "\n"


def call(experiment: Experiment, point: Point, where: str, traced: str = "") -> str:
    arguments = " ".join(shlex.quote(text) for text in groups(experiment, point))
    return f"{traced}nfsload -v {experiment.data['load']['version']} -o {where}.json {arguments} || exit 1"


def counting(experiment: Experiment, point: Point, where: str, traced: str = "") -> list[str]:
    """The lines of a point with the server's own counters kept, too."""
    return [f"cat {POOL} >{where}.pool", call(experiment, point, where, traced), f"cat {POOL} >>{where}.pool"]


def leaves(experiment: Experiment, point: Point) -> list[str]:
    return [f"{sweep.label(point)}.json"]


def read(experiment: Experiment, where: pathlib.Path, point: Point) -> Point:
    result = replies(where, point)
    if "scenarios" in experiment.data:
        result["pool"] = pool((where / f"{sweep.label(point)}.pool").read_text())
    return result


def replies(where: pathlib.Path, point: Point) -> Point:
    """What nfsload says of a point."""
    result = json.loads((where / f"{sweep.label(point)}.json").read_text())
    bad = {group["name"]: group["errors"] for group in result["groups"] if any(group["errors"].values())}
    if bad:
        raise Fail(f"{where}: requests failed at {sweep.label(point)}: {bad}")
    return result


def pool(text: str) -> dict[str, int]:
    """What the server's pools counted between two copies of pool_stats: records, transports queued, threads woken."""
    counts = [[int(number) for number in line.split()[1:4]] for line in text.splitlines() if not line.startswith("#")]
    before, after = counts[:len(counts) // 2], counts[len(counts) // 2:]
    return {
        name: sum(line[i] for line in after) - sum(line[i] for line in before)
        for i, name in enumerate(("received", "queued", "woken"))
    }


# The figures.

def group(point: Point, name: str) -> dict[str, Any]:
    """The figures of the group `name` at a point of the sweep."""
    found = [one for one in point["groups"] if one["name"] == name]
    if not found:
        raise Fail(f"a result has no group {name}")
    return found[0]


def each(point: Point, name: str) -> float:
    """A connection's requests while the foreground was active, on the average of a group."""
    found = group(point, name)
    return found["interval"]["requests"] / found["conns"]


def rate(point: Point) -> int:
    """All replies a second while the interactive client was active."""
    total = point["total"]
    return round(total["interval_requests"] * 1e9 / total["interval_ns"])


def metrics(experiment: Experiment, result: Result) -> list[Table]:
    if "scenarios" in experiment.data:
        return scenario_tables(experiment, result)
    found = [headline(experiment, result)] if "headline" in experiment.data else []
    members = {
        kernel: [[spread_of(one) for one in point["groups"]] for point in points] for kernel, points in result.items()
    }
    return [
        *found,
        Table(*spreads(list(experiment.data.get("sweep", {})), result, members), caption="ms" if found else ""),
    ]


def spread_of(one: dict[str, Any]) -> dict[str, Any]:
    """A group's name, the spread that matters (of bursts, else of requests) in ns, and a count."""
    return {
        "name": one["name"],
        "spread": one.get("burst_ns") or one["latency_ns"],
        "count": one["interval"]["requests"],
    }


def spreads(
    names: list[str], result: Result, members: dict[str, list[list[dict[str, Any]]]]
) -> tuple[list[str], list[list[Any]]]:
    """The head and rows of a table: percentiles in ms and counts of each member of each point, kernel beside kernel."""
    kernels = list(result)
    head = [
        *names,
        "group",
        *(f"{p} {kernel}" for p in ("p50", "p99") for kernel in kernels),
        *(f"done, {kernel}" for kernel in kernels),
    ]
    rows = []
    for index, point in enumerate(result[kernels[0]]):
        for ones in zip(*(members[kernel][index] for kernel in kernels)):
            rows.append(
                [
                    *(point[name] for name in names),
                    ones[0]["name"],
                    *(ms(one["spread"][p]) for p in ("p50", "p99") for one in ones),
                    *(one["count"] for one in ones),
                ]
            )
    return head, rows


def headline(experiment: Experiment, result: Result) -> Table:
    """A burst's median time by the sweep's value, base beside patched."""
    about = experiment.data["headline"]
    name, = experiment.data["sweep"]
    time = {
        kernel: [group(point, about["of"])["burst_ns"]["p50"] for point in result[kernel]]
        for kernel in ("base", "patched")
    }
    rows = [
        [
            base[name],
            ms(one),
            ms(other),
            f"{one / time['base'][0]:.1f}x",
            f"{other / time['patched'][0]:.1f}x",
            rate(base),
            rate(patched),
        ]
        for base, patched, one, other in zip(result["base"], result["patched"], time["base"], time["patched"])
    ]
    return Table(
        [name, "base, ms", "patched, ms", "base / alone", "patched / alone", "base, ops/s", "patched, ops/s"],
        rows,
        about["caption"],
    )


def picture(experiment: Experiment, result: Result) -> Curves | Panels | None:
    if "headline" in experiment.data:
        about = experiment.data["headline"]
        name, = experiment.data["sweep"]
        times = {
            kernel: [group(point, about["of"])["burst_ns"]["p50"] / 1e6 for point in points]
            for kernel, points in result.items()
        }
        return Curves(about["title"], about["across"], about["up"], [point[name] for point in result["base"][1:]],
                      {kernel: values[1:] for kernel, values in times.items()}, times["base"][0], "alone on the server")
    if "scenarios" in experiment.data:
        panels: dict[str, list[Line]] = {}
        for line in lines(experiment, result):
            if "panel" in line.metric:
                panels.setdefault(line.metric["panel"], []).append(line)
        return Panels(experiment.data["tables"], panels) if panels else None
    return None


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


def scenario_tables(experiment: Experiment, result: Result) -> list[Table]:
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
