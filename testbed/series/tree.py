# SPDX-License-Identifier: GPL-2.0
"""The series as a git tree to work in, and back, byte for byte.

In the tree a topic is an empty commit that holds the cover letter, then one commit a patch (b4 keeps its cover letters
the same way). So an interactive rebase can reorder, split, reword and drop patches and edit cover letters alike, and
what is exported is simply what stands there.
"""

import contextlib
import json
import os
import pathlib
import re
import tempfile
from collections.abc import Iterable, Iterator
from typing import NoReturn

from ..util import ROOT, TREE, Fail, digest, lane, lock, project, remove, say, write
from . import lane as lanes
from . import topics as store
from .base import GIT_ENV, Base, git, package
from .topics import COVER, NAME, Topic, queue_digest, series, subject_of

PERSON, EMAIL = GIT_ENV["GIT_AUTHOR_NAME"], GIT_ENV["GIT_AUTHOR_EMAIL"]
ADDRESS = f"{PERSON} <{EMAIL}>"
# What `make tree` sets in the tree.
CONFIG = (f"user.name={PERSON}", f"user.email={EMAIL}", "commit.cleanup=scissors")
# A mark no patch's subject begins with; what follows is the topic's name.
MARK = "topic: "
# Without the other topics, lines of theirs beside a hunk are not there: one line of context has to match.
ALONE = "-C1"
# How many commits of a base's history are searched for the queue's: some nine months.
HISTORY = 50_000
FORMAT = [
    "format-patch",
    "--zero-commit",
    "--no-signature",
    "--no-numbered",
    "--abbrev=12",
    "--no-color",
    "-M",
    "--stat=80",
    "--diff-algorithm=histogram",
    "-q",
]


def depends_on(name: str, letter: str) -> list[str]:
    """What the cover letter's line `Depends on: …` names: topics, or `the base alone`."""
    found = re.search(r"^Depends on: (.+)$", letter, re.M)
    if not found:
        raise Fail(
            f"{name}: its cover letter has no line `Depends on: the base alone` or `Depends on: TOPIC, TOPIC`: add it"
        )
    return [] if found[1] == "the base alone" else [t.strip() for t in found[1].split(",")]


def start(repo: pathlib.Path, commit: str) -> None:
    """Leave `repo`'s working tree at `commit`, with nothing of an earlier git am's in it."""
    git(repo, "am", "--abort", check=False)
    git(repo, "checkout", "-q", "--force", "--detach", commit)
    git(repo, "clean", "-fdq")


@contextlib.contextmanager
def index(repo: pathlib.Path, commit: str) -> Iterator[dict[str, str]]:
    """An index with a commit's files, as git's environment: what is done in it leaves the working tree alone."""
    with tempfile.TemporaryDirectory(prefix="knfsd-queue-") as place:
        env = {"GIT_INDEX_FILE": f"{place}/index"}
        git(repo, "read-tree", commit, env=env)
        yield env


def commit_index(repo: pathlib.Path, env: dict[str, str], parent: str, text: str, when: dict[str, str]) -> str:
    """The commit of an index's files on a parent."""
    files = git(repo, "write-tree", env=env).stdout.strip()
    return git(repo, "commit-tree", files, "-p", parent, "-F", "-", stdin=text, env=when).stdout.strip()


def apply(repo: pathlib.Path, topics: Iterable[Topic], commit: str, *options: str, letters: bool = True) -> str:
    """Put `topics` on `commit` in `repo`, one commit a patch, as git am would; returns the last commit.

    options are git apply's: ALONE for topics without the others that stand before them. letters: whether a topic
    begins with a commit of its cover letter. The working tree stays as it is, unless a patch does not apply: that is a
    Fail that names it, says which hunks were refused, and whether the base has it.
    """
    with index(repo, commit) as env:
        for topic in topics:
            if letters:
                message = f"{MARK}{topic.name}\n\n{topic.subject}\n\n{topic.letter}\n"
                commit = commit_index(repo, env, commit, message, author(ADDRESS, "@0 +0000"))
            for patch in topic.patches:
                message, written = mail(repo, patch)
                words = ("apply", "--cached", "--whitespace=nowarn", *options, patch)
                if git(repo, *words, check=False, env=env).returncode:
                    refuse(repo, commit, topic, patch, *options)
                commit = commit_index(repo, env, commit, message, written)
    return commit


