# SPDX-License-Identifier: GPL-2.0
"""The testbed's commands. `make COMMAND VARIABLE=value` is `python3 -m testbed COMMAND VARIABLE=value`."""

import contextlib
import dataclasses
import os
import pathlib
import sys
import textwrap
import types
from collections.abc import Callable, Iterator, Sequence

from . import gate, host
from .experiments import experiment, results
from .machines import kernel
from .machines import shell as machine
from .machines.kinds import BOOTED, TESTED
from .packages import deb, dkms
from .report import documents
from .report import figures as quoted
from .schema import meant
from .series import base, post, topics, tree
from .suites import check, conformance, kunit, litmus, mutants, userland
from .swarm import coverage, judge
from .util import BUILD, ROOT, TREE, Fail, Tally, cache, digest, lane, lock, project, remove, say

# {variable in lower case: its value}
Arguments = types.SimpleNamespace
Function = Callable[[Arguments], int | None]


@dataclasses.dataclass(frozen=True)
class Variable:
    """What may stand behind a command as NAME=value."""

    name: str
    help: str
    # What it may be; anything, if that is empty. Of numbers the value is one; of FLAG it is whether it is set.
    choices: tuple[str, ...] | range = ()
    default: str | int | bool = ""

    def value(self, text: str) -> str | int | bool:
        """What the text stands for, which a user gave."""
        known = [str(choice) for choice in self.choices]
        if not text.strip(","):
            raise Fail(f"{self.name}={text}: has no value; leave {self.name}= out, or say {self.help}")
        if known and text not in known:
            raise Fail(f"{self.name}={text}: not one of {', '.join(known)}{meant(text, known)}")
        if self.choices == FLAG:
            return True
        return int(text) if isinstance(self.choices, range) else text


FLAG = ("1",)
KSRC = Variable("KSRC", "a clean git tree of the kernel as the base, instead of Debian's linux-source")
LTS = Variable("LTS", f"the lane for another kernel: {', '.join(filter(None, base.PACKAGES))}")
BASE = Variable("BASE", "a base beside the kernel, for its topics", tuple(base.PROJECTS))
TOPIC = Variable("T", "a topic")
TOPICS = Variable("T", "a topic, or several with commas between them")
MACHINE = Variable("KIND", "the kind of machine", BOOTED, "sim")
KERNEL = Variable("KERNEL", "which of the two kernels", ("base", "patched"), "patched")
CHECKOUTS = tuple(Variable(suite.variable, f"a built checkout of {suite.title}") for suite in conformance.SUITES)
EXPERIMENTS = (
    Variable("B", "an experiment, or several with commas between them"),
    Variable("T", "a topic: all its experiments; or several with commas between them"),
)


@dataclasses.dataclass(frozen=True)
class Command:
    """What `make NAME` does. The first line of the function's docstring is the command's help."""

    name: str
    function: Function
    variables: tuple[Variable, ...]
    example: str
    # Whether it needs none of the Debian packages: then it does not wait for them.
    bare: bool
    # Commands that have this in common write the same files of build/, and wait for each other.
    place: str

    @property
    def help(self) -> str:
        return (self.function.__doc__ or "").partition("\n")[0]


COMMANDS: dict[str, Command] = {}


def command(
    *variables: Variable, name: str = "", example: str = "", bare: bool = False, place: str = ""
) -> Callable[[Function], Function]:
    """Make a function a command, of its own name unless another is given."""

    def register(function: Function) -> Function:
        named = name or function.__name__.replace("_", "-")
        COMMANDS[named] = Command(named, function, variables, f"make {named} {example}".rstrip(), bare, place)
        return function

    return register


def example(one: Command) -> str:
    """A command's example, with a topic and an experiment that the README shows."""
    shown = [(topic.name, name) for topic in topics.series(checked=False) for name in topic.readme]
    topic, experiment = next(iter(shown), ("NAME", "NAME"))
    return one.example.format(topic=topic, experiment=experiment)


