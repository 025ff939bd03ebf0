# SPDX-License-Identifier: GPL-2.0
"""A topic as the messages that would be mailed: numbered, with a letter that says what has changed since last time.

Nothing is sent, and nothing is signed off: both are for whoever posts it.
"""

import dataclasses
import os
import pathlib
import re
import tempfile

from ..util import BUILD, ROOT, Fail, digest, lock, run, say, whole
from . import b4, tree
from . import topics as store
from .base import Base, git, prefix
from .topics import Topic

# The letter's line about what to apply first names topics, which nobody who reads the mail knows.
DEPENDS = re.compile(r"^(?:Stands|Depends) on: .+$\n?", re.M)
LAYOUT = ("--abbrev=12", "--no-color", "-M", "--stat=80", "--diff-algorithm=histogram")
FORMAT = ("-q", "--cover-letter", "--numbered", "--signature=", *LAYOUT)
GET_MAINTAINER = pathlib.PurePath("scripts/get_maintainer.pl")


def number(text: str) -> int:
    """The version that V= asks for."""
    if not re.fullmatch(r"[1-9][0-9]*", text):
        raise Fail(f"V={text}: not the number of a version: V=1 is the first posting, V=2 the next")
    return int(text)


def part(topic: Topic, patches: str) -> Topic:
    """The topic with those of its patches alone that P= names by their numbers, as 1,2,4; with all if it is empty."""
    have = {str(int(path.name[:4])) for path in topic.patches}
    wanted = patches.split(",") if patches else []
    if not set(wanted) <= have or len(set(wanted)) < len(wanted):
        raise Fail(f"P={patches}: give numbers of {topic.name}'s patches, as 1,2,4: it has 1 to {len(have)}")
    return dataclasses.replace(topic, only=tuple(map(int, wanted)))


def posted(topics: list[Topic], name: str, patches: str) -> list[Topic]:
    """What is mailed, last, behind what it is put on: what the topic depends on, or for a part of it the base alone."""
    topic = part(store.named(topics, name), patches)
    return [topic] if patches else store.closure(topics, name)


def numbers(topic: Topic) -> str:
    """P= of a part of a topic; nothing for all of it."""
    return ",".join(map(str, topic.only))


def label(topic: Topic) -> str:
    """What a posting of the topic, or of a part of it, is called."""
    return "-".join([topic.name, *map(str, topic.only)])


def check(name: str, version: str, patches: str = "") -> None:
    """Raise Fail for a topic, version or patch that there is not, or that is not named, before a base is looked for."""
    topics = store.series()
    if not name:
        raise Fail(f"which topic? make post T=NAME V=1; there are: {', '.join(topic.name for topic in topics)}")
    changelog(part(store.named(topics, name), patches), number(version))


