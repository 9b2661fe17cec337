"""`evalrun race` of unfinished runs: runs in the race get further problems block by block, and some are then dropped.

The decision uses only the runs' results, so that a stopped race continues where it was.
"""

import json
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from evalrun_api.manifest import parse_evalrun
from evalrun_api.run_config import EvalRunSpec
from evalrun_cli.comparisons.race_view import as_text
from evalrun_cli.comparisons.views import run_facts
from evalrun_cli.gpu_host.options import GpuOptions
from evalrun_cli.local.checkpoint_runs import (
    SUMMARY,
    find_checkpoints,
    goes_on,
    kept_lane,
    open_directory,
    plan_replicas,
    read_manifest,
    run_flags,
    write_run,
    write_runs,
)
from evalrun_cli.local.options import LocalOptions
from evalrun_cli.local.processes import ServiceFailedError
from evalrun_cli.local.run_series import RESULTS, Choice, SeriesRun, run_series
from evalrun_cli.local.workspace import shown_path
from evalrun_cli.terminal import open_console
from evalrun_executor.cpus import usable_cpus
from evalrun_results.comparisons.comparison import RunFacts
from evalrun_results.comparisons.run_race import Race, UnusableRaceError, race_runs, read_early_stop
from evalrun_results.sequential.mean_decision import Population
from evalrun_runtime.exits import BadInputError, ExitCode

logger = logging.getLogger(__name__)

FIRST_BLOCK: Final = 32
"""Problems of each run before the first decision: fewer problems seldom tell ten runs apart."""
GROWTH: Final = 1.25
"""A block multiplies a run's number of problems by this factor. A run that could be dropped judges a quarter too many,
or half as many again if it was a block ahead; and weights are exchanged few times."""
LAST_BLOCK: Final = 1.1
"""A block within this factor of all problems includes the rest: a small block costs as many exchanges of weights as a
large block."""
FILE: Final = "race.json"


@dataclass(frozen=True)
class RaceRules:
    """The subject of a race, and how its end is printed."""

    dataset: str | None
    """None: the only dataset of the runs."""
    population: Population
    as_json: bool = False


def race_files(files: Sequence[Path], rules: RaceRules, *, output: Path | None, options: LocalOptions) -> ExitCode:
    """Race the EvalRuns of some files, which use running servers.

    Raises:
        BadInputError: there are fewer than two files, or their runs cannot be raced.
    """
    if len(files) < 2:
        raise BadInputError(f"{files[0]}: is one run: name at least two, or --checkpoints")
    manifests = {file.stem: read_manifest(file) for file in files}
    if len(manifests) < len(files):
        raise BadInputError("two files have one name: the runs are called by it: rename one")
    specs = [parse_evalrun(manifests[file.stem], where=str(file), place="machine").spec for file in files]
    for file, spec in zip(files, specs, strict=True):
        if not spec.endpoints:
            raise BadInputError(f"{file}: spec.endpoints is missing: only --checkpoints starts replicas for a race")
        _check(spec, specs[0], str(file), rules)
        if differs := what_differs(describe_problems(specs[0], files[0]), describe_problems(spec, file)):
            raise BadInputError(
                f"{file}: spec.datasets[0].{differs}: the runs of a race get the same problems and tests"
            )
    directory = open_directory(output, manifests[files[0].stem])
    if mine := [file for file in files if file.resolve().parent == directory]:
        raise BadInputError(f"--output {directory}: {mine[0].name} lies there, which a race would write: name another")
    runs = [write_run(manifests[file.stem], file.resolve().parent, file.stem, directory) for file in files]
    return _race(runs, [run_flags(options, None)], specs[0].datasets[0].name, rules, directory)


