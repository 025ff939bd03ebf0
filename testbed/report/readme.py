# SPDX-License-Identifier: GPL-2.0
"""The parts of the README that are made of what the topics hold: their list, and the first table of each experiment they show there."""

from ..experiments import experiment as experiments
from ..experiments.run import read
from ..series import topics as store
from ..util import ROOT, Fail
from .tables import markdown, table

README = ROOT / "README.md"
TOPICS = "topics"


def between(text: str, name: str, new: str | None = None) -> str:
    """The part of a Markdown file between <!-- NAME --> and <!-- /NAME -->, or the file with that part replaced."""
    start, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
    if start not in text or end not in text:
        raise Fail(f"a document lost its marks {start.strip()} and {end.strip()}")
    head, rest = text.split(start, 1)
    body, foot = rest.split(end, 1)
    return body if new is None else head + start + new + end + foot


def topics() -> str:
    """The list of topics."""
    return table(["topic", "patches", "subject", "depends on"],
                 [[f"[{topic.name}](topics/{topic.name})", len(topic.patches), topic.subject, ", ".join(topic.depends_on) or "the base alone"]
                  for topic in store.series()], left=(0, 2, 3))


def shown() -> list[str]:
    """The experiments whose table the README shows, between marks of their name."""
    return list(dict.fromkeys(name for topic in store.series() for name in topic.readme))


def part(name: str) -> str:
    """What the README has to have between the marks `name`."""
    if name == TOPICS:
        return topics()
    experiment = experiments.find(name)
    return markdown(experiment.kind.metrics(experiment, read(experiment.recorded))[0])


def splice(*names: str) -> None:
    """Bring parts of the README up to date with the recorded results and the topics."""
    text = README.read_text()
    for name in names:
        text = between(text, name, part(name))
    README.write_text(text)
