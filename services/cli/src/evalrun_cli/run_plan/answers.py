"""`evalrun plan --gate` and `--race`: the completions and GPU hours that a decision takes, from finished runs."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich import box
from rich.table import Table

from evalrun_cli.comparisons.race_view import find_shared_dataset
from evalrun_cli.comparisons.views import run_facts, terminal, write
from evalrun_results.comparisons.answers_needed import gate_needs, measure_disagreement, measure_spread
from evalrun_results.comparisons.comparison import RunFacts
from evalrun_results.report.markup import Markup, element, escape_text, joined
from evalrun_results.sequential.expected_race import RaceField, expect_race
from evalrun_results.sequential.mean_decision import Population
from evalrun_runtime.exits import BadInputError, ExitCode

POINTS: Final = (1, 2, 5, 10)
SAMPLES: Final = (1, 4, 16)
POPULATIONS: Final[tuple[Population, ...]] = ("benchmark", "similar")
WIDTH, ROW, LEFT, RIGHT = 720.0, 26.0, 250.0, 200.0
STYLE: Final = "text{font:13px sans-serif;fill:#333}.bar{fill:#4878a8}.more{fill:#a8c4dc}"


@dataclass(frozen=True, slots=True)
class Row:
    """Work that a decision takes."""

    points: float
    what: str
    """Samples per problem and number of problems, or the population of a race."""
    answers: int
    """Completions of the candidate, or of all runs of the race."""
    sooner: int | None
    """Completions of a gate or race that stops as soon as possible, 4 times in 5 or in the mean; None: more than are
    simulated."""
    gpu_hours: float | None
    """GPU hours of `sooner`, else of `answers`, at the pilot's GPU seconds per completion; None: the pilot has none."""
    decided: float | None = None
    """For a race, the share of simulated races that leave only the best run."""


@dataclass(frozen=True, slots=True)
class DecisionPlan:
    """The cost of decisions, by the size of the difference."""

    title: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def print_decision_plan(
    places: Sequence[str],
    *,
    race: bool,
    dataset: str | None,
    points: Sequence[int],
    runners: int | None,
    view: str,
    output: Path | None,
) -> ExitCode:
    """Print the cost of a gate or a race. Raises BadInputError: the runs cannot be used."""
    if len(places) < 2 or (len(places) > 2 and not race):
        raise BadInputError(f"plan --{'race' if race else 'gate'}: name {'two runs or more' if race else 'two runs'}")
    runs = [run_facts(each) for each in places]
    name = dataset or find_shared_dataset(runs)
    if lacking := [run.place for run in runs if name not in run.totals]:
        raise BadInputError(f"{lacking[0]} has no results of dataset {name}")
    try:
        plan = (
            race_plan(runs, name, points or POINTS, runners or len(runs))
            if race
            else gate_plan(runs, name, points or POINTS)
        )
    except ValueError as error:
        raise BadInputError(str(error)) from error
    views = {"text": as_text, "json": lambda plan: json.dumps(asdict(plan), indent=2), "svg": as_svg}
    write(views[view](plan), output)
    return ExitCode.SUCCEEDED


def gate_plan(runs: Sequence[RunFacts], dataset: str, points: Sequence[float]) -> DecisionPlan:
    """Return the cost of seeing that the second run is so many points behind the first. Pure."""
    baseline, pilot = runs
    spread = measure_spread(baseline.totals[dataset], pilot.totals[dataset])
    price = gpu_hours_an_answer(pilot)
    rows = []
    for each in points:
        for samples in (spread.samples,) if spread.chance is None else SAMPLES:
            need = gate_needs(spread, each, samples)
            answers, after = need.problems * samples, need.sequential_problems
            sooner = None if after is None else after * samples
            cheapest = answers if sooner is None else min(answers, sooner)
            rows.append(
                Row(
                    each,
                    f"{samples:,} a problem, {need.problems:,} problems",
                    answers,
                    sooner,
                    None if price is None else cheapest * price,
                )
            )
    notes = [
        f"estimated from {spread.problems:,} problems of {dataset} in {baseline.place} and {pilot.place}",
        "stopping early: a sequential gate of population: similar, 4 times in 5 after so many; nobody chooses a size",
    ]
    if spread.chance is None:
        notes.append(
            "one answer a problem cannot tell chance from real differences: for other numbers of samples run the pilot "
            "with several (EVAL@k), or repeat it (noiseFloorRepeats)"
        )
    return DecisionPlan("to see a difference 4 times in 5, answers of the candidate", tuple(rows), tuple(notes))


