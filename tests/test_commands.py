# SPDX-License-Identifier: GPL-2.0
"""Every command that the documents name is run: here, by a step of the gate, by a test, or by a selftest.

A new command in a document is in none of the tables below, and fails until it is in one.
"""

import dataclasses
import inspect
import pathlib
import re
import shlex

import pytest
from conftest import Fail

from testbed import cli, gate, util
from testbed.experiments import experiment
from testbed.machines.kinds import TESTED
from testbed.packages import package
from testbed.series import base, topics

DOCS = [util.ROOT / "README.md", util.ROOT / "CONTRIBUTING.md", *sorted((util.ROOT / "docs").glob("*.md"))]
# What in a block is no command: TOML, what a command prints, a drawing, a heading.
NO_COMMAND = re.compile(
    r"\w+ = |\[\[|## |- |# pool |0 \d|client  |192\.0\.2|Mostly bulk|.*[──▶▲│▼]|.*guest: nfsd|README, cover letters"
)


@dataclasses.dataclass(frozen=True)
class Said:
    """A command, and where it is said."""

    text: str
    where: str


def blocks(text: str) -> list[tuple[int, str]]:
    """[(number, line)] of a Markdown file's indented and fenced blocks, continued lines joined."""
    found: list[tuple[int, str]] = []
    fenced, listed, before, carried = False, False, "", ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or re.match(r" {4}", line):
            begun = not before.strip() or carried or found and found[-1][0] == number - 1
            # Below a point of a list, four columns more are a block, and fewer are its text.
            if fenced or begun and (not listed or line.startswith(" " * 6)):
                carried += line.strip()
                if carried.endswith("\\"):
                    carried = carried[:-1]
                elif carried:
                    found.append((number, carried))
                    carried = ""
        if re.match(r"(-|\d+\.) ", line):
            listed = True
        elif line and not line.startswith(" "):
            listed = False
        before = line
    return found


def split(line: str) -> list[str]:
    """The commands of a line of shell, without its comment."""
    words = re.sub(r"(?:^|\s+)#(?![^'\"]*['\"]).*$|\s+# .*$", "", line)
    return [part.strip() for part in re.split(r"\s&&\s", words) if part.strip()]


def said(path: pathlib.Path) -> list[Said]:
    """Every command of a document: the lines of its blocks, and what is quoted as `make …`."""
    text = path.read_text()
    found = [(number, part) for number, line in blocks(text) if not NO_COMMAND.match(line) for part in split(line)]
    for number, line in enumerate(text.splitlines(), 1):
        found += [(number, part) for quote in re.findall(r"`(make [^`]+)`", line) for part in split(quote)]
    return [Said(part, f"{path.name}:{number}") for number, part in found]


def every() -> list[Said]:
    return [one for path in DOCS for one in said(path)]


def made(text: str) -> list[list[str]]:
    """[words of a command of ours] of a line that calls make here, in the place of a `$(make …)` too."""
    found = []
    for line in [text, *re.findall(r"\$\((make [^)|]*)", text)]:
        if re.match(r"make (?!.*LINUX_TREE)(?!(?:bringup|linux|fstests|fstests-baseline|COMMAND)\b)\S", line):
            words = shlex.split(re.sub(r"^make (?:-s |-C \S+ )*", "", line))
            given = [word for word in words if "=" in word]
            found += [[goal, *given] for goal in words if "=" not in goal]
    return found


