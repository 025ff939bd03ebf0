# SPDX-License-Identifier: GPL-2.0
"""Tables in Markdown that read well as plain text, too."""

from collections.abc import Collection
from typing import Any

from ..experiments import origin
from ..experiments.experiment import Experiment
from ..experiments.table import Result, Table


def table(head: list[str], rows: list[list[Any]], left: Collection[int] = ()) -> str:
    """A Markdown table with its columns lined up; `left`: columns of text."""
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    width = [max(len(row[i]) for row in cells) for i in range(len(head))]
    places = range(len(head))
    lines = [
        "| " + " | ".join(row[i].ljust(width[i]) if i in left else row[i].rjust(width[i]) for i in places) + " |"
        for row in cells
    ]
    rule = "|".join(":" + "-" * (width[i] + 1) if i in left else "-" * (width[i] + 1) + ":" for i in places)
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])


def markdown(found: Table) -> str:
    return table(found.head, found.rows, found.left)


def text(experiment: Experiment, result: Result, most: int | None = None) -> str:
    """The tables of a result, or so many of them at most, each below its caption."""
    parts = [
        part
        for found in experiment.kind.metrics(experiment, result)[:most]
        for part in (found.caption and found.caption + ":", markdown(found))
        if part
    ]
    return "\n\n".join([experiment.title, *parts])


def document(experiment: Experiment, result: Result) -> str:
    """What NAME.md beside a recorded result holds."""
    title, _, rest = text(experiment, result).partition("\n\n")
    return "\n\n".join(part for part in (f"# {title}", origin.header(experiment), rest) if part) + "\n"
