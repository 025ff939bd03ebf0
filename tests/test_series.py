# SPDX-License-Identifier: GPL-2.0
import re
import shutil
import subprocess

import pytest
from conftest import Fail, commit, patches_of, topic

from testbed.series import applied, base, topics, tree
from testbed.suites import check


def test_export_after_tree_changes_no_byte(filled, place):
    before = patches_of(place / "topics")
    assert "one/patches/0002-NET-spell-twenty.patch" in before and "two/patches/0000-cover-letter.patch" in before
    tree.remove(tree.TREE)
    tree.tree(filled)
    # A rewritten history with the same content and dates, so that export has to do its work.
    base.git(tree.TREE, "commit", "-q", "--amend", "--no-edit", env={"GIT_COMMITTER_DATE": "@1800000000 +0000"})
    tree.export()
    assert patches_of(place / "topics") == before


def test_patches_hold_no_commit_id_and_no_version_of_git(filled, place):
    text = (place / "topics/one/patches/0001-NET-spell-three.patch").read_text()
    assert text.startswith("From " + "0" * 40)
    assert text.rstrip().splitlines()[-2] != "--"


def test_series_lists_every_patch_in_order(filled, place):
    assert (place / "topics/one/patches/series").read_text().split() == [
        "0001-NET-spell-three.patch",
        "0002-NET-spell-twenty.patch",
    ]
    assert [topic.name for topic in topics.series()] == ["one", "two"]


def test_patches_apply_with_plain_git_am(filled, place, ksrc):
    paths = [patch for t in topics.series() for patch in t.patches]
    base.git(ksrc, "am", "-q", *paths)
    assert "line twenty" in (ksrc / "net/queue.c").read_text() and (ksrc / "net/new.c").is_file()


def test_a_cover_letter_is_edited_as_a_commit(filled, place):
    base.git(tree.TREE, "reset", "-q", "--hard", "HEAD^^")
    topic(tree.TREE, "two", "Better words.\n\nDepends on: one\n")
    commit(tree.TREE, "net/new.c", "new\n", "NET: add a file")
    tree.export()
    assert "Better words." in (place / "topics/two/patches/0000-cover-letter.patch").read_text()
    assert topics.series()[1].letter == "Better words.\n\nDepends on: one"


def test_a_dropped_topic_leaves_no_file(filled, place):
    base.git(tree.TREE, "reset", "-q", "--hard", "HEAD^^")
    tree.export()
    assert not (place / "topics/two").exists()
    assert [t.name for t in topics.series()] == ["one"]


def test_the_same_queue_gives_the_same_commits(filled):
    heads = [tree.apply(filled.repo, topics.series(), filled.commit) for _ in range(2)]
    assert heads[0] == heads[1]


def test_check_exported_passes_without_a_tree(place):
    tree.check_exported()


def test_check_exported_fails_on_a_commit_that_was_not_exported(filled):
    tree.check_exported()
    commit(tree.TREE, "net/more.c", "more\n", "NET: add more")
    with pytest.raises(Fail, match="topics/two/patches/0002-NET-add-more.patch"):
        tree.check_exported()
    tree.export()
    tree.check_exported()


@pytest.mark.parametrize("path", ["net/queue.c", "net/unknown.c"])
def test_check_exported_fails_on_what_no_commit_holds(filled, path):
    (tree.TREE / path).write_text("loose\n")
    with pytest.raises(Fail, match=path):
        tree.check_exported()
    with pytest.raises(Fail, match=path):
        tree.export()


def test_tree_does_not_overwrite_work(filled):
    commit(tree.TREE, "net/more.c", "more\n", "NET: add more")
    with pytest.raises(Fail, match="make export"):
        tree.tree(filled)
    (tree.TREE / "net/loose.c").write_text("loose\n")
    tree.tree(filled, force=True)
    assert "add more" in base.git(tree.TREE, "log", "-1", "--format=%s", "saved-1").stdout
    assert "loose.c" in base.git(tree.TREE, "stash", "show", "--include-untracked", "--name-only").stdout
    assert not (tree.TREE / "net/more.c").exists()