def applies(repo: pathlib.Path, topics: Iterable[Topic], commit: str) -> None:
    """Fail as apply() unless `topics` can be put on `commit` without the others that stand before them."""
    topics = list(topics)
    patches = [patch for topic in topics for patch in topic.patches]
    with index(repo, commit) as env:
        words = ("apply", "--cached", "--whitespace=nowarn", ALONE)
        if git(repo, *words, *patches, check=False, env=env).returncode:
            apply(repo, topics, commit, ALONE)


def mail(repo: pathlib.Path, patch: pathlib.Path) -> tuple[str, dict[str, str]]:
    """(message, git's environment that says who wrote it and when) of a patch, as git am reads them."""
    with tempfile.TemporaryDirectory(prefix="knfsd-queue-") as place:
        said = git(repo, "mailinfo", "-b", f"{place}/message", f"{place}/patch", stdin=patch.read_text()).stdout
        message = pathlib.Path(place, "message").read_text()
    head = dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)
    text = git(repo, "stripspace", stdin=f"{head['Subject']}\n\n{message}").stdout
    return text, author(f"{head['Author']} <{head['Email']}>", head["Date"])


def author(address: str, date: str) -> dict[str, str]:
    """git's environment for a commit by an author of that date, at that date, whenever it is made."""
    name, _, email = address.rstrip(">").partition(" <")
    return {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}


def refuse(repo: pathlib.Path, commit: str, topic: Topic, patch: pathlib.Path, *options: str) -> NoReturn:
    """Have git am say why a patch does not apply, and Fail with that."""
    start(repo, commit)
    words = ("am", "-q", "--keep-non-patch", "--committer-date-is-author-date", "--no-3way")
    done = git(repo, *words, *options, patch, check=False)
    said = refused(repo, done.stdout) if done.returncode else "git am takes it, and git apply does not"
    raise Fail(f"{topic.name}/{patch.name}: {said}")


def merged(base: Base, topics: Iterable[Topic]) -> list[str]:
    """A line for each patch whose subject, its own or upstream's, is in the base's history.

    What a patch is called upstream its topic.toml says; no patch need apply for that.
    """
    log = git(base.repo, "log", f"--max-count={HISTORY}", "--format=%h %s", base.commit).stdout
    there = {subject.lower(): made for made, _, subject in (line.partition(" ") for line in log.splitlines())}
    found = []
    for topic in topics:
        for patch in topic.patches:
            ours = subject_of(patch)
            found += [
                f'{topic.name}/{patch.name}: the base has {there[name.lower()]}, "{name}": '
                "remove the patch's line from its series"
                for name in {ours, topic.upstream.get(ours, ours)}
                if name.lower() in there
            ]
    return found


def refused(repo: pathlib.Path, said: str) -> str:
    """The message for a patch git am refused: which, where, the reject, and what to do. Leaves the repository clean."""
    state = pathlib.Path(git(repo, "rev-parse", "--absolute-git-dir").stdout.strip()) / "rebase-apply"
    if not (state / "patch").is_file():
        return f"git am failed:\n{said.rstrip()}"
    subject = next((line for line in (state / "final-commit").read_text().splitlines()), "(no subject)")
    patch = state / "patch"
    there = git(repo, "apply", "--reverse", "--check", patch, check=False).returncode == 0
    text = [f'does not apply: "{subject}"']
    if there:
        text.append("The base has this change already: remove the patch's line from its series.")
    else:
        git(repo, "apply", "--reject", patch, check=False)
        for rej in git(repo, "ls-files", "--others", "--ignored", "--exclude=*.rej").stdout.split():
            text += [f"refused in {rej.removesuffix('.rej')}:", (repo / rej).read_text().rstrip()]
            (repo / rej).unlink()
        text += [
            said.rstrip(),
            "Rework the patch on this base (`make tree` on the base it was made for, then rebase), or use that base."
            if not lane()
            else f"Port it to this kernel: a .diff in the topic's {package().home}/, or `without` there "
            "(docs/contributors.md).",
        ]
    git(repo, "am", "--abort", check=False)
    git(repo, "reset", "-q", "--hard")
    git(repo, "clean", "-fdq")
    return "\n".join(text)


# The tree to work in.


def state_file() -> pathlib.Path:
    return TREE / ".git" / "knfsd-queue"


def state() -> dict[str, str] | None:
    """What the tree was made from: {base, commit, digest, head}; None without a tree."""
    return json.loads(state_file().read_text()) if state_file().is_file() else None


def write_state(**new: str) -> None:
    temporary = state_file().with_name("knfsd-queue.part")
    temporary.write_text(json.dumps(new, indent=1) + "\n")
    temporary.rename(state_file())


def untouched(was: dict[str, str]) -> bool:
    """Whether the tree holds nothing but what it was made with."""
    return git(TREE, "rev-parse", "HEAD").stdout.strip() == was["head"] and not loose()


