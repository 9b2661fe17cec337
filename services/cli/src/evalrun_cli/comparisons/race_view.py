"""`evalrun race`: reads finished runs, races them, and prints how the race ends."""

import json
from collections.abc import Sequence
from typing import Final

from rich import box
from rich.table import Table

from evalrun_cli.comparisons.views import dataset_names, plain, run_facts, terminal
from evalrun_results.comparisons.comparison import RunFacts
from evalrun_results.comparisons.run_race import Race, Runner, UnusableRaceError, race_runs
from evalrun_results.sequential.mean_decision import Population
from evalrun_runtime.exits import BadInputError, ExitCode

TEST_DATA: Final = (
    "this is test data: the best run's score on it is too high as an estimate, since it was chosen for that score"
)
BEST_AT: Final = {
    "benchmark": "best at these {problems:,} problems of {dataset}",
    "similar": "best at problems like the {problems:,} of {dataset}",
}


def print_race(places: Sequence[str], *, dataset: str | None, population: Population, as_json: bool) -> ExitCode:
    """Race the runs in several directories or URLs and print the result.

    Return GATE_INCONCLUSIVE for a race that decides nothing.

    Raises:
        BadInputError: fewer than two places are named, a place is named twice or holds no finished run, or the runs
            cannot be raced.
    """
    if len(places) < 2:
        raise BadInputError(f"{places[0]}: is one run: name at least two")
    if twice := sorted({each for each in places if places.count(each) > 1}):
        raise BadInputError(f"{', '.join(twice)}: named twice: name each run once")
    runs = [run_facts(each) for each in places]
    try:
        race = race_runs(runs, dataset or find_shared_dataset(runs), population)
    except UnusableRaceError as error:
        raise BadInputError(str(error)) from error
    print(json.dumps(race.as_json(), indent=2) if as_json else as_text(race))  # noqa: T201 - the command's result
    return ExitCode.SUCCEEDED if len(race.left) == 1 else ExitCode.GATE_INCONCLUSIVE


def as_text(race: Race) -> str:
    """Return a race for a terminal."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("", "run"):
        table.add_column(heading)
    for heading in ("pass@1", "in the race for"):
        table.add_column(heading, justify="right")
    for each in race.runners:
        stayed = f"{min(each.dropped_after or race.stopped_after, each.problems):,} problems"
        table.add_row("" if each.dropped_after else "best" if len(race.left) == 1 else "may be best",
                      plain(each.place), _score(each), stayed)  # fmt: skip
    console = terminal()
    with console.capture() as captured:
        console.print(table)
        console.print(plain(_verdict(race)), soft_wrap=True)
        if race.role == "test":
            console.print(plain(f"!  {TEST_DATA}", "yellow"), soft_wrap=True)
        if race.left_out:
            console.print(plain(f"!  {race.left_out:,} problems that only some runs have are left out", "yellow"))
    return captured.get().rstrip()


def _score(runner: Runner) -> str:
    if runner.low == runner.high:
        return f"{100 * runner.low:.1f} %"
    return f"{100 * runner.low:.1f} to {100 * runner.high:.1f} %"


def _verdict(race: Race) -> str:
    at = BEST_AT[race.population].format(problems=race.problems, dataset=race.dataset)
    cost = f"The race needed {100 * race.needed:.0f} % of all answers"
    if race.answered < 1:
        cost += f", the runs gave {100 * race.answered:.0f} %"
    wrong = f"A race drops a best run with probability {race.error:g} at most."
    if len(race.left) == 1:
        return f"{race.left[0].place} is {at}. {cost}. {wrong}"
    missing = f"; {race.not_judged:,} answers were not judged" if race.not_judged else ""
    return f"The race cannot tell which of the {len(race.left)} runs is {at}{missing}. {wrong}"


def find_shared_dataset(runs: Sequence[RunFacts]) -> str:
    """Return the only dataset that all runs have. Raises BadInputError: there is none, or several."""
    shared = sorted(set.intersection(*(set(run.totals) for run in runs)))
    if not shared:
        has = "; ".join(f"{run.place} has {dataset_names(run.totals)}" for run in runs)
        raise BadInputError(f"the runs share no dataset: {has}")
    if len(shared) > 1:
        raise BadInputError(f"the runs share {len(shared)} datasets, {', '.join(shared)}: name one with --dataset")
    return shared[0]
