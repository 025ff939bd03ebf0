# SPDX-License-Identifier: GPL-2.0
"""A topic of another subsystem is one directory: in a checkout with a kernel of a few lines, every command handles it.

The kernel is a git tree whose Makefile answers what the testbed asks of a real one. What it builds is a shell script
that plays the guest: it runs the host's script and writes what a guest would. So the whole way from a patch to a table
is walked, in seconds.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import pytest
from conftest import MAKEFILE

from testbed.series import base
from testbed.util import ROOT

# Answers for tinyconfig, olddefconfig and a build; what is built says of itself whether it has the topic's driver.
KERNEL_MAKEFILE = MAKEFILE + textwrap.dedent("""\
    O ?= .
    all:
    \t@mkdir -p $(O); sed "s/@DRIVER@/$$(cat drivers/made-up/made-up.c 2>/dev/null | tr -d '\\n')/" guest >$(O)/linux
    \t@chmod +x $(O)/linux; touch $(O)/vmlinux; echo '  CC      made-up.o'
    vmlinux_o:
    \t@for h in $$(find drivers -name '*.h'); do [ $(O)/$@ -nt $$h ] || grep -H warning: $$h; done; touch $(O)/$@
    tinyconfig:
    \t@mkdir -p $(O); : >$(O)/.config
    olddefconfig:
    \t@:
    %.o:
    \t@[ $(O)/$@ -nt $*.c ] || { grep -H warning: $*.c; mkdir -p $(O)/$(@D); touch $(O)/$@; }
    """)
GUEST = textwrap.dedent("""\
    #!/bin/bash
    # driver: @DRIVER@
    [[ $* != *kunit.action=list* ]] || { echo made_up.it_works; exit; }
    for word; do
    \tcase $word in
    \tkunit.enable=1) echo "suites of @DRIVER@: MADE_UP_KUNIT"; exit ;;
    \tRUN=*) run=${word#*=} ;;
    \tRESULTS=*) export RESULTS=${word#*=} ;;
    \tesac
    done
    echo "Linux version 7.3.4"
    export DRIVER="@DRIVER@"
    sed "s,/host/,/,g; s,/results,$RESULTS,g" from/run >"$RESULTS/run"
    bash "$RESULTS/run" </dev/null
    echo $? >"$RESULTS/exit"
    """)
MERGE = textwrap.dedent("""\
    #!/bin/sh
    # -m -O OUT BASE FRAGMENT...: the last to name an option has it
    out=$3
    shift 4
    cat "$@" >>"$out/.config"
    for option in $(sed -n 's/^# \\(CONFIG_[A-Z0-9_]*\\) is not set$/\\1/p' "$@"); do
        sed -i "/^$option=/d" "$out/.config"
    done
    """)
# Reads what the guest below says of its suites.
KUNIT = textwrap.dedent("""\
    import re, sys
    text = open(sys.argv[-1]).read()
    print(text)
    (drives, suites) = re.search(r"^suites of (.*): (.*)$", text, re.M).groups()
    verdict, count = ("PASSED", "passed") if drives else ("FAILED", "failed")
    print("Starting KUnit Kernel (1/1)...")
    print(f"[00:00:00] [{verdict}] {suites}")
    print(f"[00:00:00] Testing complete. Ran 1 tests: {count}: 1")
    sys.exit(not drives)
    """)
SELFTESTS = textwrap.dedent("""\
    install:
    \t@mkdir -p $(KSFT_INSTALL_PATH)
    \t@cp -r $(TARGETS) $(KSFT_INSTALL_PATH)/
    \t@for t in $(TARGETS); do (cd $$t; ls *.sh) | sed "s,^,$$t:,"; done >>$(KSFT_INSTALL_PATH)/kselftest-list.txt
    \t@cp run_kselftest.sh $(KSFT_INSTALL_PATH)/
    """)
RUNNER = textwrap.dedent("""\
    #!/bin/bash
    cd "$(dirname "$0")"
    n=0
    while IFS=: read -r collection script; do
    \t[[ "$*" == *"-t $collection:$script"* ]] || continue
    \techo "# selftests: $collection: $script"
    \tbash "$collection/$script" | sed 's/^/# /'
    \tif [ "${PIPESTATUS[0]}" = 0 ]; then verdict=ok; else verdict="not ok"; fi
    \techo "$verdict $((++n)) selftests: $collection: $script"
    done <kselftest-list.txt
    """)
FILES = {
    "Makefile": KERNEL_MAKEFILE,
    "Kbuild": "# Kbuild\n",
    "guest": GUEST,
    "scripts/kconfig/merge_config.sh": MERGE,
    "scripts/checkpatch.pl": "exit 0;\n",
    "scripts/kernel-doc": "",
    "tools/testing/kunit/kunit.py": KUNIT,
    "tools/testing/selftests/Makefile": SELFTESTS,
    "tools/testing/selftests/run_kselftest.sh": RUNNER,
}
TOPIC_TOML = """\
title = "A driver that is made up"
state = "draft"
lists = ["linux-made-up@example.invalid"]
config = "made-up.config"
selftests = ["made-up"]
kunit = ["drivers/made-up/.kunitconfig"]
"""
EXPERIMENT = """\
kind = "guest"
machine = "sim"
repeats = 1
title = "How fast the made-up driver is"
question = "Is it faster than none?"

[sweep]
depth = [1, 2]

[guest]
script = '[ -n "$DRIVER" ] && rate=200 || rate=100; echo "{\\"iops\\": $((rate * {depth}))}" >/results/{point}.json'

[[metrics]]
title = "I/O a second"
field = "iops"
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """run(*words) of the testbed's command line in a checkout without topics, on a kernel of its own."""
    tmp_path = tmp_path_factory.mktemp("made-up")
    kernel, work = tmp_path / "linux", tmp_path / "checkout"
    for name, text in FILES.items():
        (kernel / name).parent.mkdir(parents=True, exist_ok=True)
        (kernel / name).write_text(text)
        if name.endswith(".sh"):
            (kernel / name).chmod(0o755)
    base.git(kernel, "init", "-q")
    base.git(kernel, "add", "-A")
    base.git(kernel, "commit", "-q", "-m", "base")
    shutil.copytree(ROOT / "testbed", work / "testbed", ignore=shutil.ignore_patterns("__pycache__"))
    (work / "topics").mkdir()
    marked = {
        "README.md": ["topics"],
        "docs/installing.md": ["package"],
        "docs/contributors.md": ["mutants"],
        "docs/maintainers.md": ["state", "upstream", "nfsd-testing"],
    }
    for name, marks in marked.items():
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text("".join(f"<!-- {mark} -->\n\n<!-- /{mark} -->\n" for mark in marks))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mmdebstrap").write_text(
        '#!/bin/bash\nfor word; do [[ $word == *.part ]] && tar -cf "$word" -T /dev/null; done; true\n'
    )
    (programs / "mmdebstrap").chmod(0o755)
    settings = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "KSRC": str(kernel),
        "PYTHONPATH": str(work),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": f"{programs}:{os.environ['PATH']}",
    }

    def run(*words, status=0):
        done = subprocess.run(
            [sys.executable, "-m", "testbed", *words],
            cwd=work,
            env=settings,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == status, done.stdout
        return done.stdout

    run.work = work
    return run


def write(tree, name, text):
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text(text)


@pytest.fixture(scope="module")
def made_up(checkout):
    """The checkout with topics/made-up/ in it, and nothing else: made in the tree, as a contributor would."""
    checkout("tree")
    tree = checkout.work / "tree"
    base.git(
        tree,
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "topic: made-up\n\ndrivers: make something up\n\nWhy.\n\nDepends on: the base alone\n",
    )
    for subject, files in {
        "made-up: add a driver": {"drivers/made-up/made-up.c": "made-up driver\n"},
        "made-up: add KUnit tests": {"drivers/made-up/.kunitconfig": "MADE_UP_KUNIT\n"},
        "selftests: made-up: test the driver": {
            "tools/testing/selftests/made-up/Makefile": "TEST_PROGS := driver.sh\n",
            "tools/testing/selftests/made-up/driver.sh": '#!/bin/sh\necho "TAP version 13"\necho 1..1\n'
            '[ -n "$DRIVER" ] && echo "ok 1 the driver drives" || { echo "not ok 1 the driver drives"; exit 1; }\n',
        },
    }.items():
        for name, text in files.items():
            write(tree, name, text)
        base.git(tree, "add", "-A")
        base.git(tree, "commit", "-q", "-m", f"{subject}\n\nWhy.\n", env={"GIT_AUTHOR_DATE": "@1700000000 +0000"})
    checkout("export")
    home = checkout.work / "topics/made-up"
    write(home, "topic.toml", TOPIC_TOML)
    write(home, "made-up.config", "CONFIG_MADE_UP=y\n")
    write(home, "fails-on-base", "driver.sh: the driver drives\n")
    write(home, "experiments/speed.toml", EXPERIMENT)
    write(
        home,
        "mutants/01-no-driver.patch",
        "--- a/drivers/made-up/made-up.c\n+++ b/drivers/made-up/made-up.c\n@@ -1 +1 @@\n-made-up driver\n+\n",
    )
    return checkout


def test_nothing_else_was_added_but_its_line_in_the_order(made_up):
    assert sorted(path.name for path in (made_up.work / "topics").iterdir()) == ["made-up", "order"]
    assert (made_up.work / "topics/order").read_text() == "made-up\n"


def test_series_lists_its_patches(made_up):
    assert [pathlib.Path(line).name[:4] for line in made_up("series").split()] == ["0001", "0002", "0003"]


def test_its_kernels_have_its_options(made_up):
    made_up("kernels")
    assert "made-up driver" in (made_up.work / "build/patched/linux").read_text()
    assert "made-up driver" not in (made_up.work / "build/base/linux").read_text()
    (config,) = (made_up.work.parent / "cache/knfsd-queue/build").glob("sim-*/.config")
    assert "CONFIG_MADE_UP=y" in config.read_text()


def test_its_patches_are_checked(made_up):
    said = made_up("check")
    assert re.search(r"^(\d+) passed, 0 failed$", said, re.M), said
    assert (
        "made-up/0001-made-up-add-a-driver.patch: compiles" in said
        and "made-up: applies with what it depends on" in said
    )


def test_its_mutant_is_judged_by_its_kunit_suite(made_up):
    said = made_up("mutants", "T=made-up")
    assert "ok   made-up/01-no-driver" in said and "MADE_UP_KUNIT" in said


def test_it_can_be_mailed(made_up):
    made_up("post", "T=made-up", "V=1")
    (cover,) = (made_up.work / "build/post/made-up-v1").glob("*cover-letter*")
    assert "[PATCH v1 0/3] drivers: make something up" in cover.read_text().replace("[PATCH 0/3]", "[PATCH v1 0/3]")


def test_its_experiment_is_measured_and_recorded(made_up):
    assert "I/O a second" in made_up("bench", "B=speed")
    made_up("record", "T=made-up")
    result = json.loads((made_up.work / "topics/made-up/results/speed.json").read_text())
    assert [point["iops"] for point in result["patched"]] == [200, 400] and [
        point["iops"] for point in result["base"]
    ] == [100, 200]
    assert "speed: of today's series" in made_up("results", "T=made-up")


@pytest.mark.parametrize(
    "name, check", [("made-up.c", "compiles"), ("made-up.h", "all that includes its headers compiles")]
)
def test_a_warning_is_found_again_although_all_is_up_to_date(made_up, name, check):
    tree, path = made_up.work / "tree", f"drivers/made-up/{name}"
    write(tree, path, "made-up driver\nwarning: it is made up\n")
    base.git(tree, "add", "-A")
    base.git(tree, "commit", "-q", "-m", "made-up: warn\n\nWhy.\n")
    made_up("export")
    # A kernel of it is there, too.
    made_up("kernels")
    for _ in range(2):
        said = made_up("check", status=1)
        assert f"FAIL check: made-up/0004-made-up-warn.patch: {check}: compiler warnings:" in said
        assert f"     {path}:warning: it is made up\n" in said
    base.git(tree, "reset", "-q", "--hard", "HEAD^")
    made_up("export")


def test_what_is_built_can_be_cleaned(made_up):
    made_up("kernels")
    made_up("clean")
    assert not (made_up.work / "build").exists() and (made_up.work / "tree/.git").is_dir()
