# SPDX-License-Identifier: GPL-2.0
"""Experiments with rows, with kernels of their own, and of real work."""

import pytest
from conftest import Fail

from testbed import experiments as experiment
from testbed import report
from testbed.experiments import trace
from testbed.machines import kernel
from testbed.series.base import git


def test_a_row_has_a_sweep_of_its_own():
    found = {"rows": [{"name": "a", "sweep": {"K": [0, 4]}, "groups": ["x:conns={K},window=1"]}, {"name": "b", "groups": ["y:burst=1"]}]}
    points = experiment.points(found)
    assert points == [{"row": "a", "K": 0}, {"row": "a", "K": 4}, {"row": "b"}]
    assert [experiment.label(point) for point in points] == ["a-K0", "a-K4", "b"]
    assert [experiment.groups(found, point) for point in points] == [[], ["x:conns=4,window=1"], ["y:burst=1"]]


def test_the_labels_of_an_experiment_differ():
    for name in experiment.everywhere():
        points = experiment.points(experiment.load(name))
        assert len({experiment.label(point) for point in points}) == len(points)


def test_a_variant_is_a_patch_with_its_value_filled_in(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "place", lambda name: tmp_path / f"{name}.toml")
    (tmp_path / "e.toml").write_text('title = ""\nvariants = ["plain", "budget=16"]\n[server]\n[files]\n[load]\n')
    (tmp_path / "e").mkdir()
    (tmp_path / "e/plain.patch").write_text("+64\n")
    (tmp_path / "e/budget.patch").write_text("+VALUE\n")
    assert experiment.variants("e") == {"plain": "+64\n", "budget=16": "+16\n"}
    (tmp_path / "e/plain.patch").unlink()
    with pytest.raises(Fail, match="plain.patch"):
        experiment.variants("e")


PATCH = "--- a/net/queue.c\n+++ b/net/queue.c\n@@ -8,3 +8,3 @@\n line 7\n-line 8\n+line eight\n line 9\n"


def test_a_variant_is_patched_with_one_patch_more_and_made_once(filled):
    where = kernel.commits(filled)
    made = kernel.variant(filled, where["patched"], "eight", PATCH)
    assert git(filled.repo, "diff", "--name-only", where["patched"], made).stdout == "net/queue.c\n"
    assert "+line eight" in git(filled.repo, "show", made).stdout
    assert kernel.variant(filled, where["patched"], "eight", PATCH) == made
    assert kernel.variant(filled, where["base"], "eight", PATCH) != made


def test_a_variant_that_does_not_apply_says_which(filled):
    with pytest.raises(Fail, match="variant wrong does not apply"):
        kernel.variant(filled, kernel.commits(filled)["patched"], "wrong", PATCH.replace("line 8", "line 88"))


def test_what_the_pools_counted_is_a_difference():
    head = "# pool packets-arrived sockets-enqueued threads-woken threads-timedout\n"
    assert experiment.pool(f"{head}0 10 20 5 0\n1 1 1 1 0\n{head}0 13 27 6 0\n1 2 3 1 0\n") == {"received": 4, "queued": 9, "woken": 1}


def event(name, client="10.0.0.1:7", flags="DATA|TEMP", who="client"):
    return f"  nfsd-1 [000] ..... 1.0: {name}: server=10.0.0.1:2049 {who}={client} flags={flags} qtime-us=0"


def test_depth_is_what_is_in_flight_when_a_transport_is_queued():
    read = [event("svc_xprt_enqueue"), event("svc_xprt_dequeue", flags="BUSY|DATA")]
    # two requests, the second queued with the first in flight, then an empty poll, and one more that finds nothing in flight
    lines = [*read, *read, event("svc_xprt_enqueue"), event("svc_xprt_dequeue"), event("svcsock_tcp_recv_eagain", who="addr"),
             event("svc_send"), event("svc_send"), *read, event("svc_send")]
    assert trace.depth(lines) == {"requests": 3, "queued": 4, "idle": 2}