def test_export_does_not_undo_patches_that_came_by_another_way(filled, place):
    commit(tree.TREE, "net/more.c", "more\n", "NET: add more")
    path = place / "topics/one/patches/0001-NET-spell-three.patch"
    path.write_text(path.read_text().replace("Why.", "Because."))
    with pytest.raises(Fail, match="have changed since"):
        tree.export()
    assert "Because." in path.read_text()


def test_tree_follows_changed_patches(filled, place):
    path = place / "topics/one/patches/0001-NET-spell-three.patch"
    path.write_text(path.read_text().replace("Why.", "Because."))
    tree.tree(filled)
    assert "Because." in base.git(tree.TREE, "log", "--format=%B").stdout


@pytest.mark.parametrize("theirs", ["a clone", "a directory"])
def test_a_tree_that_is_somebody_elses_is_left_alone(filled, ksrc, theirs):
    shutil.rmtree(tree.TREE)
    if theirs == "a clone":
        base.git(None, "clone", "-q", ksrc, tree.TREE)
    else:
        tree.TREE.mkdir()
    (tree.TREE / "work").write_text("of days")
    with pytest.raises(Fail, match="has not made it: move it away"):
        tree.tree(filled)
    assert (tree.TREE / "work").read_text() == "of days"


def test_an_unfinished_tree_is_made_anew(filled):
    tree.state_file().unlink()
    tree.tree(filled)
    assert tree.untouched(tree.state())


def test_a_patch_that_does_not_apply_names_itself_and_the_hunk(filled, ksrc):
    text = (ksrc / "net/queue.c").read_text().replace("line 20\n", "line XX\n")
    commit(ksrc, "net/queue.c", text, "other")
    with pytest.raises(Fail) as fail:
        tree.tree(base.from_tree(ksrc))
    assert "NET: spell twenty" in str(fail.value)
    assert "refused in net/queue.c" in str(fail.value) and "+line twenty" in str(fail.value)


def test_a_refused_patch_leaves_nothing_behind(filled, ksrc):
    commit(
        tree.TREE,
        "net/queue.c",
        (tree.TREE / "net/queue.c").read_text().replace("line 25\n", "line 25!\n"),
        "NET: do both",
    )
    (tree.TREE / "net/both.c").write_text("both\n")
    base.git(tree.TREE, "add", "-A")
    base.git(tree.TREE, "commit", "-q", "--amend", "--no-edit")
    tree.export()
    commit(ksrc, "net/queue.c", (ksrc / "net/queue.c").read_text().replace("line 25\n", "line XX\n"), "other")
    other = base.from_tree(ksrc)
    with pytest.raises(Fail, match="do both"):
        tree.apply(other.repo, topics.series(), other.commit)
    assert base.git(other.repo, "status", "--porcelain", "--ignored").stdout == ""


def test_a_patch_the_base_has_is_to_be_dropped(filled, ksrc, place):
    base.git(ksrc, "am", "-q", place / "topics/one/patches/0001-NET-spell-three.patch")
    with pytest.raises(Fail, match="has this change already: remove"):
        tree.tree(base.from_tree(ksrc))


def test_patches_the_base_has_by_name_are_listed(filled, ksrc, place):
    path = place / "topics/one/topic.toml"
    path.write_text(path.read_text() + '[upstream]\n"NET: spell twenty" = "net: write 20 as a word"\n')
    assert tree.merged(filled, topics.series()) == []
    commit(ksrc, "net/other.c", "three\n", "NET: spell three")
    commit(ksrc, "net/other.c", "twenty\n", "net: write 20 as a word")
    found = tree.merged(base.from_tree(ksrc), topics.series())
    assert len(found) == 2 and "spell-three.patch" in found[0] and "write 20 as a word" in found[1]


