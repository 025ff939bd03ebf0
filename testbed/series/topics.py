# SPDX-License-Identifier: GPL-2.0
"""The topics: what is in topics/NAME/, and in which order.

A topic is one mailable series of patches with all that proves it. topic.toml says what the testbed has to know of it;
nothing in the testbed knows a topic by its name.
"""

import dataclasses
import pathlib
import re
import tempfile
from collections.abc import Collection, Iterable

from .. import schema
from ..util import ROOT, Fail, cache, digest, lane, project, write
from . import base as bases
from .base import git

TOPICS = ROOT / "topics"
COVER = "0000-cover-letter.patch"
SELFTESTS = "tools/testing/selftests/"
NAME = r"[a-z0-9][a-z0-9-]*"
# Files that change no figure: prose, but not the netlink specifications, which programs read; KUnit; and the selftests,
# of which each experiment runs parts of its own.
NO_FIGURE = re.compile(rf"^Documentation/(?!netlink/)|^MAINTAINERS$|_kunit\.c$|kunitconfig$|^{SELFTESTS}")

TOML = schema.table(
    {
        "title": schema.STRING,
        "state": {
            "type": "string",
            "pattern": r"^(draft|posted v[0-9]+ \S+|merged as .+|experiment: .+|parked: .+)$",
            "description": "state is draft, posted vN LINK, merged as …, experiment: WHY, or parked: WHY",
        },
        "lists": schema.STRINGS,
    },
    base=schema.STRING,
    depends_on=schema.STRINGS,
    maintainers=schema.STRINGS,
    config=schema.STRING,
    selftests=schema.STRINGS,
    packages=schema.STRINGS,
    guest=schema.mapping(schema.STRING),
    prepare=schema.STRING,
    modes=schema.mapping(schema.STRING),
    shell=schema.STRING,
    kunit=schema.STRINGS,
    counted=schema.STRINGS,
    links=schema.mapping({"type": "string", "pattern": "^[ymn]+$"}),
    readme=schema.STRINGS,
    quotes=schema.STRINGS,
    older=schema.STRINGS,
    upstream=schema.mapping(schema.STRING),
    posting=schema.STRING,
    first=schema.STRINGS,
    carried=schema.table({}, **{name: schema.STRING for name in bases.PACKAGES if name}),
)


