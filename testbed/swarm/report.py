# SPDX-License-Identifier: GPL-2.0
"""What came of many loads: how far from each limit they stayed, the worst, and a picture with a dot for each group."""

import json
import pathlib
from typing import Any

from .. import util
from ..experiments import origin
from ..experiments.experiment import Experiment
from ..experiments.table import Dots, Table
from ..report import pictures, tables
from .promises import NONE, Swarm, Verdict, judge
from .run import Runner, failing

WORST = 10
# {seed or case: {"load": …, "ran": {side: {group: {figure: number}}}}}, or {"failed": why}.
Found = dict[str, dict[str, Any]]


def verdicts(swarm: Swarm, found: Found) -> dict[str, list[Verdict]]:
    """{seed or case: what became of each promise}."""
    return {name: judge(swarm, one["load"], one["ran"]) for name, one in found.items() if "ran" in one}


def number(swarm: Swarm, figure: str, value: float) -> str:
    """A figure as a person reads it: times in ms."""
    if swarm.world.FIGURES[figure].endswith(", ns"):
        return f"{value / 1e6:.3g} ms"
    return f"{value:.3g}"


def missed(verdict: Verdict) -> str:
    """By how much: nothing is a multiple of a limit of none."""
    return f"{verdict.off:.2f} of the limit" if verdict.off < NONE else f"{verdict.value:g}, limit {verdict.limit:g}"


def distribution(swarm: Swarm, judged: dict[str, list[Verdict]]) -> Table:
    """Of each promise: of how many groups it is, how many break it, and how far from what it is held against."""
    rows = []
    for promise in swarm.promises:
        every = [one for found in judged.values() for one in found if one.promise == promise]
        ratios = sorted(one.value / one.reference for one in every if one.reference)
        at = [f"{ratios[min(int(part * len(ratios)), len(ratios) - 1)]:.3g}" if ratios else "" for part in PARTS]
        broken = sum(not one.within for one in every)
        loads = sum(any(one.promise == promise and not one.within for one in found) for found in judged.values())
        rows.append([promise.name, f"{promise.figure} {promise.limit}", len(every), broken, loads, *at])
    head = ["promise", "limit", "groups", "broken", "loads", "least", "10 %", "median", "90 %", "most"]
    return Table(head, rows, "What it came to, over what it is held against", (0, 1))


PARTS = (0, 0.1, 0.5, 0.9, 1)


def short(swarm: Swarm, found: Found) -> dict[str, str]:
    """{promise: a line} of those of which a share of all groups of the seeds would do, and is not there."""
    every = [one for of_load in verdicts(swarm, split(swarm, found)[0]).values() for one in of_load]
    lines = {}
    for promise in swarm.promises:
        of_it = [one.within for one in every if one.promise == promise]
        if promise.share and of_it and sum(of_it) < promise.share * len(of_it):
            lines[promise.name] = f"{promise.name}: {sum(of_it)} of {len(of_it)} groups are within {promise.limit}"
    return lines


def worst(swarm: Swarm, found: Found, judged: dict[str, list[Verdict]], most: int = WORST) -> Table:
    """The loads that miss a limit by most, each once."""
    broken = [(failing(every)[0], name) for name, every in judged.items() if failing(every)]
    rows = [row(swarm, name, found[name], one) for one, name in sorted(broken, key=lambda pair: -pair[0].off)[:most]]
    return Table([*HEAD, *swarm.sides, "limit", "missed by"], rows, "The worst", (0, 1, 2))


HEAD = ["load", "promise", "group"]


def row(swarm: Swarm, name: str, one: dict[str, Any], verdict: Verdict) -> list[Any]:
    figure = verdict.promise.figure
    of = [one["ran"][side][verdict.group].get(figure) for side in swarm.sides]
    return [
        name,
        verdict.promise.name,
        swarm.world.said(one["load"], verdict.group),
        *(number(swarm, figure, value) if value is not None else "" for value in of),
        number(swarm, figure, verdict.limit),
        f"{verdict.off:.2f}" if verdict.off < NONE else "",
    ]


