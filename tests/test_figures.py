# SPDX-License-Identifier: GPL-2.0
"""Experiments, reports, and that what the documents say is what the result files hold."""

import functools
import itertools
import json
import re
import subprocess

import pytest
from conftest import Fail

from testbed import util
from testbed.experiments import experiment, origin, pieces, results, run
from testbed.experiments.table import ms
from testbed.report import documents, pictures, tables
from testbed.series import topics
from testbed.suites import kunit
from testbed.suites import selftests as suites
from testbed.swarm import promises


def test_milliseconds_read_well():
    assert [ms(v) for v in (20_000_000, 20_040_000, 99_940_000, 99_960_000, 350_400_000)] == [
        "20",
        "20",
        "99.9",
        "100",
        "350",
    ]


def test_a_table_lines_up():
    assert (
        tables.table(["K", "base"], [[4, "110"], [128, "2530"]])
        == "|   K | base |\n|----:|-----:|\n|   4 |  110 |\n| 128 | 2530 |"
    )


RECORDED = [one for one in experiment.all_of_them() if one.recorded.is_file()]


@pytest.mark.parametrize("one", RECORDED, ids=lambda one: one.name)
def test_the_tables_beside_a_result_are_those_of_its_figures(one):
    assert one.recorded.with_suffix(".md").read_text() == tables.document(one, run.read(one.recorded)), (
        f"`make record B={one.name}`"
    )


@pytest.mark.parametrize("one", RECORDED, ids=lambda one: one.name)
def test_a_picture_was_drawn_from_the_result_beside_it(one, tmp_path):
    svg, png = pictures.pictures(one.recorded)
    if pictures.draw(one, one.recorded, tmp_path / "drawn"):
        assert pictures.drawn_from(one.recorded) in svg.read_text()
        assert pictures.drawn_from(one.recorded).encode() in png.read_bytes()
    else:
        assert not svg.exists() and not png.exists()


def test_the_same_figures_draw_the_same_picture(tmp_path):
    for one in RECORDED:
        drawn = [pictures.draw(one, one.recorded, tmp_path / turn / one.name) for turn in ("one", "two")]
        for path in pictures.pictures(tmp_path / "one" / one.name) if all(drawn) else ():
            assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_the_recorded_floor_holds():
    """A burst takes no more than twice what it takes alone, beside however many others."""
    for name in experiment.shown():
        one = experiment.find(name)
        found = one.kind.picture(one, run.read(one.recorded))
        for tick, value in zip(found.ticks, found.values["patched"]):
            assert value <= 2 * found.floor, f"{name} at {tick}"


# Where a result came from.

