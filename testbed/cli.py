# SPDX-License-Identifier: GPL-2.0
"""The testbed's command line; the Makefile is a thin alias for it. `python3 -m testbed COMMAND`."""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Callable

from . import host
from .machines import kernel
from .report import documents, results
from .report import figures as quoted
from .series import base, post, topics, tree
from .suites import check, kunit, litmus, mutants, selftests
from .util import BUILD, ROOT, Fail, Tally, cache, say

Arguments = argparse.Namespace
COMMANDS: dict[str, tuple[Callable[[Arguments], int | None], list[tuple[tuple[str, ...], dict]]]] = {}


def command(*options: tuple[tuple[str, ...], dict], name: str = "") -> Callable:
    """Make a function a command of its own name, with these options; its docstring is the command's help."""
    def register(function: Callable[[Arguments], int | None]) -> Callable[[Arguments], int | None]:
        COMMANDS[name or function.__name__.replace("_", "-")] = (function, list(options))
        return function
    return register


def option(*names: str, **settings) -> tuple[tuple[str, ...], dict]:
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


@command(option("--kind", choices=kernel.KINDS, default="sim", help="the machine they are for"))
def kernels(args: Arguments) -> None:
    """build base and patched"""
    found = base.find()
    for what in kernel.flavours(args.kind):
        for name, path in kernel.kernels(found, what).items():
            say(f"{name}: {path}")


@command()
def demo(_: Arguments) -> None:
    """what the README shows, measured here: figures, table and picture"""
    results.demo()


NAMES = option("names", nargs="*", metavar="EXPERIMENT", help="NAME or NAME,NAME; all, if none is named")


@command(NAMES)
def bench(args: Arguments) -> None:
    """run experiments, and print a table of each"""
    results.bench(args.names)


@command(NAMES)
def record(args: Arguments) -> None:
    """run experiments, and keep their results, with where they came from, in topics/ and in the README"""
    results.record(args.names)


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
    tally.that("every figure in the README and the cover letters is as recorded, or has a source", "\n".join(quoted.problems()))
    return tally.close()


@command(option("--kind", choices=selftests.LIMIT, default="sim", help="the selftests on another kind of machine, and nothing else"))
def test(args: Arguments) -> int:
    """everything that is tested; ends with "N passed, N failed\""""
    tally = Tally()
    if args.kind != "sim":
        selftests.selftests(base.find(), tally, args.kind)
        return tally.close()
    own_tests(tally)
    tally.run("tree/ holds nothing that topics/ does not", tree.check_exported)
    found = tally.run("a base is found", base.find)
    if found:
        say(f"the base is {found.name}")
        for what in (check.check, kunit.kunit, selftests.selftests, results.quoted, results.figures):
            tally.run(f"{what.__module__.rpartition('.')[2]}.{what.__name__} came to its end", what, found, tally)
    return tally.close()


def own_tests(tally: Tally) -> None:
    """pytest over tests/."""
    say("the testbed's own tests")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    print(done.stdout, flush=True)
    said = dict((kind, int(number)) for number, kind in re.findall(r"(\d+) (passed|failed|error|skipped)", done.stdout))
    bad = sum(said.get(kind, 0) for kind in ("failed", "error", "skipped"))
    tally.add(said.get("passed", 0), bad or int(done.returncode != 0))


@command(name="litmus")
def litmus_tests(_: Arguments) -> int:
    """judge every litmus test of the series by herd7 on the kernel's memory model"""
    tally = Tally()
    litmus.litmus(base.find(), tally)
    return tally.close()


@command(option("names", nargs="*", metavar="TOPIC"), name="mutants")
def faults(args: Arguments) -> int:
    """put one fault after the other into the kernel; a test has to notice each"""
    tally = Tally()
    mutants.mutants(base.find(), tally, args.names)
    return tally.close()


@command()
def clean(_: Arguments) -> None:
    """remove build/"""
    shutil.rmtree(BUILD, ignore_errors=True)
    say(f"build/ is gone; tree/ (your work) and the cache (safe to delete: {cache()}) are left")


def main() -> None:
    parser = argparse.ArgumentParser(prog="testbed", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (function, options) in COMMANDS.items():
        one = commands.add_parser(name, help=function.__doc__, description=function.__doc__)
        one.set_defaults(function=function)
        for names, settings in options:
            one.add_argument(*names, **settings)
    args = parser.parse_args()
    try:
        sys.exit(args.function(args))
    except Fail as fail:
        sys.exit(f"testbed: {fail}")
    except KeyboardInterrupt:
        sys.exit("testbed: interrupted; nothing half-made will be used")
