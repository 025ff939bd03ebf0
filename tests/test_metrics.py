# SPDX-License-Identifier: GPL-2.0
"""tools/nfsd-metrics: what it prints is in Prometheus' format, and says what the kernel says."""

import re
import struct
import subprocess
import sys

import pytest
from conftest import module_of
from prometheus_client import parser

from testbed import util
from testbed.series import topics

PROGRAM = util.ROOT / "tools/nfsd-metrics"
EXAMPLES = util.ROOT / "docs/nfsd-alerts.yml"
STATS = """# Version 1.1
# Path Client Start-time
#\tStats
/srv/a\\040b\t*\t117
\tfh_stale: 2
\tio_read: 4096
\tio_write: 5

/srv/c\t192.0.2.0/24\t118
\tfh_stale: 0
\tio_read: 1
\tio_write: 9007199254740992

"""
PATCHED = {
    "fs/nfsd/threads": "16\n",
    "fs/nfsd/pool_threads": "8 8\n",
    "fs/nfsd/pool_stats": "# pool packets-arrived sockets-enqueued threads-woken\n0 7 6 5\n1 4 3 2\n",
    "fs/nfsd/export_stats": STATS,
    "net/rpc/nfsd": "rc 0 0 9\nio 4097 5\nth 12 0 0.000\nnet 9 0 9 2\n",
}


@pytest.fixture
def metrics(tmp_path, monkeypatch):
    """The program as a module that sees no kernel of this machine's."""
    module = module_of(PROGRAM)
    monkeypatch.setattr(module, "PROC", tmp_path / "proc")

    def nothing(command, name):
        raise module.Missing(f"this kernel has no {name} by netlink")

    monkeypatch.setattr(module, "dumped", nothing)
    return module


def kernel(metrics, files):
    for name, text in files.items():
        path = metrics.PROC / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def read(text):
    """{(metric, its labels): value}, by Prometheus' own reader; and what its linter would say is not there."""
    found = {}
    for family in parser.text_string_to_metric_families(text):
        assert family.documentation and family.type in ("gauge", "counter"), family
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, f"{key} is there twice"
            assert (family.type == "counter") == sample.name.endswith("_total"), sample
            found[key] = sample.value
    # The reader takes more than the collector does.
    for line in text.splitlines():
        assert line.startswith("# ") or re.fullmatch(
            r'nfsd_\w+(\{(\w+="([^"\\\n]|\\[\\"n])*",?)+\})? -?[\d.e+-]+', line
        ), line
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names)) and text.endswith("\n")
    return found


def value(found, name, **labels):
    return found[name, tuple(sorted(labels.items()))]


def test_what_a_patched_kernel_says_is_there(metrics):
    kernel(metrics, PATCHED)
    found = read(metrics.collect().text())
    assert value(found, "nfsd_threads") == 12 and value(found, "nfsd_threads_max", pool="1") == 8
    assert value(found, "nfsd_pool_messages_arrived_total", pool="0") == 7
    assert value(found, "nfsd_pool_queued_total", pool="1") == 3
    assert value(found, "nfsd_pool_threads_woken_total", pool="1") == 2
    assert value(found, "nfsd_export_read_bytes_total", export="/srv/a b", client="*") == 4096
    assert value(found, "nfsd_export_stale_handles_total", export="/srv/a b", client="*") == 2
    assert value(found, "nfsd_export_written_bytes_total", export="/srv/c", client="192.0.2.0/24") == 2**53
    assert value(found, "nfsd_source_available", source="export_stats") == 1


def test_what_a_kernel_does_not_have_is_said(metrics):
    kernel(metrics, {name: text for name, text in PATCHED.items() if not name.endswith("export_stats")})
    text = metrics.collect().text()
    found = read(text)
    assert value(found, "nfsd_source_available", source="export_stats") == 0
    assert value(found, "nfsd_source_available", source="export_io") == 0
    assert value(found, "nfsd_source_available", source="pool_stats") == 1
    assert "# export_stats is not here: this kernel has no /proc/fs/nfsd/export_stats\n" in text
    assert "# export_io is not here: this kernel has no export-io-get by netlink\n" in text
    assert "# clients is not here: this kernel has no client-get by netlink\n" in text
    assert "nfsd_export_read_bytes_total" not in text