def loose() -> str:
    """What in the tree no commit holds: changed and new files, a rebase or git am under way."""
    found = git(TREE, "status", "--porcelain").stdout
    for part in ("rebase-apply", "rebase-merge"):
        if (TREE / ".git" / part).exists():
            found += f"a rebase or git am is under way ({part})\n"
    return found


def tree(base: Base, force: bool = False) -> None:
    """Materialise base + patches in tree/, or bring it up to date; never over work that was not exported."""
    with lock("tree-" + digest(str(ROOT))):
        was = state()
        if TREE.exists() and not was:
            if not begun():
                raise Fail(f"{TREE} is there, and `make tree` has not made it: move it away, for that is its place")
            say("sweeping a tree that was never finished")
            remove(TREE)
        now = queue_digest()
        if was and untouched(was):
            if (was["commit"], was["digest"]) == (base.commit, now):
                return say(f"{TREE.name}/ is up to date: {base.name} and {len(topic_commits())} commits")
        elif was and not force:
            raise Fail(
                f"{TREE.name}/ holds work that topics/ does not: `make export` it first, or `make tree FORCE=1`, which "
                f"keeps it on a branch saved-N of {TREE.name}/ and in its stash"
            )
        elif was:
            save()
        if not was:
            say(f"making {TREE.name}/ from {base.name}")
            git(None, "clone", "-q", "--no-checkout", *(f"--config={one}" for one in CONFIG), base.repo, TREE)
        else:
            git(TREE, "fetch", "-q", base.repo, base.commit)
        head = apply(TREE, series(), base.commit)
        start(TREE, head)
        git(TREE, "checkout", "-q", "-B", "queue", head)
        write_state(base=base.name, commit=base.commit, digest=now, head=head)
        say(f"{TREE.name}/ holds {base.name} and the queue; work there (commit, rebase -i), then `make export`")


def begun() -> bool:
    """Whether a tree that is not finished is ours: a clone has its settings before anything else."""
    if not (TREE / ".git").is_dir():
        return not any(TREE.iterdir())
    return set(CONFIG) <= set(git(TREE, "config", "--local", "--list", check=False).stdout.splitlines())


def save() -> None:
    """Keep what the tree holds: loose changes in the stash, commits on a branch saved-N."""
    for abort in ("am", "rebase"):
        git(TREE, abort, "--abort", check=False)
    git(TREE, "stash", "push", "-q", "--include-untracked", check=False)
    taken = git(TREE, "branch", "--list", "saved-*", "--format=%(refname:short)").stdout.split()
    name = f"saved-{1 + max((int(t.split('-')[1]) for t in taken if t.split('-')[1].isdigit()), default=0)}"
    git(TREE, "branch", name)
    say(f"what {TREE.name}/ held is on its branch {name}; loose changes are in its stash")


def topic_commits() -> list[tuple[str, str]]:
    """[(commit, subject)] of the tree, oldest first, cover letters included."""
    was = state()
    if not was:
        return []
    out = git(TREE, "log", "--reverse", "--format=%H %s", f"{was['commit']}..HEAD").stdout
    return [(commit, subject) for commit, _, subject in (line.partition(" ") for line in out.splitlines())]


def by_topic() -> list[tuple[str, str, list[str]]]:
    """[(the topic's first commit, its name, [commit of a patch])] of the tree."""
    topics: list[tuple[str, str, list[str]]] = []
    for commit, subject in topic_commits():
        if subject.startswith(MARK):
            topics.append((commit, subject.removeprefix(MARK).strip(), []))
        elif not topics:
            raise Fail(
                f'{TREE.name}/: the commit "{subject}" stands before the first topic: '
                f"rebase it behind a commit `{MARK}NAME`"
            )
        else:
            topics[-1][2].append(commit)
    return topics


def lane_files() -> dict[pathlib.Path, str]:
    """{file: text} of what the lane's tree makes of the topics' directories of the lane."""
    return lanes.export({name: commits for _, name, commits in by_topic()}, FORMAT)


