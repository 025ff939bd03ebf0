# SPDX-License-Identifier: GPL-2.0
"""Measuring, and what recorded results are worth today."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Iterator, Sequence

from ..machines import guest
from ..series import base as bases
from ..series import topics
from ..series.base import Base
from ..suites.verdicts import Key, code, once
from ..util import BUILD, Fail, Tally, digest, lock, say
from . import experiment as experiments
from . import origin, pieces, run
from .experiment import Experiment


@dataclasses.dataclass(frozen=True)
class Measured:
    """A result, and what it is of."""

    experiment: Experiment
    path: pathlib.Path
    base: Base
    origin: origin.Origin


def asked(names: Sequence[str], of: Sequence[str] = ()) -> list[Experiment]:
    """The experiments named, or of the topics named, or all; each is checked, and so is every other.

    That is before anything is downloaded or built.
    """
    wanted = experiments.names(names, of)
    for name in wanted:
        experiments.place(name)
    every = {one.name: one for one in experiments.all_of_them()}
    return [every[name] for name in wanted]


def measured(names: Sequence[str], of: Sequence[str] = ()) -> Iterator[Measured]:
    """Run experiments, one when the one before has been looked at."""
    wanted = asked(names, of)
    base = bases.find()
    for experiment in wanted:
        # A result is of the series as it was when its kernels were built
        made_of = origin.today(experiment, base)
        yield Measured(experiment, run.run(experiment, base), base, made_of)


def compare(done: Measured) -> None:
    """Say whether a result is, to the byte, the recorded one."""
    path, recorded = done.path, done.experiment.recorded
    if not recorded.is_file():
        return say(f"there is no recorded result to compare with ({recorded})")
    if recorded.read_bytes() == path.read_bytes():
        return say(f"{path.name}: the same bytes as the recorded result")
    judged = origin.judge(done.experiment, done.base)
    say(f"{path.name}: differs from the recorded result (diff {recorded} {path}), which is {judged}")


def results(names: Sequence[str] = (), of: Sequence[str] = ()) -> None:
    """Of each experiment asked for, whether its recorded result is of today's series."""
    every = asked(names, of)
    base, width = origin.present(), max((len(one.name) for one in every), default=0)
    if not base:
        say("no base is in the cache: results are not held against one")
    if not guest.place().is_dir():
        say("no guest is in the cache: results are not held against its packages")
    for experiment in every:
        print(f"{experiment.name + ':':{width + 1}} {origin.judge(experiment, base)}")


def measurable(base: Base, tally: Tally) -> None:
    """The kernels that experiments name can be had: their topics apply alone, and their test-only patches to those."""
    with lock("source"):
        for one in experiments.all_of_them():
            tally.run(f"the patches of what {one.name} is measured on apply", run.commits, base, one)


def quoted(base: Base, tally: Tally) -> None:
    """A result that the README or a cover letter quotes has to be of today's series; what else differs is said.

    What a topic has in `older` is not, as its letter says; once it is, it no longer belongs there.
    """
    every = {one.name: one for one in experiments.all_of_them()}
    older = {name for topic in topics.series() for name in topic.older}
    for name, who in experiments.quoted().items():
        of_today(name, " and ".join(who), origin.judge(every[name], base), name in older, f"record B={name}", tally)


def of_today(name: str, who: str, judged: origin.Judgement, older: bool, again: str, tally: Tally) -> None:
    """The record `name`, which `who` quotes, is of today's series, or of an older one if it is said to be."""
    if older:
        say(f"{name} is quoted as it was recorded of an older series: {'; '.join(judged.changed)}")
        tally.that(
            f"the recorded result of {name} is of an older series, as topic.toml says",
            "" if judged.changed else "it is of today's: take it out of `older`, and the remark out of the letter",
        )
        return
    tally.that(
        f"the recorded result of {name}, which {who} quotes, is of today's series",
        "\n".join([*judged.changed, *([f"record it again: make {again}"] if judged.changed else [])]),
    )
    if judged.elsewhere:
        say(f"{name} was recorded elsewhere: {'; '.join(judged.elsewhere)}")


def figures(base: Base, tally: Tally) -> None:
    """What the README shows, twice, once for all that it is made of."""
    every = {one.name: one for one in experiments.all_of_them()}
    for experiment in (every[name] for name in experiments.shown()):
        if experiment.exact:
            twice = functools.partial(repeats, experiment, base)
            tally.run(f"{experiment.name}, as the README shows it, twice", once, twice, *decided_by(experiment, base))


def decided_by(experiment: Experiment, base: Base) -> tuple[Key, ...]:
    """The key of what decides the bytes of an exact result, and whether they are those recorded."""
    images, root = run.kernels(base, experiment), guest.root(experiment.packages)
    tests = run.selftests(base, experiment)
    # Of the shell what its guest runs; of all else anything may be used. The list names the scripts.
    files = [path for path in sorted(pathlib.Path(tests).rglob("*")) if path.is_file()] if tests else []
    others = [path for path in files if path.suffix != ".sh" and path.name != "kselftest-list.txt"]
    return (
        experiment.content,
        json.dumps(pieces.used(experiment)),
        *(f"{path.relative_to(tests)} {digest(path)}" for path in others),
        root.name,
        *guest.packages(root),
        *images.values(),
        *code("experiments", "machines"),
        experiment.recorded,
    )


def repeats(experiment: Experiment, base: Base) -> None:
    """Fail unless two runs give the same bytes: those recorded, if that was on this base and with these packages."""
    first, second = (run.run(experiment, base, BUILD / "figures" / turn) for turn in ("first", "second"))
    if first.read_bytes() != second.read_bytes():
        raise Fail(f"two runs differ: diff {first} {second}")
    judged = origin.judge(experiment, base)
    if judged.elsewhere:
        say(f"{experiment.name} is not compared with the recorded result: {'; '.join(judged.elsewhere)}")
    elif first.read_bytes() != experiment.recorded.read_bytes():
        raise Fail(
            f"diff {experiment.recorded} {first}, which the README's table and picture are made from; "
            f"`make record B={experiment.name}` if it is meant"
        )
