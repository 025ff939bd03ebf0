# SPDX-License-Identifier: GPL-2.0
"""Lines that are counted: in which objects, in which boots, and what is said of those that nothing executes."""

import dataclasses
import os
import subprocess

import pytest
from conftest import Fail, commit

from testbed import cli
from testbed.machines import boot, kernel
from testbed.machines.kinds import BOOTED, COUNTS
from testbed.series.base import Base
from testbed.suites import selftests
from testbed.swarm import coverage, promises

CODE = """int twice(int x)
{
	return 2 * x;
}
int never(int x)
{
	if (x)
		return 1;
	return 2;
}
int main(int argc, char **argv)
{
	if (argc > 1)
		return !twice(1);
	return 0;
}
"""


@pytest.fixture(autouse=True)
def own_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(coverage, "PLACE", tmp_path / "coverage")
    (tmp_path / "coverage").mkdir()


def test_only_one_kind_of_kernel_counts_and_of_the_objects_that_topics_name():
    counting = [kind for kind in BOOTED if kernel.flavour(kind).words]
    assert counting == [COUNTS] and len(kernel.flavour(COUNTS).counted) > 1


@pytest.mark.parametrize("name, counted", [("fs/one/a", "y"), ("fs/other/a", ""), ("lib/b", "y"), ("lib/c", "")])
def test_make_counts_an_object_that_a_pattern_names_and_no_other(tmp_path, name, counted):
    below = "include sub.mk\n" if counted else "all:\n\t@$(MAKE) -s -f sub.mk\n"
    (tmp_path / "Makefile").write_text(below)
    obj, _, stem = name.rpartition("/")
    (tmp_path / "sub.mk").write_text(f"obj := {obj}\ntarget-stem := {stem}\nsub:\n\t@echo '[$(GCOV_PROFILE)]'\n")
    (words,) = kernel.Flavour(kernel.KINDS[COUNTS], (), ("fs/one/%", "lib/b")).words
    done = subprocess.run(["make", "-s", words], cwd=tmp_path, text=True, capture_output=True, check=True)
    assert done.stdout == f"[{counted}]\n"


def counted(tmp_path, runs):
    """(boots that have run a program with so many arguments each, the notes, where it was built)"""
    out, notes = tmp_path / "out", tmp_path / "notes"
    (out / "fs").mkdir(parents=True)
    (tmp_path / "source/fs").mkdir(parents=True)
    (tmp_path / "source/fs/a.c").write_text(CODE)
    line = ["gcc", "--coverage", "-O0", "-c", tmp_path / "source/fs/a.c", "-o", "fs/a.o"]
    subprocess.run(line, cwd=out, check=True)
    subprocess.run(["gcc", "--coverage", "fs/a.o", "-o", "a"], cwd=out, check=True)
    (notes / "fs").mkdir(parents=True)
    (out / "fs/a.gcno").rename(notes / "fs/a.gcno")
    found = []
    for number, many in enumerate(runs):
        one = coverage.Boot(coverage.SEEDS, str(number), "")
        one.where.mkdir(parents=True)
        left = tmp_path / f"left{number}"
        subprocess.run([out / "a", *["x"] * many], env={**os.environ, "GCOV_PREFIX": str(left)}, check=True)
        subprocess.run(["tar", "-C", left, "-czf", one.where / coverage.LEFT, "."], check=True)
        found.append(one)
    return found, notes, out


def test_what_boots_have_executed_is_added_up(tmp_path):
    boots, notes, out = counted(tmp_path, [0, 1, 2])
    functions: coverage.Functions = {}
    lines = coverage.parsed(coverage.executed(boots, notes, out), tmp_path / "source", functions)
    assert lines == {"fs/a.c": {1: 2, 3: 2, 5: 0, 7: 0, 8: 0, 9: 0, 11: 3, 13: 3, 14: 2, 15: 1}}
    assert functions["fs/a.c: never"] == {5, 7, 8, 9}
    # Of no boot, all lines are known.
    none = coverage.parsed(coverage.executed([], notes, out), tmp_path / "source", {})
    assert none["fs/a.c"].keys() == lines["fs/a.c"].keys() and not any(none["fs/a.c"].values())


TESTS = {"fs/a.c": {1: 2, 2: 0, 3: 0, 4: 0, 5: 0, 6: 0, 7: 0}, "fs/b.c": {1: 0}}
LOADS = {"fs/a.c": {1: 1, 2: 1, 3: 0, 4: 0, 5: 0, 6: 0, 7: 0}, "fs/b.c": {1: 0}}
FUNCTIONS = {"fs/a.c: f": {1, 2}, "fs/a.c: small": {3}, "fs/a.c: large": {4, 5, 6, 7}, "fs/b.c: f": {1}}


def test_a_file_has_what_tests_reach_what_loads_do_and_what_either_does():
    said = [[cell.strip() for cell in line.split("|")[1:-1]] for line in coverage.by_file(TESTS, LOADS).splitlines()]
    assert said[2:] == [
        ["fs/a.c", "7", "14.3", "28.6", "28.6"],
        ["fs/b.c", "1", "0.0", "0.0", "0.0"],
        ["all", "8", "12.5", "25.0", "25.0"],
    ]


