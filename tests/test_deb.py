# SPDX-License-Identifier: GPL-2.0
"""Packages of a kernel: what is asked of make, what is kept, and what is refused."""

import dataclasses
import os
import re
import subprocess
import sys

import pytest
from conftest import Fail

from testbed import util
from testbed.machines import boot, guest, kernel, kinds
from testbed.packages import deb, debian, package
from testbed.series import base, topics
from testbed.suites import selftests

CONFIG = "CONFIG_NFSD=m\nCONFIG_XFS_FS=m\nCONFIG_RUST_PHY=m\nCONFIG_DEBUG_INFO_BTF=y\n"
LSMOD = "Module                  Size  Used by\nnfsd                 987136  11\n"
# What the kernel's own tools do, as far as configure() can tell.
MAKEFILE = """\
olddefconfig:
	sed -i /RUST_PHY/d $(O)/.config
localmodconfig:
	test -s "$$LSMOD" && read -r answer
	sed -i /XFS/d $(O)/.config
"""
MERGE = """\
#!/bin/sh
# -m -O OUT FILE…
out=$3
shift 3
cat "$@" | grep -v BTF >"$out"/merged
mv "$out"/merged "$out"/.config
"""


@pytest.fixture
def packaged(filled, place, monkeypatch):
    """A small kernel of Debian's, with its configuration in the cache."""
    monkeypatch.setattr(deb, "BUILD", place / "build")
    found = dataclasses.replace(filled, name="Linux 7.3.4 (linux-source-7.3 7.3.4-1~bpo13+1)", packaged=True)
    config = util.cache() / "base/linux-config-7.3_7.3.4-1~bpo13+1"
    config.parent.mkdir(exist_ok=True)
    config.write_text(CONFIG)
    return found


@pytest.fixture
def made(packaged, monkeypatch):
    """The same, with a make that leaves what bindeb-pkg would; returns the list of what was asked of it."""
    asked = []

    def make(src, out, kind, title, log, *words, env):
        suffix = words[0].removeprefix("LOCALVERSION=")
        asked.append((words, env, (out / ".config").read_text()))
        (out / "debian").mkdir()
        version = env["KDEB_PKGVERSION"]
        for name in (f"linux-image-7.3.4{suffix}", f"linux-headers-7.3.4{suffix}", "linux-libc-dev"):
            (out.parent / f"{name}_{version}_amd64.deb").write_text(name)
        (out.parent / f"linux-upstream_{version}_amd64.changes").write_text("")
        return 1

    def configure(src, out, config, lsmod):
        out.mkdir(parents=True, exist_ok=True)
        (out / ".config").write_text(config.read_text() + lsmod)

    monkeypatch.setattr(deb, "configure", configure)
    monkeypatch.setattr(kernel, "make", make)
    return asked


def test_the_packages_say_what_they_are(packaged, made):
    found = deb.deb(packaged)
    assert re.fullmatch(r"7\.3\.4-knfsd-queue-[0-9a-f]{8}", found.release)
    assert [path.name for path in found.files] == [
        f"linux-{name}-{found.release}_7.3.4-1~bpo13+1_amd64.deb" for name in ("image", "headers")
    ]
    ((words, env, config),) = made
    assert words[1] == "bindeb-pkg" and config == CONFIG
    assert env["DEBEMAIL"].endswith("@example.invalid") and env["KBUILD_BUILD_USER"] == "knfsd-queue"


def test_what_was_built_is_not_built_again(packaged, made):
    first = deb.deb(packaged)
    for path in first.files:
        path.unlink()
    assert deb.deb(packaged) == first and len(made) == 1 and all(path.is_file() for path in first.files)


def test_other_modules_options_or_patches_are_another_kernel(packaged, made, monkeypatch):
    releases = [deb.deb(packaged).release, deb.deb(packaged, LSMOD).release]
    config = base.configuration(packaged)
    config.write_text(CONFIG + "CONFIG_NFS_FS=m\n")
    releases.append(deb.deb(packaged).release)
    monkeypatch.setattr(deb.applied, "code", lambda base, commit: "another tree")
    releases.append(deb.deb(packaged).release)
    assert len(set(releases)) == len(made) == 4


