# SPDX-License-Identifier: GPL-2.0
"""Builds, boots and what survives when they are killed."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from conftest import Fail

from testbed import cli, host, util
from testbed.machines import boot, guest, kernel, kinds
from testbed.series import base, topics
from testbed.suites import selftests as suites


def test_an_option_that_did_not_survive_is_named():
    options = {"CONFIG_NFSD": "y", "CONFIG_SMP": "n", "CONFIG_NR_CPUS": "4", "CONFIG_CON_CHAN": '"null"'}
    config = 'CONFIG_NFSD=y\n# CONFIG_SMP is not set\nCONFIG_NR_CPUS=4\nCONFIG_CON_CHAN="null"\n'
    assert kernel.lost(options, config) == []
    assert kernel.lost(options, "CONFIG_SMP=y\nCONFIG_NR_CPUS=4\n") == [
        "CONFIG_NFSD=y (is n)",
        "CONFIG_SMP=n (is y)",
        'CONFIG_CON_CHAN="null" (is n)',
    ]


def test_what_another_command_has_installed_meanwhile_is_not_installed_again(monkeypatch):
    came = []
    absent = iter([["flex"], []])
    monkeypatch.setattr(host, "missing", lambda _: next(absent))
    monkeypatch.setattr(host, "as_root", lambda *argv: came.append(argv))
    monkeypatch.setattr(host.shutil, "which", lambda name: f"/usr/bin/{name}")
    host.setup({"flex": "why"})
    assert came == []
    absent = iter([["flex"], ["flex"]])
    host.setup({"flex": "why"})
    assert [argv[1] for argv in came] == ["update", "install"] and came[1][-1] == "flex"


@pytest.mark.parametrize("kind", kinds.BOOTED)
def test_every_fragment_asks_for_something(kind):
    asked = kernel.asked(kernel.flavour(kind).fragments)
    assert asked["CONFIG_PROC_FS"] == "y"
    assert (asked.get("CONFIG_UML_TIME_TRAVEL_SUPPORT", "n") == "n") == (kind in ("smp", "x86"))
    assert kinds.KINDS[kind].qemu == (kind == "x86")


def test_a_topic_may_have_options_for_one_fragment_alone(tmp_path):
    for name in ("a.config", "a.debug.config", "b.config", "b.x86.config"):
        (tmp_path / name).write_text("CONFIG_X=y\n")
    own = (tmp_path / "a.config", tmp_path / "b.config")

    def names(kind):
        found = kernel.Flavour(kinds.KINDS[kind], own).fragments
        return [path.name for path in found if path.parent == tmp_path]

    assert names("debug") == ["a.config", "b.config", "a.debug.config"]
    assert names("x86") == names("clang") == ["a.config", "b.config", "b.x86.config"]
    assert names("sim") == ["a.config", "b.config"]


def test_a_kind_of_machine_that_there_is_not_is_none_of_qemus():
    for kind in ("debian", "deb"):
        assert kinds.KINDS[kind].packaged and kinds.KINDS[kind].qemu and kinds.KINDS[kind].clock == "counted"
    assert not kinds.simulated("x86") and not kinds.simulated("host") and kinds.simulated("debug")
    with pytest.raises(Fail, match="KIND=x68: there is no such machine .meant: x86"):
        kinds.named("x68")


@pytest.mark.parametrize("kind, cpus", [("x86", "2"), ("debian", "1"), ("deb", "1")])
def test_debians_kernels_have_a_clock_that_counts_instructions(tmp_path, kind, cpus):
    image = tmp_path / "root/boot/vmlinuz-7"
    with boot.machine(kind, image, tmp_path / "run.sh", tmp_path, (), False, root=tmp_path) as (line, _):
        assert line[line.index("-smp") + 1] == cpus and ("-icount" in line) == (cpus == "1")


def write(path, when):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    os.utime(path, (when, when))


def test_a_killed_build_loses_only_what_it_had_not_finished(tmp_path):
    now = time.time()
    write(tmp_path / "old.o", now - 500)
    write(tmp_path / "building", now - 100)
    write(tmp_path / "done.o", now - 60)
    write(tmp_path / ".done.o.cmd", now - 59)
    write(tmp_path / "half.o", now - 50)
    write(tmp_path / "stale.o", now - 50)
    write(tmp_path / ".stale.o.cmd", now - 400)
    write(tmp_path / "include/generated/put.h", now - 90)
    write(tmp_path / "last.o", now - 2)
    write(tmp_path / ".last.o.cmd", now - 1)
    kernel.sweep(tmp_path)
    left = {p.name for p in tmp_path.rglob("*") if p.is_file()}
    assert left == {"old.o", "building", "done.o", ".done.o.cmd", ".stale.o.cmd", "put.h"}


def test_a_finished_build_is_not_swept(tmp_path):
    write(tmp_path / "half.o", time.time())
    kernel.sweep(tmp_path)
    assert (tmp_path / "half.o").exists()


def test_only_a_killed_build_is_swept(tmp_path):
    with pytest.raises(Fail), kernel.building(tmp_path):
        raise Fail("make failed")
    assert not (tmp_path / "building").exists()
    with pytest.raises(KeyboardInterrupt), kernel.building(tmp_path):
        raise KeyboardInterrupt
    assert (tmp_path / "building").exists()


def test_half_made_things_are_never_seen(tmp_path):
    place = tmp_path / "thing"
    with pytest.raises(RuntimeError), util.whole(place) as part:
        part.mkdir()
        (part / "half").write_text("x")
        raise RuntimeError
    assert not place.exists()
    with util.whole(place) as part:
        assert not part.exists()
        part.mkdir()
    assert place.is_dir() and not part.exists()


def test_a_full_disk_is_seen_before_work_begins(tmp_path):
    with pytest.raises(Fail, match="XDG_CACHE_HOME"):
        util.need_space(tmp_path, 1e9, "all of it")


def test_a_command_that_is_missing_says_so():
    with pytest.raises(Fail, match="make setup"):
        util.run("no-such-command-anywhere")


def test_a_command_speaks_english_whatever_the_user_speaks(monkeypatch):
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert util.run("sh", "-c", "echo $LC_ALL").stdout == "C.UTF-8\n"


@pytest.fixture(params=["sim", "smp", "x86"])
def machine(tmp_path, monkeypatch, request):
    """boot() with a shell script in the place of the kernel, or of QEMU: it gets the boot line and plays the guest."""
    monkeypatch.setattr(guest, "root", lambda: tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def run(body, limit=20):
        for name in ("linux", "qemu-system-x86_64"):
            path = tmp_path / name
            path.write_text(f"#!/bin/bash\n{body}\n")
            path.chmod(0o755)
        return boot.boot(tmp_path / "linux", tmp_path / "script", tmp_path / "results", limit, request.param)

    return run


def test_a_healthy_guest_passes_and_leaves_its_results(machine):
    where = machine("echo Linux version; echo 0 > exit; echo 42 > figure")
    assert (where / "figure").read_text() == "42\n" and "Linux version" in (where / "console").read_text()


def gone(pid):
    """Whether a process ends soon; one that nobody has waited for yet has ended."""
    for _ in range(200):
        try:
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):  # before it was opened, or before it was read
            return True
        if stat.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    "line",
    [
        "Kernel panic - not syncing: Attempted to kill init!",
        "BUG: kernel NULL pointer dereference, address: 0000000000000000",
        "WARNING: net/sunrpc/svc_xprt.c:123 at svc_recv+0x12/0x34, CPU#0: nfsd/77",
        "Oops: 0002 [#1]",
        "INFO: task nfsd:42 blocked for more than 120 seconds.",
    ],
)
def test_a_guest_that_complains_fails_even_if_its_script_did_not(machine, line, tmp_path):
    with pytest.raises(Fail) as fail:
        machine(f"echo before; echo '{line}'; echo after; echo 0 > exit")
    assert (
        line in str(fail.value) and "after" in str(fail.value) and str(tmp_path / "results/console") in str(fail.value)
    )


@pytest.mark.parametrize(
    "line",
    [
        "__kmem_cache_create_args(nfsd_file) failed with error -22",
        "nfsd: vmalloc error: size 744, align 0x1, vm_struct allocation failed, mode:0xcc0(GFP_KERNEL)",
    ],
)
def test_the_stack_of_an_allocation_that_failed_is_no_complaint(machine, line):
    stack = "CPU: 0 UID: 0 PID: 8111 Comm: perl\nStack:\n 6725c1f8 616b5820\nCall Trace:\n [<60062e94>] ? f+0x0/0x1\n"
    machine(f"cat <<'EOF'\n{line}\n{stack}after\nEOF\necho 0 > exit")
    with pytest.raises(Fail, match="Call Trace:"):
        machine(f"cat <<'EOF'\n{line}\n{stack}another\n{stack}EOF\necho 0 > exit")


def test_a_guest_whose_script_fails_fails(machine):
    with pytest.raises(Fail, match="status 3"):
        machine("echo last words; echo 3 > exit")


def test_a_guest_that_ends_early_fails(machine):
    with pytest.raises(Fail, match="(?s)before its script did.*last words"):
        machine("echo last words")


def test_a_guest_that_hangs_is_killed_with_all_its_processes(machine, tmp_path):
    with pytest.raises(Fail, match="(?s)did not end within 1 s.*last words"):
        machine("echo last words; sleep 1000 & echo $! > pid; wait", limit=1)
    assert gone(int((tmp_path / "results/pid").read_text()))


BOOT = "boot.boot('{0}/linux', '{0}/script', '{0}/results')\n"
POOL = """
with util.threads(1) as pool:
    ended = [pool.submit(boot.boot, '{0}/linux', '{0}/script', '{0}/' + name) for name in ("results", "next")]
    ended[0].result()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("what", [BOOT, POOL])
