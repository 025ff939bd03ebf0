# SPDX-License-Identifier: GPL-2.0
import pathlib

import pytest
from conftest import Fail, commit, patches_of, topic

from testbed import base, check, queue


def test_export_after_tree_changes_no_byte(filled, place):
    before = patches_of(place / "patches")
    assert "one/0002-NET-spell-twenty.patch" in before and "two/0000-cover-letter.patch" in before
    queue.remove(queue.TREE)
    queue.tree(filled)
    # A rewritten history with the same content and dates, so that export has to do its work.
    base.git(queue.TREE, "commit", "-q", "--amend", "--no-edit", env={"GIT_COMMITTER_DATE": "@1800000000 +0000"})
    queue.export()
    assert patches_of(place / "patches") == before


def test_patches_hold_no_commit_id_and_no_version_of_git(filled, place):
    text = (place / "patches/one/0001-NET-spell-three.patch").read_text()
    assert text.startswith("From " + "0" * 40)
    assert text.rstrip().splitlines()[-2] != "--"


def test_series_lists_every_patch_in_order(filled, place):
    assert (place / "patches/series").read_text().split() == [
        "one/0001-NET-spell-three.patch", "one/0002-NET-spell-twenty.patch", "two/0001-NET-add-a-file.patch"]


def test_patches_apply_with_plain_git_am(filled, place, ksrc):
    paths = [patch for t in queue.series() for patch in t.patches]
    base.git(ksrc, "am", "-q", *paths)
    assert "line twenty" in (ksrc / "net/queue.c").read_text() and (ksrc / "net/new.c").is_file()


def test_a_cover_letter_is_edited_as_a_commit(filled, place):
    base.git(queue.TREE, "reset", "-q", "--hard", "HEAD^^")
    topic(queue.TREE, "two", "Better words.\n\nStands on: one\n")
    commit(queue.TREE, "net/new.c", "new\n", "NET: add a file")
    queue.export()
    assert "Better words." in (place / "patches/two/0000-cover-letter.patch").read_text()
    assert queue.series()[1].letter == "Better words.\n\nStands on: one"


def test_a_dropped_topic_leaves_no_file(filled, place):
    base.git(queue.TREE, "reset", "-q", "--hard", "HEAD^^")
    queue.export()
    assert not (place / "patches/two").exists()
    assert [t.name for t in queue.series()] == ["one"]


def test_the_same_queue_gives_the_same_commits(filled):
    heads = [queue.apply(filled.repo, queue.series(), filled.commit) for _ in range(2)]
    assert heads[0] == heads[1]


def test_check_exported_passes_without_a_tree(place):
    queue.check_exported()


def test_check_exported_fails_on_a_commit_that_was_not_exported(filled):
    queue.check_exported()
    commit(queue.TREE, "net/more.c", "more\n", "NET: add more")
    with pytest.raises(Fail, match="two/0002-NET-add-more.patch"):
        queue.check_exported()
    queue.export()
    queue.check_exported()


@pytest.mark.parametrize("path", ["net/queue.c", "net/unknown.c"])
def test_check_exported_fails_on_what_no_commit_holds(filled, path):
    (queue.TREE / path).write_text("loose\n")
    with pytest.raises(Fail, match=path):
        queue.check_exported()
    with pytest.raises(Fail, match=path):
        queue.export()


def test_tree_does_not_overwrite_work(filled):
    commit(queue.TREE, "net/more.c", "more\n", "NET: add more")
    with pytest.raises(Fail, match="make export"):
        queue.tree(filled)
    (queue.TREE / "net/loose.c").write_text("loose\n")
    queue.tree(filled, force=True)
    assert "add more" in base.git(queue.TREE, "log", "-1", "--format=%s", "saved-1").stdout
    assert "loose.c" in base.git(queue.TREE, "stash", "show", "--include-untracked", "--name-only").stdout
    assert not (queue.TREE / "net/more.c").exists()


def test_export_does_not_undo_patches_that_came_by_another_way(filled, place):
    commit(queue.TREE, "net/more.c", "more\n", "NET: add more")
    path = place / "patches/one/0001-NET-spell-three.patch"
    path.write_text(path.read_text().replace("Why.", "Because."))
    with pytest.raises(Fail, match="has changed since"):
        queue.export()
    assert "Because." in path.read_text()


def test_tree_follows_changed_patches(filled, place):
    path = place / "patches/one/0001-NET-spell-three.patch"
    path.write_text(path.read_text().replace("Why.", "Because."))
    queue.tree(filled)
    assert "Because." in base.git(queue.TREE, "log", "--format=%B").stdout


def test_an_unfinished_tree_is_made_anew(filled):
    queue.state_file().unlink()
    queue.tree(filled)
    assert queue.untouched(queue.state())