def test_only_what_is_installed_is_kept(packaged, made):
    deb.deb(packaged)
    (place,) = (util.cache() / "build").glob("deb-*")
    assert [path.name for path in place.iterdir()] == ["linux"] and not (place / "linux/debian").exists()


def test_a_full_disk_is_said_before_anything_is_built(packaged, made, monkeypatch):
    monkeypatch.setattr(util.shutil, "disk_usage", lambda path: util.shutil._ntuple_diskusage(10**12, 0, 10**10))
    with pytest.raises(Fail, match=r"building Debian packages of a kernel needs 15.0 GB in .*, which has 10.0 GB free"):
        deb.deb(packaged)
    deb.deb(packaged, LSMOD)
    assert len(made) == 1


@pytest.fixture
def source(tmp_path):
    src = tmp_path / "src"
    (src / "scripts/kconfig").mkdir(parents=True)
    (src / "Makefile").write_text(MAKEFILE)
    (src / "scripts/kconfig/merge_config.sh").write_text(MERGE)
    (src / "scripts/kconfig/merge_config.sh").chmod(0o755)
    (tmp_path / "config").write_text(CONFIG)
    (tmp_path / "out").mkdir()
    return src


def test_the_configuration_is_debians_without_debug_information(source, tmp_path, capsys):
    deb.configure(source, tmp_path / "out", tmp_path / "config", "")
    said = (tmp_path / "out/.config").read_text()
    assert "CONFIG_DEBUG_INFO_NONE=y\n" in said and "BTF=" not in said and "XFS" in said
    assert "left out, because the tools here cannot build it: CONFIG_RUST_PHY\n" in capsys.readouterr().out


def test_a_servers_modules_are_all_that_is_kept(source, tmp_path, capsys):
    deb.configure(source, tmp_path / "out", tmp_path / "config", LSMOD)
    assert deb.modules((tmp_path / "out/.config").read_text()) == {"CONFIG_NFSD"}
    assert "1 of the 2 options that are modules are kept" in capsys.readouterr().out


def test_what_is_tested_has_fewer_options(source, tmp_path):
    more = tmp_path / "more.config"
    more.write_text("CONFIG_SMALL=y\n")
    deb.configure(source, tmp_path / "out", tmp_path / "config", LSMOD, more)
    said = (tmp_path / "out/.config").read_text()
    assert said.endswith("CONFIG_SMALL=y\n") and deb.modules(said) == {"CONFIG_NFSD"}


def test_an_option_that_is_lost_is_named(source, tmp_path):
    (source / "Makefile").write_text(MAKEFILE.replace("RUST_PHY", "DEBUG_INFO_NONE"))
    with pytest.raises(Fail, match="deb.config did not survive olddefconfig:\n  CONFIG_DEBUG_INFO_NONE=y"):
        deb.configure(source, tmp_path / "out", tmp_path / "config", "")


@pytest.mark.parametrize(
    "text, said",
    [
        (None, "no such file: `lsmod >FILE` on the server writes it"),
        ("CONFIG_NFSD=m\n", "is not what lsmod prints"),
        (LSMOD.replace("nfsd", "xfs"), "has no nfsd: what is not loaded is not built, so run lsmod while the server"),
    ],
)
def test_a_list_of_modules_that_cannot_be_right_is_one_line(tmp_path, text, said):
    path = tmp_path / "server.lsmod"
    if text is not None:
        path.write_text(text)
    words = [sys.executable, "-m", "testbed", "deb", f"LSMOD={path}"]
    done = subprocess.run(words, cwd=util.ROOT, text=True, capture_output=True)
    assert done.returncode == 1 and done.stderr.startswith(f"testbed: LSMOD={path}: {said}")
    assert done.stderr.count("\n") == 1


def test_the_guests_list_is_one_that_is_taken():
    assert deb.loaded(deb.GUEST)


def test_the_configuration_is_of_the_bases_own_version(packaged, ksrc):
    assert base.configuration(packaged).read_text() == CONFIG
    assert packaged.revision == "7.3.4-1~bpo13+1" and base.from_tree(ksrc).revision == "7.3.4-1"


