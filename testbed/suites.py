# SPDX-License-Identifier: GPL-2.0
"""Running the kernel's own test runners, kunit.py and run_kselftest.sh, and counting what they say."""

import concurrent.futures
import functools
import os
import re

from . import check, guest, kernel, qemu, uml
from .util import BUILD, ROOT, cache, digest, lock, run, say, tail

# Case by case, what the queue's selftests must find wrong with the base: a test that passes there proves nothing.
FAILS_ON_BASE = ROOT / "tests" / "fails-on-base"
# Seconds of real time for a whole boot; for one script, of the guest's time.
LIMIT = {"sim": 900, "x86": 10800}
TIMEOUT = {"sim": 300, "x86": 900}


def listed(path):
    """The lines of a file that say something."""
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def left_out(kind):
    """{script: why it is not run on this kind of machine}"""
    words = [line.split(None, 2) for line in listed(ROOT / "tests" / "left-out")]
    return {script: why for where, script, why in words if where == kind}


def fails_on_base(kind):
    """The cases that have to fail on the base, on this kind of machine."""
    cases = listed(FAILS_ON_BASE) + (listed(FAILS_ON_BASE.with_suffix("." + kind)) if kind != "sim" else [])
    return {case for case in cases if case.partition(": ")[0] not in left_out(kind)}


def kunit(base, tally):
    """kunit.py over every .kunitconfig the queue brings or changes, in one build; a case counts as one test."""
    with lock("source"):
        where = kernel.commits(base)
        names = check.touched(base.repo, where["patched"], where["base"])
        configs = [name for name in names if name.endswith(".kunitconfig")]
        if not configs:
            return
        kernel.checkout(base, where["patched"])
        say("running KUnit: " + ", ".join(configs))
        log = BUILD / "kunit.log"
        done = run_kunit(base, configs, log)
    print("\n".join(line for line in done.stdout.splitlines() if re.search(r"=====|FAILED|ERROR|Testing complete", line)), flush=True)
    counts = kunit_counts(done.stdout)
    if not counts or not counts["passed"]:
        tally.that("KUnit", f"kunit.py ran no test (status {done.returncode}); its output is in {log}:\n{tail(done.stdout)}")
        return
    bad = sum(counts.get(kind, 0) for kind in ("failed", "crashed", "skipped", "errors"))
    tally.add(counts["passed"], bad)
    if bad or done.returncode:
        print(f"     kunit.py: {counts}, status {done.returncode}; its output is in {log}")
        if not bad:
            tally.that("KUnit", f"kunit.py failed with status {done.returncode}")


def kunit_place(base, cpus):
    """kunit.py's build directory."""
    return cache() / "build" / f"kunit{cpus if cpus > 1 else ''}-{digest(base.key, kernel.compiler())}"


def kunit_py(base, verb, configs, cpus=1):
    """A command line of kunit.py's for the checked-out source and User-mode Linux; to be run in base.repo with the source's lock held."""
    return ["python3", "tools/testing/kunit/kunit.py", verb, f"--build_dir={kunit_place(base, cpus)}", f"--jobs={len(os.sched_getaffinity(0))}",
            *(["--kconfig_add=CONFIG_SMP=y", f"--kconfig_add=CONFIG_NR_CPUS={cpus}"] if cpus > 1 else []),
            *[f"--kunitconfig={name}" for name in configs]]


# With more than one CPU, User-mode Linux needs the seccomp userspace.
def kunit_boot(cpus):
    return [f"ncpus={cpus}", "seccomp=on"] if cpus > 1 else []


def run_kunit(base, configs, log, cpus=1, limit=600):
    """Run kunit.py over `configs`."""
    with kernel.building(kunit_place(base, cpus)):
        return run(*kunit_py(base, "run", configs, cpus), f"--timeout={limit}", *[f"--kernel_args={word}" for word in kunit_boot(cpus)],
                   cwd=base.repo, env=kernel.ENV, check=False, log=log)


def kunit_counts(text):
    """{"passed": N, "failed": N, …} of kunit.py's closing line; None if it has none."""
    found = re.search(r"Testing complete\. Ran \d+ tests: (.*)", text)
    return found and {kind: int(number) for kind, number in re.findall(r"(\w+): (\d+)", found[1])}


def selftests(base, tally, kind="sim"):
    """The queue's kselftests in the guest, on patched, where all must pass, and on base, where those listed must fail."""
    place = kernel.selftests(base)
    script = BUILD / f"selftests-{kind}.sh"
    script.parent.mkdir(exist_ok=True)
    without = left_out(kind)
    # The runner's own status says nothing: what it prints is judged. It opens /dev/stdout again, which has to be a pipe.
    script.write_text("#!/bin/bash\nexport NFSD_TEST_DISKS=$(cd /sys/block && echo $(ls | grep -E '^(nvme|pmem)'))\n"
                      f"cd /host{place} && ./run_kselftest.sh -c nfsd {' '.join(f'-S nfsd:{name}' for name in without)} "
                      f"-o {TIMEOUT[kind]} 2>&1 | cat >/results/ktap\n")
    kernels = kernel.kernels(base, kind)
    guest.root()
    say(f"running the selftests on {', '.join(kernels)} ({kind}); " + "; ".join(f"without {name}: {why}" for name, why in without.items()))
    expected = fails_on_base(kind)
    machine = qemu.boot if kernel.for_qemu(kind) else functools.partial(uml.boot, simulated=kind == "sim")
    # A guest of QEMU's keeps two CPUs busy.
    at_once = 1 if kernel.for_qemu(kind) else len(os.sched_getaffinity(0))
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        boots = {name: pool.submit(machine, path, script, BUILD / f"selftests-{name}-{kind}", LIMIT[kind])
                 for name, path in kernels.items()}
    results = {}
    for name, boot in boots.items():
        tally.run(f"the guest that ran the selftests on {name} is healthy", boot.result)
        said = BUILD / f"selftests-{name}-{kind}" / "ktap"
        results[name] = ktap(said.read_text(errors="replace")) if said.is_file() else {}
        if not results[name]:
            tally.that(f"selftests on {name}", f"no test was run; see {said.parent}")
    for case, verdict in {**dict.fromkeys(sorted(expected), "was not run"), **results["patched"]}.items():
        tally.that(f"patched: {case}", "" if verdict == "ok" else f"{verdict}; see {BUILD}/selftests-patched-{kind}/ktap")
    for case in sorted(expected):
        verdict = results["base"].get(case, "was not run")
        tally.that(f"base: fails as it should: {case}", "" if verdict == "not ok" else f"on base it is: {verdict}")


def ktap(text):
    """{"script: case": "ok" | "not ok" | "skipped"} of run_kselftest.sh's output; a script without cases is its own."""
    verdicts, cases = {}, {}
    for line in text.splitlines():
        found = re.match(r"(# )?(ok|not ok) \d+ -? ?(.*?)(?:\s+#\s*(.*))?$", line)
        if not found:
            continue
        nested, verdict, name, directive = found.groups()
        verdict = "skipped" if directive and re.match(r"(SKIP|TODO|XFAIL)", directive) else verdict
        if nested:
            cases[name.strip()] = verdict
            continue
        script = name.rpartition(": ")[2].strip()
        verdicts.update({f"{script}: {case}": said for case, said in cases.items()})
        # A script that failed although its cases passed (a time-out, a crash) or that ran none counts by itself.
        if not cases or verdict == "not ok" and "not ok" not in cases.values():
            verdicts[script] = verdict
        cases = {}
    return verdicts
