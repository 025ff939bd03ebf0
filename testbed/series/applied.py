# SPDX-License-Identifier: GPL-2.0
"""The series applied: its commits in the base's repository, kernels that differ from it in one patch, and their files.

Hold the lock `source` around whatever checks out, and around what is built from it.
"""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Iterable

from ..util import Fail, cache, digest, need_space, say, whole
from . import post, tree
from . import topics as store
from .base import Base, git
from .topics import Topic

# What no object is compiled from.
PROSE = re.compile(
    r"^(Documentation|samples|LICENSES)/|^tools/$|^tools/(testing|memory-model)/|^(MAINTAINERS|CREDITS|\.[\w.-]+)$"
)


@dataclasses.dataclass(frozen=True)
class Step:
    """A patch of the series, and its commit."""

    topic: Topic
    patch: pathlib.Path
    commit: str

    @property
    def name(self) -> str:
        return f"{self.topic.name}/{self.patch.name}" + (" alone" if self.topic.only else "")


def branch(base: Base, name: str) -> str:
    """The commit of a branch in base.repo; "" if there is none."""
    return git(base.repo, "rev-parse", "--verify", "-q", f"refs/heads/{name}^{{commit}}", check=False).stdout.strip()


def kept(base: Base) -> str:
    """The commit of the whole series, if it has been applied; "" if not."""
    return branch(base, name())


def name(topics: list[Topic] | None = None) -> str:
    return f"queue-{store.queue_digest(topics)}"


def commits(base: Base, of: str | None = None) -> dict[str, str]:
    """{"base": commit, "patched": commit} in base.repo, after applying the series there; of: see store.series()."""
    topics = store.series(of=of)
    head = branch(base, name(topics))
    if not head:
        say("applying the series")
        head = tree.apply(base.repo, topics, base.commit)
        git(base.repo, "branch", "-f", name(topics), head)
    return {"base": base.commit, "patched": head}


def proposed(base: Base) -> str:
    """The commit of the series without its experiments, which stand last."""
    head = commits(base)["patched"]
    experiments = [topic.name for topic in store.series() if topic.experiment]
    return git(base.repo, "rev-parse", f"{mark(base, experiments[0], head)}^").stdout.strip() if experiments else head


def steps(base: Base, topics: Iterable[Topic] | None = None) -> list[Step]:
    """Every patch of the series with its commit, in order; or those of some topics."""
    made = git(base.repo, "rev-list", "--reverse", f"{base.commit}..{commits(base)['patched']}").stdout.split()
    found = []
    for topic in store.series():
        made.pop(0)  # the cover letter
        found += [Step(topic, patch, made.pop(0)) for patch in topic.patches]
    wanted = None if topics is None else {topic.name for topic in topics}
    return [step for step in found if wanted is None or step.topic.name in wanted]


def first(base: Base, topics: Iterable[Topic]) -> list[Step]:
    """The patches that are posted before all of their topic, on the base and nothing else."""
    found = []
    for topic in [post.part(one, some) for one in topics for some in one.first]:
        head = tree.apply(base.repo, [topic], base.commit, tree.ALONE, letters=False)
        made = git(base.repo, "rev-list", "--reverse", f"{base.commit}..{head}").stdout.split()
        found += [Step(topic, patch, commit) for patch, commit in zip(topic.patches, made)]
    return found


def mark(base: Base, topic: str, patched: str) -> str:
    """The commit of the series that a topic begins with, and which changes nothing."""
    found = git(
        base.repo, "log", "--format=%H", f"--grep=^{tree.MARK}{topic}$", f"{base.commit}..{patched}"
    ).stdout.split()
    if len(found) != 1:
        raise Fail(f'the series has {len(found)} commits "{tree.MARK}{topic}"')
    return found[0]


def alone(base: Base, topic: str, number: int | None = None) -> str:
    """The commit of a topic, or of its first patches, on what it depends on and nothing else."""
    topics = store.closure(store.series(), topic)
    known_as = f"alone-{topic}-{digest(base.commit, store.queue_digest(topics))}"
    if not branch(base, known_as):
        say(f"applying {topic} alone")
        git(base.repo, "branch", "-f", known_as, tree.apply(base.repo, topics, base.commit, tree.ALONE))
    many = len(topics[-1].patches)
    return git(base.repo, "rev-parse", f"{known_as}~{many - (number or many)}").stdout.strip()


