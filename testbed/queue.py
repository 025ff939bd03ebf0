# SPDX-License-Identifier: GPL-2.0
"""The queue: patches/ as a series, as a git tree to work in, and back, byte for byte.

In the tree a topic is an empty commit that holds the cover letter, then one commit a patch (b4 keeps its cover letters the same
way). So an interactive rebase can reorder, split, reword and drop patches and edit cover letters alike, and what is
exported is simply what stands there.
"""

import dataclasses
import json
import os
import pathlib
import re
import tempfile

from .base import git
from .util import PATCHES, ROOT, TREE, Fail, digest, lock, remove, say

COVER = "0000-cover-letter.patch"
ADDRESS = "knfsd-queue <knfsd-queue@example.invalid>"
# A mark no patch's subject begins with; what follows is the topic's name.
MARK = "topic: "
# Fixes of ours that nfsd-next is said to carry under another subject.
ELSEWHERE = {"NFSD: Use direct I/O for a READ only where it ends the COMPOUND": "nfsd: use direct I/O only for the last operation in a COMPOUND"}
# How many commits of a base's history are searched for the queue's: some nine months.
HISTORY = 50_000
FORMAT = ["format-patch", "--zero-commit", "--no-signature", "--no-numbered", "--abbrev=12", "--no-color", "-M", "--stat=80",
          "--diff-algorithm=histogram", "-q"]


@dataclasses.dataclass(frozen=True)
class Topic:
    """One mailable series: its name, subject, cover letter, patches, and the topics it stands on."""
    name: str
    subject: str
    letter: str
    patches: tuple[pathlib.Path, ...]

    @property
    def stands_on(self):
        return stands_on(self.name, self.letter)


def stands_on(name, letter):
    """What the cover letter's line `Stands on: …` names: topics, or `the base alone`."""
    found = re.search(r"^Stands on: (.+)$", letter, re.M)
    if not found:
        raise Fail(f"{name}: its cover letter has no line `Stands on: the base alone` or `Stands on: TOPIC, TOPIC`: add it")
    return [] if found[1] == "the base alone" else [t.strip() for t in found[1].split(",")]


def series(patches=None):
    """The topics of patches/series in its order; every path it names must be there."""
    patches = patches or PATCHES
    listing = patches / "series"
    if not listing.is_file():
        raise Fail(f"{listing}: not found; it lists the patches in order, a path a line")
    lines = [line.strip() for line in listing.read_text().splitlines()]
    paths = [line for line in lines if line and not line.startswith("#")]
    topics = {}
    for path in paths:
        if not (patches / path).is_file():
            raise Fail(f"patches/series names {path}, which is not there: restore the file or remove the line")
        topics.setdefault(path.split("/")[0], []).append(patches / path)
    if [p.split("/")[0] for p in paths] != [name for name in topics for _ in topics[name]]:
        raise Fail("patches/series mixes topics: the patches of a topic stand together")
    return [Topic(name, *read_cover(patches / name / COVER), tuple(files)) for name, files in topics.items()]


def read_cover(path):
    """(subject, letter) of a cover letter: what stands between the header and the generated list of patches."""
    if not path.is_file():
        raise Fail(f"{path}: every topic has a cover letter of this name")
    return subject_of(path), path.read_text().partition("\n\n")[2].rpartition("\n---\n")[0].strip()


def subject_of(path):
    found = re.search(r"^Subject: \[PATCH\] (.+(?:\n .+)*)", path.read_text().partition("\n\n")[0], re.M)
    if not found:
        raise Fail(f"{path}: has no line `Subject: [PATCH] …`")
    return found[1].replace("\n ", " ")


def queue_digest():
    return digest(*(part for topic in series() for path in (PATCHES / topic.name / COVER, *topic.patches)
                    for part in (path.name, path)))


def apply(repo, topics, commit):
    """Put `topics` on `commit` in `repo`'s working tree, one commit a patch; returns the last commit.

    A patch that does not apply is a Fail that names it, says which hunks were refused, and whether the base has it already.
    """
    git(repo, "am", "--abort", check=False)
    git(repo, "checkout", "-q", "--force", "--detach", commit)
    git(repo, "clean", "-fdq")
    for topic in topics:
        message = f"{MARK}{topic.name}\n\n{topic.subject}\n\n{topic.letter}\n"
        when = {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}
        git(repo, "commit", "-q", "--allow-empty", "--cleanup=verbatim", "-F", "-", stdin=message, env=when)
        done = git(repo, "am", "-q", "--keep-non-patch", "--committer-date-is-author-date", "--no-3way", *topic.patches, check=False)
        if done.returncode:
            raise Fail(refused(repo, done.stdout))
    return git(repo, "rev-parse", "HEAD").stdout.strip()


