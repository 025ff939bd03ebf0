# SPDX-License-Identifier: GPL-2.0
"""`make swarm`: loads that nobody wrote, each drawn by its seed, and what was promised of them."""

import json
from collections.abc import Iterable, Sequence

from ..experiments import origin
from ..experiments import results as recorded
from ..series import base as bases
from ..series.base import Base
from ..suites import verdicts
from ..util import Fail, Tally, say
from . import mutants, promises, report, shrink
from .draw import Load
from .guests import Guests
from .promises import Swarm, Verdict
from .run import failing

MANY = 20


def number(variable: str, text: str, least: int) -> int:
    """The number that a variable of the command is."""
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise Fail(f"{variable}={text}: give a number, {least} or more")
    return int(text)


def chosen(seeds: str, first: str, usual: int) -> range:
    """The seeds that SEEDS= and FROM= are, of which either may be left out."""
    begin, many = number("FROM", first or "1", 0), number("SEEDS", seeds or str(usual), 1)
    return range(begin, begin + many)


def swarm(
    topic: str, seeds: str, first: str, seed: str, keep: str, record: bool, kind: str = "", put_back: bool = False
) -> int:
    """Run loads on all sides; returns the exit status. put_back: with each fault that the topic keeps for that."""
    if not topic:
        raise Fail(f"which topic? T=NAME, of {', '.join(one.topic.name for one in promises.every())}")
    wanted = promises.find(topic)
    if kind and kind not in wanted.kinds:
        raise Fail(f"KIND={kind}: {topic} is not drawn for it; it is for {', '.join(wanted.kinds)}")
    if seed:
        if seeds or first or put_back:
            raise Fail("SEED= is one load; SEEDS=, FROM= and MUTANTS= are of many: give the one or the others")
        return again(wanted, seed, keep, kind)
    if keep:
        raise Fail("KEEP=NAME goes with SEED=, the load that is to be kept")
    drawn = chosen(seeds, first, MANY)
    if put_back:
        tally = Tally()
        mutants.mutants(wanted, bases.find(), tally, kind or wanted.kinds[0], drawn, record)
        return tally.close()
    if record and kind not in ("", wanted.kinds[0]):
        raise Fail(f"RECORD=1: what is recorded is of {wanted.kinds[0]}: leave KIND= out")
    if record and (tuned := wanted.tuned(drawn)):
        raise Fail(f"RECORD=1: a rule was made by seed {tuned[0]} (`tuned` in swarm.toml): give seeds that prove it")
    loads = wanted.cases | {str(one): wanted.load(str(one)) for one in drawn}
    base = bases.find()
    made_of = origin.today(wanted.experiment, base)
    runner = Guests(wanted, base, kind=kind)
    say(f"{len(drawn)} loads from seed {drawn[0]}, and {len(wanted.cases)} cases, on {' and '.join(wanted.sides)}")
    found = report.collected(runner, loads, line)
    stem = wanted.topic.results / "swarm" if record else runner.place / "swarm"
    report.write(wanted, found, stem, made_of if record else None)
    print(f"\n{report.text(wanted, found)}\n")
    say(f"all of it is in {stem}.json, .md and .svg")
    return status(wanted, found)


def results(of: Sequence[str] = ()) -> None:
    """Of each recorded swarm, of the topics named or of all, whether it is of today's series."""
    base = origin.present()
    for wanted in promises.every():
        if wanted.experiment.recorded.is_file() and (not of or wanted.topic.name in of):
            print(f"the swarm of {wanted.topic.name}: {origin.judge(wanted.experiment, base)}")


def quoted(base: Base, tally: Tally) -> None:
    """A recorded swarm that its topic's letter quotes has to be of today's series, as any other result."""
    for wanted in promises.every():
        quotes = wanted.topic.home / "figures.toml"
        record = wanted.experiment.recorded
        if not record.is_file() or not quotes.is_file() or f"results/{record.stem}" not in quotes.read_text():
            continue
        name = wanted.topic.name
        seeds = sorted(int(one) for one in json.loads(record.read_text()) if one.isdigit())
        again = f"swarm T={name} FROM={seeds[0]} SEEDS={len(seeds)} RECORD=1"
        judged, older = origin.judge(wanted.experiment, base), "swarm" in wanted.topic.older
        recorded.of_today(f"the swarm of {name}", f"the cover letter of {name}", judged, older, again, tally)


def status(wanted: Swarm, found: report.Found) -> int:
    """1 if a load, or a promise with a share, fails that is not known to."""
    judged = report.verdicts(wanted, found)
    broken = any("failed" in one or unknown(wanted, name, judged[name]) for name, one in found.items())
    return int(broken or not report.short(wanted, found).keys() <= wanted.known(None).keys())


def unknown(wanted: Swarm, name: str, every: list[Verdict]) -> list[Verdict]:
    """What a load breaks that it is not known to."""
    known = wanted.known(name)
    return [one for one in failing(every) if one.promise.name not in known]


def mended(known: dict[str, str], broken: Iterable[str]) -> list[str]:
    """What is known to be broken, and is not."""
    some, why = set(broken), "it is kept now, or not judged"
    return [f"{name}: {why} ({known[name]}): take it out of `known`" for name in known if name not in some]


