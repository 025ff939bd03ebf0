# SPDX-License-Identifier: GPL-2.0
"""Topics of a base that is no kernel: they have a tree of their own, and neither base's patches get into the other."""

import dataclasses
import re
import stat
import subprocess
import sys

import pytest
from conftest import Fail, commit, patches_of, topic

from testbed import cli, host, util
from testbed.report import documents
from testbed.series import base, post, tree
from testbed.series import topics as store
from testbed.suites import userland

CONFIGURE = """#!/bin/sh
test "$1" = -q && test "$2" = --disable-gss && echo "$*" >asked
printf 'all: utils/ctl/nfsdctl\\n\\nutils/ctl/nfsdctl: utils/ctl/ctl.c\\n\\tgcc $(CFLAGS) -o $@ $<\\n' >Makefile
"""
CTL = "int main(void)\n{\n\tint unused;\n\treturn 0;\n}\n"


@pytest.fixture
def utils(filled, place, monkeypatch):
    """The other base, with BASE= set and its tree made; beside it is the kernel's queue, exported."""
    other = place / "utils"
    base.git(None, "init", "-q", other)
    (other / "configure").write_text(CONFIGURE)
    (other / "configure").chmod(0o755)
    (other / ".gitignore").write_text("Makefile\nasked\n")
    commit(other, "configure.ac", "AC_INIT([linux nfs-utils],[2.8.3],[nobody])\n", "base")
    commit(other, "utils/ctl/ctl.c", CTL, "more of the base")
    monkeypatch.setenv("BASE", "nfs-utils")
    monkeypatch.setattr(tree, "TREE", place / "tree-nfs-utils")
    found = base.from_tree(other)
    tree.tree(found)
    return found


@pytest.fixture
def stats(utils):
    """It has a topic of one patch."""
    topic(tree.TREE, "utils-stats")
    commit(tree.TREE, "utils/ctl/ctl.c", CTL.replace("return 0", "return 1"), "nfsdctl: return 1")
    tree.export()
    return utils


@pytest.fixture
def builder(tmp_path, monkeypatch):
    """A host that has what builds the base, or seems to."""
    fake = tmp_path / "bin/autoreconf"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{fake.parent}:{userland.os.environ['PATH']}")
    monkeypatch.setattr(host, "setup", lambda wanted: None)


def test_its_topics_are_apart_from_the_kernels(stats, place, monkeypatch):
    assert [one.name for one in store.series()] == ["utils-stats"]
    assert (place / "topics/order").read_text().split() == ["one", "two", "utils-stats"]
    assert 'base = "nfs-utils"\n' in (place / "topics/utils-stats/topic.toml").read_text()
    monkeypatch.delenv("BASE")
    assert [one.name for one in store.series()] == ["one", "two"]
    assert [one.name for one in store.series(of="nfs-utils")] == ["utils-stats"]
    assert [one.name for one in store.applied()] == ["one", "two", "utils-stats"]


def test_what_one_base_exports_leaves_the_others_as_it_is(stats, place, monkeypatch):
    before = patches_of(place / "topics")
    tree.check_exported()
    commit(tree.TREE, "utils/ctl/ctl.c", CTL.replace("return 0", "return 2"), "nfsdctl: return 2")
    with pytest.raises(Fail, match=r"tree-nfs-utils/ holds commits that topics/ does not.*\n  topics/utils-stats/"):
        tree.check_exported()
    tree.export()
    after = patches_of(place / "topics")
    assert {path for path in after if after[path] != before.get(path)} == {
        "utils-stats/patches/0000-cover-letter.patch",
        "utils-stats/patches/0002-nfsdctl-return-2.patch",
        "utils-stats/patches/series",
    }
    monkeypatch.delenv("BASE")
    monkeypatch.setattr(tree, "TREE", place / "tree")
    tree.check_exported()
    commit(tree.TREE, "net/more.c", "more\n", "NET: more")
    tree.export()
    assert {path for path in after if path.startswith("utils-stats/")} == {
        path for path, data in patches_of(place / "topics").items() if after.get(path) == data and path[:5] == "utils"
    }
    assert "utils-stats" in (place / "topics/order").read_text().split()


def test_a_topic_of_another_base_is_not_taken(stats):
    topic(tree.TREE, "one")
    commit(tree.TREE, "new.c", "new\n", "nfsdctl: new")
    with pytest.raises(Fail, match=r"topics/one is of another base \(the kernel\): take another name"):
        tree.export()


def test_it_depends_on_topics_of_its_base_alone(stats, place):
    path = place / "topics/utils-stats/topic.toml"
    path.write_text(path.read_text().replace("depends_on = []", 'depends_on = ["one"]'))
    with pytest.raises(Fail, match="depends_on: one is no topic; there are: utils-stats"):
        store.series()
    path.write_text(path.read_text().replace('"nfs-utils"', '"nfs-tools"'))
    with pytest.raises(Fail, match="BASE=nfs-tools: there is no such base beside the kernel; there is: nfs-utils"):
        store.series()


def test_a_tree_of_its_own_has_to_be_one(utils, ksrc, monkeypatch):
    assert utils.name.startswith("nfs-utils 2.8.3 (utils at ")
    with pytest.raises(Fail, match=r"not a source tree of nfs-utils \(its configure.ac does not say so\)"):
        base.from_tree(ksrc)
    monkeypatch.setenv("LTS", "6.12")
    with pytest.raises(Fail, match="LTS= and BASE= name two bases"):
        base.package()


def test_its_mails_say_what_they_are_of(stats, place):
    made = post.post(stats, "utils-stats", "1", str(place / "mail"))
    assert "Subject: [PATCH nfs-utils 1/1] nfsdctl: return 1" in (made / "0001-nfsdctl-return-1.patch").read_text()


