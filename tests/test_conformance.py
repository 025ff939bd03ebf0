# SPDX-License-Identifier: GPL-2.0
"""What `make conformance` takes for a checkout, reads from a suite, and calls a new failure."""

import inspect
import json
import subprocess
import sys
import types

import pytest
from conftest import Fail

from testbed import gate, util
from testbed.suites import conformance, verdicts

PYNFS = conformance.SUITES[0]


def checkout(place, suite, built=True):
    for name in (suite.source, suite.built)[: 2 if built else 1]:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("")
    return place


@pytest.mark.parametrize("suite", conformance.SUITES, ids=lambda suite: suite.name)
def test_a_path_is_a_built_checkout_or_is_told_what_it_lacks(suite, tmp_path):
    given = {suite.name: str(tmp_path / "there")}
    with pytest.raises(Fail, match=f"^{suite.variable}=.*: no such directory: name a checkout of {suite.title}$"):
        conformance.checkouts(given)
    (tmp_path / "there").mkdir()
    with pytest.raises(Fail, match=f"^{suite.variable}=.*: is no checkout of {suite.title}: it has no {suite.source}$"):
        conformance.checkouts(given)
    checkout(tmp_path / "there", suite, built=False)
    with pytest.raises(Fail, match=f"^{suite.variable}=.*: is not built: it has no {suite.built}; build it"):
        conformance.checkouts(given)
    assert conformance.checkouts({suite.name: str(checkout(tmp_path / "there", suite))}) == {suite: tmp_path / "there"}


def test_without_any_checkout_it_is_one_line_before_anything_is_built():
    words = [sys.executable, "-m", "testbed", "conformance"]
    done = subprocess.run(words, cwd=util.ROOT, text=True, capture_output=True)
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1
    assert all(f"{suite.variable}=/path" in done.stderr for suite in conformance.SUITES)


def test_every_suite_has_a_script_for_the_guest_and_runs_behind_the_server(tmp_path):
    for suite in conformance.SUITES:
        assert suite.script.is_file()
        lines = conformance.script(suite, tmp_path / "with space").splitlines()
        assert lines[1] == f"SUITE=/host'{tmp_path}/with space'"
        assert [line.rpartition("/")[2] for line in lines[2:]] == [conformance.SERVER.name, suite.script.name]


def test_pynfs_is_read_from_its_json(tmp_path):
    cases = [{"code": "A1"}, {"code": "A2", "failure": {"message": "no", "err": ""}}, {"code": "A3", "skipped": 1}]
    (tmp_path / "4.1-mode0.json").write_text(json.dumps({"testcase": cases}))
    assert conformance.read_pynfs(tmp_path) == {
        "4.1-mode0 A1": "passed",
        "4.1-mode0 A2": "failed",
        "4.1-mode0 A3": "skipped",
    }
    # Its guest was killed.
    (tmp_path / "4.1-mode0.json").write_text('{"testcase": [')
    assert conformance.read_pynfs(tmp_path) == {}


def test_fstests_are_read_from_their_report(tmp_path):
    assert conformance.read_fstests(tmp_path) == {}
    (tmp_path / "v3-mode0").mkdir()
    (tmp_path / "v3-mode0/result.xml").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n<testsuite>\n\t<testcase classname="xfstests.global" '
        'name="generic/001" time="1">\n\t</testcase>\n\t<testcase name="generic/002" time="0">\n\t\t<skipped '
        'message="no" />\n\t</testcase>\n\t<testcase name="generic/003" time="2">\n\t\t<failure message="bad" '
        'type="TestFail" />\n\t</testcase>\n</testsuite>\n'
    )
    assert conformance.read_fstests(tmp_path) == {
        "v3-mode0 generic/001": "passed",
        "v3-mode0 generic/002": "skipped",
        "v3-mode0 generic/003": "failed",
    }
    (tmp_path / "v3-mode0/result.xml").write_text("<testsuite>")
    assert conformance.read_fstests(tmp_path) == {}


def test_what_is_installed_says_its_version(tmp_path):
    assert conformance.version(tmp_path) == "no git checkout"
    (tmp_path / "Version").write_text("20260101\n")
    assert conformance.version(tmp_path) == "20260101"


def test_verdicts_are_read_a_line_a_test(tmp_path):
    assert conformance.read_lines(tmp_path) == {}
    (tmp_path / "verdicts").write_text("passed v3 lock tlock64\nfailed v3 basic test1\n")
    assert conformance.read_lines(tmp_path) == {"v3 lock tlock64": "passed", "v3 basic test1": "failed"}


@pytest.mark.parametrize(
    "known, base, patched, problem",
    [
        ("passed", "passed", "passed", ""),
        ("failed", "failed", "failed", ""),
        ("failed", "failed", "passed", ""),
        ("failed", "passed", "passed", ""),
        ("skipped", "skipped", "skipped", ""),
        (None, "failed", "failed", ""),
        (None, None, "passed", ""),
        ("passed", "failed", "passed", ""),
        ("passed", "passed", "failed", "it fails on patched alone"),
        ("failed", "passed", "failed", "it fails on patched alone"),
        (None, "passed", "failed", "it fails on patched alone"),
        ("skipped", "skipped", "failed", "it fails on patched; on base it is skipped"),
        (None, None, "failed", "it fails on patched; on base it is not run"),
        ("passed", "failed", "failed", "it fails on both kernels; the baseline has it as passed"),
        ("passed", "passed", "skipped", "it is skipped on patched, and was not"),
        ("passed", "skipped", "skipped", "it is skipped on both kernels, and was not"),
        ("passed", "passed", None, "it no longer runs on patched"),
        ("failed", "failed", None, "it no longer runs on patched"),
        ("passed", None, None, "it no longer runs on either kernel"),
    ],
)
def test_only_what_is_new_is_a_failure(known, base, patched, problem):
    found = [{} if verdict is None else {"test": verdict} for verdict in (known, base, patched)]
    assert conformance.judge(*found) == {"test": problem}