def write_patches(target: pathlib.Path) -> dict[str, tuple[str, str]]:
    """Write what the tree holds below the directory `target` as topics/ has it.

    Returns {topic: its cover letter's (subject, letter)}.
    """
    covers = {}
    for mark, name, commits in by_topic():
        if not re.fullmatch(NAME, name) or name in covers:
            raise Fail(f"{TREE.name}/: `{MARK}{name}`: a topic's name is of a-z, 0-9 and -, and stands once")
        if not commits:
            raise Fail(f"{TREE.name}/: topic {name} has no patch: drop its commit `{MARK}{name}`")
        out = target / name / "patches"
        out.mkdir(parents=True)
        git(TREE, *FORMAT, "-o", out, f"{mark}..{commits[-1]}")
        made = sorted(path.name for path in out.iterdir())
        if len(made) != len(commits):
            raise Fail(
                f"{TREE.name}/: topic {name}: {len(commits)} commits gave {len(made)} patches; "
                "merges and empty commits cannot be mailed"
            )
        (out / "series").write_text("".join(f"{file}\n" for file in made))
        (out / COVER).write_text(cover(name, mark, commits))
        covers[name] = store.read_cover(out / COVER)
    return covers


def cover(name: str, mark: str, commits: list[str]) -> str:
    """The cover letter as a file: the commit's own text, then the generated list and diffstat."""
    message = git(TREE, "log", "-1", "--format=%B", mark).stdout
    _, subject, letter = (message.strip().split("\n\n", 2) + ["", ""])[:3]
    subject = " ".join(subject.split())
    if not subject or not letter:
        raise Fail(
            f"{TREE.name}/: the commit `{MARK}{name}` holds no cover letter: "
            "a line with its subject, an empty line, the letter"
        )
    depends_on(name, letter)
    date = git(TREE, "log", "-1", "--format=%aD", commits[-1]).stdout.strip()
    titles = git(TREE, "log", "--reverse", "--format=  %s", f"{mark}..{commits[-1]}").stdout
    stat = git(TREE, "diff", "--stat=80", "--summary", "-M", mark, commits[-1]).stdout
    return (
        f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: {ADDRESS}\nDate: {date}\nSubject: [PATCH] {subject}\n\n"
        f"{letter.strip()}\n\n---\n{len(commits)} patches:\n{titles}\n{stat}"
    )


def agreed(covers: dict[str, tuple[str, str]]) -> None:
    """Fail unless topics/ can take these topics as they are: what goes by hand is named before anything is written."""
    for topic in store.everything():
        if topic.base != project() and topic.name in covers:
            raise Fail(f"topics/{topic.name} is of another base ({topic.base or 'the kernel'}): take another name")
        if topic.parked and topic.name in covers:
            raise Fail(
                f'topics/{topic.name} is {topic.state}: write `state = "draft"` in its topic.toml to have it back'
            )
    have = {topic.name: topic for topic in series()}
    for name, (_, letter) in covers.items():
        said = depends_on(name, letter)
        if name in have and sorted(have[name].depends_on) != sorted(said):
            raise Fail(
                f"topics/{name}/topic.toml has depends_on = {json.dumps(have[name].depends_on)}, the cover letter says "
                f"`Depends on: {', '.join(said) or 'the base alone'}`: make them agree"
            )
    for name in have.keys() - covers.keys():
        home = have[name].home
        more = sorted(path.name for path in home.iterdir() if path.name not in ("patches", "topic.toml"))
        if more:
            raise Fail(
                f"{TREE.name}/ has no topic {name} any more, and topics/{name} still holds {', '.join(more)}: "
                f"`cd topics/{name} && git rm -r {' '.join(more)}` if it is to go, then `make export`, which removes "
                "the rest"
            )


def experiments_last(names: Iterable[str]) -> None:
    """Fail where a topic stands behind an experiment in the tree, as a new one does that was begun at its end."""
    if wrong := store.misplaced(names, [topic.name for topic in store.everything() if topic.experiment]):
        name, before = wrong
        raise Fail(
            f"{TREE.name}/: the topic {name} stands behind {before}, an experiment: experiments stand last. In "
            f"{TREE.name}/, `git rebase -i 'HEAD^{{/^{MARK}{before}}}^'` and move the lines of {name} to the top, "
            "then `make export`"
        )


def write_order(names: Iterable[str], others: Iterable[str]) -> None:
    """Bring topics/order up to date, unless it has the topics in this order already."""
    path = store.TOPICS / "order"
    if not in_order(names, others):
        comments = [line for line in path.read_text().splitlines() if line.startswith("#")] if path.is_file() else []
        apart = [name for name in store.listed(path) if name in others]
        # The kernel's come first.
        lines = [*apart, *names] if project() else [*names, *apart]
        write(path, "".join(f"{line}\n" for line in [*comments, *lines]))


def in_order(names: Iterable[str], others: Iterable[str]) -> bool:
    """Whether topics/order has these topics, each in a line, in this order; others may be anywhere."""
    return [name for name in store.listed(store.TOPICS / "order") if name not in others] == list(names)


