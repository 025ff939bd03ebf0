# SPDX-License-Identifier: GPL-2.0
"""What a measurement comes to, as data: tables, and what a picture is drawn from. report/ makes them visible."""

import dataclasses
from typing import Any

Point = dict[str, Any]
Result = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Table:
    """A heading for each column and a cell for each heading in every row; `left`: the columns that are text."""

    head: list[str]
    rows: list[list[Any]]
    caption: str = ""
    left: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Curves:
    """A line for each kernel over a sweep's values, times in ms, beside a time that all are held against."""

    title: str
    across: str
    up: str
    ticks: list[Any]
    values: dict[str, list[float]]
    # What is wanted, and what it is called.
    floor: float
    floor_name: str


@dataclasses.dataclass(frozen=True)
class Line:
    """A metric at a point, for each kernel, with what is wanted of it."""

    title: str
    metric: dict[str, Any]
    point: Point
    values: dict[str, float]
    min: float | None
    max: float | None

    def met(self, kernel: str) -> bool:
        value = self.values[kernel]
        return (self.max is None or value <= self.max) and (self.min is None or value >= self.min)


@dataclasses.dataclass(frozen=True)
class Panels:
    """Small multiples: a row for each of `rows` ({name: {heading: kernel}}), in it a panel for each list of lines."""

    rows: dict[str, dict[str, str]]
    panels: dict[str, list[Line]]


@dataclasses.dataclass(frozen=True)
class Bars:
    """A bar for each of `values` at each tick, on a logarithmic scale and beside what all are multiples of."""

    title: str
    up: str
    ticks: list[Any]
    values: dict[str, list[float]]
    floor: float
    floor_name: str


@dataclasses.dataclass(frozen=True)
class Grid:
    """Panels in rows and columns; in each, over the same ticks, lines by their names and the kernel they are of."""

    title: str
    ticks: list[Any]
    # {row: {column: {line: {kernel: values}}}}
    panels: dict[Any, dict[Any, dict[str, dict[str, list[float]]]]]


@dataclasses.dataclass(frozen=True)
class Dots:
    """A panel for each figure, in it a dot for each pair of it on one side and on another: (across, up, bad)."""

    title: str
    across: str
    up: str
    panels: dict[str, list[tuple[float, float, bool]]]


def ms(ns: float) -> str:
    """Nanoseconds as a plain number of milliseconds, with no more digits than say something."""
    value = ns / 1e6
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}".removesuffix(".0")


def spreads(
    names: list[str], result: Result, members: dict[str, list[list[dict[str, Any]]]], caption: str = "ms"
) -> Table:
    """Percentiles in ms and counts of each member of each point, kernel beside kernel."""
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
    return Table(head, rows, caption)
