# SPDX-License-Identifier: GPL-2.0
"""The testbed's command line; the Makefile is a thin alias for it. `python3 -m testbed COMMAND`."""

import argparse
import pathlib
import shutil
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from . import gate, host
from .experiments import experiment, results
from .machines import kernel
from .machines import shell as machine
from .machines.kinds import BOOTED, TESTED
from .packages import deb, dkms
from .report import documents
from .report import figures as quoted
from .series import base, post, topics, tree
from .suites import check, conformance, kunit, litmus, mutants
from .util import BUILD, Fail, Tally, cache, lane, say

Arguments = argparse.Namespace
# What has a meaning in a lane (LTS=).
LANE_COMMANDS = ("setup", "tree", "export", "check-exported", "series", "kernels", "deb", "test", "kunit", "shell",
                 "gdb", "bench", "record", "results", "clean")
COMMANDS: dict[str, tuple[Callable[[Arguments], int | None], list[tuple[tuple[str, ...], dict]]]] = {}


CHECKOUTS = [
    (
        (f"--{suite.name}",),
        {"default": "", "metavar": "DIRECTORY", "help": f"a built checkout of {suite.title} ({suite.variable}=)"},
    )
    for suite in conformance.SUITES
]


def command(*options: tuple[tuple[str, ...], dict], name: str = "") -> Callable:
    """Make a function a command of its own name, with these options; its docstring is the command's help."""
    def register(function: Callable[[Arguments], int | None]) -> Callable[[Arguments], int | None]:
        COMMANDS[name or function.__name__.replace("_", "-")] = (function, list(options))
        return function
    return register


def option(*names: str, **settings: Any) -> tuple[tuple[str, ...], dict]:
    return names, settings


@command()
def setup(_: Arguments) -> None:
    """install the Debian packages that are missing"""
    host.setup()


@command(option("--force", action="store_true", help="make it anew; what it held is kept on a branch"), name="tree")
def make_tree(args: Arguments) -> None:
    """materialise base and patches as a git tree to work in"""
    tree.tree(base.find(), force=args.force)


@command()
def export(_: Arguments) -> None:
    """write the tree's commits back as patches"""
    tree.export()
    documents.splice()


@command()
def series(_: Arguments) -> None:
    """print the paths of all patches, in order"""
    # Whoever only wants to apply the patches need not install anything.
    print("\n".join(str(patch) for topic in topics.series(checked=False) for patch in topic.patches))


@command(option("topic"), option("version"), option("--to", help="the directory; build/post/TOPIC-vN"),
         option("--previous", help="the git ref that holds the version before; posted/TOPIC-vN"), name="post")
def make_post(args: Arguments) -> None:
    """write a topic as the messages that would be mailed; nothing is sent"""
    post.check(args.topic, args.version)
    post.post(base.find(), args.topic, args.version, args.to, args.previous)


@command(name="dkms")
def make_dkms(_: Arguments) -> None:
    """the series as a Debian package of modules for Debian's own kernel"""
    dkms.dkms(base.find())


@command(option("--lsmod", type=pathlib.Path, metavar="FILE",
                help="what lsmod says on the server: no other modules are built (LSMOD=)"), name="deb")
def make_deb(args: Arguments) -> None:
    """the patched kernel as Debian packages, configured as Debian's own"""
    loaded = deb.loaded(args.lsmod) if args.lsmod else ""
    host.setup(host.DEB)
    made = deb.deb(base.find(), loaded)
    say(f"Linux {made.release}: `apt install {' '.join(map(str, made.files))}` on the server, then boot it")


@command()
def check_exported(_: Arguments) -> None:
    """say whether tree/ holds what topics/ does not; fast"""
    tree.check_exported()


@command(name="check")
def check_series(_: Arguments) -> int:
    """look at the series as its maintainers would"""
    tally = Tally()
    tally.run("tree/ holds nothing that topics/ does not", tree.check_exported)
    check.check(base.find(), tally)
    return tally.close()


@command(option("--kind", choices=BOOTED, default="sim", help="the machine they are for"))
def kernels(args: Arguments) -> None:
    """build base and patched"""
    for name, path in kernel.kernels(base.find(), kernel.flavour(args.kind)).items():
        say(f"{name}: {path}")


@command()
def demo(_: Arguments) -> None:
    """what the README shows, measured here: figures, table and picture"""
    for name in experiment.shown():
        for done in results.measured([name]):
            documents.show(done, 1)


NAMES = option("names", nargs="*", metavar="EXPERIMENT", help="NAME or NAME,NAME; all, if none is named")


@command(NAMES)
def bench(args: Arguments) -> None:
    """run experiments, and print a table of each"""
    for done in results.measured(args.names):
        documents.show(done)


@command(NAMES)
def record(args: Arguments) -> None:
    """run experiments, and keep their results, with where they came from, in topics/ and in the README"""
    for done in results.measured(args.names):
        documents.show(done)
        documents.record(done)


@command(name="results")
def judge_results(_: Arguments) -> None:
    """say of each recorded result whether it is of today's series"""
    results.results()


