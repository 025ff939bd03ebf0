# SPDX-License-Identifier: GPL-2.0
"""Programs of user space in guests: what decides whether they run again, and how their cases are read."""

import dataclasses
import functools
import re

import pytest
from conftest import Fail

from testbed import gate, util
from testbed.experiments import experiment, pieces
from testbed.series import topics as store
from testbed.suites import own, tools

SCRIPT = tools.SCRIPT.read_text()


@pytest.fixture
def run(tmp_path):
    image, script = tmp_path / "linux", tmp_path / "guest.sh"
    image.write_text("a kernel\n")
    script.write_text("check it true\n")
    return tools.Run("tools", "base", image, script, None)


def test_a_case_is_a_line(tmp_path):
    (tmp_path / "verdicts").write_text("ok it is measured\nnot ok nothing is left\n")
    assert tools.read(tmp_path / "verdicts") == {"it is measured": "", "nothing is left": "it fails"}
    assert tools.read(tmp_path / "none") == {}


@pytest.fixture
def boots(tmp_path, monkeypatch):
    """What was booted; its cases are the lines of tmp_path/says."""
    found = []

    def boot(made, text, results, *_, **__):
        found.append(text.read_text())
        results.mkdir(parents=True, exist_ok=True)
        (results / "verdicts").write_text((tmp_path / "says").read_text())

    (tmp_path / "says").write_text("ok a\n")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/nfs-floor").write_text("a program\n")
    (tmp_path / "root/var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "root/var/lib/dpkg/status").write_text("packages\n")
    monkeypatch.setattr(tools.boot, "boot", boot)
    monkeypatch.setattr(tools, "BUILD", tmp_path / "build")
    monkeypatch.setattr(tools, "TOOLS", tmp_path / "tools")
    return found


@pytest.fixture
def said(tmp_path):
    return functools.partial(tools.said, root=tmp_path / "root")


def test_a_boot_is_of_a_kernel_and_says_its_cases(run, boots, said):
    assert said(run) == {"a": ""}
    assert "KERNEL=base\n" in boots[0]


@pytest.mark.parametrize("changed", ["linux", "guest.sh", "tools/nfs-floor", "root/var/lib/dpkg/status"])
def test_a_boot_is_made_again_when_what_it_depends_on_has_changed(run, boots, said, tmp_path, changed):
    assert said(run) == said(run) and len(boots) == 1
    (tmp_path / changed).write_text("a fault\n")
    assert said(run) == said(run) and len(boots) == 2
    other = dataclasses.replace(run, programs=tmp_path / "others")
    assert said(other) == said(run, again=True) and len(boots) == 4


def test_a_boot_with_a_case_that_fails_is_made_each_time(run, boots, said, tmp_path):
    (tmp_path / "says").write_text("ok a\nnot ok b\n")
    assert said(run) == said(run) == {"a": "", "b": "it fails"}
    assert len(boots) == 2


def test_a_topic_of_another_base_has_a_script_of_its_own():
    found = tools.scripts()
    assert found.pop("tools") == tools.SCRIPT
    for name, path in found.items():
        assert store.named(store.applied(), name).base and tools.named(name) == name
        names = re.findall(r'^\t*check "([^"]+)"', path.read_text(), re.M)
        assert len(names) == len(set(names)) > 20


def test_a_tool_can_be_named(monkeypatch):
    asked = []
    monkeypatch.setattr(gate.bases, "find", lambda: "base")
    monkeypatch.setattr(gate.tools, "tools", lambda base, tally, only: asked.append(only) or tally.that("it runs", ""))
    assert gate.some("sim", "nfs-floor", 0, "") == 0 and asked == ["tools"]
    with pytest.raises(Fail, match="T=nfs-floor: a program is tested with KIND=sim, without NOISE= and MODE="):
        gate.some("x86", "nfs-floor", 0, "")


def test_no_two_cases_have_one_name():
    """They are told apart by nothing else."""
    names = re.findall(r'^\t*check "([^"]+)"', SCRIPT, re.M)
    assert len(names) == len(set(names)) > 20


def test_every_tool_is_read_by_ruff_and_mypy_and_runs_in_the_guest_or_by_its_own_tests():
    names = [path.name for path in util.TOOLS.iterdir()]
    assert sorted(own.PROGRAMS) == sorted(f"tools/{name}" for name in names)
    for name in names:
        assert f"/{name}" in SCRIPT or (util.ROOT / f"tests/test_{name.rpartition('-')[2]}.py").is_file(), name


def test_a_record_depends_on_the_tool_that_its_guest_runs():
    for one in experiment.all_of_them():
        named = [path.name for path in util.TOOLS.iterdir() if f"{{tools}}/{path.name}" in str(one.data)]
        found = [piece for piece in pieces.used(one) if piece.startswith("tools/")] if named else []
        assert found == [f"tools/{name}" for name in sorted(named)], one.name