def cases(swarm: Swarm, found: Found, judged: dict[str, list[Verdict]]) -> Table:
    """Of each case the promise it breaks by most, or comes nearest to."""
    rows = []
    for name in swarm.cases:
        if judged.get(name):
            one = max(judged[name], key=lambda verdict: verdict.off)
            rows.append(row(swarm, name, found[name], one))
    return Table([*HEAD, *swarm.sides, "limit", "missed by"], rows, "Cases: loads with a name", (0, 1, 2))


def dots(swarm: Swarm, found: Found, judged: dict[str, list[Verdict]]) -> Dots:
    """A panel for each figure that a promise compares with another side."""
    first, last = list(swarm.sides)[0], list(swarm.sides)[-1]
    panels: dict[str, list[tuple[float, float, bool]]] = {}
    for figure in dict.fromkeys(p.figure for p in swarm.promises if p.than in swarm.sides or p.than == "best"):
        for name, every in judged.items():
            broken = {one.group for one in every if one.promise.figure == figure and not one.kept}
            for group, own in found[name]["ran"][last].items():
                other = found[name]["ran"][first][group]
                if own.get(figure) and other.get(figure):
                    panels.setdefault(swarm.world.FIGURES[figure], []).append(
                        (other[figure], own[figure], group in broken)
                    )
    return Dots(swarm.data["title"], first, last, panels)


def split(swarm: Swarm, found: Found) -> tuple[Found, Found]:
    """Seeds, and cases."""
    return (
        {name: one for name, one in found.items() if name not in swarm.cases},
        {name: one for name, one in found.items() if name in swarm.cases},
    )


def shown(swarm: Swarm, found: Found) -> list[Table]:
    """The tables of what was found."""
    seeds, named = split(swarm, found)
    judged = verdicts(swarm, seeds)
    every = [distribution(swarm, judged), worst(swarm, seeds, judged)] if seeds else []
    if named:
        every.append(cases(swarm, named, verdicts(swarm, named)))
    return [one for one in every if one.rows]


def text(swarm: Swarm, found: Found) -> str:
    seeds, _ = split(swarm, found)
    judged = verdicts(swarm, seeds)
    bad = sum(bool(failing(every)) for every in judged.values())
    parts = [f"{len(judged)} loads, seeds {span(seeds)}; {bad} break a promise"] if seeds else []
    if seeds and swarm.data.get("tuned"):
        made_by = ", ".join(f"{first} to {last}" for first, last in swarm.data["tuned"])
        here = len(swarm.tuned(map(int, seeds)))
        parts.append(f"Rules were made by seeds {made_by}; {here or 'none'} of these {len(seeds)} loads is among them")
    failed = [f"{name} has no figures: {one['failed']}" for name, one in found.items() if "failed" in one]
    for table in shown(swarm, found):
        parts += [table.caption + ":", tables.markdown(table)]
    return "\n\n".join([*parts, *short(swarm, found).values(), *failed])


def span(seeds: Found) -> str:
    numbers = sorted(int(name) for name in seeds)
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def dump(found: Found) -> str:
    """A line for each load, so that a difference is one of lines."""
    lines = [f"{json.dumps(name)}: {json.dumps(rounded(one))}" for name, one in found.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def rounded(value: Any) -> Any:
    """Figures without the digits that say nothing."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value


def write(swarm: Swarm, found: Found, stem: pathlib.Path, made_of: dict[str, Any] | None = None) -> None:
    """stem.json, .md, .svg and .png; with an origin if it is a record."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    path = stem.with_suffix(".json")
    util.write(path, dump(found))
    parts = [f"# {swarm.data['title']}"]
    if made_of:
        experiment: Experiment = swarm.experiment
        origin.keep(experiment, path, made_of)
        parts.append(origin.header(experiment))
    path.with_suffix(".md").write_text("\n\n".join([*parts, text(swarm, found)]) + "\n")
    seeds, _ = split(swarm, found)
    drawn = dots(swarm, seeds, verdicts(swarm, seeds)) if seeds else None
    if drawn and drawn.panels:
        pictures.save(path, stem, drawn)


def collected(runner: Runner, loads: dict[str, Any], line: Any) -> Found:
    """All that came of the loads; `line` is told of each as it comes."""
    found: Found = {}
    for name, ran, every, why in runner.judged(loads):
        found[name] = {"failed": why} if why else {"load": loads[name], "ran": ran}
        line(name, every, why)
    return {name: found[name] for name in loads}