# What runs a command:
#   here                       test_what_needs_no_base_is_run_here()
#   gate ROOM.FUNCTION         a step of `make test`
#   FILE: TEST                 a test of this directory
#   selftest FILE: TEXT        a selftest of the series that has the text
#   test-all                   `make test-all`: what takes longer than the gate may
#   elsewhere: WHY             nothing here can
#
# {a command of ours with its variables, those of the base apart: what runs it}
OURS = {
    "help": "here",
    "setup": "here",
    "series": "here",
    "series T": "here",
    "check-exported": "here",
    "figures": "here",
    "results": "here",
    "results T": "here",
    "bench T": "test_made_up_topic.py: test_its_experiment_is_measured_and_recorded",
    "record T": "test_made_up_topic.py: test_its_experiment_is_measured_and_recorded",
    "demo": "gate results.figures",
    "swarm": "gate judge.gate",
    "swarm T": "gate judge.gate",
    "swarm T SEEDS FROM": "gate judge.gate",
    "swarm T SEEDS RECORD": "gate judge.gate",
    "swarm T SEED": "gate judge.gate",
    "swarm T SEED KEEP": "gate judge.gate",
    "swarm T KIND": "test-all",
    "swarm T MUTANTS SEEDS": "test-all",
    "coverage": "test_coverage.py: test_a_killed_run_goes_on_and_what_failed_is_made_again",
    "coverage T": "test_coverage.py: test_a_killed_run_goes_on_and_what_failed_is_made_again",
    "coverage T SEEDS RECORD": "test_coverage.py: test_a_killed_run_goes_on_and_what_failed_is_made_again",
    "check": "gate check.check",
    "check T": "test_made_up_topic.py: test_its_patches_are_checked",
    "test": "elsewhere: it is the gate itself",
    "test T": "test_suites.py: test_a_name_is_a_script_or_a_topic",
    "test T NOISE": "test_suites.py: test_each_noise_disturbs_a_guest_in_its_own_way",
    "test KIND": "test-all",
    "test-all": "elsewhere: it takes most of a day",
    "post": "gate gate.commands",
    "post T V": "gate gate.commands",
    "post T V P": "gate gate.commands",
    "post T V TO PREVIOUS": "test_post.py: test_the_previous_version_may_have_another_name",
    "dkms": "gate gate.commands",
    "deb": "gate gate.commands",
    "deb LSMOD": "gate gate.commands",
    "kunit": "gate kunit.gate",
    "kunit S": "gate kunit.gate",
    "kunit CPUS": "test-all",
    "kernels": "test_made_up_topic.py: test_its_kernels_have_its_options",
    "tree": "test_series.py: test_export_after_tree_changes_no_byte",
    "export": "test_series.py: test_export_after_tree_changes_no_byte",
    "bench B": "test_made_up_topic.py: test_its_experiment_is_measured_and_recorded",
    "bench": "test_made_up_topic.py: test_its_experiment_is_measured_and_recorded",
    "record B": "test_made_up_topic.py: test_its_experiment_is_measured_and_recorded",
    "record": "test_made_up_topic.py: test_its_experiment_is_measured_and_recorded",
    "figures WRITE": "test_documents.py: test_the_recorded_numbers_are_put_in_and_columns_stay",
    "mutants": "test-all",
    "mutants NEW": "test_faults.py: test_only_what_has_not_been_judged_is_judged",
    "mutants T": "test_made_up_topic.py: test_its_mutant_is_judged_by_its_kunit_suite",
    "mutants T NEW": "test_faults.py: test_only_what_has_not_been_judged_is_judged",
    "litmus": "test-all",
    "conformance": "test_conformance.py: test_without_any_checkout_it_is_one_line_before_anything_is_built",
    "conformance PYNFS CTHON LTP FSTESTS STRESS": "test-all",
    "shell": "test_suites.py: test_the_shell_has_what_the_topics_say",
    "gdb": "test_suites.py: test_gdb_is_for_user_mode_linux",
    "clean": "test_made_up_topic.py: test_what_is_built_can_be_cleaned",
}
MACHINE = "elsewhere: it is for the reader's own machine"
ADMINISTRATOR = "test_documents.py: test_what_an_administrator_is_told_of_is_in_the_patches"
POSTED = "test_post.py: test_b4_mails_what_git_send_email_would"
# {a pattern of other commands: what runs the like}
OTHERS = {
    r"cd \S+": "elsewhere: it goes to a directory",
    r"\$EDITOR \S+|git commit( .*)?|git -C \.\. (add topics|commit.*)|git rebase -i .*|git log --oneline|git add -A": (
        "elsewhere: it is for the reader to choose"
    ),
    r"git diff > \S+|git checkout \S+|cp \S+ \S+": "elsewhere: it is for the reader to choose",
    r"git am (-C1 )?\$\(make .*\)": "gate check.check",
    r"git am --reject .*|git am --continue": "test_lane.py: test_only_what_differs_is_kept",
    r"git fetch \S+\.bundle .*|git switch b4/.*|b4 (prep|send) .*|git rebase --exec .*": POSTED,
    r"git tag posted/.*": "test_post.py: test_a_second_version_says_what_has_changed",
    r"make LINUX_TREE=.*|make|make (bringup|linux|fstests|fstests-baseline)": "elsewhere: kdevops needs KVM",
    r"make COMMAND VARIABLE=value": "elsewhere: it says how commands look",
    r"apt install \./(knfsd|linux).*|modinfo .*|uname -r": "test-all",
    r"apt install openssl mokutil|mokutil .*|reboot": MACHINE,
    r"\./nfs-floor SERVER:/EXPORT .*": "test_floor.py: test_it_measures_all_and_leaves_nothing",
    r"\./nfs-floor --compare .*": "test_floor.py: test_two_results_are_compared",
    r"\./nfsd-metrics.*": "test_metrics.py: test_what_a_patched_kernel_says_is_there",
    r"\./nfsd-waits \d+ .*": "test_waits.py: test_it_listens_in_an_instance_of_its_own",
    r"\./nfsd-waits --from .*": "test_waits.py: test_each_client_has_a_line_for_each_tier",
    r"echo \d+ > /proc/fs/nfsd/threads": "selftest nfsd/faults_memory.sh: /proc/fs/nfsd/threads",
    r"(cat|echo \d >) /sys/kernel/debug/nfsd/.*": "selftest nfsd/export_io_counters.sh: io_cache_read",
    r"echo [01] > /sys/kernel/tracing/events/nfsd/nfsd_io_plan/enable": "selftest nfsd/io_modes.sh: nfsd_io_plan",
    r"echo [01] > /sys/kernel/tracing/events/\S+/enable|cat /sys/kernel/tracing/trace": ADMINISTRATOR,
    r"ynl=.*": "selftest nfsd/export_io.sh: export_io.py",
    r"exportfs -ra|cat /proc/fs/nfsd/exports|/srv/\w+ +.*\(rw(,(io|weight)=.*|\))": "test-all",
    r"nfsdctl (stats|shares).*": "test-all",
    r"\$ynl --dump export-io-get": "selftest nfsd/export_io.sh: export-io-get",
    r"\$ynl --do threads-set .*": "selftest nfsd/workers.sh: min-threads",
    r"\$ynl --do clients-set .*": "selftest nfsd/clients.sh: clients.py",
    r"\$ynl --dump client-get": "selftest nfsd/clients.sh: clients.py",
}
# What is run here, on the series itself.
HERE = [
    "help",
    "setup",
    "series",
    "series T={topic}",
    "series LTS={lane}",
    "check-exported",
    "figures",
    "results",
    "results T={topic}",
]