def test_a_killed_testbed_leaves_no_guest(tmp_path, how, what):
    code = (
        "import pathlib\nfrom testbed import util\nfrom testbed.machines import boot, guest\n"
        "guest.root = lambda: pathlib.Path('/')\n" + what.format(tmp_path)
    )
    (tmp_path / "linux").write_text("#!/bin/bash\necho $$ > pid; sleep 1000\n")
    (tmp_path / "linux").chmod(0o755)
    testbed = subprocess.Popen([sys.executable, "-c", code], cwd=util.ROOT)
    pid = tmp_path / "results" / "pid"
    for _ in range(200):
        if pid.is_file() and pid.read_text():
            break
        time.sleep(0.05)
    time.sleep(0.5)  # `timeout` does not pass a signal on before it has noted whom to pass it to
    testbed.send_signal(how)
    testbed.wait()
    assert gone(int(pid.read_text())) and not (tmp_path / "next").exists()


def test_what_other_scripts_source_is_no_selftest():
    found = {path.rpartition("/")[2] for path in suites.named("nfsd-stress", "debian")[1]}
    assert "soak.sh" in found and not {"far.sh", "paths.sh", "secure.sh"} & found
    for name in ("lib.sh", "test.sh", "far.sh"):
        with pytest.raises(Fail, match=rf"T={name}: no topic and no selftest"):
            suites.named(name, "debian")


