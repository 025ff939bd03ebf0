# SPDX-License-Identifier: GPL-2.0
"""Experiments as data: what is wrong with one is said in a line; what is right gives points, scripts and figures."""

import json
import pathlib
import re
import types
from collections import Counter

import pytest
from conftest import Fail

from testbed import util
from testbed.experiments import cost, experiment, guest, run, sweep
from testbed.experiments.nfs import fio, load, nfsload, queue, realtime, scenarios, server, trace, work
from testbed.series import applied, topics
from testbed.series.base import git

HEAD = 'kind = "{}"\nmachine = "{}"\nrepeats = 1\ntitle = "T"\nquestion = "Q"\n'
SERVER = '[server]\nlibrary = "one/lib.sh"\nthreads = 2\nservice_ns = 1\ndisk_mb = 512\n[files]\nbulk = "64M"\n'
LOAD = (
    HEAD.format("load", "sim") + SERVER + '[sweep]\nK = [0, 4]\n[load]\nversion = "3"\n'
    'groups = ["bulk:conns={K},window=8,file=bulk", "i:burst=32,pause=50ms,count=20,file=bulk"]\n'
)
SCENARIOS = (
    HEAD.format("scenarios", "sim")
    + SERVER
    + """
[load]
version = "3"
[tables]
rules = { base = "base", chosen = "patched" }
[[scenarios]]
name = "a"
title = "beside {K}"
sweep = { K = [0, 4] }
groups = ["bulk:conns={K},window=8,file=bulk", "i:burst=32,count=20,file=bulk"]
metrics = [
    { what = "burst", of = "i", floor = { K = 0 }, max = [1.5] },
    { what = "rate", base = true, skip = { K = 0 }, min = 0.99 },
    { what = "queued", title = "queued", max = "base" },
]
[[scenarios]]
name = "b"
title = "b"
groups = ["i:burst=32,count=20,file=bulk"]
metrics = [{ what = "burst", of = "i", floor = { scenario = "a", K = 0 } }]
"""
)
QUEUE = (
    HEAD.format("queue", "sim")
    + SERVER
    + '[sweep]\nthreads = [1, 2]\nK = [1]\n[load]\nversion = "3"\ngroups = ["l:conns={K},window=8,count=1,file=bulk"]\n'
)
WORK = (
    HEAD.format("work", "sim").replace("repeats = 1", "repeats = 2")
    + SERVER
    + """
[work]
prepare = "mkdir tree"
background = "fio &"
mounts = [{ name = "v3", path = "$EXPORT", options = "vers=3" }]
[work.tasks]
find = "find tree"
"""
)
FIO = (
    HEAD.format("fio", "sim")
    + SERVER
    + '[fio]\njobs = "[one]\\nrw=read\\n"\nmounts = [{ name = "m", address = "::1", path = "/", options = "ro" }]\n'
)
GUEST = (
    HEAD.format("guest", "sim")
    + "[sweep]\ndepth = [1, 2]\n[guest]\nscript = 'x {depth} ${A} {print} >/results/{point}.json'\n"
    '[[metrics]]\ntitle = "I/O"\nfield = "a.iops"\nmin = 3\n'
)
COST = (
    HEAD.format("cost", "sim")
    + 'exact = false\nkernels = ["base"]\n[cost]\npatch = "c.patch"\nmodule = "c"\nwhat = "w"\nbegin = "b"\nend = "e"\n'
    'rounds = 256\ncycles = ["1"]\n[cost.instructions]\nidle = "1 idle"\n'
)
COUNTS = (
    HEAD.format("counts", "host")
    + '[kernels]\nbefore = "one:1"\nafter = "one"\n[counts]\nprogram = "count.c"\nshim = "shim.h"\nshimmed = []\n'
    'sources = ["lib/a.c"]\nheaders = ["a.h"]\ndepths = [1]\npass_depths = [1]\npasses = 10\n'
)
REALTIME = (
    HEAD.format("realtime", "smp")
    + 'exact = false\n[kernels]\nbefore = "before one"\nafter = "one"\n[benchmark]\npatch = "b.patch"\nsuite = "s"\n'
    'options = ["CONFIG_B=y"]\n'
    + SERVER
    + '[load]\npatch = "l.patch"\nmeasure = "/sys/m"\nversion = "3"\n'
    + 'groups = ["l:window=8,count=1,file=bulk"]\nthreads = [8]\n'
)
RIGHT = {
    "load": LOAD,
    "scenarios": SCENARIOS,
    "queue": QUEUE,
    "work": WORK,
    "fio": FIO,
    "guest": GUEST,
    "cost": COST,
    "counts": COUNTS,
    "realtime": REALTIME,
}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """write(text, name): an experiment of the topic `one`, which has two patches and selftests of its own."""
    home = tmp_path / "topics" / "one"
    monkeypatch.setattr(topics, "TOPICS", home.parent)
    for path, text in {
        "topic.toml": 'title = "One"\nstate = "draft"\nlists = []\nselftests = ["one"]\n',
        "patches/series": "1.patch\n2.patch\n",
        "patches/1.patch": "",
        "patches/2.patch": "",
        "experiments/e/c.patch": "",
        "experiments/e/b.patch": "",
        "experiments/e/l.patch": "",
        "experiments/e/count.c": "",
        "experiments/e/shim.h": "",
    }.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text)

    def one(text, name="e"):
        (home / "experiments" / f"{name}.toml").write_text(text)
        return experiment.find(name)

    one.home = home
    return one


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_what_is_right_is_taken(write, text):
    found = write(text)
    assert found.points and found.content and found.kernels
    assert experiment.all_of_them()


