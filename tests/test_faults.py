# SPDX-License-Identifier: GPL-2.0
"""Faults put into the queue, and what is said of them."""

import os
import pathlib

import pytest
from conftest import Fail

from testbed.experiments import realtime, trace
from testbed.series import base, topics
from testbed.suites import kunit as suites
from testbed.suites import litmus, mutants

TOP = pathlib.Path(__file__).resolve().parent.parent


def test_every_mutant_is_of_a_topic_and_small():
    found = [path for topic in topics.series() for path in mutants.faults(topic)]
    assert found
    for path in found:
        changed = [
            line for line in path.read_text().splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")
        ]
        assert 0 < len(changed) <= 4, path


@pytest.fixture
def fault(ksrc, tmp_path, monkeypatch):
    """A source with an object made of it, a fault for it, and broken() as a function of neither."""
    out = tmp_path / "out"
    (out / "net").mkdir(parents=True)
    for name in ("queue.o", "test.o", "other.o"):
        (out / "net" / name).write_text("object")
    monkeypatch.setattr(suites, "kunit_place", lambda *_: out)
    patch = tmp_path / "01-fault.patch"
    patch.write_text("--- a/net/queue.c\n+++ b/net/queue.c\n@@ -4,3 +4,3 @@\n line 3\n-line 4\n+line four\n line 5\n")
    return base.Base("test", ksrc, "HEAD"), patch, out


def test_a_fault_is_there_for_a_while_and_leaves_no_trace(fault):
    source, patch, out = fault
    path = source.repo / "net/queue.c"
    os.utime(path, ns=(10**18, 10**18))
    before = path.read_bytes()
    with mutants.broken(source, patch, ["net/test.c"]) as changed:
        assert changed == ["net/queue.c"] and "line four" in path.read_text()
        assert sorted(o.name for o in out.rglob("*.o")) == ["other.o"]
        (out / "net/queue.o").write_text("object with the fault")
    assert path.read_bytes() == before and path.stat().st_mtime_ns == 10**18
    assert sorted(o.name for o in out.rglob("*.o")) == ["other.o"]


def test_a_fault_that_does_not_apply_is_no_success(fault):
    source, patch, _ = fault
    patch.write_text(patch.read_text().replace("-line 4\n", "-line XX\n"))
    with pytest.raises(Fail, match="(?s)does not apply.*net/queue.c"), mutants.broken(source, patch, []):
        pytest.fail("it was applied")


def test_what_noticed_is_read_from_what_kunit_says():
    passed = (
        "[12:00:00] ==== lwq (2 subtests) ====\n[12:00:00] [PASSED] one\n[12:00:00] [PASSED] two\n"
        "[12:00:00] ===== [PASSED] lwq =====\n"
    )
    assert mutants.killers(passed) == []
    failed = passed.replace("[PASSED] two", "[FAILED] two").replace("[PASSED] lwq", "[FAILED] lwq")
    assert mutants.killers(failed) == ["two"]
    hung = failed.replace("[FAILED] lwq", "[CRASHED] lwq")
    assert mutants.killers(hung) == ["two", "a hang or a crash"]


@pytest.mark.parametrize(
    "wanted, said, problem",
    [
        ("Never", "Observation x Never 0 3", ""),
        ("Never", "Observation x Sometimes 1 3", "it says Never; herd7 says Sometimes (1 executions of 4)"),
        ("Sometimes", "Observation x Never 0 3", "it says Sometimes; herd7 says Never (0 executions of 3)"),
        ("Never", "Flag data-race\nObservation x Never 0 3", "herd7 finds a data race"),
        ("Never", "File x: unexpected", "herd7 gives no result:\nFile x: unexpected"),
    ],
)
def test_a_litmus_test_is_judged_by_its_own_comment(tmp_path, wanted, said, problem):
    (tmp_path / "tools/memory-model").mkdir(parents=True)
    (tmp_path / "x.litmus").write_text(f"C x\n\n(*\n * Result: {wanted}\n *)\n")
    assert litmus.judge(tmp_path, "x.litmus", ["sh", "-c", f"echo '{said}'"]) == problem


def test_the_length_of_the_queue_is_counted_from_the_trace():
    lines = [
        "svc_xprt_enqueue DATA|TEMP",
        "svc_xprt_enqueue BUSY|DATA",
        "svc_xprt_enqueue TEMP",
        "svc_xprt_enqueue DATA",
        "svc_xprt_enqueue DATA",
        "svc_xprt_no_write_space DATA",
        "svc_xprt_enqueue CONN",
        "svc_xprt_dequeue BUSY",
        "svc_xprt_dequeue BUSY",
        "svc_xprt_enqueue DATA",
        "svc_xprt_dequeue BUSY",
        "svc_xprt_dequeue BUSY",
    ]
    assert trace.waiting(lines) == {"queued": 4, "longest": 3, "median": 2, "refills": 2, "refill": 3, "left": 0}


def test_a_percentile_is_the_upper_edge_of_its_bucket():
    # As svc_measure_add() in realtime/enqueue.patch fills them
    def bucket(value):
        octave = value.bit_length()
        return value if value < 4 else (octave - 1) * 4 + ((value >> (octave - 3)) & 3)

    for value in (4, 5, 7, 8, 100, 1000, 123456):
        buckets = [0] * 256
        buckets[bucket(value)] = 10
        assert value < realtime.edge(buckets, 5) <= value * 1.25 + 1