def test_a_patch_that_does_not_apply_names_itself_and_the_hunk(filled, ksrc):
    text = (ksrc / "net/queue.c").read_text().replace("line 20\n", "line XX\n")
    commit(ksrc, "net/queue.c", text, "other")
    with pytest.raises(Fail) as fail:
        queue.tree(base.from_tree(ksrc))
    assert "NET: spell twenty" in str(fail.value)
    assert "refused in net/queue.c" in str(fail.value) and "+line twenty" in str(fail.value)


def test_a_refused_patch_leaves_nothing_behind(filled, ksrc):
    commit(queue.TREE, "net/queue.c", (queue.TREE / "net/queue.c").read_text().replace("line 25\n", "line 25!\n"), "NET: do both")
    (queue.TREE / "net/both.c").write_text("both\n")
    base.git(queue.TREE, "add", "-A")
    base.git(queue.TREE, "commit", "-q", "--amend", "--no-edit")
    queue.export()
    commit(ksrc, "net/queue.c", (ksrc / "net/queue.c").read_text().replace("line 25\n", "line XX\n"), "other")
    other = base.from_tree(ksrc)
    with pytest.raises(Fail, match="do both"):
        queue.apply(other.repo, queue.series(), other.commit)
    assert base.git(other.repo, "status", "--porcelain", "--ignored").stdout == ""


def test_a_patch_the_base_has_is_to_be_dropped(filled, ksrc, place):
    base.git(ksrc, "am", "-q", place / "patches/one/0001-NET-spell-three.patch")
    with pytest.raises(Fail, match="has this change already: remove"):
        queue.tree(base.from_tree(ksrc))


def test_patches_the_base_has_by_name_are_listed(filled, ksrc, monkeypatch):
    monkeypatch.setattr(queue, "ELSEWHERE", {"NET: spell twenty": "net: write 20 as a word"})
    assert queue.merged(filled, queue.series()) == []
    commit(ksrc, "net/other.c", "three\n", "NET: spell three")
    commit(ksrc, "net/other.c", "twenty\n", "net: write 20 as a word")
    found = queue.merged(base.from_tree(ksrc), queue.series())
    assert len(found) == 2 and "spell-three.patch" in found[0] and "write 20 as a word" in found[1]


def test_a_topic_that_does_not_stand_alone_is_found(filled, place):
    topics = queue.series()
    check.stands_alone(filled, topics, topics[1])
    base.git(queue.TREE, "reset", "-q", "--hard", "HEAD^^")
    topic(queue.TREE, "two")
    commit(queue.TREE, "net/queue.c", (queue.TREE / "net/queue.c").read_text().replace("three", "drei"), "NET: say it in German")
    queue.export()
    with pytest.raises(Fail, match="say it in German"):
        check.stands_alone(filled, queue.series(), queue.series()[1])


def test_a_topic_that_stands_on_none_we_have(filled):
    with pytest.raises(Fail, match="no topic"):
        check.stands_alone(filled, queue.series()[1:], queue.series()[1])


@pytest.mark.parametrize("line, problem", [("one/0009-gone.patch", "not there"),
                                           ("one/0001-NET-spell-three.patch", "mixes topics")])
def test_a_bad_series_is_refused(filled, place, line, problem):
    listing = place / "patches/series"
    listing.write_text(listing.read_text() + line + "\n")
    with pytest.raises(Fail, match=problem):
        queue.series()


def test_a_cover_letter_says_what_it_stands_on():
    assert queue.stands_on("x", "Text.\n\nStands on: the base alone\n") == []
    assert queue.stands_on("x", "Stands on: a, b") == ["a", "b"]
    with pytest.raises(Fail, match="Stands on"):
        queue.stands_on("x", "Text.")


def test_a_commit_before_the_first_topic_is_refused(place, ksrc):
    queue.tree(base.from_tree(ksrc))
    commit(queue.TREE, "net/new.c", "new\n", "NET: add a file")
    with pytest.raises(Fail, match="before the first topic"):
        queue.export()


def test_what_changed_names_the_objects_to_build():
    assert check.objects(["net/sunrpc/svc.c", "tools/testing/x.c", "Documentation/a.rst"]) == ["net/sunrpc/svc.o"]
    assert check.objects(["include/linux/sunrpc/svc.h", "fs/nfsd/vfs.c", "lib/lwq.c"]) == [
        "fs/lockd/", "fs/nfs/", "fs/nfsd/", "lib/lwq.o", "net/sunrpc/"]
    assert check.objects(["Documentation/a.rst"]) == []


def test_the_committed_queue_is_sound():
    top = pathlib.Path(__file__).resolve().parent.parent / "patches"
    names = {t.name for t in queue.series(top)}
    for t in queue.series(top):
        assert set(t.stands_on) <= names
    listed = {patch for t in queue.series(top) for patch in t.patches}
    assert listed == {p for p in top.rglob("*.patch") if p.name != queue.COVER}