def test_what_nothing_reaches_comes_by_size_with_its_reason(monkeypatch):
    monkeypatch.setattr(coverage, "LARGEST", 2)
    why = {"fs/a.c: large": "it needs a disk of its own", "fs/a.c: f": "it was not drawn", "fs/a.c: gone": "x"}
    said = coverage.unreached(TESTS, LOADS, FUNCTIONS, why)
    assert said.startswith("Nothing reaches 3 of 4 functions, with 6 lines.")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.splitlines() if line.startswith("| fs")]
    assert rows == [["fs/a.c: large", "4", "it needs a disk of its own"], ["fs/a.c: small", "1", ""]]
    assert "no reason is needed: fs/a.c: f, fs/a.c: gone." in said and said.endswith("The others: fs/b.c: f (1).")


def test_every_line_has_both_counts_in_front_of_it(ksrc):
    commit(ksrc, "fs/a.c", "one\ntwo\n", "add")
    said = coverage.annotated(Base("b", ksrc, "HEAD"), "HEAD", {"fs/a.c": {1: 7}}, {"fs/a.c": {1: 8}})
    assert [line.split() for line in said.splitlines()] == [["fs/a.c"], ["7", "8", "1", "one"], ["2", "two"]]


def test_what_is_counted_and_not_compiled_is_known(ksrc):
    for path in ("fs/one/a.c", "fs/one/tests/t.c", "fs/one/a.h", "fs/two/a.c", "lib/b.c"):
        commit(ksrc, path, "x\n", "add")
    assert coverage.sources(Base("b", ksrc, "HEAD"), "HEAD", ["fs/one/%", "lib/b"]) == ["fs/one/a.c", "lib/b.c"]


@pytest.fixture
def guests(tmp_path, monkeypatch):
    """Boots that only say which they were; what `bad` names is not healthy, and leaves no counts."""
    ran: list[str] = []
    bad: set[str] = set()

    def booted(image, script, results, *_, **__):
        results.mkdir(parents=True, exist_ok=True)
        ran.append(results.name)
        if results.name in bad:
            raise Fail("it panicked\nconsole")
        (results / coverage.LEFT).write_text("")

    monkeypatch.setattr(boot, "boot", booted)
    return ran, bad, tmp_path / "linux", tmp_path


def test_a_killed_run_goes_on_and_what_failed_is_made_again(guests):
    ran, bad, *place = guests
    boots = [coverage.Boot(coverage.TESTS, name, "true\n", ("kernel",)) for name in ("a", "b", "c")]
    assert coverage.made(boots[:1], *place) == {} and ran == ["a"]
    bad.add("b")
    assert coverage.made(boots, *place) == {boots[1]: "it panicked"} and sorted(ran) == ["a", "b", "c"]
    assert coverage.said(boots) == "2 of 3 KUnit and selftests, 0 of 0 seeds"
    bad.clear()
    assert coverage.made(boots, *place) == {} and ran[3:] == ["b"]
    # On another kernel, all of them.
    assert coverage.made([dataclasses.replace(one, key=("another",)) for one in boots], *place) == {}
    assert sorted(ran[4:]) == ["a", "b", "c"]


def test_a_test_that_fails_is_said(guests):
    _, _, *place = guests
    one = coverage.Boot(coverage.TESTS, "a", "true\n")
    one.where.mkdir(parents=True)
    (one.where / "ktap").write_text(
        "TAP version 13\n1..1\n# ok 1 fine\n# not ok 2 broken\nnot ok 1 selftests: d: a.sh\n"
    )
    assert coverage.made([one], *place) == {one: "not ok: a.sh: broken"}


def test_tests_and_loads_come_in_turns(monkeypatch, tmp_path):
    wanted = next(one for one in promises.every() if len(one.sides) == 1)
    monkeypatch.setattr(selftests, "scripts", lambda *_: ["d/one.sh", "d/two.sh"])
    monkeypatch.setattr(selftests, "depends", lambda *_: ("key",))
    image = tmp_path / "linux"
    image.write_text("kernel")
    found = coverage.boots(wanted, tmp_path, range(5, 7), image, tmp_path)
    assert [one.name for one in found] == ["kunit", "5", "d-one", "6", "d-two"]
    # KUnit's suites run when the kernel boots, and no script does.
    assert [one for one in found if one.kunit] == found[:1] and not found[0].script


def test_a_reason_has_no_other_key(tmp_path):
    path = tmp_path / "coverage.toml"
    assert coverage.reasons(path) == {}
    path.write_text('[reasons]\n"fs/a.c: f" = "why"\n')
    assert coverage.reasons(path) == {"fs/a.c: f": "why"}
    path.write_text("[reasons]\n[functions]\n")
    with pytest.raises(Fail, match="unknown key functions; known here: reasons"):
        coverage.reasons(path)


@pytest.mark.parametrize(
    "words, said",
    [
        (["SEEDS=0"], "SEEDS=0: give a number, 1 or more"),
        (["FROM=x"], "FROM=x: give a number, 0 or more"),
        (["T=nothing"], "there is no topic nothing"),
        (["RECORD=2"], "RECORD=2: not one of 1"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_built(words, said):
    topic = next(one.topic.name for one in promises.every())
    with pytest.raises(Fail, match=said):
        found, args = cli.parse(["coverage", f"T={topic}", *words])
        found.function(args)
