# SPDX-License-Identifier: GPL-2.0
"""A lane: what of the series a long-term kernel has, as differences from the topics' own patches."""

import os
import subprocess
import sys

import pytest
from conftest import Fail, commit, patches_of

from testbed.series import base, tree
from testbed.series import lane as lanes
from testbed.series import topics as store
from testbed.util import ROOT


@pytest.fixture
def lane(filled, place, ksrc, monkeypatch, request):
    """The lane of a kernel that has another line 21: its tree has the topic `one`, and its base is returned."""
    other = place / "older" / "linux"
    other.parent.mkdir()
    base.git(None, "clone", "-q", ksrc, other)
    text = (other / "net/queue.c").read_text().replace("line 21\n", "line 21, as it was\n")
    commit(other, "net/queue.c", text, "older")
    monkeypatch.setenv("LTS", getattr(request, "param", "6.12"))
    for module in (tree, lanes):
        monkeypatch.setattr(module, "TREE", place / "tree-6.12")
    found = base.from_tree(other)
    tree.tree(found)
    message = "topic: one\n\nNET: the subject of one\n\nThe problem.\n"
    base.git(tree.TREE, "commit", "-q", "--allow-empty", "-m", message)
    three, twenty = store.load(place / "topics/one").own
    base.git(tree.TREE, "am", "-q", three)
    date = {"GIT_AUTHOR_DATE": "@1700000000 +0000"}
    changed = (tree.TREE / "net/queue.c").read_text().replace("line 20\n", "line twenty\n")
    (tree.TREE / "net/queue.c").write_text(changed)
    base.git(tree.TREE, "commit", "-q", "-a", "-m", "NET: spell twenty\n\nWhy.\n", env=date)
    return found


def here(place):
    return place / "topics/one" / base.package().home


def test_only_what_differs_is_kept(lane, place):
    before = patches_of(place / "topics")
    tree.export()
    kept = patches_of(here(place))
    assert sorted(kept) == ["0002-NET-spell-twenty.patch.diff", "series"]
    said = kept["0002-NET-spell-twenty.patch.diff"].decode()
    assert [line for line in said.splitlines()[3:] if line[0] in "+-"] == ["- line 21", "+ line 21, as it was"]
    assert before.items() <= patches_of(place / "topics").items()


@pytest.mark.parametrize("lane", ["nfsd-testing"], indirect=True)
def test_the_lane_of_a_branch_is_of_a_tree_of_the_users(lane, place):
    tree.export()
    kept = place / "topics/one/nfsd-testing"
    assert here(place) == kept and sorted(patches_of(kept)) == ["0002-NET-spell-twenty.patch.diff", "series"]
    tree.check_exported()
    with pytest.raises(Fail, match="LTS=nfsd-testing: no package has it: give KSRC=/path, a clone of https://git"):
        base.find()


@pytest.mark.parametrize("lane", ["nfsd-testing"], indirect=True)
def test_how_far_a_topic_was_carried_is_said(lane, place):
    toml = place / "topics/one/topic.toml"
    toml.write_text(toml.read_text() + '[carried]\nnfsd-testing = "applies; compiled"\n"6.12" = "other"\n')
    assert lanes.carried() == ["one: applies; compiled"]


def test_a_topic_that_is_carried_to_no_lane_that_there_is_is_named(filled, place):
    toml = place / "topics/one/topic.toml"
    toml.write_text(toml.read_text() + '[carried]\nnfsd-tested = "applies"\n')
    with pytest.raises(Fail, match=r"one/topic.toml: carried: .*nfsd-tested"):
        store.everything()


def test_export_after_tree_is_a_no_op_and_a_new_tree_has_the_same_files(lane, place):
    tree.export()
    before, tip = patches_of(place / "topics"), base.git(tree.TREE, "rev-parse", "HEAD^{tree}").stdout
    tree.check_exported()
    tree.remove(tree.TREE)
    tree.tree(lane)
    assert base.git(tree.TREE, "rev-parse", "HEAD^{tree}").stdout == tip
    base.git(tree.TREE, "commit", "-q", "--amend", "--no-edit", env={"GIT_COMMITTER_DATE": "@1800000000 +0000"})
    tree.export()
    assert patches_of(place / "topics") == before


