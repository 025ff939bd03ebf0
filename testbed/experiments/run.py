# SPDX-License-Identifier: GPL-2.0
"""Running experiments: the kernels they ask for, a guest for each, and one JSON file of figures a run."""

import contextlib
import json
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence

from .. import schema
from ..machines import boot as machines
from ..machines import guest, kernel, kinds
from ..series import applied
from ..series.base import Base
from ..util import BUILD, Fail, bar, lock, say, threads, write
from .experiment import Experiment
from .table import Result

RESULTS = BUILD / "results"


def commits(base: Base, experiment: Experiment) -> dict[str, str]:
    """{kernel: commit} in base.repo of all that the experiment asks for; hold the source's lock."""
    where, found, variants = applied.commits(base), {}, experiment.variants()
    for name, what in experiment.kernels.items():
        if what in where:
            found[name] = where[what]
        elif what in variants:
            found[name] = applied.variant(base, where["patched"], what, variants[what])
        elif what.startswith("before "):
            found[name] = applied.mark(base, what.removeprefix("before "), where["patched"])
        else:
            topic, _, number = what.partition(":")
            found[name] = applied.alone(base, topic, int(number) if number else None)
    return found


def kernels(
    base: Base, experiment: Experiment, machine: str = "", patch: str = "", only: Sequence[str] = ()
) -> dict[str, pathlib.Path]:
    """{kernel: executable} of all or some that the experiment asks for, each with a test-only patch if one is given."""
    made = {}
    what = experiment.flavour(machine)
    with lock("source"):
        for name, commit in commits(base, experiment).items():
            if only and name not in only:
                continue
            place = name
            if patch:
                commit = applied.variant(base, commit, f"{experiment.name} on {name}", patch)
            if patch or name != experiment.kernels[name] or "config" in experiment.data:
                place = f"{experiment.name}-{name}"
            made[name] = kernel.executable(base, commit, what, place)
    return made


def selftests(base: Base, experiment: Experiment) -> str:
    """Where the guest finds the selftests, if the experiment's topics have any; the kind may look at them first."""
    place = str(kernel.selftests(base)) if any(topic.selftests for topic in experiment.topics) else ""
    if hasattr(experiment.kind, "ready"):
        experiment.kind.ready(experiment, place)
    return place


def boot(
    experiment: Experiment, machine: str, executable: pathlib.Path, script: pathlib.Path, where: pathlib.Path
) -> pathlib.Path:
    """Boot one guest and return its results directory."""
    words = tuple(experiment.data.get("boot", ()))
    return machines.boot(
        executable, script, where, experiment.limit, machine, words, root=guest.root(experiment.packages)
    )


@contextlib.contextmanager
def watched(what: str, done: Callable[[], int], total: int, unit: str = "points") -> Iterator[None]:
    """A progress bar of how many of `total` are done, looked at every second."""
    over = threading.Event()
    with bar(total, what, unit) as progress:

        def watch() -> None:
            while not over.wait(1):
                progress.update(max(done() - progress.n, 0))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            progress.update(max(done() - progress.n, 0))


def boots(experiment: Experiment, base: Base, out: pathlib.Path) -> Result:
    """A guest for each kernel, as many at once as there are CPUs, and the figures of every point."""
    kind, points = experiment.kind, experiment.points
    place, made = selftests(base, experiment), kernels(base, experiment)
    text = out / f"{experiment.name}.sh"
    text.write_text(kind.script(experiment, place))
    guest.root(experiment.packages)  # made once, before all boots want it
    wheres = {name: out / f"{experiment.name}-{name}" for name in made}
    for name, where in wheres.items():
        for path in where.glob("*"):  # of a run before: it would be counted as done
            if path.is_file():
                path.unlink()
        say(f"booting {name}; its console goes to {where}/console")

    def done() -> int:
        return sum(
            all((where / file).is_file() for file in kind.leaves(experiment, point))
            for where in wheres.values()
            for point in points
        )

    # On real time a guest keeps every CPU it has busy.
    with (
        watched(experiment.name, done, len(points) * len(made)),
        threads(0 if kinds.simulated(experiment.machine) else 1) as pool,
    ):
        running = {
            name: pool.submit(boot, experiment, experiment.machine, path, text, wheres[name])
            for name, path in made.items()
        }
        for one in running.values():
            one.result()
    return {
        name: [{**point, **kind.read(experiment, where, point)} for point in points] for name, where in wheres.items()
    }


def run(experiment: Experiment, base: Base, out: pathlib.Path | None = None) -> pathlib.Path:
    """Run an experiment; returns the path of out/NAME.json, which holds figures only, and nothing of when and where.

    Two runs of the same kernels give the same bytes, if the experiment is exact. Until a run is over, the last one's
    file stays.
    """
    out = out or RESULTS
    out.mkdir(parents=True, exist_ok=True)
    say(f"running {experiment.name} on {', '.join(experiment.kernels)} ({experiment.machine}): {experiment.title}")
    measure = getattr(experiment.kind, "measure", None)
    result = measure(experiment, base, out) if measure else boots(experiment, base, out)
    path = out / f"{experiment.name}.json"
    write(path, getattr(experiment.kind, "dump", dump)(result))
    return path


def dump(result: Result) -> str:
    return json.dumps(result, indent=1) + "\n"


def read(path: pathlib.Path) -> Result:
    """A result file: {kernel: [point, …]}, or what else the kind makes of a kernel."""
    if not path.is_file():
        raise Fail(f"{path}: no such result; `make bench` and `make record` write them")
    return schema.result(path, f"make record B={path.stem}")