def several(text: str) -> list[str]:
    """The names that a variable's value has."""
    return [name for name in text.split(",") if name]


@command(name="help", bare=True)
def show_help(_: Arguments) -> None:
    """show the commands, their variables and an example of each"""
    print("make COMMAND VARIABLE=value …; docs/reference.md has more of each.\n")
    for one in COMMANDS.values():
        given = "".join(f" {variable.name}=" for variable in one.variables)
        print(f"{one.name}{given}")
        print(textwrap.indent(textwrap.fill(one.help, 110), "    "))
        if one.variables:
            print(f"    $ {example(one)}")
    print("\nThe variables:")
    meanings: dict[str, dict[Variable, list[str]]] = {}
    for one in COMMANDS.values():
        for variable in one.variables:
            meanings.setdefault(variable.name, {}).setdefault(variable, []).append(one.name)
    for name, of in meanings.items():
        for variable, commands in of.items():
            choices = "" if variable.choices in ((), FLAG) else f": {', '.join(map(str, variable.choices))}"
            where = f" ({', '.join(commands)})" if len(of) > 1 else ""
            print(f"    {name + '=':<10}{variable.help}{choices}{where}")


@command(bare=True)
def setup(_: Arguments) -> None:
    """install the Debian packages that are missing"""
    host.setup()


@command(
    Variable("FORCE", "1: make it anew; what it held is kept on a branch", FLAG, False),
    KSRC,
    LTS,
    BASE,
    name="tree",
    example="LTS=6.12",
)
def make_tree(args: Arguments) -> None:
    """materialise base and patches as a git tree to work in"""
    tree.tree(base.find(), force=args.force)


@command(LTS, BASE, bare=True)
def export(_: Arguments) -> None:
    """write the tree's commits back as patches"""
    tree.export()
    documents.splice()


@command(TOPICS, LTS, BASE, example="T={topic}", bare=True)
def series(args: Arguments) -> None:
    """print the paths of all patches in order but those of experiments, or of a topic behind what it depends on"""
    # Whoever only wants to apply the patches need not install anything.
    found = topics.series(checked=False)
    found = topics.closure(found, *several(args.t)) if args.t else topics.proposed(found)
    print("\n".join(str(patch) for topic in found for patch in topic.patches))


@command(
    TOPIC,
    Variable("V", "the number of the version: 1 is the first posting"),
    Variable("TO", "the directory to write to, instead of build/post/TOPIC-vN"),
    Variable("PREVIOUS", "the git ref that holds the version before, instead of posted/TOPIC-vN"),
    Variable("P", "some of its patches alone, on the base: their numbers, as 1,2,4"),
    KSRC,
    BASE,
    name="post",
    example="T={topic} V=1",
)
def make_post(args: Arguments) -> None:
    """write a topic as the messages that would be mailed; nothing is sent"""
    post.check(args.t, args.v, args.p)
    post.post(base.find(), args.t, args.v, args.to, args.previous, args.p)


@command(name="dkms")
def make_dkms(_: Arguments) -> None:
    """the series as a Debian package of modules for Debian's own kernel"""
    dkms.dkms(base.find())


@command(
    Variable("LSMOD", "a file with what lsmod says on the server: no other modules are built"),
    KSRC,
    LTS,
    name="deb",
    example="LSMOD=server.lsmod",
)
def make_deb(args: Arguments) -> None:
    """the patched kernel as Debian packages, configured as Debian's own"""
    loaded = deb.loaded(pathlib.Path(args.lsmod)) if args.lsmod else ""
    host.setup(host.DEB)
    made = deb.deb(base.find(), loaded)
    say(f"Linux {made.release}: `apt install {' '.join(map(str, made.files))}` on the server, then boot it")


@command(LTS, BASE, bare=True)
def check_exported(_: Arguments) -> None:
    """say whether tree/ holds what topics/ does not; fast"""
    tree.check_exported()