def test_what_is_not_queued_is_not_counted():
    assert trace.depth([event("svc_xprt_enqueue", flags="BUSY|DATA"), event("svc_xprt_enqueue", flags="TEMP"), "# a comment"]) == {
        "requests": 0, "queued": 0, "idle": 0}


def test_transports_are_told_apart():
    lines = [event(name, client) for client in ("10.0.0.1:7", "10.0.0.1:8") for name in ("svc_xprt_enqueue", "svc_xprt_dequeue")]
    assert trace.depth(lines) == {"requests": 0, "queued": 2, "idle": 2}


def test_a_request_of_before_the_trace_is_no_debt():
    assert trace.depth([event("svc_send"), event("svc_xprt_enqueue")]) == {"requests": 1, "queued": 1, "idle": 1}


def test_work_that_lost_events_is_no_result(tmp_path):
    (tmp_path / "v3-bulk-find-0.lost").write_text("overrun: 3\n")
    with pytest.raises(Fail, match="larger buffer"):
        experiment.read_work([tmp_path / "v3-bulk-find-0"])


def test_the_turns_of_a_piece_of_work_are_put_together(tmp_path):
    for turn, us in enumerate((30, 10, 20)):
        (tmp_path / f"w-{turn}.lost").write_text("overrun: 0\n")
        (tmp_path / f"w-{turn}.us").write_text(f"{us}\n")
        (tmp_path / f"w-{turn}.trace").write_text(event("svc_xprt_enqueue") + "\n")
    assert experiment.read_work([tmp_path / f"w-{turn}" for turn in range(3)]) == {
        "elapsed_ns": [10000, 20000, 30000], "requests": 0, "queued": 3, "idle": 3}


def figures(K, ns, requests):
    return {"row": "a", "K": K, "groups": [{"name": "i", "burst_ns": {"p50": ns}}], "pool": {"queued": 2 * requests},
            "total": {"requests": requests, "interval_requests": requests, "interval_ns": 10 ** 9}}


TABLE = {"title": "T", "tables": {"rules": {"base": "base", "chosen": "patched"}}, "rows": [
    {"name": "a", "title": "beside {K}", "sweep": {"K": [0, 4]}, "figures": [
        {"what": "burst", "of": "i", "floor": {"K": 0}, "most": [1.5]},
        {"what": "rate", "base": True, "skip": {"K": 0}, "least": 0.99},
        {"what": "queued", "title": "queued", "most": "base"}]}]}


def test_a_figure_is_a_multiple_of_its_floor_and_what_is_not_as_wanted_is_marked():
    result = {"base": [figures(0, 20, 100), figures(4, 110, 100)], "patched": [figures(0, 20, 100), figures(4, 30, 98)]}
    found = report.lines(TABLE, result)
    assert [(line["title"], line["values"]) for line in found[:2]] == [
        ("beside 4", {"base": 5.5, "patched": 1.5}), ("beside 4", {"base": 1, "patched": 0.98})]
    text = report.rows_tables(TABLE, result)
    assert "| 5.5 ! |    1.5 |" in text and "| 0.98 ! |" in text and text.count(" ! |") == 2


def test_the_floor_may_be_in_another_row():
    result = {"base": [{**figures(0, 20, 1), "row": "b"}, figures(4, 30, 1)]}
    assert report.number({"what": "burst", "of": "i", "floor": {"row": "b", "K": 0}}, {"row": "a", "K": 4}, result, "base") == 1.5


def test_every_table_shows_kernels_that_are_built():
    found = experiment.load("rules")
    shown = {kernel for columns in found["tables"].values() for kernel in columns.values()}
    assert shown == {"base", "patched", *found["variants"]}


def test_every_rule_is_wanted_and_says_what_it_is():
    found = experiment.load("rules")
    assert {path.stem for path in experiment.place("rules").with_suffix("").glob("*.patch")} == {name.partition("=")[0] for name in found["variants"]}
    for patch in experiment.variants("rules").values():
        assert not patch.startswith("diff") and "\ndiff --git a/" in patch and "VALUE" not in patch
