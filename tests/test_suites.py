# SPDX-License-Identifier: GPL-2.0
"""The inner loop's names, what is counted and kept, and what `make check` finds."""

import dataclasses
import functools
import pathlib
import subprocess
import sys
import types

import pytest
from conftest import MAKEFILE, Fail, commit, topic

from testbed import gate, util
from testbed.machines import shell
from testbed.series import base, topics, tree
from testbed.suites import check, kunit, links, selftests

SCRIPT = "#!/bin/bash\n. ./lib.sh\n"


@pytest.fixture
def tested(place, ksrc):
    """The topics one and two, whose patches bring selftests of net/: fast.sh and slow.sh."""
    found = base.from_tree(ksrc)
    tree.tree(found)
    for name, script in (("one", "fast"), ("two", "slow")):
        base.git(
            tree.TREE,
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            f"topic: {name}\n\nNET: {name}\n\nWhy.\n\nDepends on: {'one' if name == 'two' else 'the base alone'}\n",
        )
        program = f"tools/testing/selftests/net/{script}.sh"
        (tree.TREE / program).parent.mkdir(parents=True, exist_ok=True)
        (tree.TREE / program).touch(0o755)
        commit(tree.TREE, program, SCRIPT, f"selftests: add {script}")
    commit(tree.TREE, "tools/testing/selftests/net/lib.sh", SCRIPT, "selftests: add a library")
    tree.export()
    path = place / "topics/one/topic.toml"
    path.write_text(path.read_text() + 'selftests = ["net"]\nshell = "start_a_server"\nkunit = ["net/.kunitconfig"]\n')
    (place / "topics/two/left-out").write_text("x86 slow.sh it is slow\n")
    return found


def test_a_name_is_a_script_or_a_topic(tested):
    assert selftests.named("fast.sh", "sim") == ([], ["net/fast.sh"])
    of, scripts = selftests.named("two", "sim")
    assert [topic.name for topic in of] == ["two"] and scripts == ["net/slow.sh"]


def test_a_topic_with_nothing_to_run_says_why(tested, place):
    with pytest.raises(Fail, match="T=two: all its selftests are left out here: slow.sh: it is slow"):
        selftests.named("two", "x86")
    topic(tree.TREE, "three", "Why.\n\nDepends on: the base alone\n")
    commit(tree.TREE, "tools/testing/selftests/nobody/new.sh", SCRIPT, "selftests: of no topic's directory")
    tree.export()
    said = "T=three: it has no tests of its own: its topic.toml names no `kunit` that runs here"
    with pytest.raises(Fail, match=said):
        selftests.named("three", "sim")
    toml = place / "topics/two/topic.toml"
    toml.write_text(toml.read_text().replace("[]", '["three"]').replace('["one"]', '["one", "three"]'))
    (place / "topics/order").write_text("one\nthree\ntwo\n")
    with pytest.raises(Fail, match="these depend on it, and may test it: two"):
        selftests.named("three", "sim")


@pytest.mark.parametrize(
    "name, kind, said",
    [
        ("fats.sh", "sim", r"T=fats.sh: no topic and no selftest; topics: one, two; selftests: fast.sh, slow.sh"),
        ("lib.sh", "sim", "no topic and no selftest"),
        ("slow.sh", "x86", r"slow.sh is not run on this machine \(x86\): it is slow"),
    ],
)
def test_an_unknown_name_is_told_what_there_is(tested, name, kind, said):
    with pytest.raises(Fail, match=said) as fail:
        selftests.named(name, kind)
    assert "\n" not in str(fail.value)