def absent() -> list[str]:
    """The topics that this tree does not have: those that are parked, and those of another base."""
    return [topic.name for topic in store.everything() if topic.parked or topic.base != project()]


def export() -> None:
    """Write the tree's commits back to topics/NAME/patches."""
    with lock("tree-" + digest(str(ROOT))):
        was = state()
        if not was:
            raise Fail(f"there is no {TREE.name}/ to export: `make tree` first")
        if loose():
            raise Fail(
                f"{TREE.name}/ holds what no commit does:\n{loose().rstrip()}\n"
                "Commit it (or finish the rebase), then `make export`"
            )
        if untouched(was):
            return say(f"{TREE.name}/ is as it was made: nothing to export")
        if queue_digest() != was["digest"]:
            raise Fail(
                f"the patches have changed since {TREE.name}/ was made (a pull, a checkout, an export that was "
                "interrupted): exporting would undo that. `make tree FORCE=1` makes the tree anew and keeps its "
                "commits on a branch saved-N; cherry-pick them from there"
            )
        if lane():
            lanes.write(lane_files())
        else:
            others = absent()
            with tempfile.TemporaryDirectory(dir=ROOT, prefix=".export-") as place:
                new = pathlib.Path(place)
                covers = write_patches(new)
                agreed(covers)
                experiments_last(covers)
                replace(new, covers)
            write_order(covers, others)
        write_state(**{**was, "digest": queue_digest(), "head": git(TREE, "rev-parse", "HEAD").stdout.strip()})
        say(f"topics/ holds {sum(len(t.patches) for t in series())} patches in {len(series())} topics")


def replace(new: pathlib.Path, covers: dict[str, tuple[str, str]]) -> None:
    """Put the patches below `new` in the place of those in topics/, touching only files that differ."""
    for name, (subject, letter) in covers.items():
        target = store.TOPICS / name
        (target / "patches").mkdir(parents=True, exist_ok=True)
        for path in (new / name / "patches").iterdir():
            place = target / "patches" / path.name
            if not place.is_file() or place.read_bytes() != path.read_bytes():
                os.replace(path, place)
        made = {COVER, "series", *store.listed(target / "patches" / "series")}
        for path in (target / "patches").iterdir():
            if path.name not in made:
                path.unlink()
        if not (target / "topic.toml").is_file():
            (target / "topic.toml").write_text(
                f'title = {json.dumps(subject)}\nstate = "draft"\nlists = []\n'
                + (f"base = {json.dumps(project())}\n" if project() else "")
                + f"depends_on = {json.dumps(depends_on(name, letter))}\n"
            )
            say(
                f"topics/{name}/topic.toml is new: say there whom the topic is for and what tests it "
                "(docs/contributors.md)"
            )
    kept = {*covers, *absent()}
    for topic in [home for home in store.TOPICS.iterdir() if home.is_dir() and home.name not in kept]:
        remove(topic)


def check_exported() -> None:
    """Fail when tree/ holds what topics/ does not. Fast: it is meant for hooks."""
    was = state()
    if not was:
        return say(f"there is no {TREE.name}/, so nothing in it is lost")
    if loose():
        raise Fail(
            f"{TREE.name}/ holds what no commit does, and topics/ even less:\n{loose().rstrip()}\n"
            "Commit it there, then `make export`"
        )
    if untouched(was):
        return say(f"{TREE.name}/ holds nothing that topics/ does not")
    if lane():
        differ = [str(path.relative_to(store.TOPICS)) for path in lanes.differ(lane_files())]
    else:
        with tempfile.TemporaryDirectory(prefix="knfsd-queue-") as place:
            new = pathlib.Path(place)
            names = list(write_patches(new))
            differ = different(new, store.TOPICS) + ["order"] * (not in_order(names, absent()))
    if differ:
        raise Fail(
            f"{TREE.name}/ holds commits that topics/ does not; `make export` writes:\n"
            + "\n".join(f"  topics/{d}" for d in differ)
        )
    say(f"{TREE.name}/ holds nothing that topics/ does not")


def different(one: pathlib.Path, other: pathlib.Path) -> list[str]:
    """The relative paths of patches and their lists that differ between two directories, but for absent topics."""
    others = absent()

    def files(top: pathlib.Path) -> dict[str, bytes]:
        found = [path for path in top.glob("*/patches/*") if path.parts[-3] not in others]
        return {str(path.relative_to(top)): path.read_bytes() for path in found}

    a, b = files(one), files(other)
    return sorted(path for path in a.keys() | b.keys() if a.get(path) != b.get(path))
