# SPDX-License-Identifier: GPL-2.0
"""Loads that are drawn: the same for the same seed, judged by what is promised, kept as they come, and made small."""

import dataclasses
import json
import pathlib
import re
import shutil
import types

import pytest

from testbed import schema
from testbed.experiments import origin
from testbed.suites import verdicts
from testbed.swarm import draw, faults, guests, judge, modes, mutants, paths, promises, report, run, server, shrink
from testbed.util import Fail, Tally

TOML = """
world = "server"
title = "T"
question = "Q"
library = "one/lib.sh"
gate = [1, 2]
[sides]
base = "base"
patched = "patched"
[[promises]]
name = "no later"
of = ["pauses"]
figure = "p50"
most = 1.1
than = "base"
plus = ["own"]
[[promises]]
name = "as many"
of = ["cheap"]
figure = "replies"
least = 0.95
than = "base"
samples = 10
"""
CASE = """
[[cases]]
name = "small"
[cases.load]
threads = 2
seconds = 1
[cases.load.zones]
a = [10, 20]
[cases.load.groups]
one = { op = "read", zone = "a", conns = 1, burst = 8, pause_us = 1000 }
two = { op = "read", zone = "a", conns = 4, window = 2, size = 65536 }
"""
WORLDS = [faults, modes, paths, server]
KNOWN = """
[[known]]
load = "small"
promise = "no later"
why = "so it is"
"""


def swarm(tmp_path: pathlib.Path, text: str = TOML + CASE) -> promises.Swarm:
    path = tmp_path / "swarm.toml"
    path.write_text(text)
    topic = types.SimpleNamespace(name="one", home=tmp_path, results=tmp_path / "results")
    return promises.read(topic, path)  # type: ignore[arg-type]


# Loads.


def test_a_seed_draws_the_same_on_every_machine() -> None:
    dice = draw.Dice(7)
    assert [dice.between(1, 1000), dice.one_of("abcdef"), dice.near(100)] == [9, "a", 102]
    assert draw.Dice(1).shuffled([1, 2, 3, 4]) == draw.Dice(1).shuffled([1, 2, 3, 4])


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("seed", range(15))
def test_what_is_drawn_is_a_load_that_ends(world: types.ModuleType, seed: int, tmp_path: pathlib.Path) -> None:
    load = world.draw(seed)
    assert load == world.draw(seed) == json.loads(json.dumps(load))
    schema.check(load, world.LOAD, tmp_path)
    world.check(load)
    assert set().union(*world.classes(load).values()) <= world.CLASSES.keys()
    for name in world.classes(load):
        assert world.said(load, name)
    for new in world.smaller(load):
        schema.check(new, world.LOAD, tmp_path)
        world.check(new)
        assert new != load
        assert world.draw(seed) == load  # it was not changed itself


@pytest.mark.parametrize("world", WORLDS)
def test_every_class_of_group_is_drawn(world: types.ModuleType) -> None:
    found = {what for seed in range(120) for of in world.classes(world.draw(seed)).values() for what in of}
    assert found == world.CLASSES.keys()


def test_no_load_of_the_server_takes_too_many_replies() -> None:
    for seed in range(30):
        load = server.draw(seed)
        assert server.most_replies(load) * load["seconds"] <= server.REPLIES + 1


def test_a_load_of_the_server_has_a_disk() -> None:
    """Seed 3441 once drew nothing but NULLs."""
    load = server.draw(3441)
    assert load["zones"]
    nulls = {"op": "null", "conns": 1, "burst": 1, "pause_us": 1000}
    read = {**nulls, "op": "read", "zone": "a", "size": 4096}
    two = {"threads": 1, "seconds": 1, "zones": {"a": [10]}, "groups": {"g0": nulls, "g1": read}}
    server.check(two)
    assert all(new["zones"] for new in server.smaller(two))
    with pytest.raises(Fail, match="zones: there is none"):
        server.check({**two, "zones": {}, "groups": {"g0": nulls}})


def test_a_case_reads_back_as_the_load_that_it_was_made_of(tmp_path: pathlib.Path) -> None:
    for seed in range(20):
        load = server.draw(seed)
        found = swarm(tmp_path, TOML + "\n" + shrink.case("c", "why", load))
        assert found.cases == {"c": load}
        shrink.keep(found.path, shrink.case("d", "why", load))
        assert list(promises.read(found.topic, found.path).cases) == ["c", "d"]


