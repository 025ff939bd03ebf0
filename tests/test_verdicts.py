# SPDX-License-Identifier: GPL-2.0
"""A verdict that is kept hides no failure: whatever decides it, once it changes, has it asked for again."""

import os
import shutil
from types import SimpleNamespace

import pytest
from conftest import Fail, commit

from testbed import gate, util
from testbed.experiments import results
from testbed.machines import kernel
from testbed.series import applied, topics, tree
from testbed.suites import check, kunit, own, selftests, verdicts

KTAP = "# ok 1 a case\nok 1 selftests: net: {}\n"


@pytest.fixture
def guests(filled, place, tmp_path, monkeypatch):
    """judge() on guests that pass what they run; gives [(kernel, script)] of those that were booted."""
    toml = place / "topics/one/topic.toml"
    toml.write_text(toml.read_text() + 'selftests = ["net"]\n')
    (place / "topics/one/fails-on-base").write_text("fast.sh: a case\n")
    tests, root, code = tmp_path / "installed", tmp_path / "root", tmp_path / "checkout"
    for path, text in {
        tests / "kselftest-list.txt": "net:fast.sh\nnet:slow.sh\n",
        tests / "run_kselftest.sh": "the runner",
        tests / "net/lib.sh": "a library",
        tests / "net/fast.sh": ". ./lib.sh",
        tests / "net/slow.sh": ". ./lib.sh",
        root / "var/lib/dpkg/status": "Package: nfs-utils\nVersion: 1\n",
        tmp_path / "base": "the base's kernel",
        tmp_path / "patched": "a kernel",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copytree(util.ROOT / "testbed/machines", code / "testbed/machines")
    monkeypatch.setattr(selftests, "BUILD", tmp_path / "build")
    monkeypatch.setattr(verdicts, "ROOT", code)
    monkeypatch.setattr(selftests.guest, "root", lambda more: root)
    booted = []

    def boot(image, script, results, limit, kind, root):
        name = results.name
        booted.append((image.name, f"{name}.sh"))
        results.mkdir(parents=True, exist_ok=True)
        said = KTAP.format(f"{name}.sh")
        (results / "ktap").write_text(said.replace("ok ", "not ok ") if image.name == "base" else said)

    monkeypatch.setattr(selftests.boot, "boot", boot)

    def judge(**settings):
        booted.clear()
        selftests.once_read.cache_clear()
        tally = util.Tally()
        images = {name: tmp_path / name for name in ("base", "patched")}
        selftests.judge(tally, "sim", topics.series(), tests, images, **settings)
        assert tally.passed and not tally.failed
        return sorted(booted)

    judge.tests, judge.root, judge.code, judge.place = tests, root, code, tmp_path
    return judge


ALL = [("base", "fast.sh"), ("patched", "fast.sh"), ("patched", "slow.sh")]


def test_a_boot_is_made_once_and_on_the_base_only_for_what_has_to_fail_there(guests):
    assert guests() == ALL and guests() == []


@pytest.mark.parametrize(
    "changed, again",
    [
        ("patched", [("patched", "fast.sh"), ("patched", "slow.sh")]),
        ("base", [("base", "fast.sh")]),
        ("installed/net/slow.sh", [("patched", "slow.sh")]),
        ("installed/net/lib.sh", ALL),
        ("installed/run_kselftest.sh", ALL),
        ("root/var/lib/dpkg/status", ALL),
        ("checkout/testbed/machines/uml.py", ALL),
    ],
)
def test_what_a_boot_depends_on_has_it_made_again(guests, changed, again):
    guests()
    path = guests.place / changed
    path.write_text(path.read_text() + "# a fault\n")
    assert guests() == again and guests() == []


def test_noise_and_the_topics_own_preparation_are_other_boots(guests, place):
    guests()
    assert guests(noise=1) == ALL
    toml = place / "topics/one/topic.toml"
    toml.write_text(toml.read_text() + 'prepare = "echo 1 >/sys/x"\n')
    assert guests() == ALL


def test_who_names_a_script_sees_it_run(guests):
    guests()
    assert guests(only=["net/slow.sh"]) == [("base", "slow.sh"), ("patched", "slow.sh")]


def test_a_failure_is_not_kept(guests, monkeypatch):
    def boot(image, script, results, limit, kind, root):
        results.mkdir(parents=True, exist_ok=True)
        (results / "ktap").write_text("# not ok 1 a case\nnot ok 1 selftests: net: slow.sh\n")

    well = selftests.boot.boot
    monkeypatch.setattr(selftests.boot, "boot", boot)
    with pytest.raises(AssertionError):
        guests(only=["net/slow.sh"])
    monkeypatch.setattr(selftests.boot, "boot", well)
    assert ("patched", "slow.sh") in guests()


def test_all_are_asked_for_again_if_none_is_to_be_believed(guests, monkeypatch):
    guests()
    monkeypatch.setenv(verdicts.FRESH, "1")
    assert guests() == ALL


def test_a_check_that_failed_is_made_again():
    calls = []

    def bad():
        calls.append(1)
        raise Fail("no")

    for _ in range(2):
        with pytest.raises(Fail):
            verdicts.once(bad, "key")
    verdicts.once(lambda: calls.append(1), "key")
    verdicts.once(bad, "key")
    assert len(calls) == 3


@pytest.fixture
def keys(filled, place, monkeypatch):
    """A function: {patch: the key of what its objects are made of}."""
    monkeypatch.setattr(kernel, "compiler", lambda: "gcc 12")

    def found():
        return {
            step.name: check.depends(filled, step.commit, applied.touched(filled, step.commit))
            for step in applied.steps(filled)
        }

    found.base = filled
    return found


def reworked(place, path, old, new, subject):
    """The last topic's last patch, with a change more."""
    there = tree.TREE / path
    commit(tree.TREE, path, there.read_text().replace(old, new) if there.is_file() else new, subject)
    tree.export()


def test_an_objects_verdict_is_of_its_own_text_and_of_every_header(keys, place):
    before = keys()
    # Another C file at the end: nobody else's.
    reworked(place, "net/other.c", "", "other\n", "NET: add another")
    now = keys()
    assert {name: now[name] for name in before} == before
    # A header is everybody's from there on.
    reworked(place, "include/net.h", "", "int x;\n", "NET: add a header")
    reworked(place, "net/other.c", "other", "another", "NET: spell it")
    last = keys()
    assert {name: last[name] for name in now} == now
    (name,) = [name for name in last if "spell-it" in name]
    assert any("include/net.h" in str(part) for part in last[name])


def test_a_changed_message_leaves_the_verdict_of_what_it_compiles(keys, place):
    before = keys()
    util.run("git", "commit", "--amend", "-q", "-m", "NET: add a file\n\nFor another reason.\n", cwd=tree.TREE)
    tree.export()
    assert list(keys().values()) == list(before.values())


def test_options_and_the_testbeds_own_code_are_part_of_it(keys, place, monkeypatch, tmp_path):
    asked = check.asked("sim")
    config = place / "topics/one/one.config"
    config.write_text("CONFIG_X=y\n")
    toml = place / "topics/one/topic.toml"
    toml.write_text(toml.read_text() + 'config = "one.config"\n')
    assert check.asked("sim") != asked and config in check.asked("sim")
    assert all(check.CODE in key for key in keys().values())


def test_many_patches_are_compiled_in_two_working_trees(filled, monkeypatch):
    monkeypatch.setattr(kernel, "compiler", lambda: "gcc 12")
    made = []

    def compiled(base, commit, objects, dated=()):
        applied.checkout(base, commit)
        assert list(dated) == (["a.h"] if check.EVERYTHING in objects else [])
        assert util.run("git", "rev-parse", "HEAD", cwd=base.repo).stdout.strip() == commit
        assert all((base.repo / name.replace(".o", ".c")).is_file() for name in objects if name != check.EVERYTHING)
        made.append((base.repo, commit, tuple(objects)))

    monkeypatch.setattr(check, "compile_step", compiled)
    steps = applied.steps(filled)
    names = {step.commit: applied.touched(filled, step.commit) for step in steps}
    tally = util.Tally()
    for few in (len(steps), 0):
        monkeypatch.setattr(check, "FEW", few)
        # Once more nothing is made.
        for _ in range(2):
            check.compile_all(filled, steps, names, {steps[-1].commit: ["a.h"]}, tally)
        wanted = [(step.commit, ("net/queue.o",)) for step in steps[:2]]
        wanted += [(steps[2].commit, ("net/new.o",)), (steps[2].commit, (check.EVERYTHING,))]
        assert sorted(one[1:] for one in made) == sorted(wanted)
        assert len({repo for repo, *_ in made}) == (1 if few else 2)
        assert [repo for repo, _, objects in made if check.EVERYTHING in objects] == [filled.repo]
        made.clear()
        shutil.rmtree(util.cache() / "verdicts")
    assert tally.passed == 16 and not tally.failed


CHECKPATCH = """\
for (@ARGV) {
    next unless open(my $patch, "<", $_);
    exit 2 if -e "broken";
    while (<$patch>) { print "net/queue.c:1: ERROR:SPELLING: twenty\\n" if /^\\+line twenty/; }
    print "net/queue.c:1: ERROR:AGAIN: together\\n" if -e "together" and 1 < grep /[.]patch$/, @ARGV;
}
"""


def test_of_many_patches_that_checkpatch_is_given_the_bad_one_is_named(filled):
    (filled.repo / "scripts").mkdir()
    (filled.repo / "scripts/checkpatch.pl").write_text(CHECKPATCH)
    steps = applied.steps(filled)
    for _ in range(2):
        tally = util.Tally()
        check.checkpatches(filled, steps, tally)
        problems = {case.name: case.problem for case in tally.cases}
        assert [name for name, problem in problems.items() if problem] == [f"{steps[1].name}: checkpatch"]
        assert problems[f"{steps[1].name}: checkpatch"] == "net/queue.c:1: ERROR:SPELLING: twenty"
    assert len(problems) == 4
    (filled.repo / "broken").touch()
    tally = util.Tally()
    check.checkpatches(filled, steps, tally)
    # Only what has been kept is believed.
    assert [bool(case.problem) for case in tally.cases] == [True, False, True, False]
    assert "status 2" in tally.cases[0].problem
    (filled.repo / "broken").rename(filled.repo / "together")
    shutil.rmtree(util.cache() / "verdicts")
    (filled.repo / "scripts/checkpatch.pl").write_text(CHECKPATCH.replace("twenty/", "none/"))
    tally = util.Tally()
    check.checkpatches(filled, steps, tally)
    assert "of none alone" in tally.cases[0].problem


def test_checkpatch_asks_the_python3_that_has_its_libraries(filled, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "elsewhere/python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/elsewhere:{os.environ['PATH']}")
    (filled.repo / "scripts").mkdir()
    (filled.repo / "scripts/checkpatch.pl").write_text('system(qw(python3 -c), "import git, ply") and exit 2;\n')
    assert check.checkpatch(filled, [step.patch for step in applied.steps(filled)]) == []


@pytest.fixture
def readme(filled, tmp_path, monkeypatch):
    """figures() of an experiment that the README shows; gives how many runs were made. `said` is what a run gives."""
    for path, text in {
        tmp_path / "e.json": "1",
        tmp_path / "root/var/lib/dpkg/status": "Package: nfs-utils\n",
        tmp_path / "kernel": "a kernel",
        tmp_path / "selftests/nfsd/nfsload": "a program",
        tmp_path / "selftests/nfsd/soak.sh": "what no guest of the README's runs",
        tmp_path / "selftests/kselftest-list.txt": "nfsd:soak.sh\n",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    one = SimpleNamespace(name="e", exact=True, content="what it measures", packages={}, recorded=tmp_path / "e.json")
    monkeypatch.setattr(results.experiments, "shown", lambda: ["e"])
    monkeypatch.setattr(results.experiments, "all_of_them", lambda: [one])
    monkeypatch.setattr(results, "BUILD", tmp_path / "build")
    monkeypatch.setattr(results.guest, "root", lambda packages: tmp_path / "root")
    monkeypatch.setattr(results.run, "kernels", lambda base, one: {"patched": tmp_path / "kernel"})
    monkeypatch.setattr(results.run, "selftests", lambda base, one: str(tmp_path / "selftests"))
    monkeypatch.setattr(results.pieces, "used", lambda one: one.used)
    monkeypatch.setattr(results.origin, "judge", lambda one, base: SimpleNamespace(elsewhere=[]))
    made = []

    def run(one, base, out):
        made.append(out)
        out.mkdir(parents=True, exist_ok=True)
        (out / "e.json").write_text(one.said(len(made)))
        return out / "e.json"

    monkeypatch.setattr(results.run, "run", run)
    one.used, one.said = {"nfsd/lib.sh": "a key"}, lambda turn: "1"

    def figures(failed=False):
        made.clear()
        tally = util.Tally()
        results.figures(filled, tally)
        assert bool(tally.failed) == failed
        return len(made)

    figures.one, figures.place = one, tmp_path
    return figures


def test_the_readmes_figures_are_measured_again_when_what_makes_them_has_changed(readme):
    assert readme() == 2 and readme() == 0
    for path in ("kernel", "root/var/lib/dpkg/status", "selftests/nfsd/nfsload"):
        (readme.place / path).write_text("another")
        assert readme() == 2 and readme() == 0
    for path in ("selftests/nfsd/soak.sh", "selftests/kselftest-list.txt"):
        (readme.place / path).write_text("another")
        assert readme() == 0
    readme.one.used = {"nfsd/lib.sh": "another key"}
    assert readme() == 2
    readme.one.content = "something else"
    assert readme() == 2 and readme() == 0


def test_figures_that_differ_are_a_failure_each_time(readme):
    readme.one.said = str
    assert readme(failed=True) == 2
    readme.one.said = lambda turn: "2"
    assert readme(failed=True) == 2 and readme(failed=True) == 2
    readme.one.recorded.write_text("2")
    assert readme() == 2 and readme() == 0


@pytest.fixture
def suites(tmp_path, monkeypatch):
    """kunit.gate() of a kernel and a parser; gives how often it was booted. `found` is what it says."""
    parser = tmp_path / kunit.PARSER
    parser.parent.mkdir(parents=True)
    for path in (parser, tmp_path / "kernel"):
        path.write_text("1")
    monkeypatch.setattr(kunit.kernel, "kernels", lambda base, what, only: {"patched": tmp_path / "kernel"})
    ran = []

    def whole(base, tally):
        ran.append(1)
        tally.add("KUnit", suites.found)

    monkeypatch.setattr(kunit, "kunit", whole)

    def suites():
        ran.clear()
        tally = util.Tally()
        kunit.gate(SimpleNamespace(repo=tmp_path), tally)
        return len(ran), tally.passed, tally.failed

    suites.found, suites.files = {"a.b": "", "a.c": ""}, (parser, tmp_path / "kernel")
    return suites


def test_the_suites_run_again_in_another_kernel_and_for_another_parser(suites):
    assert suites() == (1, 2, 0) and suites() == (0, 2, 0)
    for path in suites.files:
        path.write_text("2")
        assert suites() == (1, 2, 0) and suites() == (0, 2, 0)


def test_suites_that_fail_or_do_not_run_are_asked_for_again(suites):
    suites.found = {"a.b": "", "a.c": "failure"}
    assert suites() == (1, 1, 1) and suites() == (1, 1, 1)
    suites.found = {}
    assert suites() == (1, 0, 0) and suites() == (1, 0, 0)


def test_a_script_is_read_again_when_it_or_what_it_may_source_has_changed(filled, tmp_path, monkeypatch):
    test, library, other = (tmp_path / check.SELFTESTS / f"nfsd/{name}.sh" for name in ("test", "lib", "other"))
    test.parent.mkdir(parents=True)
    for path in (test, library, other):
        path.write_text(f"# {path.name}\n")
        path.chmod(0o644 if path is library else 0o755)
    read = []
    monkeypatch.setattr(check, "shellcheck", lambda path: read.append(path.name))
    monkeypatch.setattr(check, "run", lambda *words, **_: SimpleNamespace(stdout="version"))
    monkeypatch.setattr(check, "ROOT", tmp_path / "none")

    def again():
        read.clear()
        names = [str(path.relative_to(tmp_path)) for path in (test, other)]
        check.shell_scripts(SimpleNamespace(repo=tmp_path), names, util.Tally())
        return read

    assert again() == ["test.sh", "other.sh"] and again() == []
    other.write_text("# changed\n")
    assert again() == ["other.sh"] and again() == []
    library.write_text("# changed\n")
    assert again() == ["test.sh", "other.sh"] and again() == []


@pytest.fixture
def own_tests(tmp_path, monkeypatch):
    """tests() of a checkout with one file; gives how often pytest ran. `found` is what it says."""
    top = tmp_path / "checkout"
    util.run("git", "init", "-q", top)
    (top / "a.py").write_text("1\n")
    (top / ".gitignore").write_text("build\n")
    monkeypatch.setattr(verdicts, "ROOT", top)
    ran = []

    def pytest_():
        ran.append(1)
        return dict(tests.found), int(any(tests.found.values()) or not tests.found)

    monkeypatch.setattr(own, "pytest", pytest_)

    def tests():
        ran.clear()
        tally = util.Tally()
        own.tests(tally)
        return len(ran), tally.passed, tally.failed

    tests.found, tests.top = {"a": "", "b": ""}, top
    return tests


def test_the_testbeds_own_tests_run_again_after_any_change(own_tests):
    assert own_tests() == (1, 2, 0) and own_tests() == (0, 2, 0)
    (own_tests.top / "build").mkdir()
    (own_tests.top / "build/log").write_text("what git ignores")
    assert own_tests() == (0, 2, 0)
    (own_tests.top / "new.py").write_text("not added yet")
    assert own_tests() == (1, 2, 0)
    (own_tests.top / "a.py").chmod(0o755)
    assert own_tests() == (1, 2, 0) and own_tests() == (0, 2, 0)
    (own_tests.top / "a.py").unlink()
    assert own_tests() == (1, 2, 0)


def test_own_tests_that_fail_or_do_not_run_are_asked_for_again(own_tests):
    own_tests.found = {"a": "", "b": "wrong"}
    assert own_tests() == (1, 1, 1) and own_tests() == (1, 1, 1)
    own_tests.found = {}
    assert own_tests() == (1, 0, 1)
    own_tests.found = {"a": ""}
    assert own_tests() == (1, 1, 0) and own_tests() == (0, 1, 0)


@pytest.fixture
def documented(filled):
    """A function: {what the documents tell people to run: the key of its verdict}."""

    def found():
        every = topics.series()
        made = {one.name: gate.mailed_by(filled, topics.closure(every, one.name)) for one in every}
        return {name: util.digest(*key) for name, key in {**made, "dkms": gate.modules_by(filled, every)}.items()}

    return found


@pytest.mark.parametrize(
    "path, new, again",
    [
        ("net/sunrpc/svc.c", "int x;\n", ["dkms", "two"]),
        ("tools/testing/selftests/net/new.sh", "true\n", ["two"]),
        ("Documentation/new.rst", "New\n", ["two"]),
    ],
)
def test_what_a_documents_command_depends_on_has_it_run_again(documented, place, path, new, again):
    before = documented()
    reworked(place, path, "", new, "NET: add one more")
    after = documented()
    assert sorted(name for name in after if after[name] != before[name]) == again


def test_a_topic_is_mailed_again_for_its_letter_and_not_for_one_it_stands_on(documented, place):
    before = documented()
    for name, file in {"one": "patches/0000-cover-letter.patch", "two": "topic.toml"}.items():
        path = place / "topics" / name / file
        path.write_text(path.read_text() + "\n")
        after = documented()
        assert [one for one in after if after[one] != before[one]] == [name]
        before = after