@command(TOPICS, KSRC, LTS, BASE, name="check", example="T={topic}")
def check_series(args: Arguments) -> int:
    """look at the patches, all or a topic's, as their maintainers would"""
    tally = Tally()
    wanted = [topic for topic in topics.series() if topic.name in several(args.t)]
    tally.run(f"{TREE.name}/ holds nothing that topics/ does not", tree.check_exported)
    if lane():
        check.applies(base.find(), tally, wanted or None)
    elif project():
        userland.check(base.find(), tally, wanted or topics.series())
    else:
        check.check(base.find(), tally, wanted or None)
    return tally.close()


@command(MACHINE, KSRC, LTS, example="KIND=smp")
def kernels(args: Arguments) -> None:
    """build base and patched"""
    what = kernel.flavour(args.kind)
    for name in kernel.kernels(base.find(), what):
        say(f"{name}: {BUILD / name / what.image}")


@command(KSRC, place="results")
def demo(_: Arguments) -> None:
    """what the README shows, measured here: figures, table and picture"""
    for name in experiment.shown():
        for done in results.measured([name]):
            documents.show(done, 1)


@command(*EXPERIMENTS, KSRC, LTS, example="B={experiment}", place="results")
def bench(args: Arguments) -> None:
    """run experiments, and print a table of each"""
    for done in results.measured(several(args.b), several(args.t)):
        documents.show(done)


@command(*EXPERIMENTS, KSRC, LTS, example="B={experiment}", place="results")
def record(args: Arguments) -> None:
    """run experiments, and keep their results, with where they came from, in topics/ and in the README"""
    for done in results.measured(several(args.b), several(args.t)):
        documents.show(done)
        documents.record(done)


FROM = Variable("FROM", "the seed of the first one; 1 without it")


@command(
    Variable("T", "the topic whose swarm.toml it is"),
    Variable("SEEDS", f"how many loads; {judge.MANY} without it"),
    FROM,
    Variable("SEED", "this load alone, or this case, with the trace"),
    Variable("KEEP", "make it small, and keep it as a case of this name"),
    Variable("RECORD", "1: keep what came of all in topics/", FLAG, False),
    Variable("KIND", "the machine, of those that its loads are drawn for"),
    Variable("MUTANTS", "1: put back each fault that swarm.toml names, and say which seed finds it", FLAG, False),
    KSRC,
    example="T={topic} SEEDS=20",
    place="swarm",
)
def swarm(args: Arguments) -> int:
    """run loads that are drawn at random, and judge each by what a topic promises"""
    first = getattr(args, "from")
    return judge.swarm(args.t, args.seeds, first, args.seed, args.keep, args.record, args.kind, args.mutants)


@command(
    Variable("T", "the topic whose swarm.toml says what is drawn, and coverage.toml why nothing reaches a function"),
    Variable("SEEDS", f"how many loads; {coverage.MANY} without it"),
    FROM,
    Variable("RECORD", "1: keep the report in topics/", FLAG, False),
    KSRC,
    name="coverage",
    example="T={topic} SEEDS=20",
    place="coverage",
)
def count_lines(args: Arguments) -> int:
    """say which lines of the topics' code tests and random loads execute, and what nothing reaches"""
    return coverage.coverage(args.t, args.seeds, getattr(args, "from"), args.record)


@command(*EXPERIMENTS, LTS, name="results", example="T={topic}")
def judge_results(args: Arguments) -> None:
    """say of each recorded result whether it is of today's series"""
    results.results(several(args.b), several(args.t))
    if not args.b:
        judge.results(several(args.t))


@command(Variable("WRITE", "1: put the recorded numbers in", FLAG, False), name="figures", example="WRITE=1")
def check_figures(args: Arguments) -> int:
    """say which figures of the README and the cover letters are not as recorded"""
    if args.write:
        say(f"{quoted.write()} figures were changed")
    tally = Tally()
    tally.that(
        "every figure in the README and the cover letters is as recorded, or has a source", "\n".join(quoted.problems())
    )
    return tally.close()