def test_the_script_has_a_file_a_disk_and_an_argument_for_each_group() -> None:
    load = {
        "threads": 3,
        "seconds": 2,
        "zones": {"a": [10, 20], "b": [[5], [7, 9]]},
        "groups": {
            "one": {"op": "read", "zone": "a", "conns": 1, "burst": 8, "pause_us": 1000, "start_us": 5},
            "two": {"op": "write", "zone": "b", "conns": 2, "window": 4, "size": 8192, "stable": 2, "vers": "4.1"},
            "three": {"op": "null", "conns": 2, "burst": 4, "pause_us": 7, "proto": "udp"},
            "four": {"op": "read", "zone": "b", "conns": 1, "window": 1, "slow_us": 40000},
        },
    }
    server.check(load)
    text = server.script(load, "base", {"library": "one/lib.sh"})
    assert "one:op=read,file=a/one,conns=1,burst=8,pause=1000us,start=5us clock" not in text
    assert "one:op=read,file=a/one,conns=1,burst=8,pause=1000us,start=5us two:op=write,file=b/two,size=8192" in text
    assert "three:op=null,conns=2,burst=4,pause=7us,proto=udp clock:op=null,burst=1,pause=2000000us,count=2" in text
    assert "nfsd_file a/one 65536" in text and "nfsd_start 3" in text and "$EXPORT/a $EXPORT/b" in text
    assert "-o /results/slow-four.json four:op=read" in text and "read -r -t 0.040000 -u 9" in text
    # What each comes to alone: bursts as they are, a WRITE by itself.
    assert "/results/alone.json one:op=read" in text and "window=1,stable=2,vers" not in text
    table = text.partition("cat >/tmp/table <<EOF\n")[2].partition("\nEOF")[0].splitlines()
    at = 0
    for line in table:
        begin, length, kind, many, chunk, *rest = line.split()
        assert (int(begin), kind, chunk, len(rest)) == (at, "striped", "8", 2 * int(many))
        assert int(length) % (8 * int(many)) == 0
        at += int(length)
    assert len(table) == 3


def test_a_side_may_start_the_server_in_its_own_way() -> None:
    load = server.draw(1)
    text = server.script(load, "grown", {"library": "l", "start": {"grown": "nfsd_limits 1 {threads}"}})
    assert f"nfsd_limits 1 {load['threads']}" in text and "nfsd_start" not in text


def test_a_server_has_udp_where_a_group_is_of_it() -> None:
    load = server.draw(1)
    plain = {name: {key: value for key, value in one.items() if key != "proto"} for name, one in load["groups"].items()}
    assert "--udp" not in server.script({**load, "groups": plain}, "base", {"library": "l"})
    plain[min(plain)]["proto"] = "udp"
    assert f"rpc.nfsd --udp {load['threads']}" in server.script({**load, "groups": plain}, "base", {"library": "l"})


def test_classes_of_groups() -> None:
    load = {
        "threads": 4,
        "seconds": 1,
        "zones": {"a": [100], "b": [10_000]},
        "groups": {
            "users": {"op": "read", "zone": "a", "conns": 1, "burst": 8, "pause_us": 100_000},
            "dear": {"op": "read", "zone": "b", "conns": 4, "window": 8},
            "late": {"op": "null", "conns": 1, "burst": 65, "pause_us": 1000, "start_us": 1},
        },
    }
    assert server.classes(load) == {
        "server": {"server"},
        "users": {"pauses", "room", "cheap"},
        "dear": {"dear", "backlog"},
        "late": {"late"},
    }
    assert server.fifth(load, load["groups"]["dear"]) == pytest.approx(0.2)
    hang = {"paths": [{"delay_us": 1}] * 2, "depth": 1, "sizes": [4], "ms": 5000, "changes": [[1000, 1, 2_000_000]]}
    assert paths.classes(hang) == {"all": {"all", "hang", "one-size"}}


