# SPDX-License-Identifier: GPL-2.0
"""tools/nfsd-waits, on lines that a server's trace had, and against what the trace point prints."""

import functools
import re
import signal
import struct
import subprocess
import sys
import time
import types
import xml.etree.ElementTree

import pytest
from conftest import module_of

from testbed import util
from testbed.series import topics

PROGRAM = util.ROOT / "tools/nfsd-waits"
TRACED = "            nfsd-119     [000] .....     6.090000: svc_xprt_dequeue: server=192.0.2.1:2049 "
FLAGS = "flags=BUSY|DATA|TEMP|CACHE_AUTH|LOCAL|CONG_CTRL wakeup-us=12"


@pytest.fixture(scope="module")
def waits():
    return module_of(PROGRAM)


def line(client, us, tier=""):
    return f"{TRACED}client={client} {FLAGS} qtime-us={us}" + (f" tier={tier}" if tier else "")


MIXED = [
    *(line("192.0.2.9:1001", 1000 * n, "3") for n in range(1, 101)),
    *(line("192.0.2.7:1021", us, "0") for us in (2, 4, 6)),
    line("192.0.2.7:1022", 9, "3"),
    line("[2001:db8::7]:900", 5, "1"),
    TRACED + "client=(einval) flags=BUSY|CONN|LISTENER|CACHE_AUTH wakeup-us=10 qtime-us=10 tier=0",
    TRACED.replace("dequeue", "enqueue") + "client=192.0.2.9:1001 flags=BUSY|DATA",
]


def run(*words):
    return util.run(sys.executable, PROGRAM, *words, check=False)


def saved(place, lines):
    path = place / "trace"
    path.write_text("".join(f"{one}\n" for one in lines))
    return path


def test_each_client_has_a_line_for_each_tier(tmp_path):
    done = run("--from", saved(tmp_path, MIXED))
    assert not done.returncode and done.stdout.splitlines() == [
        "client       tier  dispatches    %  p50 ms  p99 ms  longest ms",
        "192.0.2.9    3            100  100  50.000  99.000     100.000",
        "192.0.2.7    0              3   75   0.004   0.006       0.006",
        "192.0.2.7    3              1   25   0.009   0.009       0.009",
        "2001:db8::7  1              1  100   0.005   0.005       0.005",
        "Mostly in the last tier: 192.0.2.9.",
    ]


def test_a_socket_without_a_peer_is_kept_apart(waits):
    """All clients of UDP share one socket, which has no address of a client."""
    assert list(waits.read([line("(einval)", 7, "3")], ports=False)[0]) == ["(einval)"]


def test_ports_tell_connections_apart(waits):
    found, _ = waits.read(MIXED, ports=True)
    assert sorted(found) == ["192.0.2.7:1021", "192.0.2.7:1022", "192.0.2.9:1001", "[2001:db8::7]:900"]


def test_a_kernel_without_tiers_has_one_line_a_client(tmp_path):
    done = run("--from", saved(tmp_path, [line("192.0.2.9:1001", 700)]))
    assert "192.0.2.9  all " in done.stdout and "This kernel has no tiers." in done.stdout


def test_lost_events_are_said(tmp_path):
    done = run("--from", saved(tmp_path, ["CPU:0 [LOST 12 EVENTS]", *MIXED, "CPU:1 [LOST 3 EVENTS]"]))
    assert "The trace lost 15 events" in done.stdout


@pytest.mark.parametrize("share, wanted", [(50, 50), (99, 99), (100, 100), (1, 1)])
def test_a_percentile_is_a_wait_that_was(waits, share, wanted):
    assert waits.percentile(list(range(100, 0, -1)), share) == wanted


def test_the_picture_has_a_bar_for_each_line(tmp_path):
    picture = tmp_path / "waits.svg"
    run("--from", saved(tmp_path, MIXED), "--svg", picture)
    rects = xml.etree.ElementTree.parse(picture).getroot().findall("{http://www.w3.org/2000/svg}rect")
    bars = [(float(one.get("x")), float(one.get("width"))) for one in rects if one.get("x")]
    assert len(bars) == 4
    assert bars[0][0] > bars[1][0], "longer waits stand further to the right"
    assert all(x + wide <= 230 + 500 + 3 for x, wide in bars)