@dataclasses.dataclass(frozen=True)
class Topic:
    """One directory of topics/: a series of patches, and what proves it."""

    name: str
    home: pathlib.Path
    title: str
    state: str
    # What its patches are of, one of base.PROJECTS; "" is the kernel.
    base: str
    lists: tuple[str, ...]
    maintainers: tuple[str, ...]
    # Names of topics whose patches have to be applied before these.
    depends_on: tuple[str, ...]
    # Its fragment of the kernel's configuration, merged with those of the topics it depends on.
    config: pathlib.Path | None
    # Directories below tools/testing/selftests.
    selftests: tuple[str, ...]
    # Those of its scripts there that judge the packages of `make deb`.
    packages: tuple[str, ...]
    # {Debian package that its selftests need in the guest, beyond what every guest has: what for}
    guest: dict[str, str]
    # Shell that the guest runs before the selftests.
    prepare: str
    # {a way to run all tests of its directories of selftests: shell that switches a guest to it}
    modes: dict[str, str]
    # Shell that `make shell` runs before there is a prompt, in the topic's first directory of selftests.
    shell: str
    # Paths in the kernel of .kunitconfig files.
    kunit: tuple[str, ...]
    # Its code, as paths of objects without their suffix, with % for what may stand there: `make coverage` counts lines.
    counted: tuple[str, ...]
    # {option: the values it may have}: in every combination, what these files ask for has to link.
    links: dict[str, str]
    # Experiments whose picture and table the README shows.
    readme: tuple[str, ...]
    # Experiments whose figures the cover letter or the README quotes in its text.
    quotes: tuple[str, ...]
    # Those of them that were recorded of an older series, as the letter says.
    older: tuple[str, ...]
    # {subject of a patch: the subject of the same change in somebody else's tree}
    upstream: dict[str, str]
    # What whoever posts the topic has to know first.
    posting: str
    # What is posted before all of it, each alone: P= of `make post`.
    first: tuple[str, ...]
    # {lane: how far the patches were carried there, and what of it was tried}
    carried: dict[str, str]
    # The numbers of the patches that are meant, if not all are.
    only: tuple[int, ...] = ()

    @property
    def parked(self) -> bool:
        """Whether it is kept and not applied: its state says what it lacks to be one of the series."""
        return self.state.startswith("parked: ")

    @property
    def experiment(self) -> bool:
        """Whether it is applied and tested, and no part of what whoever wants the patches is given."""
        return self.state.startswith("experiment: ")

    @property
    def patches(self) -> tuple[pathlib.Path, ...]:
        """The patches in order: its own, or in a lane what the lane has of them."""
        every = self.lane(lane()).patches if lane() else self.own
        return tuple(path for path in every if not self.only or int(path.name[:4]) in self.only)

    def lane(self, version: str) -> "Lane":
        return Lane(self, self.home / bases.of_lane(version).home)

    @property
    def configs(self) -> tuple[pathlib.Path, ...]:
        """Its fragment of the kernel's configuration, and what a lane needs beyond: a file of the same name there."""
        if not self.config:
            return ()
        more = self.lane(lane()).home / self.config.name
        return (self.config, more) if more.is_file() else (self.config,)

    @property
    def results(self) -> pathlib.Path:
        """Where what is recorded is kept."""
        return self.lane(lane()).results if lane() else self.home / "results"

    @property
    def own(self) -> tuple[pathlib.Path, ...]:
        """The patches in order, as patches/series lists them."""
        listing = self.home / "patches" / "series"
        if not listing.is_file():
            raise Fail(f"{schema.shown(listing)}: not found; it lists the topic's patches in order, a name a line")
        found = [self.home / "patches" / name for name in listed(listing, once=True)]
        for path in found:
            if not path.is_file():
                raise Fail(
                    f"{schema.shown(listing)} names {path.name}, which is not there: "
                    "restore the file or remove the line"
                )
        if not found:
            raise Fail(f"{schema.shown(listing)} lists no patch")
        return tuple(found)

    @property
    def cover(self) -> tuple[str, str]:
        """(subject, letter) of the cover letter."""
        return read_cover(self.home / "patches" / COVER)

    @property
    def subject(self) -> str:
        return self.cover[0]

    @property
    def letter(self) -> str:
        return self.cover[1]

    @property
    def scripts(self) -> tuple[str, ...]:
        """The selftests that the patches add or change: paths below tools/testing/selftests."""
        found = (
            re.findall(rf"^\+\+\+ b/{SELFTESTS}(\S+\.sh)$", path.read_text(errors="replace"), re.M)
            for path in self.patches
        )
        return tuple(dict.fromkeys(name for names in found for name in names))

    @property
    def libraries(self) -> frozenset[str]:
        """Those of them that are added without being programs: other scripts source them."""
        added = rf"^diff --git a/\S+ b/{SELFTESTS}(\S+\.sh)\nnew file mode 100644$"
        return frozenset(
            name for path in self.patches for name in re.findall(added, path.read_text(errors="replace"), re.M)
        )

    @property
    def content(self) -> str:
        """A key of what the patches change that can change a figure: not messages, prose, tests, nor line numbers."""
        files: dict[str, list[str]] = {}
        for path in self.patches:
            for name, lines in changes(path).items():
                if not NO_FIGURE.search(name):
                    files.setdefault(name, []).extend(lines)
        return digest(*("\n".join([name, *lines]) for name, lines in sorted(files.items())))


