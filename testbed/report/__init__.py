# SPDX-License-Identifier: GPL-2.0
"""Result files as a person reads them: tables in Markdown, pictures as SVG and PNG."""

import json
import pathlib
import statistics

from ..series import topics as store
from ..util import ROOT, Fail, digest

README = ROOT / "README.md"

# The picture's colours tell apart in grey and to a colour-blind eye (Okabe and Ito).
COLOURS = {"base": "#D55E00", "patched": "#0072B2", "alone": "#777777"}


def read(path):
    """A result file: {kernel: [point, …]}."""
    if not path.is_file():
        raise Fail(f"{path}: no such result; `make demo` and `make bench` write them")
    return json.loads(path.read_text())


def group(point, name):
    """The figures of the group `name` at a point of the sweep."""
    found = [g for g in point["groups"] if g["name"] == name]
    if not found:
        raise Fail(f"a result has no group {name}")
    return found[0]


def ms(ns):
    """Nanoseconds as a plain number of milliseconds, with no more digits than say something."""
    value = ns / 1e6
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}".removesuffix(".0")


def burst(point):
    return group(point, "interactive")["burst_ns"]["p50"]


def table(head, rows, left=()):
    """A Markdown table with its columns lined up, so that it reads well as plain text too; `left`: columns of text."""
    rows = [[str(cell) for cell in row] for row in [head, *rows]]
    width = [max(len(row[i]) for row in rows) for i in range(len(head))]
    places = range(len(head))
    lines = ["| " + " | ".join(row[i].ljust(width[i]) if i in left else row[i].rjust(width[i]) for i in places) + " |" for row in rows]
    rule = "|".join(":" + "-" * (width[i] + 1) if i in left else "-" * (width[i] + 1) + ":" for i in places)
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])


def floor_table(result):
    """The headline: a burst's median time by the number of neighbours, base beside patched."""
    alone = {kernel: burst(points[0]) for kernel, points in result.items()}
    rows = []
    for base, patched in zip(result["base"], result["patched"]):
        rows.append([base["K"], ms(burst(base)), ms(burst(patched)), f"{burst(base) / alone['base']:.1f}x",
                     f"{burst(patched) / alone['patched']:.1f}x", rate(base), rate(patched)])
    return table(["K", "base, ms", "patched, ms", "base / alone", "patched / alone", "base, ops/s", "patched, ops/s"], rows)


def any_table(experiment, result):
    """Any experiment's figures: base beside patched at each point of its sweep, a row for each group or fio job."""
    if "tables" in experiment:
        return rows_tables(experiment, result)
    if "work" in experiment:
        return work_table(experiment, result)
    if experiment.get("queue"):
        return queue_table(experiment, result)
    sweep = list(experiment.get("sweep", {}))
    rows = []
    for base, patched in zip(result["base"], result["patched"]):
        for one, other in zip(members(base), members(patched)):
            rows.append([*(base[name] for name in sweep), one["name"], *(ms(m["spread"][p]) for p in ("p50", "p99") for m in (one, other)),
                         one["count"], other["count"]])
    return f"{experiment['title']} (ms)\n\n" + table(
        [*sweep, "group", "p50 base", "p50 patched", "p99 base", "p99 patched", "done, base", "done, patched"], rows)


def queue_table(experiment, result):
    """How many transports wait, and how many of them one dequeue of the base's reverses under its lock."""
    points, = result.values()
    sweep = list(experiment["sweep"])
    rows = [[*(point[name] for name in sweep), *(point[name] for name in ("queued", "median", "longest")),
             f"{point['queued'] / max(point['refills'], 1):.1f}", point["refill"]] for point in points]
    return f"{experiment['title']}\n\n" + table([*sweep, "queued", "waiting, median", "waiting, most", "reversed at once, mean", "most"], rows)


def members(point):
    """A point's groups or fio jobs alike: name, the spread that matters (of bursts, else of requests) in ns, and a count."""
    if "jobs" in point:
        return [{"name": job["name"], "spread": job["latency_ns"], "count": job["ios"]} for job in point["jobs"]]
    return [{"name": g["name"], "spread": g.get("burst_ns") or g["latency_ns"], "count": g["interval"]["requests"]} for g in point["groups"]]


def rate(point):
    """All replies a second while the interactive client was active."""
    total = point["total"]
    return round(total["interval_requests"] * 1e9 / total["interval_ns"])


# The one number a figure of an experiment with rows is made of.
FIGURES = {
    "burst": lambda point, figure: group(point, figure["of"])["burst_ns"]["p50"],
    "bursts": lambda point, figure: group(point, figure["of"])["burst_ns"]["mean"],
    "time": lambda point, figure: group(point, figure["of"])["elapsed_ns"],
    "share": lambda point, figure: each(point, figure["of"]) / each(point, figure["over"]),
    "part": lambda point, figure: group(point, figure["of"])["interval"]["requests"] / point["total"]["interval_requests"],
    "longest": lambda point, figure: group(point, figure["of"])["latency_ns"]["max"],
    "rate": lambda point, figure: rate(point),
    "queued": lambda point, figure: point["pool"]["queued"] / point["total"]["requests"],
    "woken": lambda point, figure: point["pool"]["woken"] / point["total"]["requests"],
}