def test_only_existing_selftests_are_left_out_each_with_a_reason():
    found = topics.series()
    have = {
        line.rpartition("/")[2]
        for topic in found
        for path in topic.patches
        for line in path.read_text(errors="replace").splitlines()
        if line.startswith("+++ b/tools/testing/selftests/")
    }
    for where in [(kind, "") for kind in kinds.TESTED] + [("sim", mode) for mode in suites.modes(found)]:
        for script, why in suites.left_out(found, *where).items():
            assert script in have and why


def test_the_scripts_that_take_long_are_in_the_runners_list_here(tmp_path):
    (tmp_path / "x").mkdir()
    for name, mode in (("short.sh", 0o755), ("long.sh", 0o755), ("lib.sh", 0o644), ("tool", 0o755)):
        (tmp_path / "x" / name).touch(mode=mode)
    (tmp_path / "kselftest-list.txt").write_text("x:short.sh\n")
    kernel.list_extended(["x"], tmp_path)
    assert (tmp_path / "kselftest-list.txt").read_text() == "x:short.sh\nx:long.sh\n"


def test_a_script_is_left_out_only_where_there_is_such_a_machine(filled, place):
    (place / "topics/one/left-out").write_text("lts-6.12,sim slow.sh it is slow\nlts-6.21 fast.sh mistyped\n")
    with pytest.raises(Fail, match=r"topics/one/left-out: lts-6.21: not one of sim, debug, x86, .*lts-6.12"):
        suites.left_out(topics.series(), "x86")