def changelog(topic: Topic, version: int) -> str:
    """What is said of the changes since the first version, newest first, from the topic's changelog.md."""
    if version == 1:
        return ""
    path = topic.home / "changelog.md"
    text = path.read_text() if path.is_file() else ""
    of = f"P={numbers(topic)} " if topic.only else ""
    sections = re.finditer(rf"^## {of}v(\d+)\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    said = {int(found[1]): found[2].strip() for found in sections}
    if not said.get(version):
        raise Fail(
            f"topics/{topic.name}/changelog.md has no section `## {of}v{version}`: "
            f"say there what has changed since v{version - 1}"
        )
    return "".join(f"Changes since v{one - 1}:\n\n{said[one]}\n\n" for one in range(version, 1, -1) if one in said)


def earlier(topic: Topic, version: int, ref: str | None, place: pathlib.Path) -> list[Topic]:
    """The topic and what it was put on, as the version before had them, unpacked in `place`; none for the first."""
    if version == 1 and not ref:
        return []
    ref = ref or f"posted/{label(topic)}-v{version - 1}"
    if git(ROOT, "rev-parse", "--verify", "-q", f"{ref}^{{commit}}", check=False).returncode:
        raise Fail(
            f"this repository has no {ref}, from which the previous version would be read: "
            f"`git tag {ref} COMMIT` names the commit it was posted from, or PREVIOUS=REF names another"
        )
    archive = place / "topics.tar"
    if git(ROOT, "archive", "-o", archive, ref, "topics", check=False).returncode:
        raise Fail(f"{ref} has no topics/: PREVIOUS=REF names a commit that has the topic")
    run("tar", "-xf", archive, "-C", place)
    return posted(store.series(checked=False, where=place / "topics"), topic.name, numbers(topic))


# {what a topic was put on, and the topic's patches: the commit}; who posts one topic after the other applies each once.
APPLIED: dict[str, str] = {}


def applied(base: Base, topics: list[Topic]) -> tuple[str, str]:
    """(the commit that the last of `topics` is put on, the last commit), with all applied but the cover letters."""
    onto = head = base.commit
    for topic in topics:
        onto, key = head, digest(str(base.repo), head, *topic.patches)
        APPLIED[key] = head = APPLIED.get(key) or tree.apply(base.repo, [topic], onto, tree.ALONE, letters=False)
    tree.start(base.repo, head)
    return onto, head


def recipients(base: Base, topic: Topic) -> tuple[list[str], list[str]]:
    """(To, Cc): people and lists, of the topic and of the patched kernel's MAINTAINERS; the topic's are checked out."""
    to, cc = list(topic.maintainers), list(topic.lists)
    script = base.repo / GET_MAINTAINER
    if not script.is_file():
        say(f"{base.name} has no {GET_MAINTAINER}: only those of topic.toml are written to")
        return to, cc
    said = run("perl", script, "--no-git", "--no-git-fallback", *topic.patches, cwd=base.repo).stdout
    # A role may have parentheses in it: "maintainer:LINUX KERNEL MEMORY CONSISTENCY MODEL (LKMM)".
    for address, role in re.findall(r"^(.*?\S) \((.*)\)$", said, re.M):
        (cc if "list" in role.split(":")[0] else to).append(address)
    return list(dict.fromkeys(to)), [address for address in dict.fromkeys(cc) if address not in to]


def blurb(topic: Topic, topics: list[Topic], version: int) -> str:
    """The text of the cover letter. One patch alone has none: this is what stands below its message."""
    if len(topic.only) == 1:
        return changelog(topic, version).strip()
    before = [
        f"  {one.subject}" + (f"\n  {one.state.split()[2]}" if one.state.startswith("posted") else "")
        for one in topics
        if one.name in topic.depends_on
    ]
    letter = DEPENDS.sub("", topic.letter).strip()
    depends = "Depends on:\n\n" + "\n".join(before) + "\n\n" if before else ""
    return f"{letter}\n\n{depends}{changelog(topic, version)}".strip()


def target(topic: Topic, version: int, to: str | None) -> pathlib.Path:
    """The directory to write to. Only our own is ever replaced."""
    if not to:
        return BUILD / "post" / f"{label(topic)}-v{version}"
    place = pathlib.Path(os.path.expanduser(to)).resolve()
    taken = [bundle(place), *(path.with_name(path.name + ".part") for path in (place, bundle(place)))]
    if place.exists() and (not place.is_dir() or any(place.iterdir())) or any(path.exists() for path in taken):
        raise Fail(f"TO={to}: is there already, and not an empty directory: name another, nothing is overwritten")
    above = next(path for path in place.parents if path.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise Fail(f"TO={to}: {above} is no directory that you may write to: name another")
    return place


def bundle(place: pathlib.Path) -> pathlib.Path:
    """The same for b4, beside the directory: `git send-email` mails whatever is in one."""
    return place.with_name(f"{place.name}.bundle")


def post(
    base: Base, name: str, version: str, to: str | None = None, previous: str | None = None, patches: str = ""
) -> pathlib.Path:
    """Write what would be mailed of version `version` of the topic `name`; returns the directory.

    patches: those that are mailed, as 1,2,4, on the base alone; all of them, on what they depend on, if it is empty.

    Raises Fail, before anything is applied, for a topic, version or patch that there is not, work in tree/ that was not
    exported, and a later version without changelog or without the version before it.
    """
    topics = posted(store.series(), name, patches)
    topic = topics[-1]
    wanted = number(version)
    place = target(topic, wanted, to)
    text = blurb(topic, topics, wanted)
    tree.check_exported()
    write(base, topics, wanted, text, place, previous)
    told(base, topic, wanted, place)
    return place


def write(
    base: Base, topics: list[Topic], wanted: int, text: str, place: pathlib.Path, previous: str | None = None
) -> None:
    """Write the messages of the last of `topics`, which depends on the others, to `place`, and the bundle beside it."""
    topic = topics[-1]
    with tempfile.TemporaryDirectory(prefix="knfsd-queue-") as scratch, lock("source"):
        old = earlier(topic, wanted, previous, pathlib.Path(scratch))
        compare = []
        if old:
            say(f"applying the previous version of {topic.name}")
            compare = [f"--range-diff={'..'.join(applied(base, old))}"]
        onto, head = applied(base, topics)
        people, lists = recipients(base, topic)
        with whole(place) as made:
            addresses = [*(f"--to={one}" for one in people), *(f"--cc={one}" for one in lists)]
            named = [f"--subject-prefix={' '.join(['PATCH', *prefix()])}", *([f"-v{wanted}"] if wanted > 1 else [])]
            options = [*compare, *addresses, f"--base={base.commit}", *named]
            single = ["--no-cover-letter", "--no-numbered"] if len(topic.only) == 1 else []
            git(base.repo, "format-patch", *FORMAT, *single, "-o", made, *options, f"{onto}..{head}")
            first = min(made.iterdir())
            letter = first.read_text()
            if not single:
                letter = letter.replace("*** SUBJECT HERE ***", topic.subject)
                first.write_text(letter.replace("*** BLURB HERE ***", text))
            elif text:
                first.write_text(letter.replace("\n---\n", f"\n---\n{text}\n\n", 1))
            needed = re.findall(r"^prerequisite-patch-id: (\w+)$", letter, re.M)
            with whole(bundle(place)) as file:
                b4.bundle(base, topic, wanted, (onto, head), text, (people, lists), needed, file)


def told(base: Base, topic: Topic, version: int, place: pathlib.Path) -> None:
    """Say what was made and what is left to do."""
    messages = len(list(place.glob("*.patch")))
    say(f"{place} holds {messages} message{'s' * (messages > 1)} of {label(topic)} v{version}; nothing was sent")
    if len(topic.only) > 1:
        say(f"the letter is that of all of {topic.name}: take out what is of its other patches")
    say(
        f"{bundle(place)} holds the same for b4 {b4.SINCE} or later, in a repository that has the base: "
        f"`git fetch {bundle(place)} b4/{topic.name}:b4/{topic.name} && git switch b4/{topic.name} && b4 prep --claim`"
    )
    if git(base.repo, "rev-parse", "--verify", "-q", f"{base.commit}^", check=False).returncode:
        say(
            f"its base-commit is of {base.name} without history, which nobody else has: "
            "KSRC=/path/to/a/tree makes it a public one's"
        )
    say(
        "no message has a Signed-off-by: `git am -s` in a tree of yours adds it; "
        "docs/maintainers.md says what else is asked for"
    )
    if topic.posting:
        say(f"before you post: {topic.posting}")
    if topic.first and not topic.only:
        say("before all of it: " + ", ".join(f"make post T={topic.name} V=1 P={one}" for one in topic.first))
    say(
        f"once it is posted: `git tag posted/{label(topic)}-v{version}`, and "
        f'state = "posted v{version} LINK" in topics/{topic.name}/topic.toml'
    )