@pytest.mark.parametrize(
    "name, text, why",
    [
        ("fs/nfsd/pool_stats", "# pool packets-arrived\n", "no server is running"),
        ("fs/nfsd/pool_stats", "", "of a form that this program does not know"),
        ("fs/nfsd/pool_stats", "# pool a b c d e f\n0 1 2\n", "of a form that this program does not know"),
        ("fs/nfsd/pool_stats", "# pool packets-arrived\n0 many\n", "of a form that this program does not know"),
    ],
)
def test_a_file_of_another_form_is_left_out(metrics, name, text, why):
    kernel(metrics, PATCHED | {name: text})
    said = metrics.collect().text()
    assert read(said) and f"# {name.rpartition('/')[2]} is not here: " in said and why in said


def entry(metrics, *parts):
    return [one for part in parts for one in metrics.attributes(part)]


def test_what_netlink_says_of_an_export(metrics):
    attribute, u32, u64 = metrics.attribute, struct.Struct("=I").pack, struct.Struct("=Q").pack
    found = metrics.Found()
    ops = attribute(2, u32(3)) + attribute(3, u32(7)) + attribute(4, u64(2**40))
    writes = attribute(1, b"") + attribute(2, u32(0)) + attribute(3, u32(1)) + attribute(4, u32(0))
    fallback = attribute(1, b"") + attribute(2, u32(8)) + attribute(3, u32(4))
    unknown = attribute(2, u32(77)) + attribute(3, u32(1))
    of = attribute(1, b'/srv/"x"\\y\0') + attribute(2, b"10.0.0.0/8\0") + attribute(3, u64(1))
    of += attribute(4 | 0x8000, ops) + attribute(4 | 0x8000, writes) + attribute(5 | 0x8000, fallback)
    of += attribute(5, unknown) + attribute(6, u32(0)) + attribute(7, u32(3))
    metrics.export_entry(found, list(metrics.attributes(of)))
    said = read(found.text())
    export = {"export": '/srv/"x"\\y', "client": "10.0.0.0/8"}
    assert value(said, "nfsd_export_io_requests_total", **export, op="read", how="direct") == 7
    assert value(said, "nfsd_export_io_bytes_total", **export, op="read", how="direct") == 2**40
    assert value(said, "nfsd_export_io_requests_total", **export, op="write", how="buffered") == 1
    assert value(said, "nfsd_export_io_not_direct_total", **export, op="write", reason="split") == 4
    assert value(said, "nfsd_export_io_not_direct_total", **export, op="read", reason="unknown-77") == 1
    assert value(said, "nfsd_export_io_mode_info", **export, op="read", mode="default") == 1
    assert value(said, "nfsd_export_io_mode_info", **export, op="write", mode="direct") == 1


def test_what_netlink_says_of_a_client(metrics, monkeypatch):
    attribute, u32, u64 = metrics.attribute, struct.Struct("=I").pack, struct.Struct("=Q").pack
    numbers = [attribute(3, u32(400)), attribute(4, u32(2)), attribute(5, u32(7)), attribute(6, u64(1_500_000_000))]
    numbers += [attribute(7, u64(250_000_000)), attribute(8, u64(2**40)), attribute(9, u32(5))]
    four = [attribute(1, bytes([192, 0, 2, 6])), attribute(2, u64(0xA93CF94E6553F105)), *numbers]
    six = [attribute(1, bytes.fromhex("20010db8") + bytes(11) + b"\1"), *numbers]
    entries = {metrics.CLIENT_GET: [entry(metrics, *four), entry(metrics, *six)], metrics.EXPORT_IO_GET: []}
    monkeypatch.setattr(metrics, "dumped", lambda command, name: entries[command])
    kernel(metrics, PATCHED)
    said = read(metrics.collect().text())
    for of in ({"client": "192.0.2.6", "clientid": "0xa93cf94e6553f105"}, {"client": "2001:db8::1"}):
        assert value(said, "nfsd_client_weight", **of) == 400
        assert value(said, "nfsd_client_connections", **of) == 2
        assert value(said, "nfsd_client_dispatches_total", **of) == 7
        assert value(said, "nfsd_client_thread_seconds_total", **of) == 1.5
        assert value(said, "nfsd_client_wait_seconds_total", **of) == 0.25
        assert value(said, "nfsd_client_received_bytes_total", **of) == 2**40
        assert value(said, "nfsd_client_sent_bytes_total", **of) == 5
    assert value(said, "nfsd_source_available", source="clients") == 1


def added(path):
    """What the series adds to a file, patch after patch."""
    patches = [patch for topic in topics.series() for patch in topic.patches]
    lines = [line for patch in patches for line in topics.changes(patch).get(path, []) if line.startswith("+")]
    return "\n".join(line[1:] for line in lines)


