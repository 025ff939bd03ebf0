# SPDX-License-Identifier: GPL-2.0
"""Measuring, recording, and what recorded results are worth today."""

import pathlib

from ..experiments import experiment as experiments
from ..experiments import origin, run
from ..experiments.experiment import Experiment
from ..machines import guest, kernel
from ..series import base as bases
from ..series import topics
from ..series.base import Base
from ..util import BUILD, Tally, say
from . import documents, pictures, tables


def asked(names: list[str]) -> list[Experiment]:
    """The experiments named, or all, each checked; and so is every other, before anything is downloaded or built."""
    wanted = experiments.names(names)
    for name in wanted:
        experiments.place(name)
    every = {one.name: one for one in experiments.all_of_them()}
    return [every[name] for name in wanted]


def bench(names: list[str]) -> None:
    """Run experiments: a table of each, and a picture where there is one."""
    wanted = asked(names)
    base = bases.find()
    for experiment in wanted:
        show(experiment, run.run(experiment, base), base)


def show(experiment: Experiment, path: pathlib.Path, base: Base, most: int | None = None) -> None:
    """A result's tables, or so many of them at most, its picture, and whether it is the recorded one."""
    print(f"\n{tables.text(experiment, run.read(path), most)}\n")
    say(f"the figures are in {path}")
    if pictures.draw(experiment, path, path.with_suffix("")):
        say("the picture is " + " and ".join(map(str, pictures.pictures(path))))
    if experiment.exact:
        compare(experiment, path, base)


def compare(experiment: Experiment, path: pathlib.Path, base: Base) -> None:
    """Say whether a result is, to the byte, the recorded one."""
    recorded = experiment.recorded
    if not recorded.is_file():
        return say(f"there is no recorded result to compare with ({recorded})")
    if recorded.read_bytes() == path.read_bytes():
        return say(f"{path.name}: the same bytes as the recorded result")
    judged = origin.judge(experiment, base)
    say(f"{path.name}: differs from the recorded result (diff {recorded} {path}), which is {judged}")


def record(names: list[str]) -> None:
    """Run experiments and keep, of those named and no other, figures, origin, table, picture, and the README's part."""
    wanted = asked(names)
    base = bases.find()
    for experiment in wanted:
        # What is recorded is of the series as it was when its kernels were built
        made_of = origin.today(experiment, base)
        path = run.run(experiment, base)
        show(experiment, path, base)
        kept = experiment.recorded
        origin.keep(experiment, path, made_of)
        kept.with_suffix(".md").write_text(tables.document(experiment, run.read(kept)))
        pictures.draw(experiment, kept, kept.with_suffix(""))
        if experiment.name in documents.shown():
            documents.splice()
        say(f"recorded in {kept}" + ("" if base.packaged else f", on {base.name}, which is not the packaged base"))


def demo() -> None:
    """What the README shows, measured here."""
    every = {one.name: one for one in experiments.all_of_them()}
    base = bases.find()
    for name in documents.shown():
        path = run.run(every[name], base)
        say(f"on {base.name}, in {'simulated' if kernel.simulated(every[name].machine) else 'real'} time:")
        show(every[name], path, base, 1)


def results() -> None:
    """Of each experiment, whether its recorded result is of today's series."""
    every = experiments.all_of_them()
    base, width = origin.present(), max((len(one.name) for one in every), default=0)
    if not base:
        say("no base is in the cache: results are not held against one")
    if not guest.place().is_dir():
        say("no guest is in the cache: results are not held against its packages")
    for experiment in every:
        print(f"{experiment.name + ':':{width + 1}} {origin.judge(experiment, base)}")


def quoted(base: Base, tally: Tally) -> None:
    """A result that the README or a cover letter quotes has to be of today's series; what else differs is said.

    What a topic has in `older` is not, as its letter says; once it is, it no longer belongs there.
    """
    every = {one.name: one for one in experiments.all_of_them()}
    older = {name for topic in topics.series() for name in topic.older}
    for name, who in experiments.quoted().items():
        judged = origin.judge(every[name], base)
        if name in older:
            say(f"{name} is quoted as it was recorded of an older series: {'; '.join(judged.changed)}")
            tally.that(
                f"the recorded result of {name} is of an older series, as topic.toml says",
                "" if judged.changed else "it is of today's: take it out of `older`, and the remark out of the letter",
            )
            continue
        tally.that(
            f"the recorded result of {name}, which {' and '.join(who)} quotes, is of today's series",
            "\n".join([*judged.changed, *([f"record it again: make record B={name}"] if judged.changed else [])]),
        )
        if judged.elsewhere:
            say(f"{name} was recorded elsewhere: {'; '.join(judged.elsewhere)}")


def figures(base: Base, tally: Tally) -> None:
    """What the README shows, twice: the same bytes, and those recorded, if that was on this base and these packages."""
    every = {one.name: one for one in experiments.all_of_them()}
    for name in documents.shown():
        experiment = every[name]
        if not experiment.exact:
            continue
        again = [run.run(experiment, base, BUILD / "figures" / turn) for turn in ("first", "second")]
        tally.that(f"two runs of {name} give the same bytes",
                   "" if again[0].read_bytes() == again[1].read_bytes() else f"diff {again[0]} {again[1]}")
        judged = origin.judge(experiment, base)
        if judged.elsewhere:
            say(f"{name} is not compared with the recorded result: {'; '.join(judged.elsewhere)}")
        else:
            tally.that(f"they are the bytes that the README's table and picture of {name} were made from",
                       "" if again[0].read_bytes() == experiment.recorded.read_bytes() else
                       f"diff {experiment.recorded} {again[0]}; `make record B={name}` if it is meant")