def test_a_configuration_that_cannot_be_had_is_said(packaged, monkeypatch):
    monkeypatch.setattr(base, "candidate", lambda wanted: ("Could not resolve host", None))
    other = dataclasses.replace(packaged, name="Linux 7.3.5 (linux-source-7.3 7.3.5-1)")
    with pytest.raises(Fail, match="linux-config-7.3 is not in the cache: check the network"):
        base.configuration(other)


def test_a_tree_of_the_users_takes_the_configuration_that_is_there(packaged, ksrc, monkeypatch):
    monkeypatch.setattr(base, "candidate", lambda wanted: ("Could not resolve host", None))
    assert base.configuration(base.from_tree(ksrc)).read_text() == CONFIG


def test_what_judges_the_packages_is_there():
    found = {script: topic.name for topic in topics.series() for script in topic.packages}
    assert found
    for script in found:
        assert selftests.named(script.rpartition("/")[2], "deb")[1] == [script]


def test_an_environment_of_the_users_does_not_reach_the_build():
    assert "LSMOD" not in kernel.make_env() and kernel.make_line(kinds.KINDS["deb"]) == ("make", "ARCH=x86_64")
    assert os.path.basename(deb.FRAGMENT) == "deb.config"


@pytest.fixture
def judged(packaged, place, monkeypatch):
    """KIND=deb on packages and a guest that are not there; returns a function of what the guest says of the scripts."""
    one = place / "topics/one/topic.toml"
    one.write_text(
        one.read_text() + 'selftests = ["net"]\npackages = ["net/fast.sh", "net/slow.sh"]\nshell = "start_a_server"\n'
    )
    machine = debian.Machine(place / "machine", "7.3.4-mine")
    machine.place.mkdir()
    for name in ("before", "after"):
        (machine.place / name).write_text("0 boot/other\n")
    (place / "kselftest-list.txt").write_text("net:fast.sh\nnet:slow.sh\n")
    built = deb.Packages("7.3.4-mine", (place / "linux-image-7.3.4-mine_1_amd64.deb",))
    monkeypatch.setattr(package.host, "setup", lambda wanted: None)
    monkeypatch.setattr(deb, "deb", lambda base, lsmod, *more: built)
    monkeypatch.setattr(debian, "with_kernel", lambda files, release: machine)
    monkeypatch.setattr(kernel, "selftests", lambda base: place)
    monkeypatch.setattr(guest, "root", lambda: None)
    monkeypatch.setattr(package, "BUILD", place / "build")
    monkeypatch.setattr(selftests, "BUILD", place / "build")
    (place / "build").mkdir()

    def run(looked, ktap):
        texts = []

        def guest_says(image, script, results, limit, kind, root=None):
            assert image == machine.root("patched") / "boot/vmlinuz-7.3.4-mine" and kind == "deb"
            texts.append(script.read_text())
            results.mkdir(parents=True)
            (results / "ktap").write_text(ktap if "run_kselftest" in texts[-1] else looked)
            return results

        monkeypatch.setattr(boot, "boot", guest_says)
        tally = util.Tally()
        package.kernels(packaged, tally)
        return tally, texts

    return run


LOOKED = "ok 1 the kernel is the package's\n"
FAST, SLOW = "# ok 1 a case\nok 1 selftests: net: fast.sh\n", "# ok 1 a case\nok 2 selftests: net: slow.sh\n"


def test_the_packages_are_installed_looked_at_and_judged(judged):
    tally, (first, second) = judged(LOOKED, FAST + SLOW)
    assert not tally.failed and {"patched: fast.sh: a case", "the kernel is the package's"} <= {
        case.name for case in tally.cases
    }
    assert "export RELEASE=7.3.4-mine\n" in first and first.index("start_a_server") < first.index("packages/kernel.sh")
    assert "-t net:fast.sh -t net:slow.sh" in second


def test_a_script_that_did_not_run_is_a_failure(judged):
    tally, _ = judged(LOOKED, FAST)
    assert [case.problem.partition(";")[0] for case in tally.cases if case.problem] == ["slow.sh was not run"]


def test_a_guest_that_looked_at_nothing_is_a_failure(judged):
    tally, _ = judged("", FAST + SLOW)
    assert [case.name for case in tally.cases if case.problem] == ["the guest looked at it"]