WRONG = [
    (TOML.replace("title", "titel = 1\ntitle"), "unknown key titel (meant: title?)"),
    (TOML.replace('figure = "p50"', 'figur = "p50"\nfigure = "p50"'), "unknown key figur"),
    (TOML.replace('"server"', '"sever"', 1), "world: 'sever' is none (meant: server?); there are: "),
    (TOML.replace('world = "server"', ""), "world: is missing"),
    (TOML.replace('of = ["pauses"]', 'of = ["pause"]'), "promises.[0]: of: no group is pause (meant: pauses?)"),
    (TOML.replace('figure = "p50"', 'figure = "p5"'), "promises.[0]: figure: there is no p5"),
    (TOML.replace('than = "base"', 'than = "bas"', 1), "promises.[0]: than: there is no bas (meant: base?)"),
    (TOML.replace('than = "base"', 'than = "patched"', 1), "than: patched is the side that the promise is about"),
    (TOML.replace("most = 1.1", "most = 1.1\nleast = 1"), "promises.[0]: give most or least"),
    (TOML.replace("most = 1.1\n", ""), "promises.[0]: give most or least"),
    (TOML.replace('"as many"', '"no later"'), "promises.[1]: there are two promises 'no later'"),
    (TOML.replace("gate = [1, 2]", "gate = [1]"), "gate: "),
    (TOML.replace('patched = "patched"', ""), "sides: "),
    (TOML + CASE + CASE, "there are two cases small"),
    (TOML + CASE.replace('"small"', '"12"'), "the case 12: a number is a seed: give it a name"),
    (
        TOML + CASE.replace("threads = 2", "threads = 2\nthread = 2"),
        "the case small: unknown key thread (meant: threads?)",
    ),
    (TOML + CASE.replace('zone = "a", conns = 1', 'zone = "b", conns = 1'), "small: groups.one: there is no zone b"),
    (TOML + CASE.replace("burst = 8,", ""), "the case small: groups.one: give window or burst"),
    (TOML + CASE.replace("burst = 8", "window = 8"), "the case small: groups.one: pause_us goes with burst"),
    (
        TOML + CASE.replace('op = "read", zone = "a", conns = 4', 'op = "null", conns = 4'),
        "groups.two: NULL has no size",
    ),
    (
        TOML
        + CASE.replace(
            'op = "read", zone = "a", conns = 4, window = 2, size = 65536', 'op = "null", conns = 4, window = 2'
        ),
        "groups.two: takes no time and does not pause, and the others leave it threads: no end",
    ),
    (
        TOML + CASE + KNOWN.replace("small", "smal"),
        "known.[0]: load: smal is no seed, and no case (meant: small?)",
    ),
    (
        TOML + CASE + KNOWN.replace("no later", "no late"),
        "known.[0]: promise: there is no 'no late' of a load (meant: no later?)",
    ),
    (
        TOML + CASE + KNOWN.replace('load = "small"\n', ""),
        "known.[0]: promise: there is no 'no later' with a share",
    ),
    (
        TOML.replace('name = "no later"', 'name = "no later"\nshare = 0.5') + CASE + KNOWN,
        "known.[0]: promise: there is no 'no later' of a load",
    ),
    (TOML + CASE + KNOWN + KNOWN, "known.[0]: there are two of 'no later' and small"),
    (TOML + CASE + KNOWN.replace("small", "07"), "known.[0]: load: 07 is no seed, and no case"),
    ("world = ", "not TOML: "),
]


FAULTS = """
world = "faults"
title = "T"
question = "Q"
library = "one/lib.sh"
gate = [1, 2]
[sides]
patched = "patched"
[[promises]]
name = "answered"
of = ["client"]
figure = "lost"
most = 0
[[promises]]
name = "well"
of = ["server"]
figure = "splat"
most = 0
[[cases]]
name = "small"
[cases.load]
threads = 2
seconds = 1
disk_us = 2000
modes = [0, 2]
block = 65536
faults = [{ at_ms = 100, fault = "hang", ms = 20 }, { at_ms = 200, fault = "errors", ms = 5, file = "a" }]
[cases.load.clients]
a = { kind = "calls", conns = 1, window = 1, size = 4096, read = true }
b = { kind = "calls", conns = 2, window = 1, size = 4096, start_ms = 70, company = { half = 1 } }
c = { kind = "load", size = 512, conns = 1, count = 3, window = 2, proto = "udp" }
"""
HANG = '{ at_ms = 100, fault = "hang", ms = 20 }'
WRONG += [
    (FAULTS.replace('patched = "patched"', 'base = "base"\npatched = "patched"'), "sides: "),
    (FAULTS.replace('of = ["client"]', 'of = ["clients"]'), "of: no group is clients (meant: client?)"),
    (FAULTS.replace('"hang"', '"hangs"'), "small: faults.[0]: fault: there is no hangs (meant: hang?)"),
    (FAULTS.replace("ms = 20", "ms = 20, us = 20"), "small: faults.[0]: unknown key us"),
    (FAULTS.replace(", ms = 20", ""), "small: faults.[0]: lacks ms"),
    (FAULTS.replace('"load", size', '"loads", size'), "small: clients.c: kind: there is no loads (meant: load?)"),
    (FAULTS.replace("half = 1", "have = 1"), "small: clients.b: company: unknown key have"),
    (FAULTS.replace(", window = 2, proto", ", proto"), "small: clients.c: give window or burst"),
    (FAULTS.replace('proto = "udp"', "second = true"), "second goes with pause_ms"),
    (
        FAULTS + 'd = { kind = "fuzz", profiles = ["ranges"], seed = 1, number = 4 }',
        "small: clients.d: fuzz reads 1048576 bytes at once: block has to be 1048576",
    ),
    (FAULTS.replace('"udp"', '"udp", vers = "4.1"'), "small: clients.c: UDP is for NFSv3, and for 32 KiB at most"),
    (FAULTS.replace('file = "a"', 'file = "b"'), "small: faults.[1]: no client b only reads"),
    (FAULTS.replace(HANG, '{ at_ms = 1, fault = "link", ms = 1 }'), "small: faults.[0]: no client is far"),
    (
        FAULTS.replace(HANG, '{ at_ms = 1, fault = "full", ms = 1 }'),
        "small: clients.c: load cannot tell what is right beside full: drop one of them",
    ),
]