def each(point, name):
    """A connection's requests while the foreground was active, on the average of a group."""
    found = group(point, name)
    return found["interval"]["requests"] / found["conns"]


def at(points, wanted):
    """The point that has these values, among others or not."""
    return next(point for point in points if wanted.items() <= point.items())


def lines(experiment, result):
    """An experiment's figures line by line: [{"title", "figure", "point", "most", "least", "values": {kernel: number}}]."""
    found = []
    for row in experiment["rows"]:
        names = ["row", *row.get("sweep", {})]
        for figure in row["figures"]:
            # The floor itself is not shown: it would say one.
            skip = {"row": row["name"], **figure.get("skip", figure.get("floor", {"row": None}))}
            points = [{name: point[name] for name in names} for point in result["base"] if point["row"] == row["name"]]
            points = [point for point in points if not skip.items() <= point.items()]
            for index, point in enumerate(points):
                values = {kernel: number(figure, point, result, kernel) for kernel in result}
                limits = {key: limit(figure.get(key), index, values) for key in ("most", "least")}
                found.append({"title": figure.get("title", row["title"]).format(**point), "figure": figure, "point": point, "values": values, **limits})
    return found


def number(figure, point, result, kernel):
    """A figure at a point on a kernel, rounded to what is shown of it."""
    value = FIGURES[figure["what"]](at(result[kernel], point), figure)
    if "floor" in figure:
        floor = figure["floor"]
        value /= FIGURES[figure["what"]](at(result[kernel], floor if "row" in floor else point | floor), figure)
    if figure.get("base"):
        value /= FIGURES[figure["what"]](at(result["base"], point), figure)
    return round(value, 2)


def limit(text, index, values):
    if text == "base":
        return values["base"]
    return text[index] if isinstance(text, list) else text


def met(line, kernel):
    value = line["values"][kernel]
    return not (line["most"] is not None and value > line["most"] or line["least"] is not None and value < line["least"])


def rows_tables(experiment, result):
    """An experiment's tables: a line for each figure, a column for each kernel; ! is what was not wanted."""
    parts = [experiment["title"], "Times as multiples of the same client's alone; ! marks what is not as wanted."]
    found = lines(experiment, result)
    for name, columns in experiment["tables"].items():
        rows = []
        for line in found:
            wanted = " ".join(f"{sign} {line[key]:g}" for key, sign in (("least", "≥"), ("most", "≤")) if line[key] is not None)
            cells = [f"{line['values'][kernel]:.3g}" + ("" if met(line, kernel) else " !") for kernel in columns.values()]
            rows.append([line["title"], wanted, *cells])
        parts.append(f"{name}:\n\n" + table(["", "wanted", *columns], rows))
    return "\n\n".join(parts)


def work_table(experiment, result):
    """Real work: its time alone and beside bulk, and how many of a hundred requests found their transport idle in the queue."""
    rows = []
    points = {kernel: {(p["mount"], p["task"], p["beside"]): p for p in found} for kernel, found in result.items()}
    for mount, task in dict.fromkeys(key[:2] for key in points["base"]):
        four = [points[kernel][mount, task, beside] for beside in ("nothing", "bulk") for kernel in ("base", "patched")]
        rows.append([task, mount, four[0]["requests"] // len(four[0]["elapsed_ns"]),
                     *(f"{statistics.median(p['elapsed_ns']) / 1e9:.2f}" for p in four),
                     *(f"{100 * p['idle'] / p['requests']:.0f} %" for p in four)])
    head = [f"{what}{kernel}{where}" for what in ("", "idle, ") for where in (" alone", " beside bulk") for kernel in ("base", "patched")]
    return f"{experiment['title']} (s, the median turn; \"idle\": of a hundred requests)\n\n" + table(["", "mount", "requests", *head], rows)