def test_a_line_that_gives_no_reason_is_one_line(filled, place):
    (place / "topics/one/left-out").write_text("sim\n")
    with pytest.raises(Fail, match='topics/one/left-out: "sim": a line says where, which script, why: sim,x86 '):
        suites.left_out(topics.series(), "sim")


def test_a_cache_that_cannot_be_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file/below"))
    with pytest.raises(Fail, match="file/below/knfsd-queue: cannot be made: Not a directory: set XDG_CACHE_HOME to"):
        util.cache()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a place"))
    with pytest.raises(Fail, match="a place/knfsd-queue: .* no path with white space or a colon: move XDG_CACHE_HOME"):
        util.cache()


def test_two_commands_that_write_the_same_files_wait_for_each_other(tmp_path):
    """And those of other kinds of machine do not: what they write has other names."""
    program = "import sys; from testbed import cli, util; cli.gate.some = lambda *given: print(given[0], flush=True)"
    ask = [sys.executable, "-c", f"{program}; cli.main()", "test"]
    with cli.alone(*cli.parse(["test", "KIND=debug"])):
        other = subprocess.Popen([*ask, "KIND=debug"], cwd=util.ROOT, stdout=subprocess.PIPE, text=True)
        assert other.stdout.readline() == "==> waiting for another process that works on test-debug of build/\n"
        util.run(*ask, "KIND=x86", cwd=util.ROOT)
    assert other.stdout.readline() == "debug\n" and other.wait() == 0


@pytest.mark.parametrize(
    "words, places",
    [
        (["test"], ["test-sim", "swarm"]),
        (["test", "T=lwq"], ["test-sim"]),
        (["test", "KIND=x86"], ["test-x86"]),
        (["kunit"], ["test-sim"]),
        (["shell", "KIND=smp"], ["shell-smp"]),
        (["swarm", "KIND=debug"], ["swarm"]),
        (["mutants"], ["mutants"]),
    ],
)
def test_what_a_command_writes(words, places):
    assert cli.places(*cli.parse(words)) == places


def test_all_waits_for_whatever_writes_what_it_does():
    found = cli.places(*cli.parse(["test-all"]))
    assert {"test-sim", "test-deb", "mutants", "conformance", "swarm"} <= set(found)


def test_what_is_left_out_need_not_fail_on_base(filled, place):
    (place / "topics/one/left-out").write_text("# comment\nx86 slow.sh it is slow\nsim,debug rdma.sh no device\n")
    (place / "topics/two/fails-on-base").write_text("slow.sh: a case\nfast.sh: a case: with a colon\n")
    (place / "topics/two/fails-on-base.x86").write_text("rdma.sh: a case\n")
    found = topics.series()
    assert suites.left_out(found, "x86") == {"slow.sh": "it is slow"} and not suites.left_out(found, "debian")
    assert suites.left_out(found, "debug") == {"rdma.sh": "no device"}
    assert suites.fails_on_base(found, "x86") == {"fast.sh: a case: with a colon", "rdma.sh: a case"}
    # It has the devices of x86, and time to count on.
    assert suites.fails_on_base(found, "debian") == {*suites.fails_on_base(found, "x86"), "slow.sh: a case"}
    assert suites.fails_on_base(found, "sim") == {"slow.sh: a case", "fast.sh: a case: with a colon"}


def test_what_ends_the_kernel_is_left_out_on_the_base_alone(filled, place):
    (place / "topics/one/left-out").write_text("debian-base fast.sh it oopses\n")
    (place / "topics/two/fails-on-base").write_text("fast.sh: a case\n")
    found = topics.series()
    assert suites.left_out(found, "debian", on="base") == {"fast.sh": "it oopses"}
    assert not suites.left_out(found, "debian") and not suites.left_out(found, "x86", on="base")
    assert not suites.fails_on_base(found, "debian") and suites.fails_on_base(found, "x86") == {"fast.sh: a case"}