def test_the_tarball_is_taken_and_what_is_made_of_others_is_not(tmp_path, monkeypatch):
    wanted, top = base.PROJECTS["nfs-utils"], tmp_path / "nfs-utils-2.8.3"
    (top / "aclocal").mkdir(parents=True)
    for name in ("configure", "configure.ac", "Makefile.in", "aclocal/ltoptions.m4", "aclocal/ipv6.m4"):
        (top / name).write_text("AC_INIT([linux nfs-utils],[2.8.3],[nobody])\n")
    asked = []

    def run(*argv, **more):
        if "source" in argv:
            util.run("tar", "-cJf", more["cwd"] / "nfs-utils_2.8.3.orig.tar.xz", "-C", tmp_path, top.name)
        elif not argv[0].startswith("apt-"):
            return util.run(*argv, **more)
        said = "Package: nfs-utils\nVersion: 1:2.8.3-1\n" if "showsrc" in argv else ""
        return subprocess.CompletedProcess(argv, 0, said)

    monkeypatch.setattr(base, "run", run)
    monkeypatch.setattr(host, "source", lambda suite, archive: asked.append(archive) or "deb-src none")
    found = base.from_package(wanted)
    assert found.name == "nfs-utils 2.8.3 (nfs-utils 2.8.3-1)" and found.revision == "2.8.3-1" and asked == ["deb-src"]
    kept = base.git(found.repo, "ls-tree", "-r", "--name-only", "base").stdout.split()
    assert kept == [".gitignore", "aclocal/ipv6.m4", "configure.ac"]
    assert wanted.version(found.repo) == "2.8.3"


def test_each_patch_is_built_and_a_new_warning_fails(stats, builder, capsys):
    chosen = store.series()
    tally = util.Tally()
    userland.check(stats, tally, chosen)
    assert not tally.failed, capsys.readouterr().out
    commit(tree.TREE, "utils/ctl/ctl.c", CTL.replace("return 0", "int x;\n\treturn 2"), "nfsdctl: return 2")
    commit(tree.TREE, "utils/ctl/ctl.c", CTL.replace("return 0", "return x"), "nfsdctl: return x")
    tree.export()
    tally = util.Tally()
    userland.check(stats, tally, store.series())
    failed = {case.name: case.problem for case in tally.cases if case.problem}
    two, three = "utils-stats/0002-nfsdctl-return-2.patch", "utils-stats/0003-nfsdctl-return-x.patch"
    assert list(failed) == [f"{name}: builds, and no warning is new" for name in (two, three)]
    problems = list(failed.values())
    assert "unused variable" in problems[0] and "‘unused’" not in problems[0].replace("'", "")
    assert re.search("make failed with status 2.*\n.*undeclared", problems[1])


def test_a_file_that_a_patch_removes_is_gone_where_it_is_built(stats, builder, tmp_path):
    place = tmp_path / "built"
    place.mkdir()
    commit(stats.repo, "utils/ctl/more.h", "int more;\n", "more")
    added = base.git(stats.repo, "rev-parse", "HEAD").stdout.strip()
    userland.copy(stats, added, place)
    assert (place / "utils/ctl/more.h").is_file()
    userland.copy(stats, stats.commit, place)
    assert not (place / "utils/ctl/more.h").exists() and (place / "utils/ctl/ctl.c").is_file()


def test_a_guest_gets_the_patched_program(stats, builder, monkeypatch):
    monkeypatch.delenv("BASE")
    monkeypatch.setattr(base, "from_package", lambda wanted: stats)
    ctl = dataclasses.replace(base.PROJECTS["nfs-utils"], programs=("nfsdctl",))
    monkeypatch.setitem(base.PROJECTS, "nfs-utils", ctl)
    made = userland.programs("nfs-utils")
    assert subprocess.run([made / "nfsdctl"]).returncode == 1
    assert userland.programs("nfs-utils") == made


def test_the_readme_says_which_topics_are_of_it():
    assert re.search(r"\| +\|[^|]*\(nfs-utils\) +\|", documents.topics())


@pytest.mark.parametrize("words", [["dkms"], ["test"], ["kernels"]])
def test_a_command_of_the_kernel_is_refused(words, monkeypatch):
    monkeypatch.setenv("BASE", "nfs-utils")
    with pytest.raises(Fail, match=f"{words[0]} is for the series itself; with BASE= there are: tree, export, series,"):
        cli.parse(words)
    with pytest.raises(Fail, match="BASE=x: not one of nfs-utils"):
        cli.parse(["series", "BASE=x"])


def test_a_topic_is_named_with_its_base(monkeypatch):
    kernels, others = store.series(), store.series(of="nfs-utils")
    for one in others:
        with pytest.raises(Fail, match=f"T={one.name}: is of another base: BASE=nfs-utils"):
            cli.parse(["check", f"T={one.name}"])
    monkeypatch.setenv("BASE", "nfs-utils")
    for one in others:
        assert cli.parse(["check", f"T={one.name}"])[1].t == one.name
    with pytest.raises(Fail, match=f"T={kernels[0].name}: is of another base: without BASE="):
        cli.parse(["check", f"T={kernels[0].name}"])


def test_series_names_the_patches_of_one_base():
    done = subprocess.run(
        [sys.executable, "-m", "testbed", "series"],
        env={**userland.os.environ, "BASE": "nfs-utils"},
        cwd=util.ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    named = {line.split("/topics/")[1].split("/")[0] for line in done.stdout.split()}
    assert named == {one.name for one in store.series(of="nfs-utils")}
