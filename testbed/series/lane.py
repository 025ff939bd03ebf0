# SPDX-License-Identifier: GPL-2.0
"""The way back of a lane: from the commits of its tree to what differs from the topics' own patches."""

import difflib
import pathlib
import re
import tempfile

from .. import util
from ..util import TREE, Fail, cache, lane, remove
from . import topics as store
from .base import git
from .topics import Lane, subject_of

COMMENT = "# The patches of ../patches that this kernel has; where one differs, the .diff of its name says how.\n"


def export(commits: dict[str, list[str]], options: list[str]) -> dict[pathlib.Path, str]:
    """{file: text} of the lane's directories, as commits {topic: [commit]} of the tree have them."""
    every = {topic.name: topic for topic in store.everything()}
    found: dict[pathlib.Path, str] = {}
    for name, made in commits.items():
        if name not in every:
            raise Fail(f"{TREE.name}: there is no topic {name}: a lane has only what topics/ has")
        found |= export_topic(every[name].lane(lane()), made, options)
    return found


def export_topic(of: Lane, commits: list[str], options: list[str]) -> dict[pathlib.Path, str]:
    """The files of one topic's lane: its series, and a difference for each patch that is not as the topic has it."""
    own = {subject_of(path): path for path in of.topic.own}
    here = {git(TREE, "log", "-1", "--format=%s", commit).stdout.strip(): commit for commit in commits}
    for subject in here:
        if subject not in own:
            raise Fail(
                f'{TREE.name}: topic {of.topic.name} has no patch "{subject}": a lane has only what its topic has; '
                "bring it into tree/ and export that first"
            )
    if list(here) != [subject for subject in own if subject in here]:
        raise Fail(f"{TREE.name}: the patches of topic {of.topic.name} are in another order than in patches/series")
    without, lines, files = of.without, [], {}
    for subject, patch in own.items():
        if subject in here:
            lines.append(f"{patch.name}\n")
            if diff := difference(patch, here[subject], options):
                files[of.home / f"{patch.name}.diff"] = diff
        elif patch.name in without:
            lines.append(f"without {patch.name}: {without[patch.name]}\n")
        else:
            raise Fail(
                f"{TREE.name} has no commit for {of.topic.name}/{patch.name}: say in topics/{of.topic.name}/"
                f"{of.home.name}/series `without {patch.name}: why`"
            )
    return {of.home / "series": COMMENT + "".join(lines), **files}


def difference(patch: pathlib.Path, commit: str, options: list[str]) -> str:
    """What has to change in a topic's patch so that git am makes `commit` of it; "" if nothing has to."""
    theirs = patch.read_text()
    with tempfile.TemporaryDirectory(dir=cache()) as place:
        git(TREE, *options, "-o", place, "-1", commit)
        (made,) = pathlib.Path(place).iterdir()
        mine = made.read_text()
    same_words = message(theirs) == message(mine)
    for text in (theirs, alike(theirs, mine, same_words)):
        if (same_words or text != theirs) and gives(text, commit):
            mine = text
            break
    return "".join(
        difflib.unified_diff(theirs.splitlines(True), mine.splitlines(True), f"a/{patch.name}", f"b/{patch.name}", n=2)
    )


def message(text: str) -> str:
    """A patch's subject and message, without the header's other lines."""
    head, _, body = text.partition("\n---\n")[0].partition("\n\n")
    return head[head.index("\nSubject: ") :] + body


def gives(text: str, commit: str) -> bool:
    """Whether a patch makes of the commit's parent the commit's files."""
    with tempfile.TemporaryDirectory(dir=cache()) as place:
        index = {"GIT_INDEX_FILE": f"{place}/index"}
        git(TREE, "read-tree", f"{commit}^", env=index)
        applied = git(TREE, "apply", "--cached", "--whitespace=nowarn", "-", stdin=text, check=False, env=index)
        if applied.returncode:
            return False
        files = git(TREE, "write-tree", env=index).stdout
    return files == git(TREE, "rev-parse", f"{commit}^{{tree}}").stdout


def alike(theirs: str, mine: str, same_words: bool) -> str:
    """`mine`, with what says nothing taken from `theirs`: places in files, names of blobs, an equal message."""
    head, files = sections(mine)
    other_head, others = sections(theirs)
    found = [other_head if same_words else head]
    for name, (start, hunks) in files.items():
        other_start, other_hunks = others.get(name, (start, []))
        known = {body: line for line, body in other_hunks}
        plain = re.sub(r"^index .*\n", "", start, flags=re.M)
        found.append(other_start if plain == re.sub(r"^index .*\n", "", other_start, flags=re.M) else start)
        found += [known.get(body, line) + body for line, body in hunks]
    return "".join(found)


def sections(text: str) -> tuple[str, dict[str, tuple[str, list[tuple[str, str]]]]]:
    """(what stands before the first file, {file: (its header, [(the line @@ of a hunk, the hunk)])})."""
    head, *parts = re.split(r"^(?=diff --git )", text, flags=re.M)
    found = {}
    for part in parts:
        start, *hunks = re.split(r"^(?=@@ )", part, flags=re.M)
        cut = [hunk.partition("\n") for hunk in hunks]
        found[start.partition("\n")[0]] = (start, [(line + "\n", body) for line, _, body in cut])
    return head, found


def carried() -> list[str]:
    """What each topic says of how far it was carried to the lane."""
    return [f"{topic.name}: {topic.carried[lane()]}" for topic in store.everything() if lane() in topic.carried]


def differ(files: dict[pathlib.Path, str]) -> list[pathlib.Path]:
    """The files of the lane that are not as they would be written, and those that would not be there."""
    homes = {path.parent for path in files}
    there = {path for topic in store.everything() for path in topic.lane(lane()).home.glob("*") if path.is_file()}
    gone = [path for path in there - files.keys() if path.suffix == ".diff" or path.parent not in homes]
    return sorted([*gone, *(path for path, text in files.items() if path not in there or path.read_text() != text)])


def write(files: dict[pathlib.Path, str]) -> None:
    for path in differ(files):
        if path in files:
            util.write(path, files[path])
        else:
            remove(path)
