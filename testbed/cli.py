# SPDX-License-Identifier: GPL-2.0
"""The testbed's commands; the Makefile is their front door. `python3 -m testbed COMMAND`."""

import argparse
import re
import shutil
import subprocess
import sys

from . import experiments as experiment
from . import host, report
from .experiments import cost, counts, realtime
from .machines import kernel
from .series import base, topics, tree as queue
from .suites import check, kunit, litmus, mutants, selftests as suites
from .util import BUILD, ROOT, Fail, Tally, say

# The base that bench/results was recorded on; figures of another are not held against it.
RECORDED_ON = "Linux 7.3.4 (linux-source-7.3 "


def setup(_):
    host.setup()


def tree(args):
    queue.tree(base.find(), force=args.force)


def export(_):
    queue.export()
    report.readme("topics")


def series(_):
    print("\n".join(str(patch) for topic in topics.series() for patch in topic.patches))


def check_exported(_):
    queue.check_exported()


def check_queue(_):
    tally = Tally()
    tally.run("tree/ holds nothing that patches/ does not", queue.check_exported)
    check.check(base.find(), tally)
    return tally.close()


def kernels(args):
    for name, path in kernels_of(base.find(), args.kind):
        say(f"{name}: {path}")


def kernels_of(found, kind):
    for what in kernel.flavours(kind):
        yield from kernel.kernels(found, what).items()


def demo(_):
    """The floor, base beside patched: figures, table and picture in build/results."""
    found = base.find()
    path = measure(found, "floor")
    result = report.read(path)
    report.floor_picture(path, BUILD / "results" / "floor")
    print(f"\nA burst of 32 READs beside K bulk connections with 8 READs in flight each: median time, and all replies a second\n"
          f"({found.name}; 16 nfsd threads, 10 ms a READ, simulated time)\n\n{report.floor_table(result)}\n")
    say(f"the picture is {BUILD}/results/floor.svg and floor.png, the figures {path}")
    compare(path)


def measure(found, name):
    return experiment.run(name, kernel.kernels(found, kernel.flavour(experiment.topic_of(name)), experiment.variants(name)), kernel.selftests(found))


def compare(path):
    """Say whether a result is, to the byte, the one that bench/results records."""
    recorded = experiment.recorded(path.stem)
    if not recorded.is_file():
        return say(f"there is no recorded result to compare with ({recorded})")
    same = recorded.read_bytes() == path.read_bytes()
    say(f"{path.name}: " + ("the same bytes as the recorded result" if same else "differs from the recorded result "
        f"(diff {recorded} {path}): another base, another queue, or a fault"))
    return same


def bench(args):
    """Every experiment, or those named; a table of each."""
    found = base.find()
    for name in args.names or sorted(experiment.everywhere()):
        path = measure(found, name)
        what = experiment.load(name)
        print(f"\n{report.any_table(what, report.read(path))}\n")
        if "tables" in what:
            report.rows_picture(what, path, path.with_suffix(""))
            say(f"the picture is {path.with_suffix('.svg')} and .png")
        if what.get("exact", True):
            compare(path)


def measure_cost(_):
    """What queueing and dispatching a transport costs, base beside patched."""
    cost.measure(base.find())


def record(args):
    """Run experiments and keep their results and tables in bench/results, and the README's table and picture with them."""
    bench(args)
    for path in sorted((BUILD / "results").glob("*.json")):
        what, kept = experiment.load(path.stem), experiment.recorded(path.stem)
        shutil.copyfile(path, kept)
        kept.with_suffix(".md").write_text(f"# {report.any_table(what, report.read(kept))}\n")
        if "tables" in what:
            report.rows_picture(what, kept, kept.with_suffix(""))
    kept = experiment.recorded("floor")
    report.floor_picture(kept, kept.with_suffix(""))
    report.readme("floor")