# {what is wrong: (what is right, the text that is replaced, its replacement, what the line has to say)}
WRONG = {
    "no TOML": (LOAD, "[load]", "[load", "e.toml: not TOML"),
    "no kind": (LOAD, 'kind = "load"\n', "", "kind: is missing; there are: cost, counts, fio"),
    "unknown kind": (LOAD, '"load"', '"laod"', "'laod' is no kind of measurement .meant: load"),
    "unknown key": (LOAD, "repeats = 1", 'repeats = 1\nquestoin = ""', "unknown key questoin .meant: question"),
    "unknown key of a table": (
        LOAD,
        "threads = 2",
        "threads = 2\nthread = 2",
        "server: unknown key thread .meant: threads",
    ),
    "old word": (SCENARIOS, "max = [1.5]", "most = [1.5]", "unknown key most"),
    "wrong type": (LOAD, "threads = 2", 'threads = "2"', "server.threads: '2' is not of type integer"),
    "no threads": (LOAD, "threads = 2", "threads = 0", "server.threads: 0 is less than the minimum of 1"),
    "negative": (LOAD, "service_ns = 1", "service_ns = -1", "server.service_ns: -1 is less than"),
    "negative readahead": (LOAD, "service_ns = 1", "read_ahead_kb = -1", "server.read_ahead_kb: -1 is less than"),
    "no machine": (LOAD, 'machine = "sim"\n', "", "lacks machine"),
    "no repeats": (LOAD, "repeats = 1\n", "", "lacks repeats"),
    "repeats of none": (WORK, "repeats = 2", "repeats = 0", "repeats: 0 is less than"),
    "repeats of a load": (LOAD, "repeats = 1", "repeats = 3", "two runs of a load give the same figures"),
    "unknown machine": (
        LOAD,
        'machine = "sim"',
        'machine = "x68"',
        "machine: x68 is none that the kind load measures on .meant: x86",
    ),
    "machine without a trace": (
        QUEUE,
        'machine = "sim"',
        'machine = "smp"',
        "smp is none that the kind queue measures on",
    ),
    "unknown kernel": (
        LOAD,
        "repeats = 1",
        'repeats = 1\nkernels = ["base", "pached"]',
        "there is no kernel pached .meant: patched",
    ),
    "kernel of an unknown topic": (COUNTS, 'after = "one"', 'after = "before two"', "there is no kernel before two"),
    "kernel of a patch there is not": (COUNTS, '"one:1"', '"one:3"', "one has 2 patches"),
    "kernel of no patch": (COUNTS, '"one:1"', '"one:0"', "one has 2 patches"),
    "no kernel": (LOAD, "repeats = 1", "repeats = 1\nkernels = []", "kernels: "),
    "variant without a patch": (LOAD, "repeats = 1", 'repeats = 1\nvariants = ["rfc"]', "names rfc.patch; there is no"),
    "variant without a value": (
        LOAD,
        "repeats = 1",
        'repeats = 1\nvariants = ["b=3"]',
        "b.patch has no VALUE to fill in",
    ),
    "unknown model": (LOAD, 'kind = "load"', 'like = "f"', "like: there is no experiment f"),
    "like itself": (LOAD, 'kind = "load"', 'like = "e"', "like: e is like e: no end"),
    "empty sweep": (LOAD, "K = [0, 4]", "K = []", "sweep.K: "),
    "the same value twice": (LOAD, "K = [0, 4]", "K = [4, 4]", "sweep.K: .*non-unique"),
    "negative value": (LOAD, "K = [0, 4]", "K = [0, -4]", "sweep.K.1.: -4 is less than"),
    "a name that is not used": (LOAD, "K = [0, 4]", "K = [0, 4]\nN = [1]", "sweep.N is not used"),
    "a name that is not given": (LOAD, "window=8", "window={W}", "{W} is no name of the sweep's"),
    "a brace too many": (LOAD, "window=8", "window=8}", "a brace that is meant is written twice"),
    "no groups": (
        LOAD,
        '\ngroups = ["bulk:conns={K},window=8,file=bulk", "i:burst=32,pause=50ms,count=20,file=bulk"]',
        "",
        "load: lacks groups",
    ),
    "groups and scenarios": (SCENARIOS, 'version = "3"', 'version = "3"\ngroups = ["x"]', "load: unknown key groups"),
    "files too large": (LOAD, "disk_mb = 512", "disk_mb = 64", "files of 64 MiB do not fit on a disk of 64 MiB"),
    "a size that is none": (LOAD, '"64M"', '"64m"', "files.bulk: a file's size is a number of bytes"),
    "a library of no selftests": (
        LOAD,
        "one/lib.sh",
        "two/lib.sh",
        "server.library: two/lib.sh is of no selftests of one",
    ),
    "unknown scenario": (
        SCENARIOS,
        'scenario = "a", K',
        'scenario = "c", K',
        "floor: there is no scenario c .meant|floor: there is no scenario c",
    ),
    "a floor of no point": (
        SCENARIOS,
        "floor = { K = 0 }",
        "floor = { K = 1 }",
        "floor: K = 1 is no point of the sweep .0, 4",
    ),
    "a floor of no name": (SCENARIOS, "floor = { K = 0 }", "floor = { N = 1 }", "floor: N = 1 is no point"),
    "a floor of many points": (SCENARIOS, 'scenario = "a", K = 0', 'scenario = "a"', "floor: says nothing of K"),
    "a skip that leaves none": (
        SCENARIOS,
        "sweep = { K = [0, 4] }",
        "sweep = { K = [0] }",
        "skip or floor leaves no point to show",
    ),
    "two scenarios of a name": (SCENARIOS, 'name = "b"', 'name = "a"', "there are two scenarios a"),
    "a scenario named in a sweep": (SCENARIOS, "sweep = { K", "sweep = { scenario = [1], K", "scenarios.*sweep"),
    "unknown metric": (SCENARIOS, 'what = "rate"', 'what = "rates"', "'rates' is not one of"),
    "a metric of no group": (
        SCENARIOS,
        'of = "i", floor = { K = 0 }',
        'of = "j", floor = { K = 0 }',
        "of: there is no group j at a-K4",
    ),
    "a metric that needs a group": (
        SCENARIOS,
        'what = "burst", of = "i", floor = { K = 0 }',
        'what = "burst", floor = { K = 0 }',
        "metric burst: needs of: a group",
    ),
    "a metric that has no group": (SCENARIOS, 'what = "rate"', 'what = "rate", of = "i"', "metric rate: has no of"),
    "a burst of a window": (
        SCENARIOS,
        'of = "i", floor = { K = 0 }, max',
        'of = "bulk", floor = { K = 0 }, max',
        "the group bulk has no burst=",
    ),
    "limits that are too many": (SCENARIOS, "max = [1.5]", "max = [1.5, 2]", "max has 2 numbers for 1 points .a-K4"),
    "a limit that is a word": (SCENARIOS, 'max = "base"', 'max = "best"', "min and max are a number"),
    "a title with a name not given": (SCENARIOS, "beside {K}", "beside {L}", "{L} is no name of the sweep's"),
    "a table of an unknown kernel": (
        SCENARIOS,
        'chosen = "patched"',
        'chosen = "rfc"',
        "tables.rules.chosen: there is no kernel rfc",
    ),
    "scenarios without tables": (
        SCENARIOS,
        '[tables]\nrules = { base = "base", chosen = "patched" }\n',
        "",
        "lacks tables",
    ),
    "headline of two sweeps": (
        LOAD,
        "K = [0, 4]",
        'K = [0, 4]\nN = [1]\n[headline]\nof = "i"\ntitle = "t"\nacross = "a"\nup = "u"\ncaption = "c"',
        "sweep.N is not used",
    ),
    "headline of no group": (
        LOAD,
        "[load]",
        '[headline]\nof = "x"\ntitle = "t"\nacross = "a"\nup = "u"\ncaption = "c"\n[load]',
        "headline: of: there is no group x",
    ),
    "headline that is not alone": (
        LOAD.replace("[0, 4]", "[1, 4]"),
        "[load]",
        '[headline]\nof = "i"\ntitle = "t"\nacross = "a"\nup = "u"\ncaption = "c"\n[load]',
        "the sweep's first value is to leave i alone",
    ),
    "threads of none": (QUEUE, "threads = [1, 2]", "threads = [0]", "sweep.threads: 0 is no number of nfsd threads"),
    "two mounts of a name": (
        WORK,
        "mounts = [",
        'mounts = [{ name = "v3", path = "/", options = "ro" }, ',
        "there are two mounts v3",
    ),
    "no task": (WORK, 'find = "find tree"\n', "", "work.tasks: "),
    "no mounts": (FIO, 'mounts = [{ name = "m", address = "::1", path = "/", options = "ro" }]\n', "", "lacks mounts"),
    "jobs that are none": (FIO, "[one]", "[global]", "fio.jobs has no job"),
    "jobs that are no file": (FIO, "[one]", "one", "fio.jobs is no job file"),
    "two jobs of a name": (FIO, "[one]", "[one]\\n[one]", "there are two jobs one"),
    "a script that leaves nothing": (GUEST, "{point}.json", "x.json", "leaves no figures"),
    "a script that uses not all": (GUEST, "x {depth}", "x", "sweep.depth is not used"),
    "no metric": (GUEST, '[[metrics]]\ntitle = "I/O"\nfield = "a.iops"\nmin = 3\n', "", "lacks metrics"),
    "a field that is none": (GUEST, '"a.iops"', '"a b"', "metrics.0..field: "),
    "turns on simulated time": (GUEST, "repeats = 1", "repeats = 3", "repeats: it is 1 on simulated time"),
    "a multiple of nothing": (
        GUEST.replace("[sweep]", 'kernels = ["base"]\n[sweep]'),
        "min = 3",
        "over_first = true",
        "over_first needs a kernel beside the first",
    ),
    "a fragment that is not there": (GUEST, "repeats = 1", 'repeats = 1\nconfig = "x.config"', "names x.config"),
    "a package that is none": (GUEST, "[sweep]", "[packages]\nganesha = 1\n[sweep]", "packages.ganesha: 1 is not"),
    "a patch that is not there": (COST, "c.patch", "d.patch", "names d.patch; there is no"),
    "a program that is not there": (COUNTS, '"count.c"', '"main.c"', "names main.c; there is no"),
    "counts of one kernel": (COUNTS, 'before = "one:1"\n', "", "compares two, before and after"),
    "an option that is none": (REALTIME, "CONFIG_B=y", "B", "benchmark.options"),
    "real time that is exact": (REALTIME, "exact = false", "exact = true", "say exact = false"),
}