def test_the_series_itself_is_as_it_was(lane, place, monkeypatch):
    own = [path for topic in store.series(where=place / "topics") for path in topic.patches]
    assert not own, "before its export a lane has no topic"
    tree.export()
    assert [topic.name for topic in store.series()] == ["one"]
    monkeypatch.delenv("LTS")
    assert [path.parent.name for topic in store.series() for path in topic.patches] == ["patches"] * 3


def test_work_in_the_lanes_tree_is_not_lost(lane, place):
    with pytest.raises(Fail, match=r"tree-6.12/ holds commits that topics/ does not.*\n  topics/one/lts-6.12/"):
        tree.check_exported()


def test_a_patch_that_is_not_mentioned_is_named(lane, place):
    tree.export()
    series = here(place) / "series"
    series.write_text(series.read_text().replace("0001-NET-spell-three.patch\n", ""))
    with pytest.raises(Fail, match="lts-6.12/series: says nothing of 0001-NET-spell-three.patch: add its name, or"):
        store.series()[0].patches  # noqa: B018


def test_a_patch_may_be_left_out_with_a_reason(lane, place):
    base.git(tree.TREE, "reset", "-q", "--hard", "HEAD^")
    with pytest.raises(Fail, match="no commit for one/0002-NET-spell-twenty.patch: say in .*`without 0002.*: why`"):
        tree.export()
    here(place).mkdir(exist_ok=True)
    (here(place) / "series").write_text("without 0002-NET-spell-twenty.patch: it has no twenty\n")
    tree.export()
    found = store.load(place / "topics/one").lane("6.12")
    assert [path.name for path in found.patches] == ["0001-NET-spell-three.patch"]
    assert found.without == {"0002-NET-spell-twenty.patch": "it has no twenty"}


def test_a_difference_from_a_patch_that_has_changed_says_so(lane, place):
    tree.export()
    patch = place / "topics/one/patches/0002-NET-spell-twenty.patch"
    patch.write_text(patch.read_text().replace(" line 21\n", " line twenty-one\n"))
    with pytest.raises(Fail, match=r"0002.*diff: does not apply to .*0002.*patch, which has changed since: port"):
        store.series()[0].patches  # noqa: B018


def test_a_patch_that_does_not_apply_is_named_and_says_what_to_do(lane, place):
    tree.export()
    (here(place) / "0002-NET-spell-twenty.patch.diff").unlink()
    with pytest.raises(Fail, match=r'(?s)does not apply: "NET: spell twenty".*net/queue.c.*Port it to this kernel'):
        tree.apply(lane.repo, store.series(), lane.commit)


def test_a_patch_that_its_topic_does_not_have_is_refused(lane, place):
    commit(tree.TREE, "net/more.c", "more\n", "NET: add more")
    with pytest.raises(Fail, match='one has no patch "NET: add more": a lane has only what its topic has'):
        tree.export()


def test_a_leftover_difference_is_named(lane, place):
    tree.export()
    (here(place) / "0009-gone.patch.diff").write_text("")
    with pytest.raises(Fail, match="0009-gone.patch.diff: the series beside it does not list 0009-gone.patch"):
        store.series()[0].patches  # noqa: B018


@pytest.mark.parametrize("name", ["6.13", "../tree", "7.3"])
def test_an_unknown_lane_is_one_line(name):
    done = subprocess.run(
        [sys.executable, "-m", "testbed", "tree"],
        env={**os.environ, "LTS": name},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (
        1,
        f"testbed: LTS={name}: there is no such lane; there are: 6.12, nfsd-testing\n",
    )


def test_a_command_of_the_series_itself_is_refused():
    done = subprocess.run(
        [sys.executable, "-m", "testbed", "dkms"],
        env={**os.environ, "LTS": "6.12"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and done.stderr.startswith("testbed: dkms is for the series itself; with LTS= there")
    assert done.stderr.count("\n") == 1


def test_every_lane_says_something_of_every_patch_of_its_topics():
    for version in filter(None, base.PACKAGES):
        found = [topic.lane(version) for topic in store.everything() if topic.lane(version)]
        assert found and all(lane.patches for lane in found)
