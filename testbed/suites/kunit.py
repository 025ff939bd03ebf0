# SPDX-License-Identifier: GPL-2.0
"""KUnit: the kernel's own runner over the topics' suites, and what it says."""

import os
import re

from ..machines import kernel
from ..series import topics as store
from ..util import BUILD, Fail, cache, digest, lock, run, say, tail


def suites(topics=None):
    """The .kunitconfig files of the topics given, or of all."""
    return list(dict.fromkeys(name for topic in topics or store.series() for name in topic.kunit))


def kunit(base, tally, topics=None, only=""):
    """kunit.py over every .kunitconfig of the topics, in one build; a case counts as one test. only: a glob of suites' names."""
    configs = suites(topics)
    if not configs:
        return
    with lock("source"):
        kernel.checkout(base, kernel.commits(base)["patched"])
        say("running KUnit: " + ", ".join(configs))
        log = BUILD / "kunit.log"
        done = run_kunit(base, configs, log, only=only)
    print("\n".join(line for line in done.stdout.splitlines() if re.search(r"=====|FAILED|ERROR|Testing complete", line)), flush=True)
    counts = kunit_counts(done.stdout)
    if not counts or not counts.get("passed"):
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


def run_kunit(base, configs, log, cpus=1, limit=600, only=""):
    """Run kunit.py over `configs`, or over the suites of them that the glob `only` names."""
    with kernel.building(kunit_place(base, cpus)):
        return run(*kunit_py(base, "run", configs, cpus), f"--timeout={limit}", *[f"--kernel_args={word}" for word in kunit_boot(cpus)], *([only] if only else []),
                   cwd=base.repo, env=kernel.ENV, check=False, log=log)


def kunit_counts(text):
    """{"passed": N, "failed": N, …} of kunit.py's closing line; None if it has none."""
    found = re.search(r"Testing complete\. Ran \d+ tests: (.*)", text)
    return found and {kind: int(number) for kind, number in re.findall(r"(\w+): (\d+)", found[1])}