def test_the_numbers_of_netlink_are_those_of_the_series(metrics):
    spec, header = added("Documentation/netlink/specs/nfsd.yaml"), added("include/uapi/linux/nfsd_netlink.h")
    for known, prefix in ((metrics.HOW, "HOW"), (metrics.REASON, "REASON"), (metrics.MODE, "MODE")):
        names = dict.fromkeys(re.findall(rf"^\tNFSD_IO_{prefix}_(\w+),$", header, re.M))
        assert [name.lower() for name in names] == list(known)
    attributes = re.findall(r"^\tNFSD_A_EXPORT_IO_(\w+)(?: = 1)?,$", header, re.M)
    assert [getattr(metrics, name) for name in attributes] == list(range(1, 8))
    for prefix in ("OPS", "FALLBACK"):
        inner = re.findall(rf"^\tNFSD_A_IO_{prefix}_(\w+)(?: = 1)?,$", header, re.M)
        assert [getattr(metrics, f"{prefix}_{name}") for name in inner] == list(range(1, len(inner) + 1)) and inner
    of_client = re.findall(r"^\tNFSD_A_CLIENT_(\w+)(?: = 1)?,$", header, re.M)
    assert [getattr(metrics, name) for name in of_client] == list(range(1, len(of_client) + 1)) and of_client
    assert "name: export-io-get" in spec and "NFSD_CMD_EXPORT_IO_GET" in header
    assert "name: client-get" in spec and "NFSD_CMD_CLIENT_GET" in header


def test_a_client_that_is_there_twice_is_one(metrics, monkeypatch):
    """A dump of many messages may have one again when others come meanwhile."""
    u32 = struct.Struct("=I").pack
    of = [(1, bytes([192, 0, 2, 6])), (3, u32(100)), (4, u32(2)), (5, u32(7))]
    of += [(kind, u32(0)) for kind in range(6, 10)]
    later = [(kind, u32(8)) if kind == 5 else (kind, data) for kind, data in of]
    monkeypatch.setattr(metrics, "dumped", lambda command, name: [of, later] if command == metrics.CLIENT_GET else [])
    kernel(metrics, PATCHED)
    said = read(metrics.collect().text())
    assert value(said, "nfsd_client_dispatches_total", client="192.0.2.6") == 8
    assert value(said, "nfsd_client_weight", client="192.0.2.6") == 100


def test_a_path_may_have_any_bytes(metrics, monkeypatch):
    """The collector takes a file of UTF-8 or none of it; and only a newline ends a line of /proc."""
    odd = b"/srv/caf\xe9\t*\t1\n\tio_read: 5\n\n/srv/a\xe2\x80\xa8b\x0cc\rd\t*\t1\n\tio_read: 7\n\n"
    kernel(metrics, PATCHED)
    (metrics.PROC / "fs/nfsd/export_stats").write_bytes(b"# Version 1.1\n" + odd)
    entries = {metrics.EXPORT_IO_GET: [[(1, b"/srv/caf\xe9\0"), (2, b"*\0"), (6, bytes(4))]], metrics.CLIENT_GET: []}
    monkeypatch.setattr(metrics, "dumped", lambda command, name: entries[command])
    said = metrics.collect().text().encode().decode()
    assert r'nfsd_export_read_bytes_total{export="/srv/caf\\xe9",client="*"} 5' in said
    assert 'nfsd_export_read_bytes_total{export="/srv/a\u2028b\x0cc\rd",client="*"} 7' in said
    assert r'nfsd_export_io_mode_info{export="/srv/caf\\xe9",client="*",op="read",mode="default"} 1' in said


def test_a_kernel_whose_command_is_another_one_is_left_out(metrics, monkeypatch):
    monkeypatch.setattr(metrics, "dumped", lambda command, name: [[(1, b"ab"), (77, b"")]])
    kernel(metrics, PATCHED)
    text = metrics.collect().text()
    found = read(text)
    for source in ("export_io", "clients"):
        assert value(found, "nfsd_source_available", source=source) == 0
        assert f"# {source} is not here: the kernel's answer is of a form that this program does not know\n" in text


def test_a_dump_that_ends_with_an_error_is_one(metrics):
    class Kernel:
        def send(self, _):
            pass

        def recv(self, _):
            return struct.pack("=IHHIIi", 20, 3, 2, 1, 0, -90)

    with pytest.raises(OSError, match="Message too long"):
        metrics.asked(Kernel(), 30, metrics.EXPORT_IO_GET, b"", True)