def test_a_lane_has_a_list_of_its_own_of_what_fails_on_base(filled, place, monkeypatch):
    (place / "topics/one/fails-on-base").write_text("fast.sh: one\nmodes.sh: one\n")
    (place / "topics/two/fails-on-base").write_text("slow.sh: a case\n")
    (place / "topics/one/lts-6.12").mkdir()
    (place / "topics/one/lts-6.12/fails-on-base").write_text("fast.sh: one\nfast.sh: two\n")
    found = topics.series()
    assert suites.fails_on_base(found, "sim") == {"fast.sh: one", "modes.sh: one", "slow.sh: a case"}
    monkeypatch.setenv("LTS", "6.12")
    assert suites.fails_on_base(found, "sim") == {"fast.sh: one", "fast.sh: two", "slow.sh: a case"}


def test_a_second_process_waits_for_the_lock(tmp_path):
    with util.lock("thing"):
        code = "from testbed import util\nwith util.lock('thing'): print('had it')"
        second = subprocess.Popen([sys.executable, "-c", code], cwd=util.ROOT, stdout=subprocess.PIPE, text=True)
        assert "waiting for another process" in second.stdout.readline()
    assert "had it" in second.communicate()[0]


def test_a_command_that_another_thread_began_does_not_keep_the_lock():
    """It has got the lock's file, as every command has, and may be waiting for that lock itself."""
    code = "from testbed import util\ninput()\nwith util.locking('thing') as (_, mine): print(mine)"
    with util.lock("thing"):
        line = [sys.executable, "-c", code]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "pass_fds": util.HELD}
        other = subprocess.Popen(line, cwd=util.ROOT, text=True, **pipes)
    assert other.communicate("\n")[0] == "True\n"


def test_locks_leave_a_command_the_low_descriptors():
    with contextlib.ExitStack() as stack:
        for number in range(9):
            stack.enter_context(util.lock(f"thing{number}"))
        found = [int(one) for one in util.run("ls", "/proc/self/fd").stdout.split()]
    assert len(found) == 9 + 4 and sorted(found)[4] >= util.LOW and not util.HELD