@pytest.mark.parametrize(
    "words, problem",
    [
        (("0",), "0 seconds: give more than 0"),
        (("nan",), "nan seconds: give more than 0, and no more than a day"),
        (("inf",), "inf seconds: give more than 0, and no more than a day"),
        (("--from", "/nowhere/trace"), "/nowhere/trace"),
        (("--from", "/dev/null"), "/dev/null: no line of svc_xprt_dequeue"),
        (("soon",), "invalid float value: 'soon'"),
    ],
)
def test_bad_input_is_one_line(words, problem):
    done = run(*words)
    assert done.returncode and problem in done.stdout.splitlines()[-1] and "Traceback" not in done.stdout


def test_it_listens_in_an_instance_of_its_own(waits, tmp_path, monkeypatch):
    monkeypatch.setattr(waits, "TRACING", tmp_path)
    with pytest.raises(waits.Problem, match="is not there: be root"):
        list(waits.record(1))


# The program with a directory in the place of tracefs, which makes the files of an instance and, like the kernel, keeps
# an instance whose trace_pipe somebody has open.
TRACEFS = """
import errno, os, pathlib, shutil, sys, types

program, place = map(pathlib.Path, sys.argv[1:3])
waits = types.ModuleType("nfsd_waits")
exec(compile(program.read_text(), str(program), "exec"), waits.__dict__)
waits.TRACING = place
(place / "events" / waits.EVENT).mkdir(parents=True)
(place / "instances").mkdir()
kept = []

def made(path):
    os.makedirs(path / "events" / waits.EVENT)
    os.mkfifo(path / "trace_pipe")
    kept.append(os.open(path / "trace_pipe", os.O_RDWR))

def removed(path):
    names = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    if names.count(str(path / "trace_pipe")) > 1:
        raise OSError(errno.EBUSY, "Device or resource busy", str(path))
    shutil.rmtree(path)

pathlib.Path.mkdir, pathlib.Path.rmdir = made, removed
sys.argv[1:] = sys.argv[3:]
waits.main()
"""