@command(
    dataclasses.replace(MACHINE, choices=TESTED),
    Variable("T", "a topic's KUnit and selftests, one selftest, or a program of tools/"),
    Variable("NOISE", "run the selftests in a guest that was disturbed, each number in another way", range(1, 10), 0),
    Variable("MODE", "run the selftests in a mode that a topic has"),
    KSRC,
    LTS,
    example="T={topic}",
    place="test",
)
def test(args: Arguments) -> int:
    """the gate: what has to hold of every change; ends with "N passed, N failed\""""
    if is_gate(args):
        return gate.gate().close(BUILD / "junit.xml")
    return gate.some(args.kind, args.t, args.noise, args.mode)


def is_gate(args: Arguments) -> bool:
    """Whether all is asked for that has to hold of every change, and not some of it."""
    return not (args.t or args.kind != "sim" or args.noise or args.mode)


@command(*CHECKOUTS, KSRC, name="test-all", example="PYNFS=/path/to/pynfs", place="test")
def test_all(args: Arguments) -> int:
    """all that can be tested, with nothing taken from what was judged before; most of a day"""
    return gate.everything({suite.name: getattr(args, suite.name) for suite in conformance.SUITES})


@command(
    Variable("S", "a pattern of KUnit suites' names", default="*"),
    Variable("CPUS", "how many CPUs the kernel has", range(1, kunit.MOST_CPUS + 1), 1),
    KSRC,
    LTS,
    name="kunit",
    example="S='nfsd*' CPUS=2",
    place="test",
)
def kunit_suites(args: Arguments) -> int:
    """run the KUnit suites of a name"""
    tally = Tally()
    kunit.kunit(base.find(), tally, only=args.s, cpus=args.cpus)
    return tally.close()


@command(MACHINE, KERNEL, TOPIC, KSRC, LTS, example="KERNEL=base", place="shell")
def shell(args: Arguments) -> None:
    """a guest with a terminal, its server up and the selftests at hand"""
    machine.shell(base.find(), args.t, args.kind, args.kernel)


@command(MACHINE, KERNEL, TOPIC, KSRC, LTS, example="KIND=debug", place="shell")
def gdb(args: Arguments) -> None:
    """User-mode Linux under gdb"""
    machine.gdb(base.find(), args.t, args.kind, args.kernel)


@command(KSRC, name="litmus")
def litmus_tests(_: Arguments) -> int:
    """judge every litmus test of the series by herd7 on the kernel's memory model"""
    tally = Tally()
    litmus.litmus(base.find(), tally)
    return tally.close()


@command(
    TOPICS,
    Variable("NEW", "1: only those that mutants/killed does not have", FLAG, False),
    KSRC,
    name="mutants",
    example="T={topic} NEW=1",
    place="mutants",
)
def faults(args: Arguments) -> int:
    """put one fault after the other into the kernel; a test has to notice each"""
    tally = Tally()
    mutants.mutants(base.find(), tally, several(args.t), args.new)
    return tally.close()


@command(
    *CHECKOUTS,
    Variable("RECORD", "1: keep what came of base as the baseline", FLAG, False),
    KSRC,
    name="conformance",
    example="PYNFS=/path/to/pynfs",
    place="conformance",
)
def conform(args: Arguments) -> int:
    """run suites of others (pynfs, Connectathon, LTP, fstests) on base and patched; only a new failure fails"""
    tally = Tally()
    given = {suite.name: getattr(args, suite.name) for suite in conformance.SUITES}
    conformance.checkouts(given)
    conformance.conformance(base.find(), tally, given, args.record)
    return tally.close()


@command(LTS, BASE, bare=True)
def clean(_: Arguments) -> None:
    """remove build/"""
    if BUILD.exists():
        remove(BUILD)
    say(f"{BUILD.relative_to(ROOT)}/ is gone; tree/ (your work) and the cache (safe to delete: {cache()}) are left")


