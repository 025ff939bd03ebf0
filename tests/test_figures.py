# SPDX-License-Identifier: GPL-2.0
"""Experiments, reports, and that what the documents say is what the result files hold."""

import json
import re

import pytest
from conftest import Fail

from testbed import experiments as experiment
from testbed import report, util
from testbed.suites import kunit
from testbed.suites import selftests as suites


def test_a_sweep_is_every_combination():
    assert experiment.points({"sweep": {"K": [0, 4], "N": [1, 2]}}) == [
        {"K": 0, "N": 1}, {"K": 0, "N": 2}, {"K": 4, "N": 1}, {"K": 4, "N": 2}]
    assert experiment.points({}) == [{}] and experiment.label({}) == "all" and experiment.label({"K": 4, "N": 1}) == "K4-N1"


def test_a_group_without_connections_is_left_out():
    setup = {"load": {"groups": ["bulk:conns={K},window=8", "i:burst=32"]}}
    assert experiment.groups(setup, {"K": 0}) == ["i:burst=32"]
    assert experiment.groups(setup, {"K": 10}) == ["bulk:conns=10,window=8", "i:burst=32"]


def test_an_unknown_experiment_lists_those_there_are():
    with pytest.raises(Fail, match="floor"):
        experiment.load("no-such")


@pytest.mark.parametrize("name", sorted(experiment.everywhere()))
def test_every_experiment_makes_a_script(name):
    assert "nfsd_start" in experiment.script(experiment.load(name), "/selftests")


def test_a_run_with_errors_is_no_result(tmp_path):
    (tmp_path / "all.json").write_text(json.dumps({"groups": [{"name": "bulk", "errors": {"nfs": 1, "rpc": 0}}]}))
    with pytest.raises(Fail, match="bulk"):
        experiment.read({"load": {}}, tmp_path, {})


def test_fio_results_keep_only_what_simulated_time_decides(tmp_path):
    spread = {"mean": 1.4, "max": 9, "percentile": {"50.000000": 1, "90.000000": 2, "99.000000": 3, "99.900000": 4}}
    job = {"jobname": "j", "error": 0, "elapsed": 7, "read": {"total_ios": 5, "clat_ns": spread}}
    assert experiment.read_fio({"time": 1, "jobs": [job]}) == {
        "jobs": [{"name": "j", "ios": 5, "latency_ns": {"mean": 1, "max": 9, "p50": 1, "p90": 2, "p99": 3}}]}
    with pytest.raises(Fail, match="job j failed"):
        experiment.read_fio({"jobs": [{**job, "error": 5}]})


def test_milliseconds_read_well():
    assert [report.ms(v) for v in (20_000_000, 20_040_000, 99_940_000, 99_960_000, 350_400_000)] == ["20", "20", "99.9", "100", "350"]


def test_a_table_lines_up():
    assert report.table(["K", "base"], [[4, "110"], [128, "2530"]]) == "|   K | base |\n|----:|-----:|\n|   4 |  110 |\n| 128 | 2530 |"


def test_a_part_of_a_document_is_replaced_alone():
    text = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n"
    assert report.between(text, "x") == "old"
    assert report.between(text, "x", "new") == text.replace("old", "new")
    with pytest.raises(Fail, match="lost its marks"):
        report.between("a\n", "x")


def test_the_picture_was_drawn_from_the_result_file():
    recorded = experiment.recorded("floor")
    assert report.drawn_from(recorded) in recorded.with_suffix(".svg").read_text()
    assert report.drawn_from(recorded).encode() in recorded.with_suffix(".png").read_bytes()


def test_the_same_figures_draw_the_same_picture(tmp_path):
    recorded = experiment.recorded("floor")
    for turn in ("one", "two"):
        report.floor_picture(recorded, tmp_path / turn)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_the_recorded_floor_holds():
    result = report.read(experiment.recorded("floor"))
    alone = report.burst(result["patched"][0])
    for point in result["patched"]:
        if 4 <= point["K"] <= 32:
            assert report.burst(point) <= 2 * alone


KTAP = """TAP version 13
1..3
# timeout set to 45
# selftests: nfsd: a.sh
# TAP version 13
# 1..2
# ok 1 reads what it wrote
# not ok 2 keeps the floor
not ok 1 selftests: nfsd: a.sh # exit=1
# selftests: nfsd: b.sh
# TAP version 13
# 1..1
# ok 1 starts # SKIP no disk
ok 2 selftests: nfsd: b.sh # SKIP
# selftests: nfsd: c.sh
#
not ok 3 selftests: nfsd: c.sh # TIMEOUT 45 seconds
"""


def test_ktap_is_counted_case_by_case():
    assert suites.ktap(KTAP) == {"a.sh: reads what it wrote": "ok", "a.sh: keeps the floor": "not ok",
                                 "b.sh: starts": "skipped", "c.sh": "not ok"}


def test_kunit_is_counted_by_its_closing_line():
    text = "[00:00:00] Testing complete. Ran 9 tests: passed: 7, failed: 1, skipped: 1\n"
    assert kunit.kunit_counts(text) == {"passed": 7, "failed": 1, "skipped": 1}
    assert kunit.kunit_counts("make: *** error\n") is None


def test_no_file_names_a_mirror_or_this_machine():
    bad = re.compile(r"deb\.debian\.org|pypi\.org|/work/|/root/")
    for path in util.ROOT.rglob("*"):
        parts = path.relative_to(util.ROOT).parts
        if path.is_file() and parts[0] not in ("build", "tree", ".git") and path.suffix not in (".png", ".pyc") and path.name != "test_figures.py":
            assert not bad.search(path.read_text(errors="replace")), path