@pytest.mark.parametrize(
    "words, said",
    [
        (["test", "KIND=arm"], "KIND=arm: not one of sim, debug, x86, debian, deb"),
        (["shell", "KIND=x68"], "KIND=x68: not one of sim, smp, debug, coverage, x86 (meant: x86?)"),
        (["shell", "KERNEL=mine"], "KERNEL=mine: not one of base, patched"),
        (["test", "NOISE=0"], "NOISE=0: not one of 1, 2"),
        (["test", "T="], "T=: has no value; leave T= out, or say a topic's KUnit and selftests"),
        (["check", "T=,"], "T=,: has no value; leave T= out, or say a topic"),
        (["series", "LTS=7.3"], "LTS=7.3: there is no such lane; there are: 6.12, nfsd-testing"),
        (["test", "TOPIC=lwq"], "make test: there is no TOPIC= here; there are: KIND=, T=, NOISE=, MODE=, KSRC=, LTS="),
        (["post", "TOPIC=lwq"], "there is no TOPIC= here; there are: T=, V=, TO=, PREVIOUS=, P=, KSRC="),
        (["dkms", "T=lwq"], "make dkms: there is no T= here; it has no variable"),
        (["setup", "T=lwq"], "make setup: there is no T= here; it has no variable"),
        (["mutants", "NEW=yes"], "NEW=yes: not one of 1"),
        (["check", "lwq"], "make check: lwq: not of the form VARIABLE=value; there are: T=, KSRC=, LTS="),
        (["check", "T=lqw"], "there is no topic lqw; there are: "),
        (["series", "T=lqw"], "there is no topic lqw; there are: "),
        (["mutants", "T=lqw"], "there is no topic lqw; there are: "),
        (["bench", "T=lqw"], "there is no topic lqw; there are: "),
        (["bench", "B=flor"], "there is no experiment flor"),
        (["record", "B=floor", "T=lwq"], "B= names experiments, and T= all of a topic: give one of the two"),
        (["tset"], "there is no command tset (meant: test?); there are: help, setup, tree, "),
    ],
)
def test_a_bad_option_is_one_line(words, said):
    done = subprocess.run([sys.executable, "-m", "testbed", *words], cwd=util.ROOT, text=True, capture_output=True)
    assert done.returncode and said in done.stderr and done.stderr.count("\n") == 1


def test_one_script_is_all_that_the_guest_runs(tested, tmp_path):
    (tmp_path / "kselftest-list.txt").write_text("net:fast.sh\nnet:slow.sh\n")
    found = topics.series()
    assert "./run_kselftest.sh -t net:fast.sh -o 300" in selftests.script(found, "sim", tmp_path, ["net/fast.sh"])
    assert selftests.scripts(found, "x86", tmp_path) == ["net/fast.sh"]
    assert "leaks.sh" in selftests.script(found, "debug", tmp_path, ["net/fast.sh"])


def test_each_noise_disturbs_a_guest_in_its_own_way(tested, tmp_path):
    (tmp_path / "kselftest-list.txt").write_text("net:fast.sh\n")
    found = topics.series()
    quiet, *noisy = [selftests.script(found, "sim", tmp_path, ["net/fast.sh"], noise) for noise in range(4)]
    assert "/tmp/noise" not in quiet and len(set(noisy)) == 3
    assert all(text.endswith(quiet.removeprefix("#!/bin/bash\n")) for text in noisy)


def test_a_mode_is_switched_on_before_the_tests_that_have_it(tested, place, tmp_path):
    toml = place / "topics/two/topic.toml"
    toml.write_text(toml.read_text() + '\n[modes]\nother = "echo 1 >/sys/other"\n')
    (place / "topics/two/left-out").write_text("other slow.sh it is of the usual mode\n")
    (tmp_path / "kselftest-list.txt").write_text("net:fast.sh\nnet:slow.sh\n")
    found = topics.series()
    assert selftests.scripts(found, "sim", tmp_path, "other") == ["net/fast.sh"]
    text = selftests.script(found, "sim", tmp_path, ["net/fast.sh"], mode="other")
    assert text.index("set -e\necho 1 >/sys/other\nset +e\n") < text.index("-t net:fast.sh")
    assert "/sys/other" not in selftests.script(found, "sim", tmp_path, ["net/fast.sh"])
    with pytest.raises(Fail, match="slow.sh is not run in the mode other: it is of the usual mode"):
        selftests.named("slow.sh", "sim", "other")
    for mode, kind, said in (("another", "sim", "there is: other"), ("other", "deb", "not with KIND=deb")):
        with pytest.raises(Fail, match=said):
            selftests.check_mode(mode, kind)


def test_the_shell_has_what_the_topics_say(tested, tmp_path):
    text = shell.script(topics.series(), "sim", tmp_path, (132, 50), "xterm")
    assert "TERMINAL=tty0\nCOLUMNS=132\nLINES=50\n" in text and f"cd /host{tmp_path}/net ||" in text
    assert text.index("start_a_server") < text.index("guest/shell.sh")
    assert "TERMINAL=ttyS0" in shell.script([], "x86", tmp_path, (80, 24), "xterm")