def test_a_topic_that_does_not_stand_alone_is_found(filled, place):
    tree.applies(filled.repo, topics.closure(topics.series(), "two"), filled.commit)
    base.git(tree.TREE, "reset", "-q", "--hard", "HEAD^^")
    topic(tree.TREE, "two")
    path = place / "topics/two/topic.toml"
    path.write_text(path.read_text().replace('["one"]', "[]"))
    commit(
        tree.TREE,
        "net/queue.c",
        (tree.TREE / "net/queue.c").read_text().replace("three", "drei"),
        "NET: say it in German",
    )
    tree.export()
    with pytest.raises(Fail, match="say it in German"):
        tree.applies(filled.repo, topics.closure(topics.series(), "two"), filled.commit)


def test_a_topic_that_stands_on_none_we_have(filled):
    with pytest.raises(Fail, match="no topic"):
        topics.closure(topics.series()[1:], "two")


def test_a_series_that_names_what_is_not_there_is_refused(filled, place):
    listing = place / "topics/one/patches/series"
    listing.write_text(listing.read_text() + "0009-gone.patch\n")
    with pytest.raises(Fail, match="0009-gone.patch, which is not there"):
        topics.queue_digest()
    listing.unlink()
    with pytest.raises(Fail, match="topics/one/patches/series: not found"):
        topics.queue_digest()


@pytest.mark.parametrize(
    "order, problem", [("one\ngone\n", "gone, which is no directory"), ("two\none\n", "two depends on one")]
)
def test_a_bad_order_is_refused(filled, place, order, problem):
    (place / "topics/order").write_text(order)
    with pytest.raises(Fail, match=problem):
        topics.series()


TOML = 'title = "One"\nstate = "draft"\nlists = []\n'


@pytest.mark.parametrize(
    "text, problem",
    [
        ("title = ", "not TOML"),
        ('title = "One"\nlists = []\n', "lacks state"),
        (TOML + 'depend_on = ["two"]\n', r"unknown key depend_on \(meant: depends_on\?\); known here: .*depends_on"),
        (TOML + 'depends_on = "two"\n', "depends_on: 'two' is not of type array"),
        (TOML + 'depends_on = ["three"]\n', "three is no topic; there are: one, two"),
        (TOML.replace("draft", "ready"), "state is draft, posted vN LINK"),
        (TOML + 'config = "gone.config"\n', "there is no .*gone.config"),
    ],
)
def test_a_bad_topic_toml_is_one_clear_line(filled, place, text, problem):
    (place / "topics/one/topic.toml").write_text(text)
    with pytest.raises(Fail, match=f"topics/one/topic.toml: .*{problem}|{problem}") as fail:
        topics.series()
    assert "\n" not in str(fail.value)


@pytest.mark.parametrize(
    "text, problem",
    [
        ('state = "draft"\nlists = []\n', "topic.toml: lacks title"),
        ('title = "One"\nlists = []\n', "topic.toml: lacks state"),
        (TOML.replace('"draft"', "3"), "topic.toml: state: 3 is not a string"),
        (TOML + "config = 7\n", "topic.toml: config: 7 is not a string"),
        (TOML + 'depends_on = "two"\n', "topic.toml: depends_on: 'two' is not a list of strings"),
        (TOML + "kunit = [1]\n", r"topic.toml: kunit: \[1\] is not a list of strings"),
        (TOML + "guest = { a = 1 }\n", "topic.toml: guest: {'a': 1} is not a table of strings"),
    ],
)
def test_without_a_package_for_it_a_bad_topic_toml_is_one_line_too(filled, place, text, problem):
    (place / "topics/one/topic.toml").write_text(text)
    with pytest.raises(Fail, match=problem) as fail:
        topics.series(checked=False)
    assert "\n" not in str(fail.value)