def rows_picture(experiment, result_path, stem):
    """Small multiples: a row of panels for each table, a panel for each figure that names one, a line for each kernel."""
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "knfsd-queue", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    found = lines(experiment, read(result_path))
    panels = {}
    for line in found:
        if "panel" in line["figure"]:
            panels.setdefault(line["figure"]["panel"], []).append(line)
    figure, grid = pyplot.subplots(len(experiment["tables"]), len(panels), squeeze=False, sharey="col", layout="constrained",
                                   figsize=(2.4 * len(panels) + 1, 2.7 * len(experiment["tables"])))
    for axes, title in zip(grid[0], panels):
        axes.set_title(title, fontsize=9)
    for axes_row, (name, columns) in zip(grid, experiment["tables"].items()):
        # Numbers get shades in their order, names colours of their own.
        shades = matplotlib.colormaps["viridis" if all(heading.isdigit() for heading in columns) else "Set2"].resampled(len(columns) + 1).colors
        for axes, panel in zip(axes_row, panels.values()):
            places = range(len(panel))
            for index, (heading, kernel) in enumerate(columns.items()):
                # Where lines lie on each other the marks tell them apart: the later ones are the smaller.
                axes.plot(places, [line["values"][kernel] for line in panel], marker="o", markersize=9 - index, linewidth=1.2 + (kernel == "patched"),
                          color=COLOURS.get(kernel, shades[index]), label=heading)
            for key in ("most", "least"):
                if all(isinstance(line[key], (int, float)) for line in panel):
                    axes.plot(places, [line[key] for line in panel], linestyle="none", marker="_", markersize=20, color="black", label="wanted")
            axes.set_xticks(places, [list(line["point"].values())[-1] for line in panel])
            axes.margins(x=0.15)
            axes.spines[["top", "right"]].set_visible(False)
            if "floor" in panel[0]["figure"]:
                axes.set_yscale("log")
                axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
                axes.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
                axes.yaxis.set_minor_locator(matplotlib.ticker.NullLocator())
                axes.set_ylim(0.9, None)
            else:
                axes.set_ylim(0, 1.1 * max(value for line in panel for value in [*line["values"].values(), line["most"] or 0]))
        axes_row[0].set_ylabel(f"{name}: times alone")
        handles = dict(zip(*reversed(axes_row[0].get_legend_handles_labels())))
        axes_row[-1].legend(handles.values(), handles.keys(), frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    stem.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None, "Description": drawn_from(result_path)})
    figure.savefig(stem.with_suffix(".png"), dpi=130, metadata={"Software": None, "Description": drawn_from(result_path)})
    pyplot.close(figure)


def floor_picture(result_path, stem):
    """Draw stem.svg and stem.png; the same figures give the same SVG, which names the result file's digest."""
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "knfsd-queue", "svg.fonttype": "none", "font.size": 11})
    from matplotlib import pyplot

    result = read(result_path)
    figure, axes = pyplot.subplots(figsize=(7.5, 4.2), layout="constrained")
    shown = {kernel: [point for point in points if point["K"]] for kernel, points in result.items()}
    places = range(len(shown["base"]))
    alone = burst(result["base"][0]) / 1e6
    axes.axhline(alone, color=COLOURS["alone"], linestyle=":", linewidth=1.2)
    axes.annotate(f"alone on the server: {ms(alone * 1e6)} ms", (places[-1], alone), xytext=(0, -13), textcoords="offset points",
                  ha="right", color=COLOURS["alone"], fontsize=10)
    for kernel, points in shown.items():
        values = [burst(point) / 1e6 for point in points]
        axes.plot(places, values, marker="o", color=COLOURS[kernel], linewidth=2, label=kernel)
        for x, value in zip(places, values):
            axes.annotate(ms(value * 1e6), (x, value), xytext=(0, 7), textcoords="offset points", ha="center",
                          color=COLOURS[kernel], fontsize=10)
    axes.set_yscale("log")
    axes.set_ylim(alone * 0.55, None)
    axes.margins(y=0.15)
    axes.set_xticks(places, [point["K"] for point in shown["base"]])
    axes.set_xlabel("K: bulk connections beside it, each with 8 READs in flight")
    axes.set_ylabel("a burst of 32 READs, median (ms)")
    axes.set_title("What an interactive client waits: 16 nfsd threads, 10 ms a READ", fontsize=12)
    axes.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    stem.parent.mkdir(parents=True, exist_ok=True)
    made_of = {"Date": None, "Description": drawn_from(result_path)}
    figure.savefig(stem.with_suffix(".svg"), metadata=made_of)
    figure.savefig(stem.with_suffix(".png"), dpi=150, metadata={"Software": None, "Description": drawn_from(result_path)})
    pyplot.close(figure)


def drawn_from(result_path):
    return f"drawn from the result file with digest {digest(pathlib.Path(result_path))}"


def between(text, name, new=None):
    """The part of a Markdown file between <!-- NAME --> and <!-- /NAME -->, or the file with that part replaced."""
    start, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
    if start not in text or end not in text:
        raise Fail(f"a document lost its marks {start.strip()} and {end.strip()}")
    head, rest = text.split(start, 1)
    body, foot = rest.split(end, 1)
    return body if new is None else head + start + new + end + foot


def topics():
    """The README's list of topics."""
    return table(["topic", "patches", "subject", "stands on"],
                 [[f"[{t.name}](topics/{t.name})", len(t.patches), t.subject, ", ".join(t.depends_on) or "the base alone"]
                  for t in store.series()], left=(0, 2, 3))


def readme(*names):
    """Bring generated parts of the README, "floor" or "topics", up to date with bench/results and patches/."""
    text = README.read_text()
    for name in names:
        text = between(text, name, GENERATED[name]())
    README.write_text(text)


def headline():
    """The README's table as the committed result file has it."""
    return floor_table(read(store.TOPICS / "sunrpc-ready-queue" / "results" / "floor.json"))


GENERATED = {"floor": headline, "topics": topics}