def test_a_shell_needs_a_terminal(tested, monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    with pytest.raises(Fail, match="needs a terminal"):
        shell.shell(tested)


def test_gdb_is_for_user_mode_linux(tested):
    with pytest.raises(Fail, match="KIND=x86 is not: sim, smp, debug, coverage are"):
        shell.gdb(tested, kind="x86")
    assert shell.gdb_line(pathlib.Path("/linux"), ["linux", "mem=1G"])[-3:] == ["--args", "/linux", "mem=1G"]


def test_unknown_topics_of_a_shell_are_told(tested):
    with pytest.raises(Fail, match="there is no topic three; there are: one, two"):
        shell.flavour("three", "sim")


def test_every_check_is_in_the_junit_file(tmp_path, capsys):
    tally = util.Tally()
    tally.that("this holds", "")
    tally.suite = "check"
    tally.that("this does not", "line 1\x1b[31m\nline 2")
    tally.add("KUnit", {"suite.case": "", "suite.other": "fail"})
    assert tally.close(tmp_path / "junit.xml") == 1 and (tally.passed, tally.failed) == (2, 2)
    assert util.read_junit(tmp_path / "junit.xml") == {
        "testbed.this holds": "",
        "check.this does not": "failure: line 1[31m",
        "KUnit.suite.case": "",
        "KUnit.suite.other": "failure: fail",
    }
    again = "FAIL check: this does not: line 1[31m\nFAIL KUnit: suite.other: fail\n"
    assert capsys.readouterr().out.endswith(f"{again}2 passed, 2 failed\n")


def test_a_failure_that_says_nothing_is_one(tmp_path):
    tally = util.Tally()
    tally.run("this does not hold", lambda: (_ for _ in ()).throw(Fail("")))
    assert tally.failed == 1 and tally.close() == 1
    (tmp_path / "cut.xml").write_text("<testsuites><testsuite name='a'>")
    with pytest.raises(Fail, match="cut.xml: what wrote it did not come to its end"):
        util.read_junit(tmp_path / "cut.xml")


def test_the_first_failures_are_said_again_at_the_end(capsys):
    tally = util.Tally()
    for number in range(util.Tally.AGAIN + 2):
        tally.that(f"check {number}", "a problem")
    capsys.readouterr()
    tally.close()
    said = capsys.readouterr().out.splitlines()
    assert len(said) == util.Tally.AGAIN + 2 and said[0] == "FAIL testbed: check 0: a problem"
    assert said[-2:] == ["FAIL and 2 more, above", "0 passed, 10 failed"]


def test_each_kunit_case_counts_and_a_skipped_one_is_a_problem():
    said = {
        "name": "all",
        "sub_groups": [
            {
                "name": "queue",
                "test_cases": [{"name": "one", "status": "PASS"}, {"name": "two", "status": "SKIP"}],
                "sub_groups": [
                    {
                        "name": "sizes",
                        "test_cases": [{"name": "4k", "status": "FAIL"}, {"name": "4k", "status": "PASS"}],
                    }
                ],
            }
        ],
    }
    assert kunit.cases(said) == {
        "queue.one": "",
        "queue.two": "skip",
        "queue.sizes.4k": "fail",
        "queue.sizes.4k (1)": "",
    }


@pytest.mark.parametrize("cpus, kind", [(1, "sim"), (4, "smp")])
def test_kunit_py_judges_what_a_kernel_says(tmp_path, monkeypatch, cpus, kind):
    monkeypatch.setattr(kunit, "BUILD", tmp_path)
    monkeypatch.setattr(kunit.kernel, "suites", lambda _: ["net/.kunitconfig"])
    monkeypatch.setattr(kunit.kernel, "kernels", lambda base, what, only: {"patched": tmp_path / what.kind.name})

    def run(*words, log, check):
        if words[0] == "timeout":
            assert words[3] == str(tmp_path / kind) and ("ncpus=4" in words) == (cpus == 4)
        else:
            (tmp_path / "kunit.json").write_text(
                '{"sub_groups": [{"name": "queue", "test_cases": [{"name": "one", "status": "PASS"}]}]}'
            )
        return subprocess.CompletedProcess([], 0, "")

    monkeypatch.setattr(kunit, "run", run)
    tally = util.Tally()
    kunit.kunit(base.Base("Linux", tmp_path, ""), tally, cpus=cpus)
    assert (tally.passed, tally.failed) == (1, 0)


def test_a_kernel_is_told_which_suites_and_how_many_cpus():
    one, four = (kunit.command(pathlib.Path("/linux"), cpus, 60, "svc*") for cpus in (1, 4))
    assert "kunit.filter_glob=svc*" in one and not any("ncpus" in word for word in one)
    assert four[:4] == ["timeout", "--kill-after=10", "60", "/linux"] and {"ncpus=4", "seccomp=on"} <= set(four)


def test_who_needs_a_symbol_has_to_see_it():
    core = links.Unit("core", {"learn", "choose"}, {"learn"}, {"kmalloc"})
    built_in = dataclasses.replace(core, name=links.BUILT_IN)
    test = links.Unit("test", set(), set(), {"learn", "kmalloc"})
    assert links.unseen([core, test]) == links.unseen([built_in, test]) == []
    assert links.unseen([core, dataclasses.replace(test, name=links.BUILT_IN)]) == [
        "what is built in needs learn of core"
    ]
    assert links.unseen([built_in, dataclasses.replace(test, needed={"choose"})]) == [
        "test needs choose of what is built in"
    ]


def test_what_a_unit_defines_exports_and_needs_is_told_by_nm(tmp_path):
    (tmp_path / "drivers").mkdir()
    source = tmp_path / "core.c"
    source.write_text(
        "int learn(void) { return 0; }\nstatic int own(void) { extern int other(void); return other(); }\n"
        'int choose(void) { return own() + learn(); }\nasm("__export_symbol_learn: .quad learn");\n'
    )
    util.run("gcc", "-c", source, "-o", tmp_path / "drivers/core.o")
    (tmp_path / "drivers/modules.order").write_text("drivers/core.o\n")
    found = links.Unit("core", {"learn", "choose"}, {"learn"}, {"other"})
    assert list(links.units(tmp_path, pathlib.Path("drivers"))) == [found]


def test_every_combination_is_asked_for():
    found = [links.fragment("CONFIG_KUNIT=y\nCONFIG_X=y\n", way) for way in links.ways({"KUNIT": "ym", "X": "yn"})]
    assert found[0] == "CONFIG_MODULES=y\nCONFIG_KUNIT=y\nCONFIG_X=y\n"
    assert found[3] == "CONFIG_MODULES=y\nCONFIG_KUNIT=m\n# CONFIG_X is not set\n" and len(found) == 4


def test_a_step_says_what_it_took_and_what_is_ahead(capsys, monkeypatch):
    clock = iter((0, 65, 100, 102))
    monkeypatch.setattr(util.time, "monotonic", lambda: next(clock))
    (util.cache() / util.Tally.KNOWN).write_text('{"second": 130}')
    tally = util.Tally(["first", "second"])
    with tally.step("first"):
        tally.that("a check", "a problem")
    with tally.step("second"):
        pass
    tally.close()
    said = capsys.readouterr().out
    assert "==> first: 1 min 05 s, 1 failed; about 2 min 10 s to go\n" in said and "==> second: 2 s\n" in said
    assert said.index("1 min 05 s  first") < said.index("2 s  second") < said.index("0 passed, 1 failed")


def test_what_runs_beside_others_is_known_the_next_time():
    tally = util.Tally()
    with tally.timed("one"):
        pass
    with pytest.raises(util.Fail), tally.timed("two"):
        raise util.Fail("no boot")
    tally.close()
    assert util.Tally().durations().keys() == {"one"}
    (util.cache() / util.Tally.KNOWN).write_text("[]")
    assert util.Tally().durations() == {}


def test_a_file_that_comes_and_goes_is_found(tested):
    repo = tree.TREE
    commit(repo, "net/helper.c", "int x;\n" * 20, "NET: add a helper")
    (repo / "net/helper.c").rename(repo / "net/moved.c")
    commit(repo, "net/queue.c", "other\n", "NET: move it")
    (repo / "net/moved.c").unlink()
    commit(repo, "net/queue.c", "third\n", "NET: do without")
    commits = base.git(repo, "rev-list", "--reverse", "HEAD~3..HEAD").stdout.split()
    assert check.come_and_gone(repo, commits) == ["net/moved.c"]
    assert check.come_and_gone(repo, commits[:2]) == [] and check.come_and_gone(repo, commits[2:]) == []


@pytest.mark.parametrize(
    "line, problem",
    [
        ('{hash} ("base")', ""),
        ('{hash} ("other")', 'is "base", not "other"'),
        ('0123456789ab ("base")', "the base has no commit 0123456789ab"),
        ("{hash}", "not 12 digits or more of a commit and its subject"),
    ],
)
def test_fixes_lines_are_verified_in_a_base_with_history(ksrc, tmp_path, line, problem, capsys):
    found = base.from_tree(ksrc)
    assert not check.has_history(found)
    commit(ksrc, "Makefile", MAKEFILE + "# more\n", "second")
    found = base.from_tree(ksrc)
    assert check.has_history(found)
    known = base.git(ksrc, "rev-parse", "HEAD~1").stdout[:12]
    patch = tmp_path / "0001.patch"
    patch.write_text(f"From: x\nSubject: [PATCH] y\n\nWhy.\n\nFixes: {line.format(hash=known)}\n---\n file | 1 +\n")
    said = "\n".join(check.fixes(found, patch))
    assert problem in said and bool(problem) == bool(said)


def test_what_a_compiler_says_is_compared_without_line_numbers():
    one = check.complaints("  CC x.o\n  CC      lib/str_error_r.o\n../net/x.c:12:3: warning: odd [-Wodd]\nmake: fine\n")
    assert one == check.complaints("net/x.c:99:1: warning: odd [-Wodd]") != set()


def test_the_testbeds_shell_scripts_are_judged(tested, tmp_path, monkeypatch):
    bad = tmp_path / "testbed/room/bad.sh"
    (tmp_path / ".ci").mkdir()
    bad.parent.mkdir(parents=True)
    bad.write_text("#!/bin/sh\nif [ $x == ]; then\n")
    (tmp_path / ".ci/run").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "testbed/room/compilers").mkdir()
    (tmp_path / "testbed/room/compilers/gcc").write_text("#!/bin/sh\nexec ccache $0\nif\n")
    monkeypatch.setattr(check, "ROOT", tmp_path)
    tally = util.Tally()
    check.shell_scripts(tested, [], tally)
    assert [bool(case.problem) for case in tally.cases] == [True, True, False]