def test(args):
    """Everything: the testbed's own tests, the queue's checks, KUnit, the selftests, and the figures twice."""
    tally = Tally()
    if args.kind != "sim":
        suites.selftests(base.find(), tally, args.kind)
        return tally.close()
    say("the testbed's own tests")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    print(done.stdout, flush=True)
    counts = dict((kind, int(number)) for number, kind in re.findall(r"(\d+) (passed|failed|error|skipped)", done.stdout))
    bad = sum(counts.get(kind, 0) for kind in ("failed", "error", "skipped"))
    tally.add(counts.get("passed", 0), bad or int(done.returncode != 0))
    tally.run("tree/ holds nothing that patches/ does not", queue.check_exported)
    found = tally.run("a base is found", base.find)
    if found:
        say(f"the base is {found.name}")
        for what in (check.check, kunit.kunit, suites.selftests, figures):
            tally.run(f"{what.__module__.rpartition('.')[2]}.{what.__name__} came to its end", what, found, tally)
    return tally.close()


def figures(found, tally):
    """The headline's figures twice from the same kernels: the same bytes, and on the recorded base the recorded ones."""
    made = kernel.kernels(found, kernel.flavour(experiment.topic_of("floor")))
    again = [experiment.run("floor", made, kernel.selftests(found), BUILD / "figures" / turn) for turn in ("first", "second")]
    tally.that("two runs of the floor experiment give the same bytes",
               "" if again[0].read_bytes() == again[1].read_bytes() else f"diff {again[0]} {again[1]}")
    recorded = experiment.recorded("floor")
    if found.name.startswith(RECORDED_ON):
        tally.that("they are the bytes the README's table and picture were made from",
                   "" if again[0].read_bytes() == recorded.read_bytes() else f"diff {recorded} {again[0]}; `make record` if it is meant")


def lwq(args):
    """What the topic lwq changes: in counts, which are exact, and in time, base's queue and the new one in turns on two CPUs."""
    found = base.find()
    path = counts.measure(found)
    print(f"\n{counts.tables(report.read(path))}\n")
    say(f"{path}: " + ("the same bytes as the recorded counts" if path.read_bytes() == counts.RECORDED.read_bytes() else
                       f"differs from the recorded counts (diff {counts.RECORDED} {path}): another compiler, or another queue"))
    if args.turns:
        path = realtime.measure(found, args.turns)
        print(f"\n{realtime.tables(report.read(path))}\n")
        say(f"{path} has every turn's figures; {realtime.RECORDED} those of the recorded run, whose times are no other run's")


def litmus_tests(_):
    """Judge every litmus test of the queue by herd7 on the kernel's memory model."""
    tally = Tally()
    litmus.litmus(base.find(), tally)
    return tally.close()


def faults(args):
    """Put one fault after the other into the queue; a test has to notice each."""
    tally = Tally()
    mutants.mutants(base.find(), tally, args.names)
    return tally.close()


def clean(_):
    for path in (BUILD,):
        shutil.rmtree(path, ignore_errors=True)
    say("build/ is gone; tree/ (your work) and the cache (safe to delete: "
        f"{kernel.cache()}) are left")


def main():
    parser = argparse.ArgumentParser(prog="testbed", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, function in {"setup": setup, "tree": tree, "export": export, "series": series, "check-exported": check_exported,
                           "check": check_queue, "kernels": kernels, "demo": demo, "bench": bench, "record": record, "test": test,
                           "litmus": litmus_tests, "mutants": faults, "lwq": lwq, "cost": measure_cost, "clean": clean}.items():
        command = commands.add_parser(name, help=function.__doc__)
        command.set_defaults(function=function)
        if name == "tree":
            command.add_argument("--force", action="store_true", help="make it anew; what it held is kept on a branch")
        if name == "kernels":
            command.add_argument("--kind", choices=kernel.KINDS, default="sim")
        if name == "test":
            command.add_argument("--kind", choices=suites.LIMIT, default="sim", help="the selftests on another kind of machine, and nothing else")
        if name in ("bench", "record"):
            command.add_argument("names", nargs="*", metavar="EXPERIMENT")
        if name == "lwq":
            command.add_argument("--turns", type=int, default=5, help="boots of each kernel; 0: only count")
        if name == "mutants":
            command.add_argument("names", nargs="*", metavar="TOPIC")
    args = parser.parse_args()
    try:
        sys.exit(args.function(args))
    except Fail as fail:
        sys.exit(f"testbed: {fail}")
    except KeyboardInterrupt:
        sys.exit("testbed: interrupted; nothing half-made will be used")


if __name__ == "__main__":
    main()