def line(name: str, every: list[Verdict], why: str) -> None:
    """One line of one load, as it comes."""
    if why:
        return print(f"{name}: NO FIGURES: {why}", flush=True)
    broken = failing(every)
    said = "; ".join(f"{one.group}: {one.promise.name} ({report.missed(one)})" for one in broken)
    print(f"{name}: {said or 'ok'}", flush=True)


def again(wanted: Swarm, seed: str, keep: str, kind: str = "") -> int:
    """One load with the trace of the server; with a name for it, made small and kept as a case."""
    name = seed if seed in wanted.cases else str(number("SEED", seed, 0))
    if keep and (keep in wanted.cases or keep.isdigit()):
        raise Fail(f"KEEP={keep}: " + ("there is such a case" if keep in wanted.cases else "a number is no name"))
    load, base = wanted.load(name), bases.find()
    print(shrink.case(name, wanted.data["title"], load))
    runner = Guests(wanted, base, trace=not keep, kind=kind)
    found = report.collected(runner, {name: load}, line)
    for side, groups in found[name].get("ran", {}).items():
        for group, figures in groups.items():
            print(f"{side:14} {group:8} " + "  ".join(f"{key} {value:.6g}" for key, value in figures.items()))
    judged = report.verdicts(wanted, found).get(name, [])
    for one in sorted(judged, key=lambda verdict: -verdict.off):
        value, limit = (report.number(wanted, one.promise.figure, x) for x in (one.value, one.limit))
        print(f"{'ok  ' if one.kept else 'FAIL'} {one.group}: {one.promise.name}: {value}, limit {limit}")
    if not keep:
        say("the traces are " + " and ".join(str(runner.place / f"{name}-{side}" / "trace") for side in wanted.sides))
    elif failing(judged):
        broken = failing(judged)[0]
        small = shrink.shrink(runner, load, broken)
        added = shrink.case(keep, f"seed {name}, made small: {broken.promise.name}", small)
        shrink.keep(wanted.path, added)
        print(added)
    else:
        raise Fail(f"SEED={seed} breaks no promise: there is nothing to keep")
    return 1 if "failed" in found[name] or failing(judged) else 0


def checked(
    wanted: Swarm, base: Base, tally: Tally, loads: dict[str, Load], kind: str = "", keep: bool = False
) -> report.Found:
    """Each load is a check: it keeps its promises, but for those that it is known to break, which it must.

    keep: a load that came out as it should is not run again while all that decides its figures is the same.
    """
    if not loads:
        return {}
    runner = Guests(wanted, base, kind=kind)
    keys = {name: decided_by(runner, load) for name, load in loads.items()} if keep else {}

    def line_of(name: str, every: list[Verdict], why: str) -> None:
        broken = [f"{one.group}: {one.promise.name}: {report.missed(one)}" for one in unknown(wanted, name, every)]
        broken += mended(wanted.known(name), (one.promise.name for one in failing(every)))
        problem = why or "\n".join(broken)
        tally.that(said(wanted, name), problem)
        if keep and not problem:
            verdicts.keep(keys[name])

    todo = {name: load for name, load in loads.items() if not (keep and verdicts.kept(keys[name]))}
    for name in [one for one in loads if one not in todo]:
        tally.that(said(wanted, name), "")
    return report.collected(runner, todo, line_of)


def said(wanted: Swarm, name: str) -> str:
    """What is checked of a load."""
    what = f"swarm of {wanted.topic.name}: {'the load of seed ' if name.isdigit() else 'the case '}{name}"
    return f"{what} {'still breaks a promise, as is known' if wanted.known(name) else 'keeps its promises'}"


def decided_by(runner: Guests, load: Load) -> tuple[verdicts.Key, ...]:
    """The key of what decides the figures of a load, and what is thought of them."""
    sides = [part for side in runner.kernels for part in (runner.keys[runner.kernels[side]], runner.script(side, load))]
    return ("swarm", *sides, runner.swarm.path, *verdicts.code("swarm", "machines"))


def gate(base: Base, tally: Tally) -> None:
    """Two fixed seeds of each topic that has a swarm.toml."""
    tally.suite = "swarm"
    for wanted in promises.every():
        checked(wanted, base, tally, {str(seed): wanted.load(str(seed)) for seed in wanted.data["gate"]}, keep=True)


def every(base: Base, tally: Tally, many: int = 50) -> None:
    """The first seeds of each topic that has a swarm.toml, its cases, and the faults that the seeds have to find."""
    tally.suite = "swarm"
    for wanted in promises.every():
        found = checked(wanted, base, tally, {str(n): wanted.load(str(n)) for n in range(1, many + 1)} | wanted.cases)
        short, known = report.short(wanted, found), wanted.known(None)
        for name in [promise.name for promise in wanted.promises if promise.share]:
            what, problem = f"swarm of {wanted.topic.name}: {name}", short.get(name, "")
            if name in known:
                what += ": still not, as is known"
                problem = "\n".join(mended({name: known[name]}, short))
            tally.that(what, problem)
        if "debug" in wanted.kinds:
            few = {str(n): wanted.load(str(n)) for n in range(1, many // 5 + 1)}
            checked(wanted, base, tally, few | wanted.cases, "debug")
        if wanted.put_back:
            mutants.mutants(wanted, base, tally, wanted.kinds[0], range(1, many + 1))