@pytest.mark.parametrize("name", ["order", "one/patches/series", "one/patches/0000-cover-letter.patch"])
def test_what_is_not_utf_8_is_one_line(filled, place, name):
    path = place / "topics" / name
    path.write_bytes((path.read_bytes() if path.is_file() else b"one\n") + b"# caf\xe9\n")
    with pytest.raises(Fail, match=rf"topics/{name}: not UTF-8: line \d+ has the byte 0xe9") as fail:
        topics.series()
        print(topics.series()[0].patches, topics.series()[0].cover)
    assert "\n" not in str(fail.value)


@pytest.mark.parametrize("name", ["order", "one/patches/series"])
def test_what_stands_in_a_list_twice_is_one_line(filled, place, name):
    path = place / "topics" / name
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[0]]) + "\n")
    with pytest.raises(Fail, match=f"topics/{name}: {lines[0]} stands there twice: remove one of the lines"):
        print([topic.patches for topic in topics.series()])


def test_a_new_topic_gets_its_line_in_the_order(filled, place):
    (place / "topics/order").write_text("# first things first\none\ntwo\n")
    topic(tree.TREE, "three")
    commit(tree.TREE, "net/three.c", "new\n", "NET: three")
    with pytest.raises(Fail, match=r"topics/three(?s:.*)topics/order"):
        tree.check_exported()
    tree.export()
    assert (place / "topics/order").read_text() == "# first things first\none\ntwo\nthree\n"


def test_a_directory_that_is_no_topic_is_refused(filled, place):
    (place / "topics/three").mkdir()
    with pytest.raises(Fail, match="topics/three/topic.toml: not found"):
        topics.series()


def test_a_topic_that_order_does_not_name_comes_last(filled, place):
    (place / "topics/order").write_text("# comment\ntwo\n")
    path = place / "topics/two/topic.toml"
    path.write_text(path.read_text().replace('["one"]', "[]"))
    assert [topic.name for topic in topics.series()] == ["two", "one"]


def test_a_parked_topic_is_kept_and_not_applied(filled, place):
    path = place / "topics/two/topic.toml"
    path.write_text(path.read_text().replace('"draft"', '"parked: its test fails"'))
    assert [topic.name for topic in topics.series()] == ["one"]
    tree.tree(filled)
    (place / "topics/order").write_text("one\n")
    topic(tree.TREE, "three")
    commit(tree.TREE, "net/more.c", "more\n", "NET: add more")
    tree.export()
    assert (place / "topics/two/patches/0001-NET-add-a-file.patch").is_file()
    assert (place / "topics/order").read_text() == "one\nthree\n"
    tree.check_exported()
    topic(tree.TREE, "two")
    commit(tree.TREE, "net/other.c", "other\n", "NET: add another")
    with pytest.raises(Fail, match="topics/two is parked: its test fails: write `state"):
        tree.export()


def set_state(place, name, state):
    path = place / f"topics/{name}/topic.toml"
    path.write_text(path.read_text().replace('"draft"', f'"{state}"'))


def test_an_experiment_is_applied_and_not_proposed(filled, place):
    set_state(place, "two", "experiment: no better")
    assert [topic.name for topic in topics.series()] == ["one", "two"]
    assert [topic.name for topic in topics.proposed(topics.series())] == ["one"]
    tree.tree(filled)
    commit(tree.TREE, "net/more.c", "more\n", "NET: add more")
    tree.export()
    assert len(topics.named(topics.series(), "two").patches) == 2
    both = applied.commits(filled)["patched"]
    assert applied.proposed(filled) == base.git(filled.repo, "rev-parse", f"{both}~3").stdout.strip()


def test_what_stands_behind_an_experiment_is_one(filled, place):
    set_state(place, "one", "experiment: no better")
    with pytest.raises(Fail, match="topics/order: two stands behind one, an experiment: experiments stand last"):
        topics.series()
    set_state(place, "two", "experiment: of an experiment")
    assert not topics.proposed(topics.series())


