# SPDX-License-Identifier: GPL-2.0
import re
import sys

import pytest
from conftest import Fail, commit, topic

from testbed import util
from testbed.series import base, post, topics, tree

MAINTAINERS = """#!/usr/bin/perl
print "A Maintainer <a\\@example.org> (maintainer:NET)\\nA Reviewer <r\\@example.org> (reviewer:NET)\\n";
print "net\\@example.org (open list:NET)\\nall\\@example.org (open list)\\n";
"""


@pytest.fixture
def mailed(filled, place, ksrc, monkeypatch):
    """The topics `one` and `two` in a git repository of their own; the base has a get_maintainer.pl and a history."""
    monkeypatch.setattr(post, "ROOT", place)
    monkeypatch.setattr(post, "BUILD", place / "build")
    for change in ("first", "second"):
        commit(ksrc, f"net/{change}.c", "", change)
    (ksrc / "scripts").mkdir()
    commit(ksrc, "scripts/get_maintainer.pl", MAINTAINERS, "scripts")
    settle(place)
    return base.from_tree(ksrc)


def settle(place):
    """Commit topics/ of the checkout."""
    if not (place / ".git").is_dir():
        base.git(place, "init", "-q")
    base.git(place, "add", "-f", "topics")
    base.git(place, "commit", "-q", "--allow-empty", "-m", "topics")


def posted(place, name):
    """The checkout's topics are what was posted as version 1 of `name`."""
    settle(place)
    base.git(place, "tag", f"posted/{name}-v1")


def reworked(place, text="eins"):
    """Another word in the second patch of `one`, exported."""
    base.git(tree.TREE, "reset", "-q", "--hard", "HEAD^^^")
    lines = (tree.TREE / "net/queue.c").read_text().replace("line 20\n", f"line {text}\n")
    commit(tree.TREE, "net/queue.c", lines, "NET: spell twenty")
    topic(tree.TREE, "two", "Another.\n\nStands on: one\n")
    commit(tree.TREE, "net/new.c", "new\n", "NET: add a file")
    tree.export()


def changed(place, name="one", text="## v2\n\n- Say it in German.\n"):
    (place / "topics" / name / "changelog.md").write_text(f"# Changes\n\n{text}")


def names(made):
    return sorted(path.name for path in made.iterdir())


def letter(made):
    return next(made.glob("*0000-cover-letter.patch")).read_text()


def test_the_messages_apply_and_give_the_series_tree(mailed, ksrc):
    whole = tree.apply(mailed.repo, topics.series(), mailed.commit)
    wanted = base.git(mailed.repo, "rev-parse", f"{whole}^{{tree}}").stdout
    one, two = (post.post(mailed, name, "1") for name in ("one", "two"))
    assert names(one) == ["0000-cover-letter.patch", "0001-NET-spell-three.patch", "0002-NET-spell-twenty.patch"]
    base.git(ksrc, "am", "-q", *sorted(one.glob("000[1-9]-*")), *sorted(two.glob("000[1-9]-*")))
    assert base.git(ksrc, "rev-parse", "HEAD^{tree}").stdout == wanted


def test_the_letter_is_the_topics_without_its_placeholders(mailed):
    text = letter(post.post(mailed, "one", "1"))
    assert "Subject: [PATCH 0/2] NET: the subject of one" in text
    assert (
        "\n\nThe problem.\n" in text and "***" not in text and "Stands on" not in text and "Changes since" not in text
    )
    assert "2 files changed" not in text and "1 file changed" in text


def test_a_topic_says_in_its_subjects_what_it_depends_on(mailed, place):
    assert "Depends on:\n\n  NET: the subject of one\n" in letter(post.post(mailed, "two", "1"))
    toml = place / "topics/one/topic.toml"
    toml.write_text(toml.read_text().replace('"draft"', '"posted v3 https://example.org/m"'))
    assert "  NET: the subject of one\n  https://example.org/m\n" in letter(post.post(mailed, "two", "1"))


def test_base_and_prerequisites_are_those_of_the_tree(mailed):
    text = letter(post.post(mailed, "two", "1"))
    assert f"base-commit: {mailed.commit}\n" in text
    _, head = post.applied(mailed, topics.closure(topics.series(), "one"))
    shown = base.git(mailed.repo, "log", "--reverse", "-p", f"{mailed.commit}..{head}").stdout
    ids = [line.split()[0] for line in base.git(mailed.repo, "patch-id", "--stable", stdin=shown).stdout.splitlines()]
    assert len(ids) == 2 and sorted(re.findall(r"^prerequisite-patch-id: (\w+)$", text, re.M)) == sorted(ids)
    assert "prerequisite-patch-id" not in letter(post.post(mailed, "one", "1"))


def test_people_and_lists_are_of_the_topic_and_of_the_tree(mailed, place):
    toml = place / "topics/one/topic.toml"
    toml.write_text(
        toml.read_text().replace(
            "lists = []", 'lists = ["net@example.org", "linux-nfs@example.org"]\nmaintainers = ["B <b@example.org>"]'
        )
    )
    made = post.post(mailed, "one", "1")
    for path in made.iterdir():
        head = re.sub(r"\n\s+", " ", path.read_text().partition("\n\n")[0])
        assert "\nTo: B <b@example.org>, A Maintainer <a@example.org>, A Reviewer <r@example.org>\n" in head
        assert "\nCc: net@example.org, linux-nfs@example.org, all@example.org" in head