def test_waits_that_may_not_be_seen_do_not_keep_the_rest(metrics, monkeypatch):
    waits = metrics.program()
    monkeypatch.setattr(metrics, "program", lambda: waits)

    def record(_):
        raise PermissionError(13, "Permission denied", "/sys/kernel/tracing")

    monkeypatch.setattr(waits, "record", record)
    kernel(metrics, PATCHED)
    text = metrics.collect(2).text()
    assert "# waits is not here: [Errno 13] Permission denied: '/sys/kernel/tracing'\n" in text
    assert value(read(text), "nfsd_threads") == 12


def run(*words):
    return subprocess.run([sys.executable, PROGRAM, *map(str, words)], text=True, capture_output=True)


@pytest.mark.parametrize(
    "words, problem",
    [
        (["--output", "/nowhere/x.prom"], "/nowhere: there is no such directory"),
        (["--waits", "-1"], "--waits -1: give seconds, from 0 to 3600"),
        (["--waits", "soon"], "invalid float value: 'soon'"),
        (["--wait-for"], "unrecognized arguments: --wait-for"),
    ],
)
def test_bad_input_is_one_line(words, problem):
    done = run(*words)
    assert done.returncode and problem in done.stderr and done.stderr.count("\n") == 1 and not done.stdout


def test_without_a_server_it_is_one_line_that_says_what_to_do(metrics):
    with pytest.raises(metrics.Problem, match="is not there: be root on the server, `modprobe nfsd`, `mount"):
        metrics.collect()


def test_the_file_is_whole_or_as_it_was(metrics, tmp_path, monkeypatch):
    path = tmp_path / "nfsd.prom"
    metrics.put(path, "first\n")
    assert path.read_text() == "first\n" and path.stat().st_mode & 0o777 == 0o644
    seen = []
    rename = metrics.os.rename
    monkeypatch.setattr(metrics.os, "rename", lambda *names: seen.append(path.read_text()) or rename(*names))
    metrics.put(path, "second\n")
    assert seen == ["first\n"] and path.read_text() == "second\n"

    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(metrics.os, "rename", broken)
    with pytest.raises(OSError):
        metrics.put(path, "third\n")
    assert [one.name for one in tmp_path.iterdir()] == ["nfsd.prom"] and path.read_text() == "second\n"
    with pytest.raises(metrics.Problem, match=r"nfsd.txt: the collector reads files that end in .prom"):
        metrics.put(tmp_path / "nfsd.txt", "")


def test_waits_are_those_of_the_program_beside_it(metrics, monkeypatch):
    waits = metrics.program()
    monkeypatch.setattr(metrics, "program", lambda: waits)
    clients = {"192.0.2.7": {"0": [2, 4]}, "192.0.2.9": {"0": [6], "3": [1_500_000]}}
    monkeypatch.setattr(waits, "record", lambda seconds: seconds)
    monkeypatch.setattr(waits, "read", lambda lines, ports: (clients, 3))
    kernel(metrics, PATCHED)
    text = metrics.collect(2).text()
    found = read(text)
    assert value(found, "nfsd_wait_median_seconds", tier="0") == 4e-06
    assert value(found, "nfsd_wait_longest_seconds", tier="3") == 1.5
    assert value(found, "nfsd_wait_dispatches", tier="0") == 3
    assert "the trace lost 3 events" in text and value(found, "nfsd_source_available", source="waits") == 1


def test_the_examples_ask_for_metrics_that_there_are(metrics):
    """Every query of docs/nfsd-alerts.yml, and of the page that shows them."""
    text = EXAMPLES.read_text() + (util.ROOT / "docs/watching.md").read_text()
    asked = set(re.findall(r"\bnfsd_(?!waits\b)\w+", text))
    known = set(metrics.METRICS) | {"nfsd_io_plan", "nfsd_io"}
    assert asked <= known and len(asked & set(metrics.METRICS)) >= 7
    for reasons in re.findall(r'reason[!=]~"([^"]*)"', EXAMPLES.read_text()):
        assert set(reasons.split("|")) <= set(metrics.REASON)
    for labels in re.findall(r"nfsd_\w+\{([^}]*)\}", EXAMPLES.read_text()):
        assert set(re.findall(r"(\w+)[=!~]+\"", labels)) <= {
            "tier",
            "pool",
            "source",
            "op",
            "reason",
            "how",
            "now",
            "export",
        }