def test_a_topic_begun_behind_an_experiment_has_to_be_moved_first(filled, place):
    set_state(place, "two", "experiment: no better")
    tree.tree(filled)
    letter = "topic: three\n\nNET: three\n\nDepends on: the base alone"
    base.git(tree.TREE, "commit", "-q", "--allow-empty", "-m", letter)
    commit(tree.TREE, "net/three.c", "three\n", "NET: add three")
    with pytest.raises(Fail, match="three stands behind two, an experiment") as refused:
        tree.export()
    assert not (place / "topics/three").exists()
    onto = re.search(r"git rebase -i '([^']*)'", str(refused.value)).group(1)
    move = "sed -i -n '/three/p;/three/!H;${x;s/^.//;p}'"
    base.git(tree.TREE, "-c", f"sequence.editor={move}", "rebase", "-q", "-i", "--keep-empty", onto)
    tree.export()
    assert [topic.name for topic in topics.series()] == ["one", "three", "two"]


def test_what_a_topic_holds_besides_patches_is_not_lost_with_it(filled, place):
    (place / "topics/two/results").mkdir()
    (place / "topics/two/results/one.json").write_text("{}")
    base.git(place, "init", "-q")
    base.git(place, "add", "topics")
    base.git(tree.TREE, "reset", "-q", "--hard", "HEAD^^")
    with pytest.raises(Fail, match="still holds results") as refused:
        tree.export()
    assert (place / "topics/two/patches/series").is_file()
    command = re.search(r"`(cd [^`]*)`", str(refused.value)).group(1)
    subprocess.run(command.replace("git rm", "git rm -q -f"), shell=True, cwd=place, check=True)
    tree.export()
    assert not (place / "topics/two").exists()


def test_export_keeps_the_order_of_the_tree(filled, place):
    base.git(tree.TREE, "reset", "-q", "--hard", "HEAD^^^^^")
    for name in ("two", "one"):
        topic(tree.TREE, name)
        commit(tree.TREE, f"net/{name}.c", "new\n", f"NET: {name}")
    path = place / "topics/two/topic.toml"
    path.write_text(path.read_text().replace('["one"]', "[]"))
    tree.export()
    assert (place / "topics/order").read_text().split() == ["two", "one"]


def test_what_a_patch_says_is_no_part_of_what_it_changes(filled, place):
    one = topics.series()[0]
    before, whole = one.content, topics.queue_digest()
    path = one.patches[0]
    path.write_text(path.read_text().replace("Why.", "Because."))
    assert topics.series()[0].content == before and topics.queue_digest() != whole


def test_a_cover_letter_says_what_it_depends_on():
    assert tree.depends_on("x", "Text.\n\nDepends on: the base alone\n") == []
    assert tree.depends_on("x", "Depends on: a, b") == ["a", "b"]
    with pytest.raises(Fail, match="Depends on"):
        tree.depends_on("x", "Text.")


def test_a_commit_before_the_first_topic_is_refused(place, ksrc):
    tree.tree(base.from_tree(ksrc))
    commit(tree.TREE, "net/new.c", "new\n", "NET: add a file")
    with pytest.raises(Fail, match="before the first topic"):
        tree.export()


def test_what_changed_names_the_objects_to_build():
    names = ["net/sunrpc/svc.c", "include/linux/sunrpc/svc.h", "tools/x.c", "tools/x.h", "Documentation/a"]
    assert check.objects(names) == ["net/sunrpc/svc.o"]
    assert check.headers(names) == ["include/linux/sunrpc/svc.h"]


def test_the_committed_series_is_sound():
    series = topics.series()
    for one in series:
        check.agree(series, one)
        assert {*one.patches} == {path for path in (one.home / "patches").glob("*.patch") if path.name != topics.COVER}
