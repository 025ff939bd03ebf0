# SPDX-License-Identifier: GPL-2.0
"""Faults put into the queue, and what is said of them."""

import os
import types

import pytest
from conftest import Fail, commit

from testbed.experiments.nfs import realtime, trace
from testbed.machines import kernel
from testbed.report import documents
from testbed.series import base, topics, tree
from testbed.suites import litmus, mutants
from testbed.util import Tally


def test_every_mutant_is_of_a_topic_and_small():
    found = [path for topic in topics.series() for path in mutants.faults(topic)]
    assert found
    for path in found:
        changed = [
            line for line in path.read_text().splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")
        ]
        assert 0 < len(changed) <= 4, path


@pytest.mark.parametrize(
    "where, header, fits",
    [
        ("mutants/01-a-fault.patch", "", True),
        ("mutants/01-a-fault.patch", "Selftest: nfsd/a.sh\n", False),
        ("swarm/put-back.patch", "", False),
    ],
)
def test_a_fault_is_for_its_topic_or_for_the_whole_series(filled, place, where, header, fits):
    fault = place / "topics/one" / where
    fault.parent.mkdir()
    # The second topic changes the line that the fault is about.
    fault.write_text(
        header + "--- a/net/queue.c\n+++ b/net/queue.c\n@@ -3,3 +3,3 @@\n line 2\n-line three\n+line 3\n line 4\n"
    )
    commit(
        tree.TREE, "net/queue.c", (tree.TREE / "net/queue.c").read_text().replace("three", "3rd"), "NET: spell it 3rd"
    )
    tree.export()
    tally = Tally()
    mutants.apply(filled, tally)
    assert (tally.passed, tally.failed) == ((1, 0) if fits else (0, 1))
    if not fits:
        assert "does not apply to the series" in tally.cases[0].problem


@pytest.fixture
def fault(ksrc, tmp_path, monkeypatch):
    """A source with an object made of it, a fault for it, and broken() as a function of neither."""
    out = tmp_path / "out"
    (out / "net").mkdir(parents=True)
    for name in ("queue.o", "test.o", "other.o"):
        (out / "net" / name).write_text("object")
    monkeypatch.setattr(kernel, "workplace", lambda *_: out)
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


def test_what_killed_is_read_from_what_kunit_says():
    passed = (
        "[12:00:00] ==== lwq (2 subtests) ====\n[12:00:00] [PASSED] one\n[12:00:00] [PASSED] two\n"
        "[12:00:00] ===== [PASSED] lwq =====\n"
    )
    assert mutants.killers(passed) == []
    failed = passed.replace("[PASSED] two", "[FAILED] two").replace("[PASSED] lwq", "[FAILED] lwq")
    assert mutants.killers(failed) == ["two"]
    hung = failed.replace("[FAILED] lwq", "[CRASHED] lwq")
    assert mutants.killers(hung) == ["two", "a hang or a crash"]


def test_a_fault_may_name_the_selftests_that_have_to_notice_it(tmp_path):
    path = tmp_path / "01-fault.patch"
    path.write_text("diff --git a/x b/x\n+Selftest: net/no.sh\n")
    assert mutants.scripts(path) == []
    path.write_text("Selftest: net/fast.sh net/slow.sh\ndiff --git a/x b/x\n")
    assert mutants.scripts(path) == ["net/fast.sh", "net/slow.sh"] and mutants.machine(path) == "sim"
    path.write_text("Selftest: net/fast.sh\nMachine: x86\ndiff --git a/x b/x\n")
    assert mutants.scripts(path) == ["net/fast.sh"] and mutants.machine(path) == "x86"
    path.write_text("Selftest: net/fast.sh\nMachine: vax\ndiff --git a/x b/x\n")
    with pytest.raises(Fail, match="vax"):
        mutants.machine(path)


KTAP = "TAP version 13\n1..1\n# 1..2\n# ok 1 one\n# {two} 2 two\n{two} 1 selftests: net: fast.sh\n"