def variant_branch(commit: str, patch: str) -> str:
    return f"variant-{digest(commit, patch)}"


def variant(base: Base, commit: str, title: str, patch: str) -> str:
    """The commit that a test-only patch makes of `commit`, in base.repo."""
    known_as = variant_branch(commit, patch)
    if made := branch(base, known_as):
        return made
    # Without the working tree, where files that came and went again would have to be compiled again.
    with tree.index(base.repo, commit) as env:
        applied = git(base.repo, "apply", "--cached", "-", stdin=patch, check=False, env=env)
        if applied.returncode:
            raise Fail(f"the patch of the variant {title} does not apply to the series:\n{applied.stdout.rstrip()}")
        when = {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}
        made = tree.commit_index(base.repo, env, commit, f"test only: {title}", when)
    git(base.repo, "branch", "-f", known_as, made)
    return made


def checkout(base: Base, commit: str) -> None:
    git(base.repo, "checkout", "-q", "--force", "--detach", commit)
    git(base.repo, "clean", "-fdq")


def date(base: Base, names: Iterable[str]) -> None:
    """Have files of the commit that is checked out be newer than what was made of them."""
    there = [path for name in names if (path := base.repo / name).is_file()]
    for path in there:
        path.touch()
    if there:
        # Or the next checkout would write them again.
        git(base.repo, "update-index", "-q", "--refresh")


def second(base: Base) -> Base:
    """The base with a second working tree, which is made once, so that two commits can be checked out at a time."""
    place = cache() / "second" / base.repo.name
    if not place.is_dir():
        need_space(cache(), 2, "a second working tree of the source")
        with whole(place) as part:
            # It has no objects of its own, and no branches, which would be in the way when theirs are gone.
            git(None, "clone", "-q", "--shared", "--no-checkout", "--single-branch", base.repo, part)
    return dataclasses.replace(base, repo=place)


def content(base: Base, commit: str) -> str:
    """What identifies a commit's files: a patch whose message alone has changed makes the same kernel."""
    return git(base.repo, "rev-parse", f"{commit}^{{tree}}").stdout.strip()


def code(base: Base, commit: str) -> str:
    """A key of a commit's files that objects are compiled from: neither prose nor tests of user space."""
    said = [git(base.repo, "ls-tree", commit, *place).stdout for place in ((), ("tools/",))]
    return digest(*(line for lines in said for line in lines.splitlines() if not PROSE.search(entry(line))))


def prose(name: str) -> bool:
    return bool(PROSE.search(name))


def entry(line: str) -> str:
    """The name of a line of git ls-tree's, a directory's with a slash."""
    about, _, path = line.partition("\t")
    return path + "/" * (about.split()[1] == "tree")


def selftests(base: Base, commit: str) -> str:
    """A key of a commit's files that selftests are built from: theirs, and the interface of user space."""
    places = ("Makefile", "scripts", "tools", "include/uapi", "arch/x86/include/uapi", "Documentation/netlink")
    return digest(git(base.repo, "ls-tree", commit, *places).stdout)


def touched(base: Base, commit: str, before: str = "") -> list[str]:
    """The files that a commit, or all since `before`, adds or changes."""
    return git(base.repo, "diff", "--name-only", "--diff-filter=d", before or f"{commit}^", commit).stdout.split()


@functools.cache
def blobs(base: Base, commit: str) -> dict[str, str]:
    """{file: the key of its text} of all that a commit has otherwise than the base; "" if it is gone."""
    said = git(base.repo, "diff", "--raw", "--no-renames", "--no-abbrev", base.commit, commit).stdout
    found = (line.partition("\t") for line in said.splitlines())
    return {path: new if (new := about.split()[3]).strip("0") else "" for about, _, path in found}


def read(base: Base, commit: str, path: str) -> str:
    """The text of a file of a commit; "" if there is none."""
    done = git(base.repo, "show", f"{commit}:{path}", check=False)
    return "" if done.returncode else done.stdout
