# SPDX-License-Identifier: GPL-2.0
"""tools/nfs-floor, against a small server in memory that can misbehave."""

import functools
import json
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree

import pytest
from conftest import module_of
from nfs_server import Server

from testbed import util

PROGRAM = util.ROOT / "tools/nfs-floor"
RATE = 2000


@pytest.fixture(scope="module")
def floor():
    return module_of(PROGRAM)


def run(*words):
    """(status, stdout, stderr)"""
    done = subprocess.run(
        [sys.executable, PROGRAM, *map(str, words)], text=True, capture_output=True, stdin=subprocess.DEVNULL
    )
    return done.returncode, done.stdout, done.stderr


def words(server, *more):
    ports = ["--port", server.port, "--mount-port", server.port]
    return ["127.0.0.1:/export", "--yes", "--seconds", 300, "--size-mb", 16, *ports, *more]


def left(server):
    """What the server still has of it: files, mounts, sessions, clients and open files."""
    return set(server.files) - {"big", "small"}, server.mounts, server.sessions, server.clients, server.opens


NOTHING = (set(), 0, set(), set(), 0)


# A run takes half a minute, most of which it waits: all that look at one are of a group.
VERSIONS = [pytest.param(vers, marks=pytest.mark.xdist_group(vers)) for vers in ("3", "4.1")]


@pytest.fixture(scope="module", params=VERSIONS)
def whole(request, tmp_path_factory):
    """(server, status, stdout, stderr, result, directory) of a whole run."""
    place = tmp_path_factory.mktemp("floor")
    with Server(service=0.0001) as server:
        kept = ["--json", place / "r.json", "--svg", place / "r.svg"]
        status, out, err = run(*words(server, "--vers", request.param, "--rate", RATE, *kept))
        yield server, status, out, err, json.loads((place / "r.json").read_text()), place


def test_it_measures_all_and_leaves_nothing(whole):
    server, status, out, err, result, _ = whole
    assert (status, err, result["ended"], result["left"]) == (0, "", "", "")
    assert [step["name"] for step in result["steps"]] == ["0", "4", "16", "32", "slow", "flood", "share"]
    assert left(server) == NOTHING and "Nothing is left on the server." in out
    assert "remove" in server.calls


def test_the_table_has_a_line_for_each_number_of_connections(whole):
    _, _, out, _, result, _ = whole
    rows = [line.split() for line in out.splitlines() if re.match(r" *\d+ ", line)]
    assert [row[0] for row in rows] == ["0", "4", "16", "32"] and rows[0][3] in ("1.0x", ">1.0x")
    assert re.search(r"beside 3 connections that read slowly: >?[\d.]+ ms", out)
    assert re.search(r"beside a flood of stats \([\d-]+ replies/s in all\): >?[\d.]+ ms", out)
    assert re.search(r"Connections with 32 requests in flight ", out)
    assert result["load"]["vers"] in out.splitlines()[0]


def test_it_says_what_it_did_and_that_is_what_the_server_saw(whole):
    server, _, out, _, result, _ = whole
    did = result["did"]
    # Those of rpcbind and mountd are not the server's to count.
    assert len(server.times) <= did["requests"] <= len(server.times) + 3
    assert did["replies"] == did["requests"] and did["failed"] == {}
    assert did["bytes_written"] == 16 << 20 and did["connections_at_once"] == 33
    assert f"Sent {did['requests']} requests in " in out


@pytest.fixture
def short(floor, monkeypatch):
    """A function that makes a run of some steps alone, in this process: (server, steps, words) -> Run."""

    def made(server, steps, *more):
        monkeypatch.setattr(floor, "PLAN", {name: (i + 1) / len(steps) for i, name in enumerate(steps)})
        monkeypatch.setattr(sys, "argv", ["nfs-floor", *map(str, words(server, *more))])
        floor.Connection.CREDENTIAL = floor.credential()
        return floor.Run(floor.arguments())

    return made


@pytest.mark.parametrize("vers", ["3", "4.1"])
def test_each_request_was_allowed(floor, short, monkeypatch, vers):
    """All that is sent has asked the limit before, and no more is sent than it said yes to."""
    said = []
    take = floor.Limit.take
    monkeypatch.setattr(floor.Limit, "take", lambda *given: said.append(take(*given)) or said[-1])
    with Server() as server:
        one = short(server, ("4", "flood", "share"), "--vers", vers, "--rate", 1000)
        one.measure()
        assert one.target.leave(True) == "" and left(server) == NOTHING
    assert sum(said) == one.loop.asked and one.loop.held and not all(said)