def race_checkpoints(
    pattern: str,
    file: Path,
    rules: RaceRules,
    *,
    output: Path | None,
    options: LocalOptions,
    gpu_options: GpuOptions,
) -> ExitCode:
    """Race the checkpoints of a pattern. Each replica loads the weights of one checkpoint after another.

    Raises:
        BadInputError: there are fewer than two checkpoints, or the EvalRun or a flag cannot be used.
    """
    checkpoints = find_checkpoints(pattern)
    if len(checkpoints) < 2:
        raise BadInputError(f"--checkpoints {pattern}: is one checkpoint: a race needs two at least")
    manifest = read_manifest(file)
    replicas = plan_replicas(checkpoints, manifest, gpu_options)
    _check(replicas.spec, replicas.spec, str(file), rules)
    directory = open_directory(output, manifest)
    each = replicas.one_by_one()
    runs = write_runs(checkpoints, manifest, file.resolve().parent, each[0], directory)
    # Otherwise each run would have as many slots as there are CPUs.
    if options.slots is None:
        options = replace(options, slots=max(1, usable_cpus() // len(each)))
    flags = run_flags(options, None)
    try:
        with ExitStack() as stack:
            lanes = []
            for number, replica in enumerate(each):
                logs = directory / f"replica-{number}"
                logs.mkdir(exist_ok=True)
                lanes.append(stack.enter_context(kept_lane(replica, logs, flags)))
            return _race(runs, lanes, replicas.spec.datasets[0].name, rules, directory)
    except ServiceFailedError as error:
        logger.error("%s", error)
        return ExitCode.FAILED


def describe_problems(spec: EvalRunSpec, file: Path) -> dict[str, object]:
    """Return the facts that decide which problems a run's dataset has and which programs are right.

    The way in which the model is prompted is left out.
    """
    (dataset,) = spec.datasets
    source = dataset.source if ":" in dataset.source else str(Path(file.parent, dataset.source).resolve())
    asked = {"source", "prompt_format", "system_prompt", "prompt_template"}
    return {**dataset.model_dump(exclude=asked, by_alias=True), "source": source}


def what_differs(first: Mapping[str, object], other: Mapping[str, object]) -> str:
    """Return the first field in which two entries differ, with both values; empty if they are equal."""
    for name, value in first.items():
        if other[name] != value:
            return f"{name} is {other[name]!r} here and {value!r} in the first file"
    return ""


def _check(spec: EvalRunSpec, first: EvalRunSpec, where: str, rules: RaceRules) -> None:
    """Raise BadInputError for an EvalRun that cannot be raced."""
    names = [each.name for each in spec.datasets]
    if len(names) > 1 or names != [each.name for each in first.datasets]:
        raise BadInputError(f"{where}: spec.datasets has {', '.join(names)}: the runs of a race have one, the same")
    if rules.dataset not in (None, names[0]):
        raise BadInputError(f"--dataset {rules.dataset}: {where} has {names[0]}")
    if spec.gates:
        raise BadInputError(f"{where}: spec.gates: a race decides how many problems a run gets: leave them away")
    if spec.protocol.seed != first.protocol.seed:
        raise BadInputError(f"{where}: spec.protocol.seed: the runs of a race draw their problems by one seed")


def _race(
    runs: Sequence[SeriesRun], lanes: Sequence[Sequence[str]], dataset: str, rules: RaceRules, directory: Path
) -> ExitCode:
    """Run the race to its end, and print it."""
    progress = open_console(stderr=True)

    def say(text: str) -> None:
        progress.print(text, markup=False, highlight=False, soft_wrap=True)

    def report(run: SeriesRun, code: int) -> None:
        if code not in RESULTS:
            say(f"{run.label}: {run.outcome(code)}")
            return
        before = race.racing
        if not race.read(run):
            raise BadInputError(
                f"{run.output}: its run gave no more results: continue elsewhere, with another --output"
            )
        for label in sorted(before - race.racing):
            say(f"{label} is out; {len(race.racing)} in the race")

    say(f"results: {directory}")
    race = LiveRace(runs, dataset, rules.population)
    code = run_series(race.choose, lanes, report)
    if code not in RESULTS or race.standing is None:
        say(goes_on(directory))
        return code
    found = race.standing.as_json()
    (directory / FILE).write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2) if rules.as_json else as_text(race.standing))  # noqa: T201 - the command's result
    return ExitCode.SUCCEEDED if len(race.racing) == 1 else ExitCode.GATE_INCONCLUSIVE


class LiveRace:
    """Decides which run of a race gets how many problems next.

    Args:
        runs: the runs, which may have results of an earlier start.
        dataset: dataset of the race.
        population: the problems for which the best run is sought.
    """

    def __init__(self, runs: Sequence[SeriesRun], dataset: str, population: Population) -> None:
        self._runs = runs
        self._dataset = dataset
        self._population = population
        self._facts: dict[str, RunFacts] = {}
        self.standing: Race | None = None
        """State of the race by the results read; None before every run has results."""
        for run in runs:
            if (run.output / SUMMARY).is_file():
                self.read(run)

    @property
    def racing(self) -> frozenset[str]:
        """Labels of the runs that may be the best."""
        if self.standing is None:
            return frozenset(run.label for run in self._runs)
        places = {each.place for each in self.standing.left}
        return frozenset(label for label, facts in self._facts.items() if facts.place in places)

    def read(self, run: SeriesRun) -> bool:
        """Read a run's results. Return whether there are more than before.

        Raises:
            BadInputError: the results cannot decide a race.
        """
        before = self._drawn(run.label)[0]
        facts = run_facts(str(shown_path(run.output)))
        if self._dataset not in facts.totals:
            raise BadInputError(f"{facts.place}: has results of another race: name another --output")
        self._facts[run.label] = facts
        grown = self._drawn(run.label)[0] > before
        if len(self._facts) < len(self._runs):
            return grown
        try:
            self.standing = race_runs([self._facts[each.label] for each in self._runs], self._dataset, self._population)
        except UnusableRaceError as error:
            raise BadInputError(str(error)) from error
        return grown

    def choose(self, going: Collection[str]) -> Choice | None:
        """Return the run with the fewest problems, which goes on next, and the flags for its next number of problems.

        Return None if no run may go on now, or the race is over. No run gets more than a block ahead of the others,
        because their results may still drop it.
        """
        racing = [run for run in self._runs if run.label in self.racing]
        if len(racing) == 1:
            return None
        drawn = {run.label: self._drawn(run.label) for run in racing}
        run = min((run for run in racing if run.label not in going), key=lambda run: drawn[run.label][0], default=None)
        if run is None:
            return None
        count, size = drawn[run.label]
        least = min(drawn.values(), key=lambda each: each[0])
        if count == size or count > next_block(*least):
            return None
        return run, ["--race-problems", str(next_block(count, size))]

    def _drawn(self, label: str) -> tuple[int, int | None]:
        """Return how many problems a run has, and the number of all problems; the latter is None without results."""
        facts = self._facts.get(label)
        if facts is None:
            return 0, None
        if (stopped := read_early_stop(facts)) is not None:
            drawn = stopped.datasets[self._dataset]
            return drawn.problems, drawn.of_problems
        count = len(facts.totals[self._dataset].problems)
        return count, count


def next_block(drawn: int, size: int | None) -> int:
    """Return the number of problems up to which a run in a race goes next. Pure.

    Args:
        drawn: problems that the run has.
        size: number of all problems; None: unknown.
    """
    wanted = max(FIRST_BLOCK, math.ceil(drawn * GROWTH))
    return size if size is not None and size <= wanted * LAST_BLOCK else wanted