TOML = (
    'kind = "guest"\nmachine = "sim"\nrepeats = 1\ntitle = "Speed"\nquestion = "Q"\n'
    '[guest]\nscript = "x >/results/{point}.json"\n'
    '[[metrics]]\ntitle = "I/O"\nfield = "iops"\n'
)
PATCH = (
    "Subject: [PATCH] x\n\nWhy.\n---\n 1 file\n\ndiff --git a/{0} b/{0}\nindex 1..2 100644\n"
    "--- a/{0}\n+++ b/{0}\n@@ -8 +8 @@\n-old\n+new\n-- \n"
)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Three topics, the second on the first; the second has an experiment `speed`, which takes no boot."""
    monkeypatch.setattr(topics, "TOPICS", tmp_path / "topics")
    for name in ("below", "own", "aside"):
        home = tmp_path / "topics" / name
        (home / "patches").mkdir(parents=True)
        (home / "topic.toml").write_text(
            f'title = "T"\nstate = "draft"\nlists = []\nconfig = "c"\n'
            f"depends_on = {['below'] if name == 'own' else []}\n"
        )
        (home / "c").write_text(f"CONFIG_{name.upper()}=y\n")
        (home / "patches/series").write_text("1.patch\n")
        (home / "patches/1.patch").write_text(PATCH.format(f"net/{name}.c"))
    (tmp_path / "topics/order").write_text("below\nown\naside\n")
    home = tmp_path / "topics/own"
    (home / "experiments").mkdir()
    (home / "experiments/speed.toml").write_text(TOML)
    with open(home / "topic.toml", "a") as toml:
        toml.write('quotes = ["speed"]\n')
    guest = util.cache() / "guest/key"
    (guest / "var/lib/dpkg").mkdir(parents=True)
    (guest / "guest-init").write_text("")
    (guest / "var/lib/dpkg/status").write_text(
        "Package: fio\nStatus: install ok installed\nVersion: 3.39-1\n\nPackage: gone\nStatus: deinstall ok "
        "config-files\nVersion: 1\n"
    )
    monkeypatch.setattr(origin.guest, "root", lambda more: guest)
    monkeypatch.setattr(origin.guest, "place", lambda more=None: guest)
    ran = []

    def boots(one, base, out):
        ran.append(one.name)
        return {"base": [{"iops": 1}], "patched": [{"iops": len(ran)}]}

    monkeypatch.setattr(run, "boots", boots)
    monkeypatch.setattr(run, "RESULTS", tmp_path / "build/results")
    monkeypatch.setattr(results, "BUILD", tmp_path / "build")
    monkeypatch.setattr(results.bases, "find", lambda: BASE)
    monkeypatch.setattr(origin.bases, "find", lambda: BASE)
    return tmp_path / "topics", ran


BASE = origin.Base("Linux 7.3.4 (packaged)", util.ROOT, "0" * 40, True)


def bench(*names):
    for done in results.measured([*names]):
        documents.show(done)


def record(*names):
    for done in results.measured([*names]):
        documents.record(done)


def judged(base=BASE):
    return str(origin.judge(experiment.find("speed"), base))


def test_a_result_that_was_just_recorded_is_of_todays_series(checkout):
    home, _ = checkout
    assert judged() == "stale: not recorded: `make record B=speed`"
    record("speed")
    kept = json.loads((home / "own/results/speed.origin.json").read_text())
    assert (
        kept["base"] == {"name": BASE.name, "packaged": True}
        and kept["guest"] == {"fio": "3.39-1"}
        and list(kept["series"]) == ["below", "own", "aside"]
    )
    assert kept["experiment"] and kept["configuration"] and kept["compiler"]
    assert "Recorded on Linux 7.3.4 (packaged); speed.origin.json" in (home / "own/results/speed.md").read_text()
    assert judged() == "of today's series"
    # Nothing of when or where
    record("speed")
    assert {**json.loads((home / "own/results/speed.origin.json").read_text()), "figures": 0} == {**kept, "figures": 0}


def test_only_the_experiments_named_are_recorded(checkout):
    home, ran = checkout
    (home / "own/experiments/other.toml").write_text(TOML)
    (home.parent / "build/results").mkdir(parents=True)
    (home.parent / "build/results/other.json").write_text("{}")
    record("speed")
    assert ran == ["speed"] and [path.name for path in sorted((home / "own/results").iterdir())] == [
        "speed.json",
        "speed.md",
        "speed.origin.json",
    ]


def test_a_wrong_name_is_refused_before_anything_runs(checkout):
    _, ran = checkout
    for names in (["sped"], ["speed", "sped"]):
        with pytest.raises(Fail, match="there is no experiment sped"):
            record(*names)
    assert not ran


def test_what_is_wrong_with_any_experiment_is_said_before_anything_runs(checkout):
    home, ran = checkout
    (home / "own/experiments/other.toml").write_text(TOML.replace("repeats = 1", "repeats = 0"))
    with pytest.raises(Fail, match="other.toml: repeats"):
        bench("speed")
    assert not ran


def test_an_interrupted_record_leaves_the_old_result(checkout, monkeypatch):
    home, _ = checkout
    record("speed")
    before = {path.name: path.read_bytes() for path in (home / "own/results").iterdir()}

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "boots", interrupted)
    with pytest.raises(KeyboardInterrupt):
        record("speed")
    assert {path.name: path.read_bytes() for path in (home / "own/results").iterdir()} == before


def test_a_result_whose_figures_are_others_has_no_known_origin(checkout):
    home, _ = checkout
    record("speed")
    path = home / "own/results/speed.json"
    path.write_text(path.read_text().replace("1", "7"))
    assert judged() == "stale: origin unknown: `make record B=speed`"


@pytest.mark.parametrize(
    "path, old, new, said",
    [
        ("own/patches/1.patch", "+new", "+newer", "stale: the topic own has changed"),
        ("below/patches/1.patch", "+new", "+newer", "stale: the topic below has changed"),
        ("aside/patches/1.patch", "+new", "+newer", "of today's series (topics that it is not of have changed: aside)"),
        ("own/patches/1.patch", "Why.", "Because.", "of today's series"),
        ("own/patches/1.patch", "@@ -8 +8 @@", "@@ -9 +9 @@", "of today's series"),
        ("own/patches/1.patch", "index 1..2", "index 3..4", "of today's series"),
        ("own/experiments/speed.toml", 'script = "x', 'script = "y', "stale: {} or a file of its own has changed"),
        ("own/experiments/speed.toml", 'title = "Speed', 'title = "Pace', "of today's series"),
        ("own/c", "OWN=y", "OTHER=y", "stale: the kernel's configuration has changed"),
        ("aside/c", "ASIDE=y", "OTHER=y", "of today's series"),
    ],
)
def test_a_result_is_stale_if_what_it_is_of_has_changed(checkout, path, old, new, said):
    home, _ = checkout
    record("speed")
    text = (home / path).read_text()
    assert old in text
    (home / path).write_text(text.replace(old, new))
    assert judged() == said.format(home / path)


@pytest.mark.parametrize(
    "name, matters",
    [
        ("net/x.c", True),
        ("include/linux/x.h", True),
        ("tools/testing/selftests/x/lib.sh", False),
        ("tools/testing/selftests/x/load.c", False),
        ("Documentation/x.rst", False),
        ("MAINTAINERS", False),
        ("lib/tests/x_kunit.c", False),
        ("net/tests/.kunitconfig", False),
        ("lib/tests/x.kunitconfig", False),
        ("tools/testing/selftests/x/case.sh", False),
        ("tools/testing/selftests/x/README", False),
    ],
)
def test_a_file_that_no_experiment_runs_is_no_part_of_a_topics_content(checkout, name, matters):
    home, _ = checkout
    before = topics.series()[1].content
    (home / "own/patches/2.patch").write_text(PATCH.format(name))
    (home / "own/patches/series").write_text("1.patch\n2.patch\n")
    assert (topics.series()[1].content != before) == matters


LIB = """\
# A library.
WORK=/mnt