def key(words: list[str]) -> str:
    """A command of ours as OURS has it."""
    names = [word.partition("=")[0] for word in words[1:]]
    return " ".join([words[0], *(name for name in names if name not in (cli.KSRC.name, cli.LTS.name, cli.BASE.name))])


def runs(text: str) -> list[str]:
    """What runs a command of a document; nothing if no table has it."""
    others = [place for pattern, place in OTHERS.items() if re.fullmatch(pattern, text)]
    ours = made(text)
    return others + [OURS[key(words)] for words in ours if key(words) in OURS] if others or ours else []


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_every_command_of_the_documents_is_run(path):
    missing = [
        f"{one.where}: `{one.text}`: nothing runs it; give it a line in OURS or OTHERS of tests/test_commands.py that "
        "names the test or the step of the gate which does"
        for one in said(path)
        if not runs(one.text) or any(key(words) not in OURS for words in made(one.text))
    ]
    assert not missing, "\n".join(missing)


def test_make_takes_what_the_documents_say():
    """Each variable is one of the command's, and each topic, selftest and experiment is there."""
    series, experiments = topics.series(), experiment.everywhere()
    known = {topic.name for topic in series} | {path.rpartition("/")[2] for topic in series for path in topic.scripts}
    known |= {path.name for path in util.TOOLS.iterdir()}
    for one, words in [(line, words) for line in every() for words in made(line.text)]:
        # `make deb LSMOD=` names a variable, and gives it no value.
        given = [re.sub(r"^T=(NAME|new)$", f"T={series[0].name}", word) for word in words[1:] if not word.endswith("=")]
        assert {word.partition("=")[0] for word in words[1:]} <= {
            variable.name for variable in cli.COMMANDS[words[0]].variables
        }, one
        _, args = cli.parse([words[0], *given])
        for name in cli.several(getattr(args, "t", "")):
            assert name in known or name == "name.sh", one
        for name in cli.several(getattr(args, "b", "")):
            assert name in experiments or name == "new", one