@pytest.fixture
def guests(tmp_path, monkeypatch):
    """by_selftests() on faults that each leave a KTAP, or raise; returns a function of {fault: what it leaves}."""
    monkeypatch.setattr(mutants.store, "series", list)
    monkeypatch.setattr(mutants.kernel, "selftests", lambda base: tmp_path)
    monkeypatch.setattr(mutants.applied, "commits", lambda base: {"patched": "none"})
    monkeypatch.setattr(mutants.applied, "variant", lambda base, commit, name, patch: name)
    monkeypatch.setattr(mutants.store, "guest_packages", lambda topics: {"a-package": "what its selftests need"})
    monkeypatch.setattr(mutants.guest, "root", lambda packages: tmp_path / " ".join(packages))
    (tmp_path / "kselftest-list.txt").write_text("net:fast.sh\n")

    def executable(base, commit, what, place):
        path = tmp_path / f"linux-{commit}"
        path.write_text(commit)
        return path

    monkeypatch.setattr(mutants.kernel, "executable", executable)

    def run(leaves):
        def boot(image, script, results, limit, kind, root):
            assert root == tmp_path / "a-package"
            assert "-t net:fast.sh" in script.read_text()
            said = leaves[image.read_text()]
            results.mkdir()
            if isinstance(said, Exception):
                raise said
            (results / "ktap").write_text(said)

        monkeypatch.setattr(mutants.boot, "boot", boot)
        (tmp_path / "outcome").mkdir()
        faults = [tmp_path / f"{name}.patch" for name in leaves if name != "none"]
        for fault in faults:
            fault.write_text("Selftest: net/fast.sh\ndiff --git a/x b/x\n")
        tally = Tally()
        one = types.SimpleNamespace(name="one", home=tmp_path)
        where = tmp_path / "outcome" / "one"
        mutants.by_selftests(base.Base("test", tmp_path, "HEAD"), tally, one, faults, where, "sim")
        path = tmp_path / "outcome" / "one"
        return {case.name: case.problem for case in tally.cases}, path.read_text() if path.is_file() else ""

    return run


def test_a_selftest_that_fails_or_a_guest_that_dies_notices_a_fault(guests):
    fine, failed = KTAP.format(two="ok"), KTAP.format(two="not ok")
    cases, kept = guests({"none": fine, "01-seen": failed, "02-dies": Fail("panic"), "03-lives": fine})
    assert cases == {
        "one: without a fault all cases of net/fast.sh pass": "",
        "one/01-seen": "",
        "one/02-dies": "",
        "one/03-lives": "it lives: no test notices",
    }
    assert kept == "01-seen\n    fast.sh: two\n02-dies\n    a hang or a crash\n"


def test_a_selftest_that_fails_without_a_fault_is_said(guests):
    cases, _ = guests({"none": KTAP.format(two="not ok"), "01-seen": ""})
    assert cases["one: without a fault all cases of net/fast.sh pass"] == "fast.sh: two"
    assert "no test was run" in cases["one/01-seen"]


def test_only_what_has_not_been_judged_is_judged(tmp_path, monkeypatch):
    """What killed the others stays in what is to be kept, and what has no patch any more does not."""
    home = tmp_path / "mutants"
    home.mkdir()
    for name in ("01-old", "02-new", "03-selftest"):
        what = "Selftest: net/x.sh\nMachine: x86\n" if "self" in name else "\ndiff --git a/x b/x\n"
        (home / f"{name}.patch").write_text(what)
    (home / "killed").write_text("00-gone\n    a\n01-old\n    b\n    c\n")
    asked = []
    monkeypatch.setattr(mutants, "BUILD", tmp_path)
    for part in ("by_kunit", "by_selftests"):
        monkeypatch.setattr(
            mutants, part, lambda *args, part=part: asked.extend((part, fault.stem, *args[5:]) for fault in args[3])
        )
    one = types.SimpleNamespace(name="one", home=tmp_path)
    mutants.judge(None, Tally(), one, new=True)
    assert asked == [("by_kunit", "02-new"), ("by_selftests", "03-selftest", "x86")]
    assert (tmp_path / "mutants" / "one").read_text() == "01-old\n    b\n    c\n"
    asked.clear()
    mutants.judge(None, Tally(), one)
    assert len(asked) == 3 and (tmp_path / "mutants" / "one").read_text() == ""
    asked.clear()
    (home / "killed").write_text("01-old\n02-new\n03-selftest\n")
    tally = Tally()
    mutants.judge(None, tally, one, new=True)
    assert not asked and tally.close() == 0


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
        return value if value < 16 else (octave - 1) * 16 + ((value >> (octave - 5)) & 15)

    for value in (4, 15, 16, 31, 32, 100, 1000, 123456):
        buckets = [0] * 1024
        buckets[bucket(value)] = 10
        assert value < realtime.edge(buckets, 5) <= value * 17 / 16 + 1


def test_what_killed_is_read_again_and_counted(filled, place):
    """The document counts by what killed; a fault that no run has judged is not taken for one that was killed."""
    home = place / "topics/one/mutants"
    home.mkdir()
    for name, head in (("01-a", ""), ("02-b", "Selftest: net/x.sh\n"), ("03-c", ""), ("04-d", "")):
        (home / f"{name}.patch").write_text(f"{head}\ndiff --git a/x b/x\n")
    (home / "killed").write_text("01-a\n    one\n    two\n02-b\n    x.sh: a case\n03-c\n    herd7: x.litmus: Never\n")
    assert mutants.recorded(topics.series()[0])["01-a"] == ["one", "two"]
    cells = [cell.strip() for cell in documents.mutants().splitlines()[2].split("|")]
    assert cells[1:-1] == ["one", "4", "1", "1", "1", "1"]
