# SPDX-License-Identifier: GPL-2.0
"""What was measured, shown and recorded, and the parts of documents that are made of what topics/ holds.

Each part stands between marks <!-- NAME --> and <!-- /NAME -->.
"""

import functools
import pathlib
from collections.abc import Callable

from ..experiments import experiment as experiments
from ..experiments import origin, results
from ..experiments.run import read
from ..machines import kinds
from ..packages import dkms
from ..series.base import PACKAGED, PACKAGES
from ..series.topics import Topic, applied, everything, series, subject_of
from ..suites import mutants as suite
from ..util import ROOT, Fail, lane, project, say, write
from . import pictures, tables
from .tables import markdown, table

Part = Callable[[], str]
LANES = [version for version in PACKAGES if version]


def show(done: results.Measured, most: int | None = None) -> None:
    """A result's tables, or so many of them at most, its picture, and whether it is the recorded one."""
    experiment, path = done.experiment, done.path
    say(f"on {done.base.name}, in {'simulated' if kinds.simulated(experiment.machine) else 'real'} time:")
    print(f"\n{tables.text(experiment, read(path), most)}\n")
    say(f"the figures are in {path}")
    if pictures.draw(experiment, path, path.with_suffix("")):
        say("the picture is " + " and ".join(map(str, pictures.pictures(path))))
    if experiment.exact:
        results.compare(done)


def record(done: results.Measured) -> None:
    """Keep a result with its origin, table and picture, and bring the README's part up to date."""
    experiment, kept = done.experiment, done.experiment.recorded
    origin.keep(experiment, done.path, done.origin)
    kept.with_suffix(".md").write_text(tables.document(experiment, read(kept)))
    pictures.draw(experiment, kept, kept.with_suffix(""))
    if experiment.name in experiments.shown():
        splice()
    where = "" if done.base.packaged else f", on {done.base.name}, which is not the packaged base"
    say(f"recorded in {kept}{where}")


def between(text: str, name: str, new: str | None = None) -> str:
    """The part of a Markdown file between <!-- NAME --> and <!-- /NAME -->, or the file with that part replaced."""
    start, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
    if start not in text or end not in text:
        raise Fail(f"a document lost its marks {start.strip()} and {end.strip()}")
    head, rest = text.split(start, 1)
    body, foot = rest.split(end, 1)
    return body if new is None else head + start + new + end + foot


def headline(name: str, version: str = "") -> str:
    """The first table of a recorded result, of the series or of a lane."""
    experiment = experiments.find(name)
    result = in_lane(experiment, version) if version else experiment.recorded
    return markdown(experiment.kind.metrics(experiment, read(result))[0])


def in_lane(experiment: experiments.Experiment, version: str) -> pathlib.Path:
    """Where a lane's recorded result is."""
    return experiment.topic.lane(version).results / experiment.recorded.name


def topics() -> str:
    """The README's list of what is applied: how many patches each topic and each lane of it has, and its subject."""
    rows = []
    for topic in applied():
        lanes = [str(len(topic.lane(version).patches) or "") for version in LANES]
        note = "an experiment" if topic.experiment else topic.base
        subject = f"{topic.subject} ({note})" if note else topic.subject
        rows.append([f"[{topic.name}](topics/{topic.name})", len(topic.own), *lanes, subject])
    heads = ["topic", "patches", *LANES, "subject"]
    return table(heads, rows, left=(0, len(heads) - 1))


def state(said: str) -> str:
    """A topic's state, with the link behind its words."""
    words = said.split(" ", 2)
    return f"[{' '.join(words[:2])}]({words[2]})" if words[0] == "posted" else said


def before(topic: Topic) -> str:
    """What to know before a topic is posted, and which of its patches are posted alone."""
    alone = ", ".join(f"`P={one}`" for one in topic.first)
    return topic.posting + (f" ({alone})" if alone else "")


def addressees() -> str:
    """For each topic whom it goes to, and what to know before it is posted."""
    rows = [[topic.name, state(topic.state), ", ".join(topic.lists), before(topic)] for topic in everything()]
    return table(["topic", "state", "lists", "before it is posted"], rows, left=(0, 1, 2, 3))


def upstream() -> str:
    """Which patches other trees have, or may have, under a subject of their own."""
    rows = []
    for topic in applied():
        subjects = [subject_of(path) for path in topic.own]
        for ours, theirs in topic.upstream.items():
            where = subjects.index(ours) + 1 if ours in subjects else "gone"
            rows.append([topic.name, where, ours, theirs if theirs != ours else "the same"])
    return table(["topic", "patch", "subject", "elsewhere"], rows, left=(0, 2, 3))


def carried(to: str) -> str:
    """How far each topic was carried to a lane, and how many of its patches are there."""
    rows = []
    for topic in everything():
        if to in topic.carried:
            there = topic.lane(to)
            changed = len(list(there.home.glob("*.diff")))
            rows.append([topic.name, len(topic.own), len(there.patches) or "", changed or "", topic.carried[to]])
    return table(["topic", "patches", "there", "of them changed", "how far"], rows, left=(0, 4))


def package() -> str:
    """The modules of the package that `make dkms` makes, and what it has of each topic."""
    lines = [("modules", ", ".join(dkms.MODULES)), *(line.split(": ", 1) for line in dkms.carried(series()))]
    return "\n".join(f"- **{kind.capitalize()}**: {names}" for kind, names in lines)


def mutants() -> str:
    """For each topic that has any, how many mutants there are, and what has killed how many."""
    rows = []
    for topic in everything():
        faults = {fault.stem: bool(suite.scripts(fault)) for fault in suite.faults(topic)}
        by = {name: cases for name, cases in suite.recorded(topic).items() if name in faults}
        litmus = [name for name, cases in by.items() if all(case.startswith("herd7: ") for case in cases)]
        in_guest = [name for name in by if faults[name]]
        if faults:
            kunit = len(by) - len(litmus) - len(in_guest)
            rows.append([topic.name, len(faults), kunit, len(in_guest), len(litmus), len(faults) - len(by)])
    heads = ["topic", "mutants", "killed by KUnit", "by a selftest", "by herd7", "survive or not judged"]
    return table(heads, rows, left=(0,))


def parts() -> dict[str, dict[str, Part]]:
    """{document: {mark: what makes the part}}"""
    lanes = {
        f"{name}-{version}": functools.partial(headline, name, version)
        for version in LANES
        for name in experiments.shown()
        if in_lane(experiments.find(name), version).is_file()
    }
    tables = {name: functools.partial(headline, name) for name in experiments.shown()}
    return {
        "README.md": {"topics": topics, **tables},
        "docs/installing.md": {"package": package, **lanes},
        "docs/contributors.md": {"mutants": mutants},
        "docs/maintainers.md": {
            "state": addressees,
            "upstream": upstream,
            **{name: functools.partial(carried, name) for name in LANES if name not in PACKAGED},
        },
    }


def stale() -> list[str]:
    """The parts that are not as they would be made today, as `DOCUMENT: NAME`."""
    found = []
    for name, made in parts().items():
        text = (ROOT / name).read_text()
        found += [f"{name}: {mark}" for mark, part in made.items() if between(text, mark) != part()]
    return found


def splice() -> None:
    """Bring every part of every document up to date."""
    if lane() or project():
        return say("what the documents show of it is brought up to date by `make export` without LTS= and BASE=")
    for name, made in parts().items():
        path: pathlib.Path = ROOT / name
        text = path.read_text()
        for mark, part in made.items():
            text = between(text, mark, part())
        write(path, text)
