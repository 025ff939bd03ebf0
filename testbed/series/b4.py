# SPDX-License-Identifier: GPL-2.0
"""A topic as b4 keeps a series: a branch that begins with an empty commit, of the letter and what b4 knows of it.

`b4 prep --show-info` reads such a branch, and `b4 send -o` writes its messages. It goes into a git bundle, which is one
file and is fetched into whatever repository has the base.
"""

import json
import pathlib
import re

from ..util import Fail, digest
from .base import Base, git, prefix
from .topics import Topic

# What b4 looks for in a commit's message, and what it says of it.
MAGIC = "--- b4-submit-tracking ---\n# This section is used internally by b4 prep for tracking purposes.\n"
# The b4 that was tried. Debian 12's own, 0.12, writes no prerequisites, and names a base that nobody else has.
SINCE = "0.16"


def change_id(topic: Topic) -> str:
    """What all versions of the topic have in common; the last part keeps it apart from others of that name."""
    return f"knfsd-{topic.name}-{digest('change-id', topic.name)[:12]}"


def tracking(topic: Topic, version: int, base: Base, prerequisites: list[str]) -> dict[str, object]:
    """b4's own record. Without prerequisites its base is the commit before the letter, which then is the base."""
    needs = [f"base-commit: {base.commit}", *(f"patch-id: {one}" for one in prerequisites)] if prerequisites else []
    series = {"revision": version, "change-id": change_id(topic), "prefixes": prefix(), "prerequisites": needs}
    return {"series": series}


def check(topic: Topic, letter: str) -> None:
    """b4 takes lines that begin with # for comments, and drops them."""
    found = re.search(r"^#.*", letter, re.M)
    if found:
        raise Fail(f'{topic.name}: its letter has a line that b4 would drop for its #: "{found[0]}": indent it')


def bundle(
    base: Base,
    topic: Topic,
    version: int,
    commits: tuple[str, str],
    letter: str,
    people: tuple[list[str], list[str]],
    prerequisites: list[str],
    path: pathlib.Path,
) -> None:
    """Write the branch b4/NAME to the bundle `path`: the letter, then the patches between the two `commits`.

    The bundle also holds the patches of the topics it depends on, and needs nothing but the base.
    """
    check(topic, letter)
    onto, head = commits
    to, cc = people
    lines = [*(f"To: {one}" for one in to), *(f"Cc: {one}" for one in cc)]
    addresses = "\n\n" + "\n".join(lines) if lines else ""
    record = json.dumps(tracking(topic, version, base, prerequisites), indent=2)
    branch = f"refs/heads/b4/{topic.name}"
    message = f"{topic.subject}\n\n{letter}{addresses}\n\n{MAGIC}{record}\n"
    # Each with today's date: b4 looks at no branch that is older than a year.
    made = git(base.repo, "commit-tree", f"{onto}^{{tree}}", "-p", onto, "-F", "-", stdin=message).stdout.strip()
    for commit in git(base.repo, "rev-list", "--reverse", f"{onto}..{head}").stdout.split():
        said = git(base.repo, "log", "-1", "--date=raw", "--format=%an%n%ae%n%ad%n%B", commit).stdout
        *author, text = said.split("\n", 3)
        env = dict(zip(("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"), author))
        words = ("commit-tree", f"{commit}^{{tree}}", "-p", made, "-F", "-")
        made = git(base.repo, *words, stdin=text.rstrip("\n") + "\n", env=env).stdout.strip()
    git(base.repo, "update-ref", branch, made)
    try:
        git(base.repo, "bundle", "create", "-q", path, f"{base.commit}..{branch}")
    finally:
        git(base.repo, "update-ref", "-d", branch)