@dataclasses.dataclass(frozen=True)
class Lane:
    """What of a topic another kernel has: a directory of the topic, lts-VERSION for a long-term kernel.

    Its file `series` has a line for each of the topic's patches, in their order: the patch's name, or `without NAME:
    why`. Where that kernel needs a patch to be another one, NAME.diff is the difference between the two, as a patch of
    the patch. So what changes in the topic changes here, too, or is a clear failure.
    """

    topic: Topic
    home: pathlib.Path

    def __bool__(self) -> bool:
        return (self.home / "series").is_file()

    @property
    def results(self) -> pathlib.Path:
        """Where what is recorded on this kernel is kept."""
        return self.home / "results"

    @property
    def lines(self) -> list[tuple[str, str]]:
        """[(patch, why it is left out; "" if it is not)]"""
        found = []
        for line in listed(self.home / "series"):
            left = re.fullmatch(r"without (\S+): (.+)", line)
            found.append((left[1], left[2]) if left else (line, ""))
        return found

    @property
    def without(self) -> dict[str, str]:
        return {name: why for name, why in self.lines if why}

    @property
    def patches(self) -> tuple[pathlib.Path, ...]:
        """What is applied, of a series that says something of each of the topic's patches; nothing without one."""
        if not self:
            return ()
        where, said = schema.shown(self.home / "series"), [name for name, _ in self.lines]
        for path in self.topic.own:
            if path.name not in said:
                raise Fail(f"{where}: says nothing of {path.name}: add its name, or `without {path.name}: why`")
        return self.kept

    @property
    def kept(self) -> tuple[pathlib.Path, ...]:
        """What is applied."""
        where, own = schema.shown(self.home / "series"), {path.name: path for path in self.topic.own}
        kept = [name for name, why in self.lines if not why]
        for name, _ in self.lines:
            if name not in own:
                raise Fail(f"{where}: {name} is not in patches/series (any more): rename or remove the line")
        if kept != [name for name in own if name in kept]:
            raise Fail(f"{where}: its patches are in another order than in patches/series")
        for path in self.home.glob("*.diff"):
            if path.stem not in kept:
                raise Fail(f"{schema.shown(path)}: the series beside it does not list {path.stem}: rename or remove it")
        return tuple(self.ported(own[name]) for name in kept)

    def ported(self, patch: pathlib.Path) -> pathlib.Path:
        """A patch of the topic as this kernel has it."""
        diff = self.home / f"{patch.name}.diff"
        if not diff.is_file():
            return patch
        made = cache() / "ported" / digest(patch, diff) / patch.name
        if not made.is_file():
            with tempfile.TemporaryDirectory(prefix="knfsd-queue-") as place:
                (pathlib.Path(place) / patch.name).write_bytes(patch.read_bytes())
                outside = {"GIT_CEILING_DIRECTORIES": str(pathlib.Path(place).parent)}
                done = git(
                    pathlib.Path(place), "apply", "--whitespace=nowarn", diff.resolve(), check=False, env=outside
                )
                if done.returncode:
                    raise Fail(
                        f"{schema.shown(diff)}: does not apply to {schema.shown(patch)}, which has changed since: "
                        f"port the patch again (docs/contributors.md)\n{done.stdout.rstrip()}"
                    )
                write(made, (pathlib.Path(place) / patch.name).read_text())
        return made


def listed(path: pathlib.Path, once: bool = False) -> list[str]:
    """The lines of a file that say something; none if there is no such file. once: none may stand there twice."""
    lines = schema.text(path).splitlines() if path.is_file() else []
    found = [line for line in lines if line and not line.startswith("#")]
    if twice := [line for line in dict.fromkeys(found) if found.count(line) > 1] if once else []:
        raise Fail(f"{schema.shown(path)}: {twice[0]} stands there twice: remove one of the lines")
    return found


def load(home: pathlib.Path, checked: bool = True) -> Topic:
    """The topic of a directory. Unchecked, topic.toml is taken as it is, which needs no package."""
    path = home / "topic.toml"
    if not re.fullmatch(NAME, home.name):
        raise Fail(f"{schema.shown(home)}: a topic's name is of a-z, 0-9 and -")
    if not path.is_file():
        raise Fail(f"{schema.shown(path)}: not found; every directory of topics/ is a topic and says what it is there")
    data = schema.parse(path)
    (schema.check if checked else schema.plain)(data, TOML, path)
    config = home / data["config"] if "config" in data else None
    if config and not config.is_file():
        raise Fail(f"{schema.shown(path)}: config: there is no {schema.shown(config)}")
    strings = [key for key, of in TOML["properties"].items() if of == schema.STRINGS]
    several = {key: tuple(data.get(key, ())) for key in strings}
    return Topic(
        home.name,
        home,
        data["title"],
        data["state"],
        bases.known(data["base"]) if "base" in data else "",
        config=config,
        guest=data.get("guest", {}),
        prepare=data.get("prepare", ""),
        modes=data.get("modes", {}),
        links=data.get("links", {}),
        shell=data.get("shell", ""),
        upstream=data.get("upstream", {}),
        posting=data.get("posting", ""),
        carried=data.get("carried", {}),
        **several,
    )


def everything(checked: bool = True, where: pathlib.Path | None = None) -> list[Topic]:
    """All topics of `where` (topics/) in order: those that its file `order` lists, then the others by name."""
    where = where or TOPICS
    order = listed(where / "order", once=True)
    homes = {home.name: home for home in sorted(where.iterdir()) if home.is_dir()} if where.is_dir() else {}
    for name in order:
        if name not in homes:
            raise Fail(f"topics/order names {name}, which is no directory of topics/: remove the line")
    return [load(homes[name], checked) for name in [*order, *(name for name in homes if name not in order)]]