def merged(base, topics):
    """A line for each patch whose subject, or its name in ELSEWHERE, is in the base's history; no patch need apply for that."""
    log = git(base.repo, "log", f"--max-count={HISTORY}", "--format=%h %s", base.commit).stdout
    there = {subject.lower(): made for made, _, subject in (line.partition(" ") for line in log.splitlines())}
    found = []
    for topic in topics:
        for patch in topic.patches:
            ours = subject_of(patch)
            found += [f"{topic.name}/{patch.name}: the base has {there[name.lower()]}, \"{name}\": remove the patch's line from patches/series"
                      for name in {ours, ELSEWHERE.get(ours, ours)} if name.lower() in there]
    return found


def refused(repo, said):
    """The message for a patch git am refused: which, where, the reject, and what to do. Leaves the repository clean."""
    state = pathlib.Path(git(repo, "rev-parse", "--absolute-git-dir").stdout.strip()) / "rebase-apply"
    if not (state / "patch").is_file():
        return f"git am failed:\n{said.rstrip()}"
    subject = next((line for line in (state / "final-commit").read_text().splitlines()), "(no subject)")
    patch = state / "patch"
    there = git(repo, "apply", "--reverse", "--check", patch, check=False).returncode == 0
    text = [f"does not apply: \"{subject}\""]
    if there:
        text.append("The base has this change already: remove the patch's line from patches/series.")
    else:
        git(repo, "apply", "--reject", patch, check=False)
        for rej in git(repo, "ls-files", "--others", "--ignored", "--exclude=*.rej").stdout.split():
            text += [f"refused in {rej.removesuffix('.rej')}:", (repo / rej).read_text().rstrip()]
            (repo / rej).unlink()
        text += [said.rstrip(), "Rework the patch on this base (`make tree` on the base it was made for, then rebase), or use that base."]
    git(repo, "am", "--abort", check=False)
    git(repo, "reset", "-q", "--hard")
    git(repo, "clean", "-fdq")
    return "\n".join(text)


# The tree to work in.

def state_file():
    return TREE / ".git" / "knfsd-queue"


def state():
    """What the tree was made from: {base, commit, digest, head}; None without a tree."""
    return json.loads(state_file().read_text()) if state_file().is_file() else None


def write_state(**new):
    temporary = state_file().with_name("knfsd-queue.part")
    temporary.write_text(json.dumps(new, indent=1) + "\n")
    temporary.rename(state_file())


def untouched(was):
    """Whether the tree holds nothing but what it was made with."""
    return git(TREE, "rev-parse", "HEAD").stdout.strip() == was["head"] and not loose()


def loose():
    """What in the tree no commit holds: changed and new files, a rebase or git am under way."""
    found = git(TREE, "status", "--porcelain").stdout
    for part in ("rebase-apply", "rebase-merge"):
        if (TREE / ".git" / part).exists():
            found += f"a rebase or git am is under way ({part})\n"
    return found


def tree(base, force=False):
    """Materialise base + patches in tree/, or bring it up to date; never over work that was not exported."""
    with lock("tree-" + digest(str(ROOT))):
        was = state()
        if TREE.exists() and not was:
            say("sweeping a tree that was never finished")
            remove(TREE)
        now = queue_digest()
        if was and untouched(was):
            if (was["commit"], was["digest"]) == (base.commit, now):
                return say(f"tree/ is up to date: {base.name} and {len(topic_commits())} commits")
        elif was and not force:
            raise Fail("tree/ holds work that patches/ does not: `make export` it first, or `make tree FORCE=1`, which keeps it "
                       "on a branch saved-N of tree/ and in its stash")
        elif was:
            save()
        if not was:
            say(f"making tree/ from {base.name}")
            git(None, "clone", "-q", "--no-checkout", base.repo, TREE)
        else:
            git(TREE, "fetch", "-q", base.repo, base.commit)
        git(TREE, "config", "user.name", "knfsd-queue")
        git(TREE, "config", "user.email", "knfsd-queue@example.invalid")
        git(TREE, "config", "commit.cleanup", "scissors")
        head = apply(TREE, series(), base.commit)
        git(TREE, "checkout", "-q", "-B", "queue", head)
        write_state(base=base.name, commit=base.commit, digest=now, head=head)
        say(f"tree/ holds {base.name} and the queue; work there (commit, rebase -i), then `make export`")


def save():
    """Keep what the tree holds: loose changes in the stash, commits on a branch saved-N."""
    for abort in ("am", "rebase"):
        git(TREE, abort, "--abort", check=False)
    git(TREE, "stash", "push", "-q", "--include-untracked", check=False)
    taken = git(TREE, "branch", "--list", "saved-*", "--format=%(refname:short)").stdout.split()
    name = f"saved-{1 + max((int(t.split('-')[1]) for t in taken if t.split('-')[1].isdigit()), default=0)}"
    git(TREE, "branch", name)
    say(f"what tree/ held is on its branch {name}; loose changes are in its stash")


def topic_commits():
    """[(commit, subject)] of the tree, oldest first, cover letters included."""
    out = git(TREE, "log", "--reverse", "--format=%H %s", f"{state()['commit']}..HEAD").stdout
    return [tuple(line.split(" ", 1)) for line in out.splitlines()]