@pytest.mark.parametrize("rate", [1000, 5000, 12345])
def test_the_limit_holds_in_any_second(floor, rate):
    limit, now, sent = floor.Limit(rate), 0, []
    for turn in range(4 * rate):
        # By a clock of its own, at odd times.
        now += (turn * 7919) % (10**9 // rate)
        if limit.take(now):
            sent.append(now)
        else:
            assert now < limit.when(now) <= now + 10**8
    first = 0
    for last, when in enumerate(sent):
        while sent[first] <= when - 10**9:
            first += 1
        assert last - first + 1 <= rate
    assert len(sent) > rate


def test_the_limit_keeps_room_for_the_client_that_is_measured(floor):
    limit = floor.Limit(5000)
    while limit.take(0, reserve=64):
        pass
    assert sum(limit.take(0) for _ in range(100)) == 64


@pytest.mark.parametrize("size, block", [(64 << 20, 4096), (512 << 10, 65536), (4096, 4096), (33 * 4096, 4096)])
def test_a_connection_reads_each_block_of_its_part_before_it_begins_again(floor, size, block):
    part = floor.Part(1 << 20, size, block)
    found = [part.next() for _ in range(size // block)]
    assert sorted(found) == list(range(1 << 20, (1 << 20) + size, block))


def test_the_picture_can_be_read_without_the_text(whole):
    root = xml.etree.ElementTree.parse(whole[5] / "r.svg").getroot()
    said = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    bars = [one for one in root.iter("{http://www.w3.org/2000/svg}rect") if one.get("x")]
    assert "How long a client of 127.0.0.1:/export waits, in ms" in said
    assert said.count("beside 32 busy connections") == 2 and "beside a flood of stats" in said
    assert len(bars) >= 6 and sum(" ms" in text for text in said) >= len(bars)
    assert all(float(bar.get("x")) + float(bar.get("width")) <= float(root.get("width")) for bar in bars)


@pytest.fixture
def two(whole, tmp_path):
    """Files of two results of the same load, the second of a server that serves a burst in a tenth of the time."""
    result = json.loads(json.dumps(whole[4]))
    paths = tmp_path / "before.json", tmp_path / "after.json"
    for path, busy in zip(paths, (400_000_000, 40_000_000)):
        for step, alone in ((step, step["name"] == "0") for step in result["steps"] if "burst_ns" in step):
            figure = 20_000_000 if alone else busy
            step["burst_ns"] = {"count": 20, "min": figure, "p50": figure, "p99": figure, "max": figure}
            step["held"], step["client_busy"] = False, 0.1
        path.write_text(json.dumps(result))
    return paths


def test_two_results_are_compared(two, tmp_path):
    before, after = two
    status, out, err = run("--compare", before, after, "--svg", tmp_path / "c.svg", "--json", tmp_path / "c.json")
    assert (status, err) == (0, "")
    line = next(line for line in out.splitlines() if "burst beside 32 busy connections" in line)
    assert line.split()[-5:] == ["400.0", "40.0", "0.10", "20.0x", "2.0x"]
    assert f"{before}: First come, first served: a burst waits 20 times as long beside 32 connections." in out
    picture = (tmp_path / "c.svg").read_text()
    assert picture.count("400.0 ms, 20.0x alone") == 5 and picture.count("40.0 ms, 2.0x alone") == 5
    assert list(json.loads((tmp_path / "c.json").read_text())) == [str(before), str(after)]


def test_results_of_different_loads_are_not_compared(two):
    before, after = two
    after.write_text(after.read_text().replace('"rate": 2000', '"rate": 4000'))
    status, out, err = run("--compare", before, after)
    assert (
        status
        and not out
        and err
        == ("nfs-floor: the two are not of the same load, so that nothing can be compared: rate is 2000 and 4000\n")
    )


@pytest.mark.parametrize(
    "change, problem",
    [
        (lambda text: "{", "is no JSON"),
        (lambda text: "[]", "is no result of this nfs-floor"),
        (lambda text: text.replace('"nfs-floor": 1', '"nfs-floor": 7'), "is no result of this nfs-floor"),
        (lambda text: text.replace('"p50"', '"p49"'), "is damaged"),
        (lambda text: text.replace('"did"', '"dod"'), "is damaged"),
    ],
)
def test_a_bad_result_is_one_line(two, change, problem):
    before, after = two
    after.write_text(change(after.read_text()))
    status, out, err = run("--compare", before, after)
    assert (
        status == 1 and problem in err and err.startswith(f"nfs-floor: {after}: ") and err.count("\n") == 1 and not out
    )


def test_what_the_figures_say_is_said(floor, whole):
    """Who goes first, if anybody can tell; and what was in the way of telling."""
    result = json.loads(json.dumps(whole[4]))
    by_name = {step["name"]: step for step in result["steps"]}

    def said(burst, bulk, **more):
        for name, figure in (("0", 20), ("4", 20), ("32", burst)):
            by_name[name]["burst_ns"] = {"count": 20, "p50": figure * 10**6}
        for name, figure in (("4", 20), ("32", bulk)):
            by_name[name]["busy"]["latency_ns"] = {"count": 20, "p50": figure * 10**6}
        by_name["32"] |= {"held": False, "client_busy": 0.0, **more}
        return " ".join(floor.verdict(result))

    assert said(670, 160) == "First come, first served: a burst waits 34 times as long beside 32 connections."
    assert said(30, 160) == "The busy connections have a backlog, and a burst goes ahead of it (1.5x)."
    assert said(22, 24).startswith("The server was not busy enough to say who goes first: give --bulk write")
    held = "The limit of 2000 requests a second held the busy connections back: that says little of the server."
    assert said(22, 24, held=True) == said(670, 160, held=True) == held
    assert said(15, 24) == "A burst took longer alone than beside others: something else was busy. Measure again."
    assert "This machine was as busy as the server" in said(670, 160, client_busy=0.9)


@pytest.mark.parametrize("vers", ["3", "4.1"])
def test_a_file_that_is_given_is_only_read(short, vers):
    with Server() as server:
        one = short(server, ("0", "slow", "share"), "--file", "big", "--vers", vers)
        one.measure()
        assert one.target.leave(True) == "" and left(server) == NOTHING and not one.result()["did"]["bytes_written"]
        assert not {"create", "write", "remove"} & set(server.calls) and "read" in server.calls


@pytest.mark.parametrize("vers", ["3", "4.1"])
def test_bulk_may_write_into_its_own_file_alone(short, vers):
    with Server() as server:
        one = short(server, ("4", "share"), "--bulk", "write", "--vers", vers)
        one.measure()
        assert one.target.leave(True) == "" and left(server) == NOTHING and server.files["big"] == bytes(16 << 20)
        assert server.calls.count("write") > (16 << 20) / (1 << 16)


@pytest.mark.parametrize("vers", ["3", "4.1"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("when", ["write", "read"])
def test_a_signal_ends_it_and_nothing_is_left(vers, number, when):
    with Server(service=0.0002) as server:
        line = [sys.executable, PROGRAM, *map(str, words(server, "--vers", vers, "--rate", 1000))]
        # nohup, or a shell's background, has some of them ignored, and this inherits it.
        heeded = functools.partial(signal.signal, number, signal.SIG_DFL)
        program = subprocess.Popen(line, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heeded)
        while server.calls.count(when) < 20 and program.poll() is None:
            time.sleep(0.01)
        program.send_signal(number)
        # A second one does not break the first one's work off.
        program.send_signal(number)
        out, err = program.communicate()
        assert program.returncode == 128 + number and left(server) == NOTHING
        assert err.startswith(f"nfs-floor: stopped by {number.name}") and err.count("\n") == 1
        assert "still" not in err and "Traceback" not in out + err


@pytest.mark.parametrize("vers", ["3", "4.1"])
@pytest.mark.parametrize(
    "then, problem",
    [
        ("close", r"the NFS server has closed a connection|the NFS server has ended a connection: .*"),
        ("garbage", "the NFS server does not speak RPC"),
        ("gone", r"the NFS server has (closed a|ended a) connection.*"),
    ],
)
def test_a_server_that_goes_away_is_one_line_and_what_was_measured_is_kept(vers, then, problem, tmp_path):
    with Server(after=8000 if vers == "4.1" else 2200, then=then) as server:
        status, out, err = run(*words(server, "--vers", vers, "--json", tmp_path / "r.json", "--rate", 4000))
        assert status == 1 and err.count("\n") == 1 and "Traceback" not in out + err
        assert re.match(rf"nfs-floor: ({problem}); \.nfs-floor-\w+ may still be in 127.0.0.1:/export, delete it ", err)
        result = json.loads((tmp_path / "r.json").read_text())
        assert result["ended"] and result["steps"][0]["name"] == "0" and ".nfs-floor-" in result["left"]
        assert re.search(r"\n *0 ", out)


def test_a_fault_of_the_program_leaves_nothing_either(floor, short, monkeypatch, capsys):
    with Server() as server:
        one = short(server, ("0",))

        def broken(*_):
            raise RuntimeError("a fault")

        monkeypatch.setattr(floor.Run, "beside", broken)
        monkeypatch.setattr(floor, "SIGNALS", ())
        with pytest.raises(RuntimeError):
            floor.measured(one.args)
        assert left(server) == NOTHING and "create" in server.calls and not capsys.readouterr().err


def test_what_was_measured_is_kept_if_nobody_reads_the_text(floor, short, monkeypatch, tmp_path):
    """As when a terminal is gone."""
    with Server() as server:
        one = short(server, ("0",), "--json", tmp_path / "r.json")

        def gone(*_, **__):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(floor, "print", gone, raising=False)
        monkeypatch.setattr(floor, "SIGNALS", ())
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        with pytest.raises(OSError):
            floor.measured(one.args)
        assert left(server) == NOTHING
    assert json.loads((tmp_path / "r.json").read_text())["steps"][0]["name"] == "0"


def test_with_nohup_a_terminal_that_goes_does_not_end_it(floor, short, monkeypatch):
    with Server() as server:
        one = short(server, ("0",))
        known = {}
        monkeypatch.setattr(floor.signal, "getsignal", lambda number: signal.SIG_IGN)
        monkeypatch.setattr(floor.signal, "signal", lambda number, what: known.setdefault(number, what))
        monkeypatch.setattr(floor.signal, "set_wakeup_fd", lambda *_, **__: None)
        assert floor.measured(one.args) == 0
    assert known[signal.SIGHUP] is signal.SIG_IGN and callable(known[signal.SIGTERM]) and callable(known[signal.SIGINT])


def test_a_name_may_have_any_bytes(tmp_path):
    """It goes to the server as it was typed, and what is said has it in ASCII where that is all that can be said."""
    with Server() as server:
        line = words(server, "--vers", "3", "--file", b"caf\xe9", "--json", tmp_path / "r.json")
        line = [one if isinstance(one, bytes) else str(one).encode() for one in line]
        program = [sys.executable.encode(), str(PROGRAM).encode(), *line]
        done = subprocess.run(program, capture_output=True, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.startswith(rb"nfs-floor: LOOKUP of caf\udce9: the server says NOENT")
    assert not (tmp_path / "r.json").exists()


def test_it_runs_where_python_is_of_2020():
    """Client machines have older ones than the servers that the patches are for."""
    import ast

    text = PROGRAM.read_text()
    ast.parse(text, feature_version=(3, 9))
    assert "from __future__ import annotations\n" in text and ".total()" not in text


def test_sessions_that_could_not_be_ended_are_said(floor, short, monkeypatch):
    monkeypatch.setattr(floor, "GOODBYE", 10**9)
    with Server() as server:
        one = short(server, ("0", "4"), "--vers", "4.1")
        one.measure()
        client = one.target.client()
        client.hello()
        assert one.target.leave(False) == "" and not set(server.files) - {"big"}
        assert len(server.sessions) == one.target.sessions == 1
    assert "No file is left, and sessions until their lease ends: 1." in floor.text(one.result())


def test_a_server_that_says_nothing_is_given_up(floor, short, monkeypatch):
    """With less patience than the program has, so that nobody waits for it."""
    monkeypatch.setattr(floor, "PATIENCE", 10**9)
    monkeypatch.setattr(floor, "GOODBYE", 10**9)
    with Server(after=300, then="mute") as server:
        one = short(server, ("0", "4"), "--vers", "3")
        with pytest.raises(floor.Problem, match="has not answered"):
            one.measure()
        assert "may still be in" in one.target.leave(False)


@pytest.mark.parametrize(
    "knobs, more, problem",
    [
        (
            {"fails": {"create": 13}},
            ["--vers", "3"],
            "CREATE of the scratch file: the server says ACCES: is it exported",
        ),
        (
            {"fails": {"create": 30}},
            ["--vers", "4.1"],
            "the server says ROFS: it is exported for reading only: give --file",
        ),
        (
            {"fails": {"write": 28}},
            ["--vers", "3"],
            "WRITE: the server says NOSPC: there is no room for the scratch file",
        ),
        ({"fails": {"write": 69}}, ["--vers", "4.1"], "WRITE: the server says DQUOT"),
        ({"fails": {"create": 10013}}, ["--vers", "4.1"], "the server says GRACE: the server was started a moment ago"),
        ({"fails": {"read": 10013}}, ["--vers", "4.1", "--file", "big"], "READ: the server says GRACE"),
        ({"fails": {"read": 5}}, ["--vers", "3"], "READ: the server says IO"),
        ({"fails": {"minor": 1}}, ["--vers", "4.1"], "MINOR_VERS_MISMATCH: the server has no NFSv4.1: try --vers 3"),
        ({"fails": {"exchange_id": 10016}}, ["--vers", "4.1"], "the export wants Kerberos"),
        ({"flavors": [390003]}, ["--vers", "3"], "the export wants Kerberos, which this program does not speak"),
        ({"slots": 4}, ["--vers", "4.1"], "the server's session takes 4 requests"),
        ({"kept": 0.5}, ["--vers", "3"], "the server has not written all of the scratch file"),
        ({}, ["--file", "none"], "LOOKUP of none: the server says NOENT"),
        ({}, ["--file", "small"], "the file has 7 bytes: it has to have 16 MiB at least"),
    ],
)
def test_a_server_that_refuses_is_one_line_and_nothing_is_left(knobs, more, problem):
    with Server(**knobs) as server:
        server.files["small"] = bytearray(7)
        status, out, err = run(*words(server, *more))
        assert status == 1 and problem in err and err.count("\n") == 1, err
        assert left(server)[:2] == NOTHING[:2]


def test_what_the_server_fails_with_now_and_then_is_counted(floor):
    loop = floor.Loop(1000)
    for _ in range(3):
        floor.failed(loop, "read", 10008)
    assert loop.failed == {"read DELAY": 3}
    with pytest.raises(floor.Problem, match="STALE"):
        floor.failed(loop, "read", 70)


@pytest.mark.parametrize(
    "words, problem",
    [
        ([], "give SERVER:/PATH, or --compare BEFORE AFTER"),
        (["server"], "server: not of the form SERVER:/PATH, as mount has it"),
        (["server:path"], "server:path: not of the form SERVER:/PATH"),
        (["fe80::1:/x"], "not of the form SERVER:/PATH"),
        (["s:/x", "--rate", "999"], "999 is no number from 1000 to 1000000"),
        (["s:/x", "--rate", "many"], "many is no number"),
        (["s:/x", "--seconds", "9"], "9 is no number from 10 to 3600"),
        (["s:/x", "--size-mb", "1"], "1 is no number from 16 to 65536"),
        (["s:/x", "--vers", "4"], "invalid choice: '4'"),
        (["s:/x", "--file", "a", "--bulk", "write"], "--bulk write writes, and --file is there to write nothing"),
        (["s:/x", "--compare", "a", "b"], "give SERVER:/PATH, or --compare BEFORE AFTER"),
        (["--compare", "a"], "expected 2 arguments"),
        (["--compare", "/nowhere/a", "/nowhere/b"], "/nowhere/a: No such file or directory"),
        (["--compare", "/dev/null", "/dev/null"], "/dev/null: give two results, of before and after"),
        (["s:/x", "--json", "/nowhere/r.json"], "/nowhere/r.json: No such file or directory"),
        (["s:/x"], "There is no terminal to ask: if that may be, say --yes"),
        (["name.invalid:/x", "--yes"], "name.invalid: there is no such server"),
        (["127.0.0.1:/x", "--yes", "--port", "1"], "cannot connect to the NFS server at 127.0.0.1, port 1: "),
        (
            ["127.0.0.1:/x", "--yes", "--vers", "3", "--mount-port", "1"],
            "cannot connect to mountd at 127.0.0.1, port 1: ",
        ),
    ],
)
def test_bad_input_is_one_line(words, problem):
    status, out, err = run(*words)
    assert status in (1, 2) and problem in err and err.count("\n") == 1 and not out, err


def test_it_asks_before_it_does_anything():
    """On a terminal, with what it is going to do; only a yes is one."""
    import os
    import pty

    with Server() as server:
        master, slave = pty.openpty()
        line = [word for word in map(str, words(server)) if word != "--yes"]
        program = subprocess.Popen([sys.executable, PROGRAM, *line], stdin=slave, stdout=slave, stderr=slave, text=True)
        os.close(slave)
        said = ""
        while "[y/N]" not in said:
            said += os.read(master, 1000).decode()
        assert not server.times
        os.write(master, b"\n")
        assert program.wait() == 1 and not server.times
        os.close(master)
    plain = " ".join(said.split())
    assert "at most 300 s, with at most 5000 requests a second on at most 33 connections" in plain
    assert "It writes a file of 16 MiB there, and deletes it again" in plain


@pytest.mark.parametrize(
    "server, wanted",
    [
        ("host:/a/b", ("host", "/a/b")),
        ("192.0.2.1:/", ("192.0.2.1", "/")),
        ("[2001:db8::1]:/x", ("2001:db8::1", "/x")),
        ("[fe80::1%eth0]:/x", ("fe80::1%eth0", "/x")),
    ],
)
def test_an_address_is_as_mount_has_it(floor, server, wanted):
    assert floor.address(server) == wanted