@pytest.mark.parametrize("number", [None, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_its_instance_goes_however_it_ends(tmp_path, number):
    seconds = "60" if number else "0.1"
    line = [sys.executable, "-c", TRACEFS, PROGRAM, tmp_path, seconds]
    # In the background, as CI may be, Ctrl-C is ignored, and children inherit that.
    default = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    program = subprocess.Popen(line, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=default)
    if number:
        while program.poll() is None and not list(tmp_path.glob("instances/*/events/*/*/enable")):
            time.sleep(0.01)
        time.sleep(0.2)
        program.send_signal(number)
    out, err = program.communicate()
    assert not list((tmp_path / "instances").iterdir())
    assert (program.returncode, out) == (128 + number if number else 1, "")
    assert err == ("" if number else "nfsd-waits: no connection was served meanwhile\n")


def test_its_instance_goes_when_a_line_is_looked_at(waits, monkeypatch):
    """A signal may come there as well as where it waits."""
    ends = []

    def lines():
        try:
            yield from MIXED
        finally:
            ends.append("cleaned up")

    def broken(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(waits, "LOST", types.SimpleNamespace(search=broken))
    listening = lines()
    with pytest.raises(KeyboardInterrupt):
        waits.read(listening, ports=False)
    assert ends == ["cleaned up"]


def test_a_kernel_that_does_not_say_how_long_is_told(waits, tmp_path, monkeypatch):
    monkeypatch.setattr(waits, "TRACING", tmp_path)
    place = tmp_path / "events" / waits.EVENT
    place.mkdir(parents=True)
    (place / "format").write_text('print fmt: "server=%pISpc client=%pISpc flags=%s wakeup-us=%lu", REC->wakeup\n')
    with pytest.raises(waits.Problem, match="this kernel does not say how long a connection waited"):
        list(waits.record(1))


def printed():
    """What the series has the trace point print: the formats of the patches' newest svc_xprt_dequeue."""
    for topic in reversed(topics.series()):
        for patch in reversed(topic.patches):
            found = re.findall(r'^\+.*"( wakeup-us=%lu qtime-us=%lu[^"]*)"', patch.read_text(), re.M)
            if found:
                return found[-1]


def test_the_program_reads_what_the_series_prints(waits):
    text = printed()
    assert text, "no patch prints qtime-us: bring tools/nfsd-waits and this test up to date"
    values = iter(("12", "345"))
    text = re.sub(r"%lu", lambda _: next(values), text).replace("tier=%u", "tier=3")
    one = TRACED + "client=192.0.2.9:1001 flags=BUSY|DATA" + re.sub(r"%\w+", "7", text)
    assert waits.read([one], ports=False)[0] == {"192.0.2.9": {"3": [345]}}


def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def counted(waits, address, session, dispatches, seconds, waited, received, sent):
    """An entry as the kernel has it: a number has four bytes or eight."""
    entry = attribute(waits.ADDRESS, bytes(address))
    if session:
        entry += attribute(waits.CLIENTID, struct.pack("=Q", session))
    for kind, number in ((waits.WEIGHT, 100), (waits.CONNECTIONS, 2), (waits.DISPATCHES, dispatches)):
        entry += attribute(kind, struct.pack("=I", number))
    for kind, number in (
        (waits.THREAD_TIME, seconds * 10**9),
        (waits.WAITED, waited * 10**9),
        (waits.RECEIVED, received),
        (waits.SENT, sent),
    ):
        entry += attribute(kind, struct.pack("=Q", number))
    return waits.client(waits.attributes(entry))


def test_who_has_had_the_threads_comes_first(waits):
    user, bulk, v6 = (192, 0, 2, 7), (192, 0, 2, 9), (0x20, 1, 0xD, 0xB8, *[0] * 11, 1)
    before = dict([counted(waits, user, 0, 10, 1, 1, 0, 0), counted(waits, v6, 0, 99, 99, 99, 99, 99)])
    after = dict(
        [
            counted(waits, user, 0, 20, 2, 1, 10**6, 0),
            counted(waits, bulk, 0xAB, 1000, 100, 50, 0, 10**9),
            # It has come anew
            counted(waits, v6, 0, 10, 20, 0, 0, 0),
        ]
    )
    assert waits.load(before, after, 10).splitlines() == [
        "client       session           weight  connections  threads  waiting  dispatches/s  in MB/s  out MB/s",
        "192.0.2.9    00000000000000ab     100            2     10.0      5.0         100.0      0.0     100.0",
        "2001:db8::1  -                    100            2      2.0      0.0           1.0      0.0       0.0",
        "192.0.2.7    -                    100            2      0.1      0.0           1.0      0.1       0.0",
    ]


def test_a_kernel_without_the_family_has_no_clients(waits, monkeypatch):
    def missing(*_):
        raise OSError(2, "No such file or directory")

    monkeypatch.setattr(waits, "asked", missing)
    assert waits.clients() == {}


def test_a_kernel_whose_command_is_another_one_has_no_clients(waits, monkeypatch):
    monkeypatch.setattr(waits, "asked", lambda *_: [{1: b"name\0"}])
    assert waits.clients() == {}


def test_the_numbers_of_netlink_are_those_of_the_series(waits):
    """The last of the commands, and all that is said of a client."""
    patches = [patch for topic in topics.series() for patch in topic.patches]
    header = [topics.changes(patch).get("include/uapi/linux/nfsd_netlink.h", []) for patch in patches]
    added = "\n".join(line[1:] for lines in header for line in lines if line.startswith("+"))
    names = re.findall(r"^\tNFSD_A_CLIENT_(\w+)(?: = 1)?,$", added, re.M)
    assert [getattr(waits, name) for name in names] == list(range(1, len(names) + 1)) and len(names) == 9
    # 19 are the base's
    commands = re.findall(r"^\tNFSD_CMD_(\w+),$", added, re.M)
    assert commands[-1] == "CLIENT_GET" and 19 + len(commands) == waits.CLIENT_GET