@pytest.mark.parametrize("text, said", WRONG, ids=[said[:40] for _, said in WRONG])
def test_what_is_wrong_with_a_swarm_is_one_line(text: str, said: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(Fail) as failed:
        swarm(tmp_path, text)
    assert said in str(failed.value) and "swarm.toml: " in str(failed.value) and "\n" not in str(failed.value)


def test_every_swarm_of_this_checkout_is_right() -> None:
    for one in promises.every():
        for load in [*one.cases.values(), *(one.load(str(seed)) for seed in one.data["gate"])]:
            one.world.check(load)
            for side in one.sides:
                assert one.world.script(load, side, one.data)


def test_a_schedule_is_a_line_for_each_client_and_each_fault(tmp_path: pathlib.Path) -> None:
    load = swarm(tmp_path, FAULTS).load("small")
    lines = faults.script(load, "patched", {"library": "one/lib.sh"}).splitlines()
    own = ['calls a "$DIR"/nfsfault "$EXPORT" a conns=1 window=1 size=4096 read=1 calls=200 check=0 & clients+=($!)']
    own += ["at 100 disk fault_hang 20 & faults+=($!)", "at 200 errors fault_errors 5 a & faults+=($!)"]
    own += ['load c "$EXPORT" size=512,conns=1,window=2,count=3,proto=udp & clients+=($!)', "UDP=--udp", "over 2"]
    assert set(own) <= set(lines) and "KERBEROS=" in lines
    late = "b conns=2 window=1 size=4096 for=1000 half=1; } & clients+=($!)"
    assert any(line.startswith("{ sleep 0.070; calls b") and line.endswith(late) for line in lines)
    for name in faults.FAULTS:
        assert f"fault_{name}()" in faults.SHELL.read_text()


def test_who_may_have_no_memory_is_asked_again() -> None:
    load: draw.Load = {"seconds": 1, "faults": [{"at_ms": 1, "fault": "nth", "number": 5}], "clients": {}}
    load["clients"] = {
        "a": {"kind": "calls", "conns": 1, "window": 1, "size": 4096},
        "b": {"kind": "mount", "options": "vers=4.2,proto=tcp", "steps": 10, "seed": 7},
    }
    assert faults.client(load, "a").endswith("for=1000 short=1")
    assert faults.client(load, "b") == "mounted b 7 10 0 1 vers=4.2,proto=tcp"
    load["faults"] = []
    assert faults.client(load, "b") == "mounted b 7 10 0 '' vers=4.2,proto=tcp"


def test_a_mount_with_tls_whose_clock_jumps_is_asked_again() -> None:
    clock = {"at_ms": 1, "fault": "clock", "seconds": 60}
    load: draw.Load = {"seconds": 1, "faults": [clock], "clients": {}}
    load["clients"] = {
        name: {"kind": "mount", "options": f"vers=4.2{more}", "steps": 10, "seed": 7}
        for name, more in (("a", ""), ("b", ",xprtsec=tls"))
    }
    assert faults.client(load, "a") == "mounted a 7 10 0 '' vers=4.2"
    assert faults.client(load, "b") == "mounted b 7 10 0 1 vers=4.2,xprtsec=tls"
    load["faults"] = []
    assert faults.client(load, "b") == "mounted b 7 10 0 '' vers=4.2,xprtsec=tls"


def test_what_a_guest_says_adds_up_and_one_that_is_not_well_is_a_figure(tmp_path: pathlib.Path) -> None:
    load = swarm(tmp_path, FAULTS).load("small")
    where = tmp_path / "3-patched"
    where.mkdir()
    (where / "said").write_text("a lost 0\na answered 3\n")
    assert faults.read(where, load)["a"] == {"lost": 0, "answered": 3}
    (where / "said").write_text("a lost 0\na lost 2\nserver busy 1\n")
    (where / "console").write_text("what it said")
    found = faults.read(where, load)
    assert (tmp_path / "3-patched.console").read_text() == "what it said"
    assert found["a"] == {"lost": 2} and found["b"] == {}
    assert found["server"] == {"busy": 1, "splat": 0, "hung": 0}
    assert faults.sick(Fail("the guest did not end within 5 s"), load) == {"server": {"hung": 1}}
    assert faults.sick(Fail("the guest is not healthy"), load) == {"server": {"splat": 1}}


def test_of_nothing_that_is_allowed_there_is_no_multiple(tmp_path: pathlib.Path) -> None:
    found = swarm(tmp_path, FAULTS)
    ran = {"patched": {"a": {"lost": 2}, "b": {"lost": 0}, "c": {"lost": 0}, "server": {"splat": 0}}}
    bad, *kept = promises.judge(found, found.load("small"), ran)
    assert (bad.group, bad.kept, report.missed(bad)) == ("a", False, "2, limit 0") and all(one.kept for one in kept)
    every = {"1": {"load": found.load("small"), "ran": ran}}
    assert "1 break a promise" in report.text(found, every)
    report.write(found, every, tmp_path / "out/swarm")
    assert not (tmp_path / "out/swarm.svg").exists()


# Verdicts.


def figures(p50: float, replies: float, count: int = 20) -> dict[str, dict[str, float]]:
    own = {"own": 10, "count": count}
    return {
        "one": {"p50": p50, "replies": replies, **own},
        "two": {"p50": 1, "replies": 1, **own},
        "server": {"replies": 2},
    }


def test_a_promise_is_of_its_classes_and_has_a_limit(tmp_path: pathlib.Path) -> None:
    found = swarm(tmp_path)
    load = found.load("small")
    late, few = promises.judge(found, load, {"base": figures(100, 10), "patched": figures(150, 9)})
    assert (late.promise.name, late.group, late.value, late.limit, late.kept) == (
        "no later",
        "one",
        150,
        pytest.approx(120),
        False,
    )
    assert late.off == pytest.approx(1.25)
    assert (few.promise.name, few.limit, few.kept) == ("as many", pytest.approx(9.5), False)
    kept = promises.judge(found, load, {"base": figures(100, 10), "patched": figures(119, 9.6)})
    assert all(one.kept for one in kept) and len(kept) == 2
    # Of nine nothing is said, whichever side has them.
    short = promises.judge(found, load, {"base": figures(100, 10, 9), "patched": figures(120, 1)})
    assert [one.promise.name for one in short] == ["no later"]


def test_what_takes_no_time_alone_has_no_multiple_to_be_held_to(tmp_path: pathlib.Path) -> None:
    text = TOML.replace('than = "base"\nplus = ["own"]', 'than = "alone"')
    found = swarm(tmp_path, text + CASE)
    ran = {side: {"one": {"p50": 3, "alone": 0, "count": 20}} for side in ("base", "patched")}
    assert promises.judge(found, found.load("small"), ran) == []
    ran["patched"]["one"]["alone"] = 1
    assert [one.kept for one in promises.judge(found, found.load("small"), ran)] == [False]
    # Another side's is held against, whatever it is.
    ran["base"]["one"].update(p50=0, own=0)
    ran["patched"]["one"].update(p50=3, own=0)
    assert [one.kept for one in promises.judge(swarm(tmp_path), found.load("small"), ran)] == [False]


MOSTLY = "[[known]]\npromise = 'mostly'\nwhy = 'why'\n"


def test_of_a_promise_with_a_share_some_groups_may_be_beyond_the_limit(tmp_path: pathlib.Path) -> None:
    text = TOML.replace('name = "no later"', 'name = "mostly"\nshare = 0.5') + CASE
    found, known = swarm(tmp_path, text), swarm(tmp_path, text + MOSTLY)
    ran = {seed: {"base": figures(100, 10), "patched": figures(100 + 30 * seed, 10)} for seed in range(3)}
    loads = {str(seed): {"load": found.load("small"), "ran": one} for seed, one in ran.items()}
    assert not any(run.failing(every) for every in report.verdicts(found, loads).values())
    assert report.short(found, loads) == {"mostly": "mostly: 1 of 3 groups are within ≤ 1.1 base + own, of 50%"}
    assert (judge.status(found, loads), judge.status(known, loads)) == (1, 0)
    del loads["2"]
    assert report.short(found, loads) == {} and judge.status(found, loads) == 0


def test_the_first_seeds_have_to_have_the_share_or_are_known_not_to(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TOML.replace('name = "no later"', 'name = "mostly"\nshare = 0.5') + CASE
    failed = []
    for added in ("", MOSTLY):
        found = swarm(tmp_path, text + added)
        for p50 in (100, 130):
            ran = {"base": figures(100, 10), "patched": figures(p50, 10)}
            loads = {"1": {"load": found.load("small"), "ran": ran}}
            monkeypatch.setattr(promises, "every", lambda: [found])
            monkeypatch.setattr(judge, "checked", lambda *_: loads)
            tally = Tally()
            judge.every(None, tally, 1)  # type: ignore[arg-type]
            failed.append(tally.failed)
    assert failed == [0, 1, 1, 0]


def test_a_promise_may_be_held_against_the_best_a_figure_or_a_number(tmp_path: pathlib.Path) -> None:
    three = TOML.replace('patched = "patched"', 'other = "base"\npatched = "patched"')
    for than, limit in (('than = "best"', 1.1 * 50 + 10), ('than = "own"', 1.1 * 10 + 10), ("", 1.1 + 10)):
        found = swarm(tmp_path, three.replace('than = "base"', than, 1) + CASE)
        ran = {"base": figures(100, 10), "other": figures(50, 10), "patched": figures(150, 10)}
        assert promises.judge(found, found.load("small"), ran)[0].limit == pytest.approx(limit)


# Runs.


@pytest.fixture
def runner(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> run.Runner:
    """One whose guests are made up: base takes 100, patched as much as there are connections."""
    monkeypatch.setattr(run, "BUILD", tmp_path / "build")
    for name in ("base", "patched"):
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(run, "kernels", lambda *_: {name: tmp_path / name for name in ("base", "patched")})
    monkeypatch.setattr(run.runs, "selftests", lambda *_: str(tmp_path / "none"))
    monkeypatch.setattr(run.guest, "root", lambda *_: tmp_path)
    found = swarm(tmp_path)
    monkeypatch.setattr(
        promises.Swarm, "experiment", types.SimpleNamespace(packages={}, data={}, name="swarm"), raising=False
    )

    def read(where: pathlib.Path, load: draw.Load) -> dict[str, dict[str, float]]:
        every = figures(float((where / "p50").read_text()), 10)
        return {name: one for name, one in every.items() if name in (*load["groups"], server.SERVER)}

    monkeypatch.setattr(server, "read", read)

    made = run.Runner(found, None)  # type: ignore[arg-type]
    made.booted = []  # type: ignore[attr-defined]

    def boot(image: pathlib.Path, script: pathlib.Path, where: pathlib.Path, *_: object, **__: object) -> None:
        made.booted.append(where.name)  # type: ignore[attr-defined]
        where.mkdir(parents=True)
        found = re.search(r" one:op=\S*?conns=(\d+)", script.read_text())
        conns = int(found[1]) if found else 0
        if conns == 13:
            raise Fail("the guest is not healthy")
        (where / "p50").write_text(str(100 if image.name == "base" else 100 * conns))

    monkeypatch.setattr(run.boot, "boot", boot)
    return made


def loads(runner: run.Runner, *conns: int) -> dict[str, draw.Load]:
    one = runner.swarm.load("small")
    return {str(n): {**one, "groups": {**one["groups"], "one": {**one["groups"]["one"], "conns": n}}} for n in conns}


def test_what_is_done_is_kept_and_the_next_run_goes_on(runner: run.Runner) -> None:
    done = iter(runner.both(loads(runner, 1, 2, 3)))
    next(done)
    done.close()  # type: ignore[attr-defined]
    before = len(runner.booted)  # type: ignore[attr-defined]
    found = dict(runner.both(loads(runner, 1, 2, 3)))
    assert found["3"]["patched"]["one"]["p50"] == 300  # type: ignore[index]
    booted = runner.booted  # type: ignore[attr-defined]
    assert sorted(booted) == sorted(set(booted)) and len(booted) == 6 and before >= 2
    assert not list(runner.place.glob("*-base"))


def test_another_kernel_is_measured_anew_and_the_first_is_not(runner: run.Runner) -> None:
    dict(runner.both(loads(runner, 1)))
    runner.kernels["patched"].write_text("changed")
    other = run.Runner(runner.swarm, None)  # type: ignore[arg-type]
    dict(other.both(loads(runner, 1)))
    assert sorted(runner.booted) == ["1-base", "1-patched", "1-patched"]  # type: ignore[attr-defined]


def test_a_guest_that_fails_is_said_and_the_others_go_on(runner: run.Runner) -> None:
    every = loads(runner, 1, 13)
    said: list[str] = []
    found = report.collected(runner, every, lambda name, every, why: said.append(why))
    assert "failed" in found["13"] and "not healthy" in found["13"]["failed"] and "ran" in found["1"]
    assert sum(bool(why) for why in said) == 1
    assert judge.status(runner.swarm, found) == 1 and judge.status(runner.swarm, {"1": found["1"]}) == 0
    assert "13 has no figures" in report.text(runner.swarm, found)


def test_the_gate_runs_a_load_again_when_what_decides_it_has_changed(
    runner: run.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "Guests", lambda wanted, base, kind: run.Runner(wanted, base))

    def checked(*conns: int) -> tuple[int, int]:
        shutil.rmtree(runner.place, ignore_errors=True)
        runner.booted.clear()  # type: ignore[attr-defined]
        tally = Tally()
        judge.checked(runner.swarm, None, tally, loads(runner, *conns), keep=True)  # type: ignore[arg-type]
        return len(runner.booted), tally.failed  # type: ignore[attr-defined]

    assert checked(1) == (2, 0) and checked(1) == (0, 0)
    # What breaks a promise is not kept, nor is a guest that fails.
    assert checked(1, 40) == (2, 1) and checked(40, 13) == (4, 2) and checked(40, 13) == (4, 2)
    runner.kernels["patched"].write_text("changed")
    assert checked(1) == (2, 0) and checked(1) == (0, 0)
    runner.swarm.path.write_text(runner.swarm.path.read_text() + "# another limit\n")
    assert checked(1) == (2, 0)
    monkeypatch.setenv(verdicts.FRESH, "1")
    assert checked(1) == (2, 0)


def test_what_tests_share_decides_what_a_load_does(tmp_path: pathlib.Path) -> None:
    for name in ("kselftest/ktap.sh", "nfsd/load", "nfsd/a.sh", "nfsd/far.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch(mode=0o644 if name == "nfsd/far.sh" else 0o755)
    found = sorted(path.name for path in tmp_path.rglob("*") if run.is_tool(path))
    assert found == ["far.sh", "ktap.sh", "load"]


def test_a_failing_load_is_made_small(runner: run.Runner) -> None:
    load = loads(runner, 40)["40"]
    ((_, _, verdicts, _),) = runner.judged({"40": load})
    small = shrink.shrink(runner, load, run.failing(verdicts)[0])
    # 40 misses the limit by 33; a third of that is enough: 20 does, and 10 does not.
    assert list(small["groups"]) == ["one"]
    assert small["groups"]["one"]["conns"] == 20 and small["threads"] == 1


def test_a_report_has_the_distribution_the_worst_and_a_picture(runner: run.Runner, tmp_path: pathlib.Path) -> None:
    every = loads(runner, *range(1, 13))
    found = report.collected(runner, every, lambda *_: None)
    text = report.text(runner.swarm, found)
    assert "12 loads, seeds 1 to 12; 11 break a promise" in text
    worst = text.partition("The worst:")[2]
    assert [line.split()[1] for line in worst.splitlines() if line.startswith("| 1")][:3] == ["12", "11", "10"]
    assert len([line for line in worst.splitlines() if "no later" in line]) == report.WORST
    report.write(runner.swarm, found, tmp_path / "out" / "swarm")
    assert (tmp_path / "out/swarm.svg").is_file() and (tmp_path / "out/swarm.md").is_file()
    again = json.loads((tmp_path / "out/swarm.json").read_text())
    assert report.text(runner.swarm, again) == text


def test_recorded_swarms_are_among_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    judge.results(["sunrpc-ready-queue"])
    assert capsys.readouterr().out.startswith("the swarm of sunrpc-ready-queue: ")


def test_the_report_says_which_seeds_a_rule_was_made_by(runner: run.Runner) -> None:
    found = report.collected(runner, loads(runner, 1, 2), lambda *_: None)
    assert "Rules were made" not in report.text(runner.swarm, found)
    for tuned, said in (([[3, 9], [11, 12]], "none"), ([[2, 9]], "1")):
        swarm = dataclasses.replace(runner.swarm, data={**runner.swarm.data, "tuned": tuned})
        assert f"; {said} of these 2 loads is among them" in report.text(swarm, found)
    assert swarm.tuned(range(1, 12)) == list(range(2, 10))


def test_a_quoted_swarm_that_is_stale_fails(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = origin.Judgement([], [], [])
    home = types.SimpleNamespace(home=tmp_path, name="one", older=())
    record = tmp_path / "results/swarm.json"
    one = types.SimpleNamespace(topic=home, experiment=types.SimpleNamespace(recorded=record))
    monkeypatch.setattr(promises, "every", lambda: [one])
    monkeypatch.setattr(judge.origin, "judge", lambda *_: judged)

    def asked() -> list[tuple[str, str]]:
        tally = Tally()
        judge.quoted(None, tally)  # type: ignore[arg-type]
        return [(case.name, str(case.problem)) for case in tally.cases]

    assert asked() == []
    record.parent.mkdir()
    record.write_text('{"a-case": {}, "100": {}, "12": {}}')
    (tmp_path / "figures.toml").write_text('source = "results/other.json"')
    assert asked() == []
    (tmp_path / "figures.toml").write_text('source = "counted in results/swarm.json"')
    what = "the recorded result of the swarm of one, which the cover letter of one quotes, is of today's series"
    assert asked() == [(what, "")]
    judged.changed.append("the topic one has changed")
    again = "record it again: make swarm T=one FROM=12 SEEDS=2 RECORD=1"
    assert asked() == [(what, f"the topic one has changed\n{again}")]
    home.older = ("swarm",)
    assert asked() == [("the recorded result of the swarm of one is of an older series, as topic.toml says", "")]


def test_a_load_breaks_what_it_is_known_to_and_no_other_promise(
    runner: run.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "Guests", lambda *_, **__: runner)
    every = loads(runner, 1, 2, 3, 4)
    runner.swarm.data["known"] = [
        {"load": "1", "promise": "no later", "why": "so it is"},
        {"load": "2", "promise": "no later", "why": "so it is"},
        {"load": "3", "promise": "as many", "why": "so it is"},
    ]
    tally = Tally()
    found = judge.checked(runner.swarm, None, tally, every)  # type: ignore[arg-type]
    problems = {case.name.split("seed ")[1].split()[0]: case.problem for case in tally.cases}
    assert problems["1"] == "no later: it is kept now, or not judged (so it is): take it out of `known`"
    assert problems["2"] == ""
    late, kept = problems["3"].splitlines()
    assert late.startswith("one: no later: ") and kept.startswith("as many: it is kept now")
    assert problems["4"].startswith("one: no later: ")
    known = {name: judge.status(runner.swarm, {name: one}) for name, one in found.items()}
    assert known == {"1": 0, "2": 0, "3": 1, "4": 1}


def test_a_fault_is_found_by_the_first_seed_that_is_well_without_it(
    runner: run.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promises.Swarm, "load", lambda own, name: {})

    def said(*seeds: int) -> types.SimpleNamespace:
        """A kernel on which these seeds break a promise."""
        bad = types.SimpleNamespace(kept=False, off=2)
        judged = lambda some: [(name, {}, [bad] if int(name) in seeds else [], "") for name in some]  # noqa: E731
        return types.SimpleNamespace(swarm=runner.swarm, judged=judged)

    def first(patched: object, broken: object) -> list[int]:
        return [seed for seed, _ in mutants.first(patched, broken, range(1, 9))]  # type: ignore[arg-type]

    assert first(said(), said(6, 5)) == [5] and first(said(5), said(5, 6)) == [6] and first(said(), said()) == []


def test_a_topic_without_faults_to_put_back_is_said(tmp_path: pathlib.Path) -> None:
    with pytest.raises(Fail, match="the topic one has no faults to put back: `put_back` in its swarm.toml"):
        mutants.mutants(swarm(tmp_path), None, Tally(), "sim", range(1, 2))  # type: ignore[arg-type]


def test_each_fault_that_is_put_back_is_in_the_patch_and_there_is_no_other() -> None:
    for one in promises.every():
        path = mutants.put_back(one.topic)
        asked = re.findall(r'put_back\("([a-z0-9-]+)"\)', path.read_text()) if path.is_file() else []
        assert set(asked) == set(one.put_back), path


def test_a_guest_that_fails_is_a_figure_where_the_kernel_is_judged(
    runner: run.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    sick = lambda fail, load: {"server": {"splat": 1}}  # noqa: E731
    made = guests.Guests(runner.swarm, None)  # type: ignore[arg-type]
    monkeypatch.setattr(server, "sick", sick, raising=False)
    ((_, ran, _, why),) = made.judged(loads(runner, 13))
    assert not why and ran["patched"] == {"server": {"splat": 1}} and (runner.place / "13-patched").is_dir()


def test_what_is_kept_is_of_a_kernel_a_machine_and_a_fault(
    runner: run.Runner, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken").write_text("broken")
    monkeypatch.setattr(runner.swarm.experiment, "flavour", lambda kind: kind, raising=False)
    monkeypatch.setattr(guests.kernel, "kernels", lambda *_, only: dict.fromkeys(only, tmp_path / "broken"))

    def made(**words: object) -> guests.Guests:
        return guests.Guests(runner.swarm, None, **words)  # type: ignore[arg-type]

    one, two = (made(image=tmp_path / "broken", words=(f"put_back={name}",)) for name in ("one", "two"))
    assert made().keys == made(kind="sim").keys == runner.keys
    assert one.words == ("put_back=one",) and set(one.kernels.values()) == {tmp_path / "broken"}
    debug = made(kind="debug")
    assert debug.swarm.limit == 5 * runner.swarm.limit and set(debug.kernels.values()) == {tmp_path / "broken"}
    assert len({key for some in (runner, one, two, debug) for key in some.keys.values()}) == 5


# The command.


@pytest.mark.parametrize(
    "words, said",
    [
        (("", "", "", "", "", False), "which topic? T=NAME"),
        (("nothing", "", "", "", "", False), "there is no topic nothing"),
        (("one", "0", "", "", "", False), "SEEDS=0: give a number, 1 or more"),
        (("one", "many", "", "", "", False), "SEEDS=many: give a number, 1 or more"),
        (("one", "", "-1", "", "", False), "FROM=-1: give a number, 0 or more"),
        (("one", "", "", "x", "", False), "SEED=x: give a number, 0 or more"),
        (("one", "3", "", "4", "", False), "SEED= is one load; SEEDS=, FROM= and MUTANTS= are of many"),
        (("one", "", "", "", "name", False), "KEEP=NAME goes with SEED="),
        (("one", "", "", "4", "small", False), "KEEP=small: there is such a case"),
        (("one", "", "", "4", "5", False), "KEEP=5: a number is no name"),
        (("one", "2", "10", "", "", True), "RECORD=1: a rule was made by seed 11 (`tuned` in swarm.toml)"),
        (("one", "", "", "4", "", False, "debug"), "KIND=debug: one is not drawn for it; it is for sim"),
        (("one", "", "", "4", "", False, "", True), "SEED= is one load; SEEDS=, FROM= and MUTANTS= are of many"),
    ],
)
def test_what_is_wrong_with_the_command_is_one_line(
    words: tuple, said: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if words[0] == "one":
        found = swarm(tmp_path, "tuned = [[11, 20]]\n" + TOML + CASE)
        monkeypatch.setattr(promises, "find", lambda _: found)
    with pytest.raises(Fail) as failed:
        judge.swarm(*words)
    assert said in str(failed.value) and "\n" not in str(failed.value)


def test_a_topic_without_a_swarm_is_told_apart_from_none() -> None:
    with pytest.raises(Fail, match="has no swarm.toml; with one there are: "):
        promises.find("lwq")