@command(option("--write", action="store_true", help="put the recorded numbers into the documents"), name="figures")
def check_figures(args: Arguments) -> int:
    """say which figures of the README and the cover letters are not as recorded"""
    if args.write:
        say(f"{quoted.write()} figures were changed")
    tally = Tally()
    tally.that(
        "every figure in the README and the cover letters is as recorded, or has a source", "\n".join(quoted.problems())
    )
    return tally.close()


MACHINE = option("--kind", choices=TESTED, default="sim", help="the kind of machine (KIND=)")
KERNEL = option("--kernel", choices=("base", "patched"), default="patched", help="which of the two (KERNEL=)")
TOPIC = option("--topic", default="", metavar="TOPIC", help="whose options and server, not the first topics' (T=)")


@command(MACHINE, option("--only", default="", metavar="TOPIC|SCRIPT",
                         help="a topic's KUnit and selftests, or one selftest (T=)"),
         option("--noise", type=int, choices=range(1, 10), default=0, metavar="1..9",
                help="run the selftests in a guest that was disturbed, each number in another way (NOISE=)"),
         option("--mode", default="", help="run the selftests in a mode that a topic has (MODE=)"))
def test(args: Arguments) -> int:
    """the gate: what has to hold of every change; ends with "N passed, N failed\""""
    if args.only or args.kind != "sim" or args.noise or args.mode:
        return gate.some(args.kind, args.only, args.noise, args.mode)
    return gate.gate().close(BUILD / "junit.xml")


@command(*CHECKOUTS, name="test-all")
def test_all(args: Arguments) -> int:
    """all that can be tested, with nothing taken from what was judged before; most of a day"""
    return gate.everything({suite.name: getattr(args, suite.name) for suite in conformance.SUITES})


@command(
    option("only", metavar="SUITE", help="a glob of KUnit suites' names (S=)"),
    option(
        "--cpus",
        type=int,
        choices=range(1, kunit.MOST_CPUS + 1),
        default=1,
        help="how many CPUs the kernel has (CPUS=)",
    ),
    name="kunit",
)
def kunit_suites(args: Arguments) -> int:
    """run the KUnit suites of a name"""
    tally = Tally()
    kunit.kunit(base.find(), tally, only=args.only, cpus=args.cpus)
    return tally.close()


@command(option("--kind", choices=BOOTED, default="sim", help="the kind of machine (KIND=)"), KERNEL, TOPIC)
def shell(args: Arguments) -> None:
    """a guest with a terminal, its server up and the selftests at hand"""
    machine.shell(base.find(), args.topic, args.kind, args.kernel)


@command(option("--kind", choices=BOOTED, default="sim", help="the kind of machine (KIND=)"), KERNEL, TOPIC)
def gdb(args: Arguments) -> None:
    """User-mode Linux under gdb"""
    machine.gdb(base.find(), args.topic, args.kind, args.kernel)


@command(name="litmus")
def litmus_tests(_: Arguments) -> int:
    """judge every litmus test of the series by herd7 on the kernel's memory model"""
    tally = Tally()
    litmus.litmus(base.find(), tally)
    return tally.close()


@command(option("names", nargs="*", metavar="TOPIC"),
         option("--new", action="store_true", help="only those that mutants/noticed does not have (NEW=1)"),
         name="mutants")
def faults(args: Arguments) -> int:
    """put one fault after the other into the kernel; a test has to notice each"""
    tally = Tally()
    mutants.mutants(base.find(), tally, args.names, args.new)
    return tally.close()


@command(*CHECKOUTS, option("--record", action="store_true", help="keep what came of base as the baseline (RECORD=1)"),
         name="conformance")
def conform(args: Arguments) -> int:
    """run suites of others (pynfs, Connectathon, LTP, fstests) on base and patched; only a new failure fails"""
    tally = Tally()
    given = {suite.name: getattr(args, suite.name) for suite in conformance.SUITES}
    conformance.checkouts(given)
    conformance.conformance(base.find(), tally, given, args.record)
    return tally.close()


@command()
def clean(_: Arguments) -> None:
    """remove build/"""
    shutil.rmtree(BUILD, ignore_errors=True)
    say(f"build/ is gone; tree/ (your work) and the cache (safe to delete: {cache()}) are left")


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"testbed: {message}\n")


def main() -> None:
    parser = Parser(prog="testbed", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (function, options) in COMMANDS.items():
        one = commands.add_parser(name, help=function.__doc__, description=function.__doc__)
        one.set_defaults(function=function, command=name)
        for names, settings in options:
            one.add_argument(*names, **settings)
    args = parser.parse_args()
    try:
        base.package()  # a lane that there is not is said before anything is done
        if lane() and args.command not in LANE_COMMANDS:
            raise Fail(f"{args.command} is for the series itself; with LTS= there are: {', '.join(LANE_COMMANDS)}")
        sys.exit(args.function(args))
    except Fail as fail:
        sys.exit(f"testbed: {fail}")
    except KeyboardInterrupt:
        sys.exit("testbed: interrupted; nothing half-made will be used")