def test_a_build_that_outlives_its_testbed_keeps_the_lock(tmp_path):
    code = "from testbed import util\nwith util.lock('thing'): util.run('sleep', '5')"
    first = subprocess.Popen([sys.executable, "-c", code], cwd=util.ROOT)
    for _ in range(200):
        if children(first.pid):
            break
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = subprocess.run(
        [sys.executable, "-c", "from testbed import util\nwith util.lock('thing'): pass"],
        cwd=util.ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert "waiting for another process" in second.stdout


def children(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.parametrize("returned", [124, 137, -9])
def test_a_guest_that_was_killed_for_its_time_is_said_to_be(tmp_path, returned):
    """124 is timeout's after a SIGTERM; where it has to send a SIGKILL, it is killed with the guest."""
    (tmp_path / "console").write_text("Run /guest-init\n")
    with pytest.raises(Fail, match="did not end within 5 s of real time"):
        boot.verdict(tmp_path / "console", tmp_path / "exit", returned, 5)


def test_a_simulated_guest_is_told_nothing_of_where_it_is(tmp_path, monkeypatch):
    # Its random numbers come from its command line, and a figure's last digits from them
    monkeypatch.setattr(guest, "root", lambda: tmp_path)
    said = []
    for place in ("here", "some/where/else"):
        at = tmp_path / place
        at.mkdir(parents=True)
        guest_is = 'echo "$*"; cat from/run; (cd from/root && ls here >/dev/null); echo $? >exit'
        (at / "linux").write_text(f"#!/bin/bash\n{guest_is}\n")
        (at / "linux").chmod(0o755)
        (at / "script").write_text(f"script of {at.name}\n")
        said.append((boot.boot(at / "linux", at / "script", at / "results") / "console").read_text())
    assert "script of here" in said[0] and "script of else" in said[1]
    assert said[0].splitlines()[0] == said[1].splitlines()[0]


def test_a_guest_on_simulated_time_has_a_cpu_of_its_own(machine, request):
    where = machine("taskset -cp $$ >cpus; echo 0 >exit")
    cpus = (where / "cpus").read_text().split()[-1]
    assert cpus.isdigit() == (request.node.callspec.params["machine"] == "sim" or len(os.sched_getaffinity(0)) == 1)


def test_no_two_boots_have_the_same_cpu():
    have = os.sched_getaffinity(0)
    for _ in range(2):
        with contextlib.ExitStack() as stack:
            assert {stack.enter_context(boot.cpu()) for _ in have} == have
            assert stack.enter_context(boot.cpu()) is None


def test_nor_have_those_of_two_testbeds():
    other = "from testbed.machines import boot\nwith boot.cpu() as own:\n    print(own)"
    with boot.cpu() as own:
        assert util.run(sys.executable, "-c", other, cwd=util.ROOT).stdout.strip() not in ("", str(own))


def test_what_was_compiled_in_one_directory_is_not_compiled_again_in_another(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    env = kernel.make_env()
    (tmp_path / "a.c").write_text("int a;\n")
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        util.run("gcc", "-g", "-nostdinc", "-Wp,-MMD,a.d", "-c", tmp_path / "a.c", cwd=tmp_path / place, env=env)
    said = dict(line.split("\t") for line in util.run("ccache", "--print-stats", env=env).stdout.splitlines())
    assert (said["direct_cache_hit"], said["cache_miss"]) == ("1", "1")
    assert (tmp_path / "one/a.o").read_bytes() == (tmp_path / "two/a.o").read_bytes()


@pytest.mark.parametrize("compiler", ["gcc", "clang-19"])
@pytest.mark.parametrize(
    ("name", "flags", "text"),
    [
        ("a.c", ("-Wp,-MMD,a.d", "-nostdinc", "-I."), '#include "taken"\n'),
        ("host.c", ("-Wp,-MMD,a.d", "-isystem", "."), "#include <taken>\n"),
        ("user.c", ("-Wp,-MD,a.d", "-isystem", "."), "#include <taken>\n"),
        ("a.S", ("-Wp,-MMD,a.d", "-nostdinc"), '.incbin "taken"\n'),
        ("kernel/configs.c", ("-Wp,-MMD,a.d", "-nostdinc"), 'asm(".incbin \\"taken\\"");\n'),
    ],
)
def test_what_a_file_takes_in_is_compiled_again_when_it_changes(tmp_path, monkeypatch, compiler, name, flags, text):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / name
    source.parent.mkdir(exist_ok=True)
    source.write_text(text)
    for taken in ("one", "two", "one"):
        (tmp_path / "taken").write_text(f"int {taken};\n")
        os.utime(tmp_path / "taken", (1, 1))
        util.run(compiler, *flags, "-c", "-o", "a.o", source, cwd=tmp_path, env=kernel.make_env())
        assert taken.encode() in (tmp_path / "a.o").read_bytes()


def test_a_kernel_is_compiled_where_there_is_no_ccache(tmp_path):
    (tmp_path / "gcc").write_text("#!/bin/sh\necho gcc $*\n")
    (tmp_path / "gcc").chmod(0o755)
    said = util.run("gcc", "-c", "a.c", env={"PATH": f"{kernel.CCACHED}:{tmp_path}"}).stdout
    assert said == "gcc -c a.c\n"


def test_what_is_built_is_had_while_another_process_has_the_source(filled, ksrc, monkeypatch):
    found, what = base.from_tree(ksrc), kernel.Flavour(kinds.KINDS["sim"], ())
    monkeypatch.setattr(kernel, "build", lambda base, commit, what, name, place: util.run("touch", place))
    monkeypatch.setattr(kernel, "BUILD", util.cache() / "out")
    (util.cache() / "kernels").mkdir(parents=True)
    made = kernel.kernels(found, what)
    monkeypatch.setattr(kernel, "lock", lambda name: pytest.fail("it waits"))
    assert kernel.kernels(found, what) == made and set(made) == {"base", "patched"}
    # What is in build/ is another command's to exchange.
    assert {path.parent for path in made.values()} == {util.cache() / "kernels"}
    assert set(kernel.kernels(found, what, only=["patched"])) == {"patched"}
    with pytest.raises(pytest.fail.Exception, match="it waits"):
        kernel.kernels(found, what, {"variant": "patch"})


def test_whoever_reads_only_the_beginning_gets_no_traceback():
    done = subprocess.run(["sh", "-c", "make -s help | head -1"], cwd=util.ROOT, text=True, capture_output=True)
    assert done.stdout.startswith("make COMMAND") and done.stderr == ""