@pytest.mark.parametrize("right, old, new, said", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_one_line(write, right, old, new, said):
    assert old in right
    with pytest.raises(Fail, match=said) as fail:
        write(right.replace(old, new))
    assert len(str(fail.value).splitlines()) == 1 and "experiments/e.toml" in str(fail.value)


def test_an_unknown_experiment_lists_those_there_are():
    with pytest.raises(Fail, match=r"there is no experiment flor \(meant: floor\?\); there are: .*floor"):
        experiment.find("flor")


def test_a_name_stands_once_among_all_topics(write):
    write(FIO)
    other = write.home.with_name("two")
    for path in ("topic.toml", "patches/series", "patches/1.patch", "patches/2.patch", "experiments/e.toml"):
        (other / path).parent.mkdir(parents=True, exist_ok=True)
        (other / path).write_text((write.home / path).read_text())
    with pytest.raises(Fail, match="one/experiments/e.toml has the same name"):
        experiment.find("e")


@pytest.mark.parametrize("key", ["readme", "quotes"])
def test_a_topic_names_experiments_there_are(write, key):
    write(FIO)
    toml = write.home / "topic.toml"
    toml.write_text(toml.read_text() + f'{key} = ["ee"]\n')
    with pytest.raises(Fail, match=rf"topic.toml: {key}: there is no experiment ee \(meant: e\?\)"):
        experiment.all_of_them()


def test_names_may_be_joined_by_commas_and_none_means_all():
    assert experiment.names(["a", "b", "c", "a"]) == ["a", "b", "c"]
    assert experiment.names() == sorted(experiment.everywhere())
    have = experiment.everywhere()
    some = next(iter(have.values()))[0].name
    assert set(experiment.names(topics=[some])) == {name for name, (topic, _) in have.items() if topic.name == some}
    none = next(topic.name for topic in topics.series() if topic not in [of for of, _ in have.values()])
    with pytest.raises(Fail, match=f"T={none}: topics/{none}/experiments/ has no experiment"):
        experiment.names(topics=[none])


def test_every_experiment_of_the_repository_is_right():
    assert {one.name for one in experiment.all_of_them()} == set(experiment.everywhere())


def test_the_labels_of_an_experiment_differ():
    for one in experiment.all_of_them():
        assert len({sweep.label(point) for point in one.points}) == len(one.points)


@pytest.mark.parametrize(
    "name", sorted(name for name in experiment.everywhere() if hasattr(experiment.find(name).kind, "script"))
)
def test_every_experiment_that_boots_makes_a_script(name):
    found = experiment.find(name)
    assert "nfsd_start" in found.kind.script(found, "/selftests") or "server" not in found.data


def test_an_experiment_without_nfs_has_no_server(write):
    script = guest.script(write(GUEST), "")
    assert "nfsd" not in script and "mount" not in script


def test_what_is_not_said_is_as_it_is_there(write):
    write(LOAD, "model")
    found = write('like = "model"\ntitle = "other"\n[server]\nthreads = 9\n')
    assert found.title == "other" and found.data["server"] == {**experiment.find("model").data["server"], "threads": 9}


def test_the_content_is_what_is_measured_and_not_how_it_is_shown(write):
    before = write(SCENARIOS).content
    assert write(SCENARIOS.replace('title = "T"', 'title = "U"').replace("max = [1.5]", "max = [2]")).content == before
    assert write("# a comment\n" + SCENARIOS).content == before
    assert write(SCENARIOS.replace("window=8", "window=4")).content != before
    assert write(SCENARIOS.replace('machine = "sim"', 'machine = "smp"')).content != before
    assert write(SCENARIOS).content == before
    (write.home / "experiments/e/c.patch").write_text("+1\n")
    assert write(SCENARIOS).content != before


# What nfsload refuses, in its words.

# What of the kernel's own header it needs.
KSELFTEST = """\
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define __printf(a, b) __attribute__((format(printf, a, b)))
#define __noreturn __attribute__((noreturn))
"""
LOADS = [one for one in experiment.all_of_them() if hasattr(one.kind, "ready")]


@pytest.fixture(scope="module")
def selftests(tmp_path_factory):
    """The selftests' directories that experiments find nfsload in, with nfsload as the series has it; `one` is one."""
    place = tmp_path_factory.mktemp("selftests")
    for home in {one.data["server"]["library"].partition("/")[0] for one in LOADS}:
        sources = re.compile(rf"{topics.SELFTESTS}{home}/(nfsload|nfs|rpc)\.[ch]")
        for patch in (path for topic in topics.series() for path in topic.own):
            if names := list(filter(sources.fullmatch, topics.changes(patch))):
                git(place, "apply", *(f"--include={name}" for name in names), patch)
        where = place / topics.SELFTESTS / home
        (where / "kselftest.h").write_text(KSELFTEST)
        util.run("gcc", "-o", "nfsload", "nfsload.c", "nfs.c", "rpc.c", cwd=where)
        (place / topics.SELFTESTS / "one").symlink_to(where)
    return place / topics.SELFTESTS


@pytest.mark.parametrize("one", LOADS, ids=lambda one: one.name)
def test_nfsload_takes_the_loads_of_the_repository(selftests, one):
    one.kind.ready(one, selftests)


@pytest.mark.parametrize(
    "right, old, new, said",
    [
        (LOAD, "K = [0, 4]", "K = [0, 5000]", "at K5000, nfsload would refuse this: .*conns=5000 is not between 1 and"),
        (LOAD, "count=20,", "", "one group at least needs a count="),
        (LOAD, '"3"', '"4.3"', "'4.3' is not one of 3 4.0 4.1 4.2"),
        (SCENARIOS, "window=8", "windows=8", "at a-K4, nfsload would refuse this: .*no key 'windows'"),
        (QUEUE, "window=8", "window=0", "nfsload would refuse this: usage:"),
        (REALTIME, "window=8", "window=8,pause=1", "pause='1' is not a time"),
    ],
    ids=["connections", "no end", "version", "key", "no group", "time"],
)
def test_a_load_that_nfsload_would_refuse_is_one_line(selftests, write, right, old, new, said):
    assert old in right
    found = write(right.replace(old, new))
    with pytest.raises(Fail, match=said) as fail:
        found.kind.ready(found, selftests)
    assert len(str(fail.value).splitlines()) == 1 and "experiments/e.toml" in str(fail.value)


def test_a_load_is_refused_before_a_kernel_is_built(filled, write, selftests, tmp_path, monkeypatch):
    found = write(LOAD.replace("count=20,", ""))
    monkeypatch.setattr(run.kernel, "selftests", lambda base: selftests)
    monkeypatch.setattr(run, "kernels", lambda *_: pytest.fail("a kernel was built"))
    with pytest.raises(Fail, match="one group at least needs a count="):
        run.boots(found, filled, tmp_path)


def test_what_is_known_of_a_group_is_its_name_and_whether_it_sends_bursts():
    assert nfsload.bursts(["a:conns=4,window=8,file=f", "b:burst=32,count=2"]) == {"a": False, "b": True}


# Points and scripts.


def test_a_sweep_is_every_combination():
    assert sweep.combinations({"K": [0, 4], "N": [1, 2]}) == [
        {"K": 0, "N": 1},
        {"K": 0, "N": 2},
        {"K": 4, "N": 1},
        {"K": 4, "N": 2},
    ]
    assert sweep.combinations({}) == [{}] and sweep.label({}) == "all" and sweep.label({"K": 4, "N": 1}) == "K4-N1"


def test_a_group_without_connections_is_left_out(write):
    found = write(LOAD)
    assert load.groups(found, {"K": 0}) == ["i:burst=32,pause=50ms,count=20,file=bulk"]
    assert load.groups(found, {"K": 10})[0] == "bulk:conns=10,window=8,file=bulk"


def test_a_scenario_has_a_sweep_of_its_own(write):
    found = write(SCENARIOS)
    assert found.points == [{"scenario": "a", "K": 0}, {"scenario": "a", "K": 4}, {"scenario": "b"}]
    assert [sweep.label(point) for point in found.points] == ["a-K0", "a-K4", "b"]
    assert [len(scenarios.groups(found, point)) for point in found.points] == [1, 2, 1]


def test_a_guests_script_fills_in_the_sweep_and_leaves_the_shell_its_braces(write):
    found = write(GUEST)
    script = guest.script(found, "")
    assert "x 2 ${A} {print} >/results/depth2.json" in script and script.count("|| exit 1") == 2


def test_what_prepares_a_guest_may_use_the_selftests(write):
    prepare = 'prepare = ". /host{selftests}/nfsd/lib.sh; a() { b; }"\nscript = '
    script = guest.script(write(GUEST.replace("script = ", prepare)), "/place")
    assert ". /host/place/nfsd/lib.sh; a() { b; }\n" in script


def test_what_prepares_a_guest_may_go_through_the_sweep(write):
    prepare = 'prepare = "for depth in {depth}; do a ${depth}; done"\nscript = '
    script = guest.script(write(GUEST.replace("script = ", prepare)), "/place")
    assert script.startswith("#!/bin/bash\nfor depth in 1 2; do a ${depth}; done\n(\n")


def test_work_is_done_alone_before_the_background_begins(write):
    script = work.script(write(WORK), "/s")
    assert script.index("piece v3-nothing-find-1") < script.index("fio &") < script.index("piece v3-bulk-find-0")


def test_kernels_are_named_by_what_they_are_made_of(write):
    assert write(LOAD).kernels == {"base": "base", "patched": "patched"}
    assert write(COUNTS).kernels == {"before": "one:1", "after": "one"}
    assert write(COST).kernels == {"base": "base"}


def test_a_variant_is_a_patch_with_its_value_filled_in(write):
    (write.home / "experiments/e/plain.patch").write_text("+64\n")
    (write.home / "experiments/e/budget.patch").write_text("+VALUE\n")
    found = write(LOAD.replace("repeats = 1", 'repeats = 1\nvariants = ["plain", "budget=16"]'))
    assert found.variants() == {"plain": "+64\n", "budget=16": "+16\n"} and list(found.kernels) == [
        "base",
        "patched",
        "plain",
        "budget=16",
    ]


PATCH = "--- a/net/queue.c\n+++ b/net/queue.c\n@@ -8,3 +8,3 @@\n line 7\n-line 8\n+line eight\n line 9\n"


def test_a_variant_is_patched_with_one_patch_more_and_made_once(filled):
    where = applied.commits(filled)
    made = applied.variant(filled, where["patched"], "eight", PATCH)
    assert git(filled.repo, "diff", "--name-only", where["patched"], made).stdout == "net/queue.c\n"
    assert "+line eight" in git(filled.repo, "show", made).stdout
    assert applied.variant(filled, where["patched"], "eight", PATCH) == made
    assert applied.variant(filled, where["base"], "eight", PATCH) != made


def test_a_variant_that_does_not_apply_says_which(filled):
    with pytest.raises(Fail, match="variant wrong does not apply"):
        applied.variant(filled, applied.commits(filled)["patched"], "wrong", PATCH.replace("line 8", "line 88"))


def test_kernels_are_of_the_series_up_to_a_topic_of_a_topic_alone_and_of_its_first_patches(filled):
    what = {"b": "base", "p": "patched", "until": "before two", "alone": "one", "first": "one:1"}
    found = run.commits(filled, types.SimpleNamespace(kernels=what, variants=dict))

    def files(name):
        return git(filled.repo, "diff", "--stat", filled.commit, found[name]).stdout

    def queue_c(name):
        return git(filled.repo, "show", f"{found[name]}:net/queue.c").stdout

    assert not files("b") and "net/new.c" in files("p")
    assert "net/new.c" not in files("until") and "line twenty" in queue_c("until")
    assert "line twenty" in queue_c("alone")
    assert "line three" in queue_c("first") and "line twenty" not in queue_c("first")


# Figures.


def test_a_run_with_errors_is_no_result(write, tmp_path):
    (tmp_path / "K0.json").write_text(json.dumps({"groups": [{"name": "bulk", "errors": {"nfs": 1, "rpc": 0}}]}))
    with pytest.raises(Fail, match="bulk"):
        load.read(write(LOAD), tmp_path, {"K": 0})


def test_what_the_pools_counted_is_a_difference(tmp_path):
    head = "# pool packets-arrived sockets-enqueued threads-woken threads-timedout\n"
    (tmp_path / "K4.pool").write_text(f"{head}0 10 20 5 0\n1 1 1 1 0\n{head}0 13 27 6 0\n1 2 3 1 0\n")
    assert nfsload.pool(tmp_path, {"K": 4}) == {
        "received": 4,
        "queued": 9,
        "woken": 1,
    }


def event(name, client="10.0.0.1:7", flags="DATA|TEMP", who="client"):
    return f"  nfsd-1 [000] ..... 1.0: {name}: server=10.0.0.1:2049 {who}={client} flags={flags} qtime-us=0"


def test_depth_is_what_is_in_flight_when_a_transport_is_queued():
    read = [event("svc_xprt_enqueue"), event("svc_xprt_dequeue", flags="BUSY|DATA")]
    # two requests, the second queued with the first in flight, an empty poll, and one that finds nothing in flight
    lines = [
        *read,
        *read,
        event("svc_xprt_enqueue"),
        event("svc_xprt_dequeue"),
        event("svcsock_tcp_recv_eagain", who="addr"),
        event("svc_send"),
        event("svc_send"),
        *read,
        event("svc_send"),
    ]
    assert trace.depth(lines) == {"requests": 3, "queued": 4, "idle": 2}


def test_what_is_not_queued_is_not_counted():
    assert trace.depth(
        [event("svc_xprt_enqueue", flags="BUSY|DATA"), event("svc_xprt_enqueue", flags="TEMP"), "# a comment"]
    ) == {"requests": 0, "queued": 0, "idle": 0}


def test_transports_are_told_apart():
    lines = [
        event(name, client)
        for client in ("10.0.0.1:7", "10.0.0.1:8")
        for name in ("svc_xprt_enqueue", "svc_xprt_dequeue")
    ]
    assert trace.depth(lines) == {"requests": 0, "queued": 2, "idle": 2}


def test_a_request_of_before_the_trace_is_no_debt():
    assert trace.depth([event("svc_send"), event("svc_xprt_enqueue")]) == {"requests": 1, "queued": 1, "idle": 1}


def test_the_queues_length_is_what_was_queued_and_not_dequeued(tmp_path):
    (tmp_path / "q.lost").write_text("overrun: 0\n")
    (tmp_path / "q.queue").write_text(
        "svc_xprt_enqueue DATA\n" * 3 + "svc_xprt_enqueue BUSY|DATA\n" + "svc_xprt_dequeue BUSY|DATA\n" * 3
    )
    assert queue.waiting(tmp_path / "q", {"queued": 3}) == {
        "queued": 3,
        "longest": 3,
        "median": 2,
        "refills": 1,
        "refill": 3,
    }
    with pytest.raises(Fail, match="the trace has 3 transports queued and 0 left; the server counted 4"):
        queue.waiting(tmp_path / "q", {"queued": 4})


def test_work_that_lost_events_is_no_result(write, tmp_path):
    (tmp_path / "v3-bulk-find-0.lost").write_text("overrun: 3\n")
    with pytest.raises(Fail, match="larger buffer"):
        work.read(write(WORK), tmp_path, {"mount": "v3", "background": "bulk", "task": "find"})


def test_the_repeats_of_a_piece_of_work_are_put_together(write, tmp_path):
    for turn, us in enumerate((30, 10)):
        (tmp_path / f"v3-bulk-find-{turn}.lost").write_text("overrun: 0\n")
        (tmp_path / f"v3-bulk-find-{turn}.us").write_text(f"{us}\n")
        (tmp_path / f"v3-bulk-find-{turn}.trace").write_text(event("svc_xprt_enqueue") + "\n")
    assert work.read(write(WORK), tmp_path, {"mount": "v3", "background": "bulk", "task": "find"}) == {
        "elapsed_ns": [10000, 30000],
        "requests": 0,
        "queued": 2,
        "idle": 2,
    }


def test_fio_results_keep_only_what_simulated_time_decides():
    spread = {"mean": 1.4, "max": 9, "percentile": {"50.000000": 1, "90.000000": 2, "99.000000": 3, "99.900000": 4}}
    job = {"jobname": "j", "error": 0, "elapsed": 7, "read": {"total_ios": 5, "clat_ns": spread}}
    kept = {"jobs": [{"name": "j", "ios": 5, "latency_ns": {"mean": 1, "max": 9, "p50": 1, "p90": 2, "p99": 3}}]}
    assert fio.figures({"time": 1, "jobs": [job]}) == kept
    assert fio.figures({"jobs": [{"jobname": "j", "error": 0, "read": {"total_ios": 0}, "write": job["read"]}]}) == kept
    for bad, said in (
        ({**job, "error": 5}, "job j failed"),
        ({**job, "read": {"total_ios": 0}}, "done nothing"),
        ({**job, "write": job["read"]}, "both READs"),
    ):
        with pytest.raises(Fail, match=said):
            fio.figures({"jobs": [bad]})


def test_a_guests_figures_are_what_its_metrics_name(write, tmp_path):
    found = write(GUEST)
    (tmp_path / "depth1.json").write_text('{"a": {"iops": 2.5}}')
    assert guest.read(found, tmp_path, {"depth": 1}) == {"a": {"iops": 2.5}}
    result = {name: [{"depth": depth, "a": {"iops": 2 * depth}} for depth in (1, 2)] for name in ("base", "patched")}
    (table,) = guest.metrics(found, result)
    assert (table.head, table.rows) == (["depth", "I/O, base", "I/O, patched"], [[1, "2 !", "2 !"], [2, "4", "4"]])
    for text, said in (
        ("{}", "has no a.iops"),
        ('{"a": {"iops": "2"}}', "is no number"),
        ("2", "no JSON object"),
        ("{", "left no JSON"),
        ('{"depth": 1, "a": {"iops": 1}}', "a name of the sweep's"),
    ):
        (tmp_path / "depth1.json").write_text(text)
        with pytest.raises(Fail, match=said):
            guest.read(found, tmp_path, {"depth": 1})


def test_on_real_time_a_guests_figures_are_of_all_turns(write, tmp_path, monkeypatch):
    text = GUEST.replace('"sim"', '"smp"').replace("repeats = 1", "repeats = 3").replace("[1, 2]", "[1]")
    found = write(text + '[[metrics]]\ntitle = "times"\nfield = "a.iops"\nover_first = true\n')
    turns = iter([(4, 5), (10, 20), (2, 3)])

    def boots(*_):
        return {name: [{"depth": 1, "a": {"iops": n}}] for name, n in zip(("base", "patched"), next(turns))}

    monkeypatch.setattr(guest.run, "boots", boots)
    result = guest.measure(found, None, tmp_path)
    assert result["base"] == [{"depth": 1, "a": {"iops": [4, 10, 2]}}]
    (table,) = guest.metrics(found, result)
    assert table.head == ["depth", "I/O, base", "I/O, patched", "times, patched"]
    assert table.rows == [[1, "4 (2-10)", "5 (3-20)", "1.5 (1.25-2)"]]


def test_an_experiment_may_have_options_of_its_own(write):
    (write.home / "experiments/e/more.config").write_text("CONFIG_A=y\n")
    usual = write(GUEST).flavour()
    found = write(GUEST.replace("[sweep]", 'config = "more.config"\n[sweep]')).flavour()
    assert [path.name for path in found.fragments if path not in usual.fragments] == ["more.config"]
    assert found.kind == usual.kind


def test_bars_are_of_the_fields_they_name(write):
    bars = '[bars]\ntitle = "T"\nup = "U"\nfloor_name = "F"\nfields = { fast = "a.iops" }\n'
    found = write(GUEST.replace("[sweep]", 'kernels = ["base"]\n[sweep]') + bars)
    drawn = guest.picture(found, {"base": [{"depth": depth, "a": {"iops": 2 * depth}} for depth in (1, 2)]})
    assert drawn and (drawn.ticks, drawn.values) == (["1", "2"], {"fast": [2, 4]})
    with pytest.raises(Fail, match="bars: they are of one kernel; there are base, patched"):
        write(GUEST + bars)
    assert guest.picture(write(GUEST), {}) is None


def test_a_grid_has_a_line_for_each_kernel_and_value(write):
    sweep = '[sweep]\ndisk = ["d"]\nwhat = ["w"]\nmode = [0, 1]\nflight = [1, 8]\n'
    text = GUEST.replace("[sweep]\n", sweep).replace("{depth}", "{depth} {disk} {what} {mode} {flight}")
    grid = (
        '[grid]\ntitle = "T"\nfield = "a.iops"\nunit = 2\nrows = "disk"\ncolumns = "what"\n'
        'across = "depth"\nlines = "mode"\n'
        'at = { flight = 8 }\nnames = { 1 = "one" }\n'
    )
    found = write(text + grid)
    result = {
        kernel: [{**point, "a": {"iops": times * point["depth"] * point["flight"]}} for point in guest.points(found)]
        for kernel, times in (("base", 1), ("patched", 2))
    }
    lines = {"base": [4, 8], "patched": [8, 16]}
    drawn = guest.picture(found, result)
    assert drawn and (drawn.ticks, drawn.panels) == ([1, 2], {"d": {"w": {"0": lines, "one": lines}}})
    for old, new, said in (
        ("at = { flight = 8 }\n", "", "name each of the sweep once"),
        ('lines = "mode"', 'lines = "disk"', "name each of the sweep once"),
        ("flight = 8", "flight = 7", "grid.at.flight: 7 is no value of the sweep's"),
    ):
        with pytest.raises(Fail, match=said):
            write(text + grid.replace(old, new))


def test_instructions_are_counted_in_a_guest_that_is_prepared(write, tmp_path, monkeypatch):
    def count(*_):
        script = (tmp_path / "place.sh").read_text()
        assert script == '#!/bin/bash\nmkdir /tmp/d\necho "1 idle" >/sys/module/c/parameters/run\n'
        return [Counter(work=512, time_travel_update_time=9)]

    monkeypatch.setattr(cost.singlestep, "count", count)
    monkeypatch.setattr(cost.guest, "root", lambda: tmp_path)
    monkeypatch.setattr(cost.uml, "links", lambda *_: None)
    monkeypatch.setattr(cost.uml, "command", lambda *_, **__: ["x"])
    monkeypatch.setattr(cost.machines, "verdict", lambda *_: None)
    found = write(COST.replace('cycles = ["1"]', 'prepare = "mkdir /tmp/d"'))
    assert cost.instructions(found, pathlib.Path("x"), tmp_path / "place") == {"idle": {"work": 2}}
    counted = {"base": {"instructions": {"idle": {"work": 2}}}}
    assert [table.rows for table in cost.metrics(found, counted)] == [[["idle", "2"]]]


def test_cycles_are_the_fewest_of_a_round(write, tmp_path, monkeypatch):
    def boot(*_):
        (tmp_path / "cycles").write_text(
            "c: 1 threads, idle: 512 cycles for 256 rounds\nc: 1 threads, idle: 256 cycles for 256 rounds\n"
        )
        return tmp_path

    monkeypatch.setattr(cost, "boot", boot)
    assert cost.cycles(write(COST), pathlib.Path("x"), tmp_path / "place") == {"1 threads, idle": 1}


def test_a_benchmark_that_says_nothing_is_no_result():
    said = (
        "# depth     4 cold: lock held min 1 median 2\n"
        "# depth    16, handed over: min 1000 p10 2000 median 3000 p90 4000 max 5000 ps an entry\n"
        "# interrupts 10 held up 2 dequeues of 50; 3 found nothing\n# dequeues below 8 ns: 40\n"
    )
    assert realtime.benchmark(said) == {
        "held cold 4": 2,
        "least held cold 4": 1,
        "handed over, min 16": 1,
        "handed over, p10 16": 2,
        "handed over, median 16": 3,
        "handed over, p90 16": 4,
        "handed over, max 16": 5,
        "interrupts": 10,
        "held up": 2,
        "dequeues": 50,
        "found nothing": 3,
        "below 8": 40,
    }
    for cut in ("Kernel panic", said[: said.index("# interrupts")]):
        with pytest.raises(Fail, match="did not come to its end"):
            realtime.benchmark(cut)


def test_kernels_for_the_benchmark_alone_come_after_the_two_that_are_compared(write):
    other = REALTIME.replace('after = "one"\n', 'after = "one"\nmore = "one:1"\n')
    assert list(write(other).kernels) == ["before", "after", "more"]
    with pytest.raises(Fail, match="they come first, in this order"):
        write(REALTIME.replace("[kernels]\n", '[kernels]\nmore = "one:1"\n'))
    with pytest.raises(Fail, match="there is a kernel after already"):
        options = 'options = ["CONFIG_B=y"]\n'
        write(REALTIME.replace(options, options + 'instead = { after = "b.patch" }\n'))


def point(K, ns, requests):
    return {
        "scenario": "a",
        "K": K,
        "groups": [{"name": "i", "burst_ns": {"p50": ns}}],
        "pool": {"queued": 2 * requests},
        "total": {"requests": requests, "interval_requests": requests, "interval_ns": 10**9},
    }


def test_a_metric_is_a_multiple_of_its_floor_and_what_is_not_as_wanted_is_marked(write):
    last = {**point(0, 30, 1), "scenario": "b"}
    result = {
        "base": [point(0, 20, 100), point(4, 110, 100), last],
        "patched": [point(0, 20, 100), point(4, 30, 98), last],
    }
    found = scenarios.lines(write(SCENARIOS), result)
    assert [(line.title, line.values) for line in found[:2]] == [
        ("beside 4", {"base": 5.5, "patched": 1.5}),
        ("beside 4", {"base": 1, "patched": 0.98}),
    ]
    # The floor may be in another scenario
    assert found[-1].values == {"base": 1.5, "patched": 1.5}
    (table,) = scenarios.metrics(write(SCENARIOS), result)
    assert table.rows[0][2:] == ["5.5 !", "1.5"] and table.rows[1][2:] == ["1", "0.98 !"]


def test_every_rule_is_wanted_and_says_what_it_is():
    """A variant's patch that no variant names is left over."""
    for one in experiment.all_of_them():
        if one.data.get("variants"):
            assert {path.stem for path in one.place.glob("*.patch")} == {
                name.partition("=")[0] for name in one.data["variants"]
            }
            for patch in one.variants().values():
                assert not patch.startswith("diff") and "\ndiff --git a/" in patch and "VALUE" not in patch


def test_a_files_size_is_in_bytes(write):
    assert server.sizes(write(LOAD.replace('"64M"', '"64M"\na = "3k"\nb = "7"'))) == {
        "bulk": 64 << 20,
        "a": 3072,
        "b": 7,
    }


def test_a_disk_has_the_readahead_that_is_asked_for_before_there_is_a_file(write):
    lines = server.made(write(LOAD.replace("service_ns = 1", "service_ns = 1\nread_ahead_kb = 0")), "/s")
    assert lines[1:] == ["nfsd_disk 512 1", "echo 0 >/sys/block/$DISK/queue/read_ahead_kb", "nfsd_file bulk 64M"]
    assert not [line for line in server.made(write(LOAD), "/s") if "read_ahead_kb" in line]