def parse(words: Sequence[str]) -> tuple[Command, Arguments]:
    """The command that the words of a command line name, and its variables; Fail in the user's own words.

    What of a command's variables the words do not have is taken from the environment, as make does.
    """
    name = words[0] if words else "help"
    if name not in COMMANDS:
        raise Fail(f"there is no command {name}{meant(name, COMMANDS)}; there are: {', '.join(COMMANDS)}")
    found, known = COMMANDS[name], {variable.name: variable for variable in COMMANDS[name].variables}
    given = {variable: os.environ[variable] for variable in known if os.environ.get(variable)}
    for word in words[1:]:
        variable, equals, value = word.partition("=")
        if not equals:
            raise Fail(f"make {name}: {word}: not of the form VARIABLE=value; {offered(found)}")
        for other in (LTS, BASE):
            if variable == other.name not in known:
                raise Fail(of_the_series(found, other))
        if variable not in known:
            raise Fail(f"make {name}: there is no {variable}= here{meant(variable, known)}; {offered(found)}")
        given[variable] = value
    for other, said in ((LTS, lane()), (BASE, project())):
        if said and other.name not in known and not found.bare:
            raise Fail(of_the_series(found, other))
    values = {key: one.value(given[key]) if key in given else one.default for key, one in known.items()}
    # Before a base is looked for: a topic that there is not.
    bases = {one.name: one.base for one in topics.applied(checked=False)}
    for topic in several(str(values["T"])) if {TOPIC, TOPICS, EXPERIMENTS[1]} & set(found.variables) else ():
        if bases.get(topic, project()) != project():
            raise Fail(f"T={topic}: is of another base: {f'BASE={bases[topic]}' if bases[topic] else 'without BASE='}")
        topics.named(topics.series(checked=False), topic)
    return found, Arguments(**{key.lower(): value for key, value in values.items()})


def offered(found: Command) -> str:
    """The variables that a command has."""
    names = [f"{variable.name}=" for variable in found.variables]
    return f"there {'are' if len(names) > 1 else 'is'}: {', '.join(names)}" if names else "it has no variable"


def of_the_series(found: Command, other: Variable) -> str:
    have = [one.name for one in COMMANDS.values() if other in one.variables]
    return f"{found.name} is for the series itself; with {other.name}= there are: {', '.join(have)}"


@contextlib.contextmanager
def alone(found: Command, args: Arguments) -> Iterator[None]:
    """Wait for other commands that write the same files of build/."""
    with contextlib.ExitStack() as stack:
        for place in places(found, args):
            stack.enter_context(lock(f"{place}-{digest(str(BUILD))}", f"{place} of {BUILD.relative_to(ROOT)}/"))
        yield


def places(found: Command, args: Arguments) -> list[str]:
    """What a command writes. Tests and shells of each kind of machine have files of their own, others have not."""
    if found.name == "test-all":
        return [*(f"test-{kind}" for kind in TESTED), "mutants", "conformance", "swarm"]
    of_kind = found.place in ("test", "shell")
    named = [f"{found.place}-{getattr(args, 'kind', MACHINE.default)}" if of_kind else found.place]
    # The gate has random loads, too.
    return [*named, "swarm"] if found.name == "test" and is_gate(args) else named


def main() -> None:
    try:
        found, args = parse(sys.argv[1:])
        base.package()  # a lane that there is not is said before anything is done
        if not found.bare:
            host.setup()
        with alone(found, args) if found.place else contextlib.nullcontext():
            status = found.function(args)
            sys.stdout.flush()
            sys.exit(status)
    except Fail as fail:
        sys.exit(f"testbed: {fail}")
    except BrokenPipeError:  # `make help | head`: whoever read has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:  # a full disk, a path that cannot be written
        sys.exit(f"testbed: {error}")
    except KeyboardInterrupt:
        sys.exit("testbed: interrupted; nothing half-made will be used")
