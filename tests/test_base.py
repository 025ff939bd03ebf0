# SPDX-License-Identifier: GPL-2.0
import os
import shutil
import time

import pytest
from conftest import MAKEFILE, Fail, patches_of

from testbed import host, util
from testbed.series import base


def test_the_version_a_makefile_states():
    assert base.version(MAKEFILE) == "7.3.4"
    assert base.version(MAKEFILE.replace("EXTRAVERSION =", "EXTRAVERSION = -rc1")) == "7.3.4-rc1"
    assert base.version("all:\n\tcc\n") is None


def test_a_tree_of_the_users_own_is_not_touched(ksrc):
    before = patches_of(ksrc)
    found = base.from_tree(ksrc)
    assert patches_of(ksrc) == before
    assert (found.repo / "net/queue.c").is_file() and found.name.startswith("Linux 7.3.4 (linux at ")
    assert base.from_tree(ksrc) == found


def test_a_tree_with_uncommitted_changes_is_refused(ksrc):
    (ksrc / "net/queue.c").write_text("changed\n")
    with pytest.raises(Fail, match=r"(?s)net/queue.c.*git stash"):
        base.from_tree(ksrc)


def test_a_build_in_the_users_tree_is_no_change(ksrc):
    (ksrc / "vmlinux").write_text("built\n")
    base.from_tree(ksrc)


def test_a_cache_that_was_copied_is_not_written_again(ksrc, tmp_path):
    old = 1700000000
    for path in (ksrc / "Makefile", ksrc / "net/queue.c"):
        os.utime(path, (old, old))
    base.git(ksrc, "update-index", "--refresh")
    shutil.copytree(ksrc, tmp_path / "copy", copy_function=shutil.copy2)
    base.git(tmp_path / "copy", "checkout", "-q", "--force", "--detach", "HEAD")
    assert (tmp_path / "copy/net/queue.c").stat().st_mtime == old


def test_what_is_no_kernel_is_refused(ksrc, tmp_path):
    with pytest.raises(Fail, match="no such directory"):
        base.from_tree(tmp_path / "nowhere")
    with pytest.raises(Fail, match="not the top of a git tree"):
        base.from_tree(ksrc / "net")
    (tmp_path / "plain").mkdir()
    with pytest.raises(Fail, match="not the top of a git tree"):
        base.from_tree(tmp_path / "plain")
    config = ksrc / ".git/config"
    was = config.read_text()
    config.write_text("[core\n")
    # What git says is better than a guess: of an owner, or of this.
    with pytest.raises(Fail, match="git says:\n.*bad config"):
        base.from_tree(ksrc)
    config.write_text(was)
    base.git(ksrc, "rm", "-q", "Kbuild")
    base.git(ksrc, "commit", "-q", "-m", "no kernel any more")
    with pytest.raises(Fail, match="not a source tree of Linux"):
        base.from_tree(ksrc)


@pytest.fixture
def archive(monkeypatch):
    """A machine whose apt is the dictionary this returns: {command: (status, output)}."""
    answers = {"update": (0, ""), "policy": (0, ""), "search": (0, "")}
    asked = []

    def run(*argv, **_):
        verb = next(v for v in answers if v in argv)
        asked.append(verb)
        return type("Done", (), {"returncode": answers[verb][0], "stdout": answers[verb][1]})

    monkeypatch.setattr(base, "run", run)
    monkeypatch.setattr(host, "mirror", lambda: "MIRROR")
    answers["asked"] = asked
    return answers


def test_no_network_and_no_cache_says_what_to_do(archive):
    archive["update"] = (100, "Could not resolve")
    with pytest.raises(Fail, match=r"(?s)could not be reached.*KSRC=.*Could not resolve"):
        base.from_package()


def test_no_such_package_lists_what_there_is(archive):
    archive["policy"] = (0, "  Candidate: (none)\n")
    archive["search"] = (0, "linux-source-7.9 - Linux kernel source\n")
    with pytest.raises(Fail, match=r"(?s)no linux-source-7.3 in trixie-backports.*linux-source-7.9.*KSRC="):
        base.from_package()


def cached(offered):
    repo = util.cache() / "base" / f"linux-source-7.3_{offered}"
    repo.mkdir(parents=True)
    return repo


def test_no_network_uses_the_cached_source_and_says_so(archive, monkeypatch, capsys):
    cached("7.3.4-1")
    archive["update"] = (100, "")
    monkeypatch.setattr(base, "git", lambda *_, **__: type("Done", (), {"stdout": "abc\n"}))
    assert base.from_package().name == "Linux 7.3.4 (linux-source-7.3 7.3.4-1)"
    assert "using linux-source-7.3 7.3.4-1 from the cache" in capsys.readouterr().out


def test_the_mirror_is_asked_once_a_day(archive, monkeypatch):
    cached("7.3.4-1")
    archive["policy"] = (0, "  Candidate: 7.3.4-1\n")
    monkeypatch.setattr(base, "git", lambda *_, **__: type("Done", (), {"stdout": "abc\n"}))
    base.from_package()
    base.from_package()
    assert archive["asked"].count("update") == 1
    tomorrow = time.time() + 25 * 3600
    monkeypatch.setattr(time, "time", lambda: tomorrow)
    base.from_package()
    assert archive["asked"].count("update") == 2