def test_a_tree_without_get_maintainer_is_said(filled, place, monkeypatch, capsys):
    monkeypatch.setattr(post, "BUILD", place / "build")
    post.post(filled, "one", "1")
    assert "only those of topic.toml" in capsys.readouterr().out


def test_nothing_is_signed_and_that_is_said(mailed, capsys):
    made = post.post(mailed, "one", "1")
    assert not any("Signed-off-by" in path.read_text() for path in made.iterdir())
    said = capsys.readouterr().out
    assert "nothing was sent" in said and "no message has a Signed-off-by" in said and "git tag posted/one-v1" in said


def test_what_to_know_before_posting_is_said(mailed, place, capsys):
    toml = place / "topics/one/topic.toml"
    toml.write_text(toml.read_text() + 'posting = "ask the maintainers first"\n')
    post.post(mailed, "one", "1")
    assert "before you post: ask the maintainers first" in capsys.readouterr().out


def test_a_base_nobody_else_has_is_said(filled, place, monkeypatch, capsys):
    monkeypatch.setattr(post, "BUILD", place / "build")
    post.post(filled, "one", "1")
    assert "which nobody else has" in capsys.readouterr().out


def test_a_second_version_says_what_has_changed(mailed, place):
    posted(place, "one")
    reworked(place)
    changed(place)
    made = post.post(mailed, "one", "2")
    assert names(made)[0] == "v2-0000-cover-letter.patch"
    text = letter(made)
    assert "Subject: [PATCH v2 0/2]" in text and "Changes since v1:\n\n- Say it in German.\n" in text
    assert "Range-diff against v1:" in text and "    -+line twenty" in text and "    ++line eins" in text


def test_a_third_version_keeps_what_changed_before(mailed, place):
    posted(place, "one")
    changed(place, text="## v3\n\n- Again.\n\n## v2\n\n- Once.\n")
    base.git(place, "tag", "posted/one-v2")
    text = letter(post.post(mailed, "one", "3"))
    assert (
        "Changes since v2:\n\n- Again.\n\nChanges since v1:\n\n- Once.\n" in text and "Range-diff against v2:" in text
    )


def test_the_previous_version_may_have_another_name(mailed, place):
    posted(place, "one")
    base.git(place, "tag", "elsewhere", "posted/one-v1")
    base.git(place, "tag", "-d", "posted/one-v1")
    reworked(place)
    changed(place)
    with pytest.raises(Fail, match="has no posted/one-v1.*PREVIOUS=REF"):
        post.post(mailed, "one", "2")
    assert "++line eins" in letter(post.post(mailed, "one", "2", previous="elsewhere"))


def test_a_previous_version_without_the_topic(mailed, place):
    base.git(place, "tag", "before")
    base.git(place, "rm", "-rq", "--cached", "topics")
    base.git(place, "commit", "-q", "-m", "gone")
    changed(place)
    with pytest.raises(Fail, match="HEAD has no topics/"):
        post.post(mailed, "one", "2", previous="HEAD")


def test_a_later_version_needs_a_changelog(mailed, place):
    posted(place, "one")
    for text in ("", "## v3\n\n- Later.\n", "## v2\n\n## v1\n\n- First.\n"):
        changed(place, text=text)
        with pytest.raises(Fail, match="changelog.md has no section `## v2`"):
            post.post(mailed, "one", "2")


@pytest.mark.parametrize(
    "name, version, problem",
    [
        ("three", "1", "there is no topic three; there are: one, two"),
        ("", "1", "which topic.*there are: one, two"),
        ("one", "", "V=: not the number of a version"),
        ("one", "two", "V=two: not"),
        ("one", "0", "V=0: not"),
        ("one", "-1", "V=-1: not"),
        ("one", "2", "changelog.md"),
    ],
)
def test_what_is_asked_for_is_checked_first(filled, name, version, problem):
    with pytest.raises(Fail, match=problem):
        post.check(name, version)


def test_work_that_was_not_exported_is_refused(mailed):
    (tree.TREE / "net/loose.c").write_text("loose\n")
    with pytest.raises(Fail, match="make export"):
        post.post(mailed, "one", "1")
    commit(tree.TREE, "net/loose.c", "loose\n", "NET: add more")
    with pytest.raises(Fail, match="make export"):
        post.post(mailed, "one", "1")


def test_only_our_own_directory_is_replaced(mailed, place):
    mine = place / "mine"
    mine.mkdir()
    assert names(post.post(mailed, "one", "1", str(mine))) == names(post.post(mailed, "one", "1"))
    with pytest.raises(Fail, match="nothing is overwritten"):
        post.post(mailed, "one", "1", str(mine))
    post.post(mailed, "one", "1")


def test_a_patch_that_does_not_apply_is_named_and_nothing_is_left(mailed, ksrc, place):
    commit(ksrc, "net/queue.c", (ksrc / "net/queue.c").read_text().replace("line 20\n", "line XX\n"), "other")
    other = base.from_tree(ksrc)
    with pytest.raises(Fail, match='one: does not apply: "NET: spell twenty"'):
        post.post(other, "one", "1")
    assert not (place / "build/post/one-v1").exists() and not list((place / "build").rglob("*.part"))


def test_the_command_says_one_line():
    done = util.run(sys.executable, "-m", "testbed", "post", "nothing", "1", cwd=util.ROOT, check=False)
    assert done.returncode and "testbed: there is no topic nothing; there are: " in done.stdout