# Writes a file.
file()
{
	put "$1"	# as it is
}

put()
{
	echo >"$1"
}

other()
{
	# what file does, too
	:
}
"""
CODE = {
    "x/load.c": '#include "rpc.h"\n/* as does fault */\nint load;\n',
    "x/fault.c": '#include "rpc.h"\nint fault;\n',
    "x/rpc.h": "extern int call;\n",
    "x/rpc.c": "int call;\n",
    "x/clients.py": "import addresses\nprint(1)\n",
    "x/addresses.py": "print(1)\n",
    "x/load.awk": "{ print 1 }\n",
    "x/Makefile": "CFLAGS += -O1\nTEST_PROGS := 1.sh\n",
    "x/README": "1\n",
}
SOAK = '#!/bin/bash\n. "$(dirname "$0")"/lib.sh\nwait_for()\n{\n\tother\n}\n'


def brings(path, files):
    """A patch that brings files of the selftests."""
    text = "Subject: [PATCH] x\n\nWhy.\n---\n"
    for name, lines in files.items():
        name, mode = f"tools/testing/selftests/{name}", 755 if name.endswith("soak.sh") else 644
        text += f"diff --git a/{name} b/{name}\nnew file mode 100{mode}\n--- /dev/null\n+++ b/{name}\n"
        text += f"@@ -0,0 +1,{lines.count(chr(10))} @@\n" + "".join(f"+{line}\n" for line in lines.splitlines())
    path.write_text(text + "-- \n2.0\n")


def recorded(home, runs, files):
    """Record an experiment whose guest runs something; gives a function that changes the files that it may run."""
    toml = home / "own/experiments/speed.toml"
    toml.write_text(toml.read_text().replace('"x >', f'"{runs} >'))
    (home / "below/patches/series").write_text("1.patch\n2.patch\n")
    change = functools.partial(brings, home / "below/patches/2.patch")
    change(files)
    record("speed")
    assert judged() == "of today's series"
    return change


@pytest.mark.parametrize(
    "runs, old, new, said",
    [
        (
            ". /host{selftests}/x/lib.sh; file x",
            "as it is",
            "so",
            "stale: of the selftests x/lib.sh: file() has changed",
        ),
        (
            ". /host{selftests}/x/lib.sh; file x",
            "Writes",
            "Has",
            "stale: of the selftests x/lib.sh: file() has changed",
        ),
        (
            ". /host{selftests}/x/lib.sh; file x",
            "echo",
            "printf x",
            "stale: of the selftests x/lib.sh: put() has changed",
        ),
        (". /host{selftests}/x/lib.sh; file x", "/mnt", "/srv", "stale: of the selftests x/lib.sh has changed"),
        (". /host{selftests}/x/lib.sh; file x", "\t:", "\ttrue", "of today's series"),
        (". /host{selftests}/x/lib.sh; file x", "A library.", "The library.", "of today's series"),
        (". /host{selftests}/x/lib.sh; file x", "other()", "more()\n{\n\t:\n}\n\nother()", "of today's series"),
        (". /host{selftests}/x/lib.sh; file x", "wait_for", "wait", "of today's series"),
        (". /host{selftests}/x/lib.sh", "as it is", "so", "of today's series"),
        ("/host{selftests}/x/soak.sh", "wait_for", "wait", "stale: of the selftests x/soak.sh has changed"),
        ("/host{selftests}/x/soak.sh", "\t:", "\ttrue", "stale: of the selftests x/lib.sh: other() has changed"),
        ("/host{selftests}/x/soak.sh", "as it is", "so", "of today's series"),
        ("file x", "as it is", "so", "of today's series"),
    ],
)
def test_a_result_is_stale_if_the_shell_that_it_runs_has_changed(checkout, runs, old, new, said):
    change = recorded(checkout[0], runs, {"x/lib.sh": LIB, "x/soak.sh": SOAK})
    assert (LIB + SOAK).count(old) == 1
    change({"x/lib.sh": LIB.replace(old, new), "x/soak.sh": SOAK.replace(old, new)})
    assert judged() == said


@pytest.mark.parametrize(
    "runs, changed, stale",
    [
        ("load -t 3", "load.c", True),
        ("load -t 3", "rpc.h", True),
        ("load -t 3", "rpc.c", True),
        ("load -t 3", "fault.c", False),
        ("# load", "load.c", False),
        ("load -t 3", "Makefile", True),
        ("load -t 3", "README", False),
        ("clients.py dump", "clients.py", True),
        ("clients.py dump", "addresses.py", True),
        ("clients.py dump", "Makefile", False),
        ("awk -f load.awk", "load.awk", True),
        ("clients.py dump", "load.c", False),
        ("reload; load-avg", "clients.py", False),
    ],
)
def test_a_result_is_stale_if_a_program_that_it_runs_has_changed(checkout, runs, changed, stale):
    name = f"x/{changed}"
    change = recorded(checkout[0], runs, CODE)
    change({**CODE, name: CODE[name].replace("1", "2").replace("int", "long")})
    assert judged() == (f"stale: of the selftests {name} has changed" if stale else "of today's series")


def test_a_test_that_is_added_is_no_program_that_has_changed(checkout):
    change = recorded(checkout[0], "load", CODE)
    makefile = CODE["x/Makefile"].replace("1.sh", "1.sh 2.sh") + "$(OUTPUT)/more: more.c\n"
    change({**CODE, "x/Makefile": makefile, "x/2.sh": "load\n", "x/more.c": "int x;\n"})
    assert judged() == "of today's series"


def test_what_a_load_runs_on_either_side_is_in_the_key_of_a_swarm():
    """Of loads that the key was not made of, too."""
    for wanted in promises.every():
        known = pieces.of(wanted.experiment.topics)
        found = pieces.used(wanted.experiment).keys()
        for seed in ("101", "102", "103", *wanted.cases):
            for side in wanted.sides:
                script = wanted.world.script(wanted.load(seed), side, wanted.data)
                assert pieces.run(script, known) <= found, (wanted.topic.name, seed, side)


def test_every_program_that_the_selftests_build_is_known_by_its_code():
    known = pieces.of(topics.series())
    patches = [path.read_text() for topic in topics.series() for path in topic.patches if "selftests" in path.name]
    built = {found for text in patches for found in re.findall(r"^\+TEST_GEN_FILES [:+]?= (.+)$", text, re.M)}
    programs = {program for names in built for program in names.split()}
    assert programs and {f"nfsd/{program}.c" for program in programs} <= known.keys()


def test_every_experiment_that_has_a_server_runs_what_starts_it():
    for one in experiment.all_of_them():
        if "server" in one.data:
            library = one.data["server"]["library"]
            assert {library, f"{library}: nfsd_start()", "nfsd/nfsload.c"} <= pieces.used(one).keys()


def test_another_base_and_other_packages_are_named(checkout):
    home, _ = checkout
    record("speed")
    other = origin.Base("Linux 7.4 (linux at 123)", util.ROOT, "1" * 40)
    assert judged(other) == "stale: other base: recorded on Linux 7.3.4 (packaged), this is Linux 7.4 (linux at 123)"
    status = util.cache() / "guest/key/var/lib/dpkg/status"
    status.write_text(
        status.read_text().replace("3.39-1", "3.40-1") + "\nPackage: new\nStatus: install ok installed\nVersion: 1\n"
    )
    assert judged() == "stale: other guest's packages: recorded with fio 3.39-1 (now 3.40-1)"


def test_a_record_on_another_base_says_so(checkout, monkeypatch):
    home, _ = checkout
    other = origin.Base("Linux 7.4 (linux at 123)", util.ROOT, "1" * 40)
    monkeypatch.setattr(results.bases, "find", lambda: other)
    record("speed")
    assert (
        "Recorded on Linux 7.4 (linux at 123), which is not the packaged base"
        in (home / "own/results/speed.md").read_text()
    )
    assert judged(other) == "of today's series"


def test_a_quoted_result_that_is_stale_fails(checkout, capsys):
    home, _ = checkout
    record("speed")
    tally = util.Tally()
    results.quoted(BASE, tally)
    assert (tally.passed, tally.failed) == (1, 0)
    # What is not this repository's to change is said, and no failure
    results.quoted(origin.Base("Linux 7.4", util.ROOT, "1" * 40), tally)
    assert (tally.passed, tally.failed) == (
        2,
        0,
    ) and "speed was recorded elsewhere: other base" in capsys.readouterr().out
    (home / "below/patches/1.patch").write_text(PATCH.format("net/other.c"))
    results.quoted(BASE, tally)
    assert (tally.passed, tally.failed) == (2, 1)
    assert (
        "the cover letter of own quotes, is of today's series\n     the topic below has changed\n     record it "
        "again: make record B=speed" in capsys.readouterr().out
    )


def test_an_experiment_whose_patches_do_not_apply_is_a_failure(checkout, capsys, monkeypatch):
    def commits(base, experiment):
        if experiment.name == "speed":
            raise util.Fail("the patch of the variant rfc does not apply")

    monkeypatch.setattr(run, "commits", commits)
    tally = util.Tally()
    results.measurable(BASE, tally)
    assert tally.failed == 1
    assert "FAIL the patches of what speed is measured on apply" in capsys.readouterr().out


def test_a_quoted_result_of_an_older_series_is_said_to_be(checkout, capsys):
    home, _ = checkout
    toml = home / "own/topic.toml"
    toml.write_text(toml.read_text() + 'older = ["speed"]\n')
    record("speed")
    tally = util.Tally()
    results.quoted(BASE, tally)
    assert (tally.passed, tally.failed) == (0, 1) and "take it out of `older`" in capsys.readouterr().out
    (home / "below/patches/1.patch").write_text(PATCH.format("net/other.c"))
    results.quoted(BASE, tally)
    assert (tally.passed, tally.failed) == (1, 1)
    assert "speed is quoted as it was recorded of an older series: the topic below" in capsys.readouterr().out


def test_bytes_are_compared_where_they_can_be_and_it_is_said_where_not(checkout, capsys, monkeypatch):
    home, ran = checkout
    toml = home / "own/topic.toml"
    toml.write_text(toml.read_text().replace("quotes", "readme"))
    monkeypatch.setattr(run, "boots", lambda *_: {"base": [{"iops": 1}], "patched": [{"iops": 2}]})
    monkeypatch.setattr(documents, "splice", lambda *_: None)
    turns = itertools.count()
    monkeypatch.setattr(results, "decided_by", lambda *_: (f"another turn: {next(turns)}",))
    record("speed")
    tally = util.Tally()
    results.figures(BASE, tally)
    assert (tally.passed, tally.failed) == (1, 0)
    results.figures(origin.Base("Linux 7.4", util.ROOT, "1" * 40), tally)
    assert (tally.passed, tally.failed) == (2, 0)
    assert "speed is not compared with the recorded result: other base" in capsys.readouterr().out
    monkeypatch.setattr(run, "boots", lambda *_: {"base": [{"iops": 1}], "patched": [{"iops": 3}]})
    results.figures(BASE, tally)
    assert (tally.passed, tally.failed) == (2, 1)


def test_results_are_judged_in_a_line_each(checkout, capsys, monkeypatch):
    record("speed")
    capsys.readouterr()
    monkeypatch.setattr(origin, "present", lambda: None)
    results.results()
    assert capsys.readouterr().out.splitlines() == [
        "==> no base is in the cache: results are not held against one",
        "speed: of today's series",
    ]


def test_points_that_are_done_are_counted_as_they_come(monkeypatch):
    seen = []
    monkeypatch.setattr(run, "bar", lambda total, what, unit: Bar(seen, total))
    done = iter([1, 2, 2, 2])
    with run.watched("speed", lambda: next(done, 2), 2):
        pass
    assert sum(seen) == 1 and Bar.total == 2


class Bar:
    """A progress bar that keeps what it was told."""

    total = 0

    def __init__(self, seen, total):
        self.seen, self.n, Bar.total = seen, 0, total

    def update(self, more):
        self.n += more
        self.seen.append(more)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


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
    assert suites.ktap(KTAP) == {
        "a.sh: reads what it wrote": "ok",
        "a.sh: keeps the floor": "not ok",
        "b.sh: starts": "skipped",
        "c.sh": "not ok",
    }


def test_kunit_is_counted_by_its_closing_line():
    text = "[00:00:00] Testing complete. Ran 9 tests: passed: 7, failed: 1, skipped: 1\n"
    assert kunit.counts(text) == {"passed": 7, "failed": 1, "skipped": 1}
    assert kunit.counts("make: *** error\n") is None


def test_no_file_names_a_mirror_or_this_machine():
    bad = re.compile(r"deb\.debian\.org|pypi\.org|/work/|/root/")
    there = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=util.ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    for path in map(util.ROOT.joinpath, there):
        if path.is_file() and path.suffix not in (".png", ".pyc") and path.name != "test_figures.py":
            assert not bad.search(path.read_text(errors="replace")), path