def test_what_no_compiler_says_it_has_read_is_kept_of_no_file(ksrc, tmp_path):
    found = types.SimpleNamespace(repo=ksrc)
    wrapper = tmp_path / "gcc"
    wrapper.write_text("case $source in *net/known.c) ;; esac\n")
    commit(ksrc, "net/known.c", 'asm(".incbin \\"config\\"");\n', "NET: take it in")
    commit(ksrc, "arch/um/boot.c", 'asm(".incbin \\"config\\"");\n', "um: take it in")
    check.kept_wrongly(found, wrapper)
    commit(ksrc, "net/new.c", 'asm(".incbin \\"config\\"");\n', "NET: take it in, too")
    with pytest.raises(Fail, match=r"^net/new.c: name it in"):
        check.kept_wrongly(found, wrapper)


@pytest.mark.parametrize("reached", ["no base", "patches", "broken off"])
def test_the_testbeds_own_tests_are_made_whatever_becomes_of_the_patches(tested, monkeypatch, reached):
    made = []

    def checked(base, tally, every):
        made.append("patches")
        if reached == "broken off":
            raise Fail("it breaks off")

    monkeypatch.setattr(gate.own, "lint", lambda tally: None)

    def own(tally):
        made.append("own")
        tally.that("one of the own", "")
        raise Fail("no git")

    monkeypatch.setattr(gate.own, "tests", own)
    monkeypatch.setattr(gate.tree, "check_exported", lambda: None)
    monkeypatch.setattr(gate.bases, "find", lambda: None if reached == "no base" else tested)
    monkeypatch.setattr(gate.check, "check", checked)
    for parts in ("SAID", "BESIDE", "RUN", "DRAWN"):
        part = functools.partial(lambda name, base, tally: made.append(name), parts)
        monkeypatch.setattr(gate, parts, {parts: part})
    tally = util.Tally()
    gate.judge_all(tally, False)
    assert [case.name for case in tally.cases].count("one of the own") == 1 and gate.OWN in tally.took
    assert "no git" in [case.problem for case in tally.cases]
    with_base = ["patches", "SAID", "BESIDE", "RUN", "DRAWN"]
    assert sorted(made) == sorted(["own", *(with_base if reached != "no base" else [])])


def test_what_a_topics_selftests_need_is_in_their_guest(filled, place, monkeypatch):
    home = place / "topics/one/topic.toml"
    home.write_text(home.read_text() + 'selftests = ["net"]\n[guest]\nynl = "the modes"\n')
    asked = []
    monkeypatch.setattr(selftests, "BUILD", place / "build")
    monkeypatch.setattr(selftests.guest, "root", lambda more: asked.append(dict(more)) or place / "root")

    def boot(image, script, results, limit, kind, root):
        assert root == place / "root"
        results.mkdir(parents=True)
        (results / "ktap").write_text("# ok 1 a case\nok 1 selftests: net: one.sh\n")

    monkeypatch.setattr(selftests.boot, "boot", boot)
    (place / "kselftest-list.txt").write_text("net:one.sh\n")
    tally = util.Tally()
    selftests.judge(tally, "x86", topics.series(), place, {"patched": place / "bzImage"})
    assert all(one == {"ynl": "the modes"} for one in asked) and asked and not tally.failed