def series(checked: bool = True, where: pathlib.Path | None = None, of: str | None = None) -> list[Topic]:
    """The topics that are applied, in their order: all of a base that are not parked, or in a lane those that it has.

    of: what BASE= may name; as it does, without it.
    """
    of = project() if of is None else of
    found = [topic for topic in everything(checked, where) if topic.base == of and not topic.parked]
    if lane():
        have = [topic.name for topic in found if topic.lane(lane())]
        found = [
            dataclasses.replace(topic, depends_on=tuple(name for name in topic.depends_on if name in have))
            for topic in found
            if topic.name in have
        ]
    homes = [topic.name for topic in found]
    seen: set[str] = set()
    for topic in found:
        for name in topic.depends_on:
            if name not in homes:
                raise Fail(
                    f"topics/{topic.name}/topic.toml: depends_on: {name} is no topic; there are: {', '.join(homes)}"
                )
            if name not in seen:
                raise Fail(f"topics/order: {topic.name} depends on {name}, which has to stand before it")
        seen.add(topic.name)
    if wrong := misplaced(homes, [topic.name for topic in found if topic.experiment]):
        raise Fail(f"topics/order: {wrong[0]} stands behind {wrong[1]}, an experiment: experiments stand last")
    return found


def misplaced(names: Iterable[str], experiments: Collection[str]) -> tuple[str, str] | None:
    """The first topic that stands behind an experiment and is none, and the first experiment; None if all is well."""
    before = ""
    for name in names:
        if name in experiments:
            before = before or name
        elif before:
            return name, before
    return None


def proposed(topics: Iterable[Topic]) -> list[Topic]:
    """What whoever wants the patches is given: all but experiments, which stand last."""
    return [topic for topic in topics if not topic.experiment]


def applied(checked: bool = True) -> list[Topic]:
    """The topics that are applied, of every base."""
    return [topic for of in ("", *bases.PROJECTS) for topic in series(checked, of=of)]


def named(topics: Iterable[Topic], name: str) -> Topic:
    for topic in topics:
        if topic.name == name:
            return topic
    raise Fail(f"there is no topic {name}; there are: {', '.join(topic.name for topic in topics)}")


def closure(topics: list[Topic], *names: str) -> list[Topic]:
    """The topics named and all that they depend on, in order."""
    wanted: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in wanted:
            wanted.add(name)
            todo += named(topics, name).depends_on
    return [topic for topic in topics if topic.name in wanted]


def guest_packages(topics: Iterable[Topic]) -> dict[str, str]:
    """{Debian package: what for} of what the selftests of the topics need beyond what every guest has."""
    return {package: why for topic in topics for package, why in topic.guest.items()}


def read_cover(path: pathlib.Path) -> tuple[str, str]:
    """(subject, letter) of a cover letter: what stands between the header and the generated list of patches."""
    if not path.is_file():
        raise Fail(f"{schema.shown(path)}: every topic has a cover letter of this name")
    return subject_of(path), schema.text(path).partition("\n\n")[2].rpartition("\n---\n")[0].strip()


def subject_of(path: pathlib.Path) -> str:
    found = re.search(r"^Subject: \[PATCH\] (.+(?:\n .+)*)", schema.text(path).partition("\n\n")[0], re.M)
    if not found:
        raise Fail(f"{schema.shown(path)}: has no line `Subject: [PATCH] …`")
    return found[1].replace("\n ", " ")


def changes(path: pathlib.Path) -> dict[str, list[str]]:
    """{file: lines} of what a patch adds to each file and takes from it, and does to the file's name and mode."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    old = new = 0
    for line in path.read_text(errors="replace").split("\n"):
        if old or new:
            old, new = old - (line[:1] in "- "), new - (line[:1] in "+ ")
            lines += [line] if line[:1] in ("+", "-") else []
        elif name := re.match(r"diff --git a/\S+ b/(\S+)$", line):
            lines = found.setdefault(name[1], [])
        elif counts := re.match(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@", line):
            old, new = (int(count or 1) for count in counts.groups())
        elif re.match(r"(new|deleted|old) |rename |copy ", line) and found:
            lines.append(line)
    return found


def queue_digest(topics: list[Topic] | None = None) -> str:
    """A key of every byte of the series, messages and cover letters included."""
    parts: list[str | pathlib.Path] = []
    for topic in topics or series():
        # A lane's series may lack patches, while they are ported.
        for path in topic.lane(lane()).kept if lane() else (topic.home / "patches" / COVER, *topic.own):
            parts += [topic.name, path.name, path]
    return digest(*parts)