def write_patches(target):
    """Write what the tree holds as patches into the directory `target`, with its series file."""
    topics = []
    for commit, subject in topic_commits():
        if subject.startswith(MARK):
            topics.append((commit, subject.removeprefix(MARK).strip(), []))
        elif not topics:
            raise Fail(f"tree/: the commit \"{subject}\" stands before the first topic: rebase it behind a commit `{MARK}NAME`")
        else:
            topics[-1][2].append(commit)
    listing = []
    for index, (mark, name, commits) in enumerate(topics):
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name) or name in [t[1] for t in topics[:index]]:
            raise Fail(f"tree/: `{MARK}{name}`: a topic's name is of a-z, 0-9 and -, and stands once")
        if not commits:
            raise Fail(f"tree/: topic {name} has no patch: drop its commit `{MARK}{name}`")
        out = target / name
        out.mkdir(parents=True)
        git(TREE, *FORMAT, "-o", out, f"{mark}..{commits[-1]}")
        made = sorted(path.name for path in out.iterdir())
        if len(made) != len(commits):
            raise Fail(f"tree/: topic {name}: {len(commits)} commits gave {len(made)} patches; merges and empty commits cannot be mailed")
        (out / COVER).write_text(cover(name, mark, commits))
        listing += [f"{name}/{file}" for file in made]
    (target / "series").write_text("".join(line + "\n" for line in listing))


def cover(name, mark, commits):
    """The cover letter as a file: the commit's own text, then the generated list and diffstat."""
    message = git(TREE, "log", "-1", "--format=%B", mark).stdout
    _, subject, letter = (message.strip().split("\n\n", 2) + ["", ""])[:3]
    subject = " ".join(subject.split())
    if not subject or not letter:
        raise Fail(f"tree/: the commit `{MARK}{name}` holds no cover letter: a line with its subject, an empty line, the letter")
    stands_on(name, letter)
    date = git(TREE, "log", "-1", "--format=%aD", commits[-1]).stdout.strip()
    titles = git(TREE, "log", "--reverse", "--format=  %s", f"{mark}..{commits[-1]}").stdout
    stat = git(TREE, "diff", "--stat=80", "--summary", "-M", mark, commits[-1]).stdout
    return (f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: {ADDRESS}\nDate: {date}\nSubject: [PATCH] {subject}\n\n"
            f"{letter.strip()}\n\n---\n{len(commits)} patches:\n{titles}\n{stat}")


def export():
    """Write the tree's commits back to patches/."""
    with lock("tree-" + digest(str(ROOT))):
        was = state()
        if not was:
            raise Fail("there is no tree/ to export: `make tree` first")
        if loose():
            raise Fail(f"tree/ holds what no commit does:\n{loose().rstrip()}\nCommit it (or finish the rebase), then `make export`")
        if untouched(was):
            return say("tree/ is as it was made: nothing to export")
        if queue_digest() != was["digest"]:
            raise Fail("patches/ has changed since tree/ was made (a pull, a checkout): exporting would undo that. `make tree FORCE=1` "
                       "makes the tree anew and keeps its commits on a branch saved-N; cherry-pick them from there")
        with tempfile.TemporaryDirectory(dir=ROOT, prefix=".export-") as place:
            new = pathlib.Path(place) / "patches"
            new.mkdir()
            write_patches(new)
            replace(new)
        write_state(**{**was, "digest": queue_digest(), "head": git(TREE, "rev-parse", "HEAD").stdout.strip()})
        say(f"patches/ holds {sum(len(t.patches) for t in series())} patches in {len(series())} topics")


def replace(new):
    """Put the directory `new` in the place of patches/, touching only files that differ."""
    made = {p.relative_to(new): p for p in new.rglob("*") if p.is_file()}
    for relative, path in made.items():
        target = PATCHES / relative
        if not target.is_file() or target.read_bytes() != path.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
    for path in [p for p in PATCHES.rglob("*.patch") if p.relative_to(PATCHES) not in made]:
        path.unlink()
    for path in PATCHES.iterdir():
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def check_exported():
    """Fail when tree/ holds what patches/ does not. Fast: it is meant for hooks."""
    was = state()
    if not was:
        return say("there is no tree/, so nothing in it is lost")
    if loose():
        raise Fail(f"tree/ holds what no commit does, and patches/ even less:\n{loose().rstrip()}\nCommit it there, then `make export`")
    if untouched(was):
        return say("tree/ holds nothing that patches/ does not")
    with tempfile.TemporaryDirectory(prefix="knfsd-queue-") as place:
        new = pathlib.Path(place)
        write_patches(new)
        differ = different(new, PATCHES)
    if differ:
        raise Fail("tree/ holds commits that patches/ does not; `make export` writes:\n" + "\n".join(f"  {d}" for d in differ))
    say("tree/ holds nothing that patches/ does not")


def different(one, other):
    """The relative paths of patches and series files that differ between two directories."""
    def files(top):
        return {str(p.relative_to(top)): p.read_bytes() for p in top.rglob("*") if p.is_file() and (p.suffix == ".patch" or p.name == "series")}
    a, b = files(one), files(other)
    return sorted(path for path in a.keys() | b.keys() if a.get(path) != b.get(path))
