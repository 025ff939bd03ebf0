# SPDX-License-Identifier: GPL-2.0
import re
import sys

import pytest
from conftest import Fail, commit, topic

from testbed import host, util
from testbed.series import applied, base, post, topics, tree

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


@pytest.fixture(scope="session")
def b4_program():
    """The real b4, kept in the user's cache: before a test has a cache of its own."""
    return host.from_pip("b4", "0.16.0")


@pytest.fixture
def b4(b4_program, ksrc, tmp_path):
    """Runs b4 in the kernel tree as somebody with a name, and with a mail server that does not listen."""
    for key, value in (
        ("user.name", "A Poster"),
        ("user.email", "poster@example.org"),
        ("sendemail.smtpserver", "127.0.0.1"),
        ("sendemail.smtpserverport", "1"),
    ):
        base.git(ksrc, "config", key, value)
    places = {name: str(tmp_path / "home") for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")}
    places["GIT_CONFIG_GLOBAL"] = "/dev/null"
    return lambda *words: util.run(b4_program, *words, cwd=ksrc, env=places, stdin="y\n").stdout


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
    topic(tree.TREE, "two", "Another.\n\nDepends on: one\n")
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


def test_one_patch_of_a_topic_is_mailed_on_the_base_alone_without_a_letter(mailed, ksrc, capsys):
    made = post.post(mailed, "one", "1", patches="2")
    assert made.name == "one-2-v1" and names(made) == ["0001-NET-spell-twenty.patch"]
    text = (made / "0001-NET-spell-twenty.patch").read_text()
    assert "Subject: [PATCH] NET: spell twenty" in text and f"base-commit: {mailed.commit}\n" in text
    base.git(ksrc, "am", "-q", made / "0001-NET-spell-twenty.patch")
    said = capsys.readouterr().out
    assert "holds 1 message of one-2 v1" in said and "git tag posted/one-2-v1" in said and "the letter is" not in said


def test_some_patches_of_a_topic_have_its_letter_which_wants_a_look(mailed, capsys):
    made = post.post(mailed, "one", "1", patches="1,2")
    assert made.name == "one-1-2-v1" and "Subject: [PATCH 0/2] NET: the subject of one" in letter(made)
    assert "the letter is that of all of one: take out what is of its other patches" in capsys.readouterr().out


@pytest.mark.parametrize("patches", ["0", "3", "1,1", "1,", "one", "1-2", "01"])
def test_patches_that_there_are_not(filled, patches):
    with pytest.raises(Fail, match=f"P={patches}: give numbers of one's patches, as 1,2,4: it has 1 to 2"):
        post.check("one", "1", patches)


def test_what_is_posted_first_is_said_and_compiled_on_the_base_alone(mailed, place, capsys):
    toml = place / "topics/one/topic.toml"
    toml.write_text(toml.read_text() + 'first = ["2"]\n')
    post.post(mailed, "one", "1")
    assert "before all of it: make post T=one V=1 P=2\n" in capsys.readouterr().out
    (step,) = applied.first(mailed, topics.series())
    assert step.name == "one/0002-NET-spell-twenty.patch alone"
    assert base.git(mailed.repo, "rev-parse", f"{step.commit}^").stdout.strip() == mailed.commit


def test_a_second_version_of_some_patches_is_compared_with_the_same(mailed, place, ksrc):
    posted(place, "one-2")
    reworked(place)
    changed(place)
    with pytest.raises(Fail, match="changelog.md has no section `## P=2 v2`"):
        post.check("one", "2", "2")
    changed(place, text="## P=2 v2\n\n- Say it in German.\n\n## v2\n\n- Of all.\n")
    made = post.post(mailed, "one", "2", patches="2") / "v2-0001-NET-spell-twenty.patch"
    text = made.read_text()
    assert "Subject: [PATCH v2] NET: spell twenty" in text and "Range-diff" in text
    assert "\n---\nChanges since v1:\n\n- Say it in German.\n\n" in text and "Of all" not in text
    base.git(ksrc, "am", "-q", made)
    assert "German" not in base.git(ksrc, "log", "-1", "--format=%B").stdout


def test_the_letter_is_the_topics_without_its_placeholders(mailed):
    text = letter(post.post(mailed, "one", "1"))
    assert "Subject: [PATCH 0/2] NET: the subject of one" in text
    assert (
        "\n\nThe problem.\n" in text and "***" not in text and "Depends on" not in text and "Changes since" not in text
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


def fetched(ksrc, b4, made, name):
    """The kernel tree is on the branch that the bundle holds, and it is the poster's."""
    base.git(ksrc, "fetch", "-q", post.bundle(made), f"b4/{name}:b4/{name}")
    base.git(ksrc, "switch", "-q", f"b4/{name}")
    b4("prep", "--claim")


def sent(b4, place):
    """What `b4 send -o` writes: {the message's name: (its head with no line folded, its body)}."""
    b4("send", "--no-sign", "-o", place)
    found = {}
    for path in sorted(place.iterdir()):
        head, _, body = path.read_text().partition("\n\n")
        found[path.name] = (re.sub(r"\n\s+", " ", head), body)
    return found


def test_b4_mails_what_git_send_email_would(mailed, ksrc, b4, tmp_path):
    whole = tree.apply(mailed.repo, topics.series(), mailed.commit)
    wanted = base.git(mailed.repo, "rev-parse", f"{whole}^{{tree}}").stdout
    made = post.post(mailed, "two", "1")
    fetched(ksrc, b4, made, "two")
    info = b4("prep", "--show-info")
    assert "revision: 1\n" in info and "change-id: knfsd-two-" in info and "NET: add a file" in info
    assert base.git(ksrc, "rev-parse", "HEAD^{tree}").stdout == wanted
    (one,) = sent(b4, tmp_path / "out").values()
    head, body = one
    assert "\nSubject: [PATCH] NET: add a file\n" in head
    assert "\nTo: A Maintainer <a@example.org>, A Reviewer <r@example.org>\n" in head
    assert "\nCc: net@example.org, all@example.org" in head
    text = letter(made)
    for needed in ("base-commit", "prerequisite-patch-id"):
        lines = re.findall(rf"^{needed}: \w+$", text, re.M)
        assert lines and lines == re.findall(rf"^{needed}: \w+$", body, re.M)


def test_b4_numbers_a_topic_without_prerequisites(mailed, ksrc, b4, tmp_path):
    fetched(ksrc, b4, post.post(mailed, "one", "1"), "one")
    (head, body), *patches = sent(b4, tmp_path / "out").values()
    assert "\nSubject: [PATCH 0/2] NET: the subject of one\n" in head and body.startswith("The problem.\n")
    assert f"\nbase-commit: {mailed.commit}\n" in body and "prerequisite" not in body
    assert ["1/2" in patches[0][0], "2/2" in patches[1][0]] == [True, True]
    onto = tmp_path / "elsewhere"
    base.git(None, "clone", "-q", ksrc, onto)
    base.git(onto, "checkout", "-q", mailed.commit)
    base.git(onto, "am", "-q", *sorted((tmp_path / "out").iterdir())[1:])
    assert base.git(ksrc, "rev-parse", "HEAD^{tree}").stdout == base.git(onto, "rev-parse", "HEAD^{tree}").stdout


def test_b4_knows_a_second_version(mailed, place, ksrc, b4, tmp_path):
    posted(place, "one")
    reworked(place)
    changed(place)
    fetched(ksrc, b4, post.post(mailed, "one", "2"), "one")
    assert b4("prep", "--show-revision").strip() == "v2"
    (head, body), *_ = sent(b4, tmp_path / "out").values()
    assert "[PATCH v2 0/2]" in head and "Changes since v1:\n\n- Say it in German.\n" in body


def test_a_letter_that_b4_would_cut_is_refused(mailed, place):
    path = place / "topics/one/patches/0000-cover-letter.patch"
    path.write_text(path.read_text().replace("The problem.\n", "The problem:\n\n# cat /proc/x\n"))
    tree.tree(mailed)
    with pytest.raises(Fail, match='would drop for its #: "# cat /proc/x": indent it'):
        post.post(mailed, "one", "1")


def test_a_role_with_parentheses_is_no_address(mailed, ksrc):
    more = 'print "M <m\\@example.org> (maintainer:MM (LKMM))\\nl\\@example.org (open list:MM (LKMM))\\n";\n'
    commit(ksrc, "scripts/get_maintainer.pl", MAINTAINERS + more, "roles")
    to, cc = post.recipients(base.from_tree(ksrc), topics.named(topics.series(), "one"))
    assert to[-1] == "M <m@example.org>" and cc[-1] == "l@example.org"


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


@pytest.mark.parametrize("there", ["mail.part", "mail.bundle", "mail.bundle.part"])
def test_what_has_a_name_that_is_needed_is_not_removed(mailed, place, there):
    (place / there).write_text("somebody's")
    with pytest.raises(Fail, match="nothing is overwritten"):
        post.post(mailed, "one", "1", str(place / "mail"))
    assert (place / there).read_text() == "somebody's"


def test_where_to_write_has_to_be_a_directory(mailed, place):
    (place / "file").write_text("")
    with pytest.raises(Fail, match=r"TO=.*/file/mail: .*/file is no directory that you may write to: name another"):
        post.post(mailed, "one", "1", str(place / "file/mail"))


def test_a_patch_that_does_not_apply_is_named_and_nothing_is_left(mailed, ksrc, place):
    commit(ksrc, "net/queue.c", (ksrc / "net/queue.c").read_text().replace("line 20\n", "line XX\n"), "other")
    other = base.from_tree(ksrc)
    with pytest.raises(Fail, match='one/0002-NET-spell-twenty.patch: does not apply: "NET: spell twenty"'):
        post.post(other, "one", "1")
    assert not (place / "build/post/one-v1").exists() and not list((place / "build").rglob("*.part"))


def test_the_command_says_one_line():
    done = util.run(sys.executable, "-m", "testbed", "post", "T=nothing", "V=1", cwd=util.ROOT, check=False)
    assert done.returncode and "testbed: there is no topic nothing; there are: " in done.stdout