@pytest.mark.parametrize("command", cli.COMMANDS.values(), ids=lambda command: command.name)
def test_every_command_has_an_example_that_can_be_given(command):
    words = shlex.split(cli.example(command))[1:]
    assert cli.parse(words)[0] is command


def test_no_line_of_the_tables_is_of_no_command():
    texts = [one.text for one in every()]
    keys = {key(words) for text in texts for words in made(text)}
    assert sorted(OURS.keys() - keys - {key(words.split()) for words in HERE}) == []
    assert not [pattern for pattern in OTHERS if not any(re.fullmatch(pattern, text) for text in texts)]


@pytest.mark.parametrize("place", sorted({*OURS.values(), *OTHERS.values()}))
def test_what_is_said_to_run_a_command_is_there(place):
    kind, _, rest = place.partition(" ")
    if kind == "gate":
        parts = (*gate.SAID.values(), *gate.RUN.values(), *gate.BESIDE.values(), *gate.DRAWN.values())
        steps = [f"{part.__module__.rpartition('.')[2]}.{part.__name__}" for part in parts]
        assert rest in [*steps, "check.check"] and "check.check" in inspect.getsource(gate.judge_all)
    elif kind == "selftest":
        path, _, needle = rest.partition(": ")
        patches = [patch for topic in topics.series() if path in topic.scripts for patch in topic.patches]
        changed = [line for patch in patches for line in topics.changes(patch).get(topics.SELFTESTS + path, [])]
        assert any(line.startswith("+") and needle in line for line in changed), place
    elif kind == "test-all":
        said = inspect.getsource(gate.everything)
        assert all(word in said for word in ("LONG", "TESTED", "kunit.kunit", "litmus", "mutants", "conformance"))
        assert set(package.SUITES) <= set(TESTED)
    elif kind not in ("here", "elsewhere:"):
        name, _, test = place.partition(": ")
        assert f"def {test}(" in (pathlib.Path(__file__).with_name(name)).read_text(), place


@pytest.mark.parametrize("words", HERE)
def test_what_needs_no_base_is_run_here(words):
    topic = next(topic.name for topic in topics.series() if topic.readme)
    lane = next(filter(None, base.PACKAGES))
    done = util.run("make", "-s", *words.format(topic=topic, lane=lane).split(), cwd=util.ROOT)
    assert words in ("setup", "check-exported") or done.stdout


def test_a_new_command_fails_until_a_table_has_it(tmp_path):
    new, unknown = tmp_path / "new.md", ["frobnicate --now", "make check KIND=x86", "make tset"]
    text = "Do:\n\n    make check T=lwq     # fine\n    frobnicate --now\n    make check KIND=x86\n\nand `make tset`.\n"
    new.write_text(text)
    assert [one.text for one in said(new) if not runs(one.text)] == unknown
    with pytest.raises(Fail, match="there is no KIND= here"):
        cli.parse(["check", "KIND=x86"])
