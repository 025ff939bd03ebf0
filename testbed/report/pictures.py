# SPDX-License-Identifier: GPL-2.0
"""Pictures as SVG and PNG: the same figures give the same bytes."""

import pathlib
from typing import Any

from ..experiments.experiment import Experiment
from ..experiments.run import read
from ..experiments.table import Bars, Curves, Dots, Grid, Panels, ms
from ..util import digest

# They tell apart in grey and to a colour-blind eye (Okabe and Ito).
COLOURS = {"base": "#D55E00", "patched": "#0072B2", "alone": "#777777"}


def drawn_from(path: pathlib.Path) -> str:
    return f"drawn from the result file with digest {digest(path)}"


def pictures(stem: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Where the pictures of a result are."""
    return stem.with_suffix(".svg"), stem.with_suffix(".png")


def draw(experiment: Experiment, path: pathlib.Path, stem: pathlib.Path) -> bool:
    """Draw stem.svg and stem.png of a result file, whose digest they name; whether its kind has something to draw."""
    found = getattr(experiment.kind, "picture", lambda *_: None)(experiment, read(path))
    if found:
        save(path, stem, found)
    return bool(found)


def save(path: pathlib.Path, stem: pathlib.Path, found: Bars | Curves | Dots | Grid | Panels) -> None:
    import matplotlib

    matplotlib.use("Agg")
    size, dpi = (11, 150) if isinstance(found, Curves) else (9, 130)
    with matplotlib.rc_context({"svg.hashsalt": "knfsd-queue", "svg.fonttype": "none", "font.size": size}):
        draw_it = {Bars: bars, Curves: curves, Dots: dots, Grid: grid, Panels: panels}[type(found)]
        figure = draw_it(found)  # type: ignore[operator]
        stem.parent.mkdir(parents=True, exist_ok=True)
        svg, png = pictures(stem)
        figure.savefig(svg, metadata={"Date": None, "Description": drawn_from(path)})
        figure.savefig(png, dpi=dpi, metadata={"Software": None, "Description": drawn_from(path)})
    from matplotlib import pyplot

    pyplot.close(figure)


def plain(value: float, _: Any) -> str:
    return f"{value:g}"


def curves(found: Curves) -> Any:
    """A line for each kernel, with its values, over a time that is wanted."""
    import matplotlib
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 4.2), layout="constrained")
    places = range(len(found.ticks))
    axes.axhline(found.floor, color=COLOURS["alone"], linestyle=":", linewidth=1.2)
    axes.annotate(
        f"{found.floor_name}: {ms(found.floor * 1e6)} ms",
        (places[-1], found.floor),
        xytext=(0, -13),
        textcoords="offset points",
        ha="right",
        color=COLOURS["alone"],
        fontsize=10,
    )
    for kernel, values in found.values.items():
        colour = COLOURS.get(kernel)
        axes.plot(places, values, marker="o", color=colour, linewidth=2, label=kernel)
        for x, value in zip(places, values):
            axes.annotate(
                ms(value * 1e6),
                (x, value),
                xytext=(0, 7),
                textcoords="offset points",
                ha="center",
                color=colour,
                fontsize=10,
            )
    axes.set_yscale("log")
    axes.set_ylim(found.floor * 0.55, None)
    axes.margins(y=0.15)
    axes.set_xticks(places, found.ticks)
    axes.set_xlabel(found.across)
    axes.set_ylabel(found.up)
    axes.set_title(found.title, fontsize=12)
    axes.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(plain))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    return figure


def bars(found: Bars) -> Any:
    """Bars that begin at what they are multiples of: up is more, down is less."""
    import matplotlib
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(0.75 * len(found.ticks) + 4, 5), layout="constrained")
    places, width = range(len(found.ticks)), 0.8 / len(found.values)
    shades = matplotlib.colormaps["Set2"].resampled(len(found.values) + 1).colors
    for index, (name, values) in enumerate(found.values.items()):
        at = [place + (index - (len(found.values) - 1) / 2) * width for place in places]
        colour = COLOURS["patched"] if index == len(found.values) - 1 else shades[index]
        axes.bar(at, [value - found.floor for value in values], width, bottom=found.floor, color=colour, label=name)
    axes.axhline(found.floor, color=COLOURS["alone"], linewidth=1.2, label=found.floor_name)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(plain))
    axes.yaxis.set_minor_formatter(matplotlib.ticker.FuncFormatter(plain))
    axes.set_xticks(places, found.ticks, rotation=45, ha="right")
    axes.set_ylabel(found.up)
    axes.tick_params(axis="y", which="minor", labelsize=7)
    axes.set_title(found.title, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def panels(found: Panels) -> Any:
    """Small multiples: a row for each table, a panel for each metric that names one, a line for each kernel."""
    import matplotlib
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(
        len(found.rows),
        len(found.panels),
        squeeze=False,
        sharey="col",
        layout="constrained",
        figsize=(2.4 * len(found.panels) + 1, 2.7 * len(found.rows)),
    )
    for axes, title in zip(grid[0], found.panels):
        axes.set_title(title, fontsize=9)
    for row, (name, columns) in zip(grid, found.rows.items()):
        # Numbers get shades in their order, names colours of their own.
        shades = (
            matplotlib.colormaps["viridis" if all(heading.isdigit() for heading in columns) else "Set2"]
            .resampled(len(columns) + 1)
            .colors
        )
        for axes, lines in zip(row, found.panels.values()):
            panel(axes, columns, shades, lines)
        row[0].set_ylabel(f"{name}: times alone")
        handles = dict(zip(*reversed(row[0].get_legend_handles_labels())))
        row[-1].legend(handles.values(), handles.keys(), frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def grid(found: Grid) -> Any:
    """Panels of lines on logarithmic scales; the colour is the line's, and what is not base has marks."""
    import matplotlib
    from matplotlib import pyplot

    columns = list(next(iter(found.panels.values())))
    figure, axes = pyplot.subplots(
        len(found.panels),
        len(columns),
        squeeze=False,
        sharex=True,
        sharey="row",
        layout="constrained",
        figsize=(2.1 * len(columns) + 1, 2.3 * len(found.panels) + 0.6),
    )
    colours = ["#E69F00", "#009E73", "#0072B2", "#CC79A7", "#56B4E9", "#D55E00"]
    places = range(len(found.ticks))
    for row, (name, panels) in zip(axes, found.panels.items()):
        row[0].set_ylabel(name)
        for one, column in zip(row, columns):
            for (line, kernels), colour in zip(panels[column].items(), colours):
                for kernel, values in kernels.items():
                    style = ":" if kernel == "base" else "o-"
                    one.plot(places, values, style, color=colour, markersize=3.5, label=f"{line}, {kernel}")
            one.set_yscale("log")
            one.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(plain))
            one.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
            one.set_xticks(places, found.ticks, rotation=60, fontsize=7)
            one.spines[["top", "right"]].set_visible(False)
        low, high = row[0].get_ylim()
        if high < 10 * low:  # there may be one power of ten on the axis, or none
            row[0].yaxis.set_minor_formatter(matplotlib.ticker.FuncFormatter(plain))
    for one, column in zip(axes[0], columns):
        one.set_title(column, fontsize=9)
    axes[0][-1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.suptitle(found.title, fontsize=10)
    return figure


def dots(found: Dots) -> Any:
    """Where both are the same there is a line; what is bad is crossed out."""
    from matplotlib import pyplot

    figure, row = pyplot.subplots(
        1, len(found.panels), squeeze=False, layout="constrained", figsize=(4.2 * len(found.panels), 4.6)
    )
    for axes, (title, pairs) in zip(row[0], found.panels.items()):
        ends = [value for across, up, _ in pairs for value in (across, up)]
        axes.plot([min(ends), max(ends)], [min(ends), max(ends)], color=COLOURS["alone"], linewidth=1)
        for bad, colour, mark in ((False, COLOURS["patched"], "o"), (True, COLOURS["base"], "x")):
            chosen = [(across, up) for across, up, is_bad in pairs if is_bad == bad]
            if chosen:
                label = "breaks a promise" if bad else "keeps what is promised"
                axes.plot(*zip(*chosen), mark, color=colour, markersize=4, markerfacecolor="none", label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(found.across)
        axes.set_ylabel(found.up)
        axes.spines[["top", "right"]].set_visible(False)
    row[0][0].legend(frameon=False, fontsize=8, loc="upper left")
    figure.suptitle(found.title, fontsize=10)
    return figure


def panel(axes: Any, columns: dict[str, str], shades: Any, lines: list[Any]) -> None:
    import matplotlib

    places = range(len(lines))
    for index, (heading, kernel) in enumerate(columns.items()):
        # Where lines lie on each other the marks tell them apart: the later ones are the smaller.
        axes.plot(
            places,
            [line.values[kernel] for line in lines],
            marker="o",
            markersize=9 - index,
            linewidth=1.2 + (kernel == "patched"),
            color=COLOURS.get(kernel, shades[index]),
            label=heading,
        )
    for wanted in ([line.max for line in lines], [line.min for line in lines]):
        if all(isinstance(value, (int, float)) for value in wanted):
            axes.plot(places, wanted, linestyle="none", marker="_", markersize=20, color="black", label="wanted")
    axes.set_xticks(places, [list(line.point.values())[-1] for line in lines])
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    if "floor" in lines[0].metric:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(plain))
        axes.yaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        axes.set_ylim(0.9, None)
    else:
        axes.set_ylim(0, 1.1 * max(value for line in lines for value in [*line.values.values(), line.max or 0]))