def test_a_baseline_comes_back_as_it_was_written(tmp_path, monkeypatch):
    monkeypatch.setattr(conformance, "BASELINES", tmp_path)
    found = {"4.0-mode0 B": "failed", "4.0-mode0 A": "passed"}
    assert conformance.baseline(PYNFS) == {}
    PYNFS.baseline.write_text(conformance.written(PYNFS, "1234567 of 2026-01-01", found))
    assert conformance.baseline(PYNFS) == found
    assert "(1234567 of 2026-01-01)" in PYNFS.baseline.read_text().splitlines()[0]


def run(tmp_path, monkeypatch, base, patched, record=False):
    """conformance() with guests that left this; returns the tally."""
    monkeypatch.setattr(conformance, "BASELINES", tmp_path / "baselines")
    monkeypatch.setattr(conformance.guest, "root", lambda more: tmp_path)
    monkeypatch.setattr(conformance.kernel, "flavour", lambda kind: "flavour")
    monkeypatch.setattr(conformance.kernel, "kernels", lambda *_, **__: {"base": tmp_path, "patched": tmp_path})
    monkeypatch.setattr(conformance, "run_suite", lambda *_: {"base": base, "patched": patched})
    tally = util.Tally()
    given = {"pynfs": str(checkout(tmp_path / "pynfs", PYNFS))}
    conformance.conformance(None, tally, given, record)
    return tally


def test_a_run_is_judged_by_the_baseline_and_says_what_it_did_not_run(tmp_path, monkeypatch, capsys):
    tally = run(tmp_path, monkeypatch, {"A": "passed"}, {"A": "passed"})
    assert [case.name for case in tally.cases if "RECORD=1 makes it" in case.problem] == ["pynfs: there is a baseline"]
    assert run(tmp_path, monkeypatch, {"A": "passed", "B": "failed"}, {"A": "passed", "B": "failed"}, True).failed == 0
    assert "the Connectathon tests: not run: CTHON= names no checkout" in capsys.readouterr().out
    tally = run(tmp_path, monkeypatch, {"A": "passed", "B": "failed"}, {"A": "failed", "B": "failed", "C": "passed"})
    assert [case.name for case in tally.cases if case.problem] == ["pynfs: A"]
    assert "pynfs: 1 tests are not in the baseline: C" in capsys.readouterr().out


def test_a_guest_that_ran_nothing_is_a_failure_and_no_baseline(tmp_path, monkeypatch):
    run(tmp_path, monkeypatch, {"A": "passed"}, {"A": "passed"}, True)
    before = PYNFS.baseline.read_text()
    tally = run(tmp_path, monkeypatch, {}, {}, True)
    assert tally.failed == 1 and PYNFS.baseline.read_text() == before


def test_another_version_than_the_baselines_is_said_first_and_judged_by_the_base_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(conformance, "version", lambda _: "3c14d9e of 2025-04-10")
    run(tmp_path, monkeypatch, {"A": "passed"}, {"A": "passed"}, True)
    # More digits of the same commit.
    monkeypatch.setattr(conformance, "version", lambda _: "3c14d9e5 of 2025-04-10")
    assert run(tmp_path, monkeypatch, {"A": "failed"}, {"A": "failed"}).failed == 1
    capsys.readouterr()
    monkeypatch.setattr(conformance, "version", lambda _: "46289c8 of 2023-07-07")
    tally = run(tmp_path, monkeypatch, {"A": "failed", "N": "passed"}, {"A": "failed", "N": "failed"})
    assert [case.name for case in tally.cases if case.problem] == ["pynfs: N"]
    told = capsys.readouterr().out
    first = "this is 46289c8 of 2023-07-07, the baseline is of 3c14d9e of 2025-04-10: patched is compared with base"
    assert first in told and "not in the baseline" not in told


def test_all_hands_on_the_checkouts_and_each_part_takes_what_it_is_given(monkeypatch, tmp_path):
    """Nothing runs `make test-all` here, which takes most of a day."""
    called = {}

    def whole(tally, name, part, base):
        inspect.signature(part).bind(base, tally)
        called[name] = part

    given = {"pynfs": "/somewhere"}
    monkeypatch.setenv(verdicts.FRESH, "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(gate, "whole", whole)
    monkeypatch.setattr(gate, "gate", lambda every: util.Tally())
    monkeypatch.setattr(gate, "BUILD", tmp_path)
    monkeypatch.setattr(gate.bases, "find", lambda: None)
    monkeypatch.setattr(gate.conformance, "checkouts", lambda _: None)
    monkeypatch.setattr(gate.subprocess, "run", lambda *_, **__: types.SimpleNamespace(returncode=0))
    assert gate.everything(given) == 0
    assert {"litmus", "mutants", "swarm", "KIND=debian"} <= called.keys()
    assert called["conformance"].keywords == {"given": given}