def race_plan(runs: Sequence[RunFacts], dataset: str, points: Sequence[float], runners: int) -> DecisionPlan:
    """Return the cost of a race whose best run leads equal runs by so many points. Pure."""
    problems, solved, differ = measure_disagreement({run.place: run.totals[dataset] for run in runs})
    price = gpu_hours_an_answer(runs[-1])
    rows = list[Row]()
    fitting = [each for each in points if each / 100 <= 1 - solved]
    for each in fitting:
        field = RaceField(runners, problems, solved, differ / 2, each / 100)
        for population in POPULATIONS:
            found = expect_race(field, population)
            answers = runners * problems
            sooner = round(found.needed * answers)
            rows.append(
                Row(each, population, answers, sooner, None if price is None else sooner * price, found.decided)
            )
    alike = (
        f"{runners} runs that solve {100 * solved:.1f} % of {problems:,} problems of {dataset}; two of them differ on "
        f"{100 * differ:.1f} %, as in the {len(runs)} runs here; one answer a problem"
    )
    if not fitting:
        raise ValueError(f"the runs solve {100 * solved:.1f} %: none can lead by {min(points):g} points")
    best = "benchmark: the best one at these very problems; similar: at the problems that they stand for"
    return DecisionPlan(f"to find the best of {runners}, answers of all", tuple(rows), (alike, best))


def gpu_hours_an_answer(run: RunFacts) -> float | None:
    """Return the GPU hours of a completion of a finished run; None: the run had no GPUs of its own."""
    seconds = run.run_info.get("gpu_seconds")
    answers = sum(
        problem.answers + sum(each.seen.bit_count() for each in (problem.repeats or {}).values())
        for totals in run.totals.values()
        for problem in totals.problems.values()
    )
    if not isinstance(seconds, int | float) or not seconds or not answers:
        return None
    return seconds / 3600 / answers


def as_text(plan: DecisionPlan) -> str:
    """Return a plan for a terminal."""
    table = Table(box=box.SIMPLE_HEAD, title=plan.title, title_justify="left")
    for heading in ("difference", "of"):
        table.add_column(heading)
    races = any(row.decided is not None for row in plan.rows)
    for heading in ("answers", "stopping early", *(["decided"] if races else []), "GPU hours"):
        table.add_column(heading, justify="right")
    for row in plan.rows:
        decided = [] if row.decided is None else [f"{100 * row.decided:.0f} %"]
        table.add_row(f"{row.points:g} pt", row.what, f"{row.answers:,}", _shown(row.sooner), *decided, _hours(row))
    console = terminal()
    with console.capture() as captured:
        console.print(table)
        for note in plan.notes:
            console.print(note, soft_wrap=True, markup=False, highlight=False)
    return captured.get().rstrip()


def as_svg(plan: DecisionPlan) -> str:
    """Return a plan as SVG: a bar for each row, with the part that stopping early needs in a darker tone."""
    most = max(row.answers for row in plan.rows)
    marks: list[Markup] = [element("style", escape_text(STYLE)), _text(0.0, 16.0, plan.title)]
    for place, row in enumerate(plan.rows):
        top = ROW * (place + 1.2)
        scale = (WIDTH - LEFT - RIGHT) / most
        sooner = row.answers if row.sooner is None else min(row.sooner, row.answers)
        said = f"{sooner:,} of {row.answers:,}" if sooner < row.answers else f"{row.answers:,}"
        hours = "" if row.gpu_hours is None else f", {_hours(row)} GPU h"
        marks += [
            _text(0.0, top + 14, f"{row.points:g} pt, {row.what}"),
            element("rect", x=LEFT, y=top, width=row.answers * scale, height=18, class_="more"),
            element("rect", x=LEFT, y=top, width=sooner * scale, height=18, class_="bar"),
            _text(LEFT + 6 + row.answers * scale, top + 14, said + hours),
        ]
    height = ROW * (len(plan.rows) + 1.5)
    return str(
        element(
            "svg", joined(marks), xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH:g} {height:g}", role="img",
            aria_label=plan.title,
        )
    )  # fmt: skip


def _text(x: float, y: float, text: str) -> Markup:
    return element("text", escape_text(text), x=x, y=y)


def _shown(answers: int | None) -> str:
    return "not simulated" if answers is None else f"{answers:,}"


def _hours(row: Row) -> str:
    return "unknown" if row.gpu_hours is None else f"{row.gpu_hours:.2f}"
