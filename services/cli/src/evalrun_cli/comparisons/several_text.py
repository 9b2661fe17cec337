"""Texts for the metrics of several runs, shared by all formats. Pure."""

from collections.abc import Iterator, Mapping

from evalrun_cli.comparisons import text as words
from evalrun_results.comparisons.phases import PhaseRow
from evalrun_results.comparisons.roles import render_dataset_name
from evalrun_results.comparisons.several import (
    HEADLINE,
    Configuration,
    Contrast,
    DatasetAcross,
    FlipAcross,
    SeveralRuns,
    Standing,
)

CONTRAST_HEADINGS = ["pass@1", "Difference", "95 % interval", "p", "p (Holm)", "Lost", "Gained"]
PHASES_TITLE = "Phases, each beside the first"
PHASE_HEADINGS = ["Phase", "Run", "Dataset", "Headline", "First", "Value", "Difference", "95 % interval", "Reached"]
CLEAR = 0.05
"""A difference whose adjusted p-value is below this is called clear."""


def place(configuration: Configuration) -> str:
    """Return the place of a configuration's runs, and the state in which each ended."""
    return ", ".join(f"{run.place}: {run.summary.get('state')}" for run in configuration.runs)


def title(dataset: DatasetAcross) -> str:
    """Return a dataset's heading."""
    return f"{render_dataset_name(dataset.dataset, dataset.role)}: {dataset.problems} problems judged in every run"


def shown_standings(dataset: DatasetAcross) -> Iterator[tuple[str, Mapping[str, Standing]]]:
    """Yield the metrics worth a line. A kind of failure that no run had is left out."""
    for metric, standings in dataset.standings.items():
        if not words.is_failure(metric) or any(each.value for each in standings.values()):
            yield metric, standings


def standing_row(metric: str, standings: Mapping[str, Standing]) -> list[str]:
    """Return a metric's name and its value in each configuration, with the spread over seeds."""
    return [words.label(metric), *(render_standing(metric, each) for each in standings.values())]


def render_standing(metric: str, each: Standing) -> str:
    """Return a value, and its standard deviation over the seeds where there are several."""
    return words.value(metric, each.value) + ("" if each.spread is None else f" ± {spread(metric, each.spread)}")


def spread(metric: str, number: float) -> str:
    """Return a standard deviation in the unit of its metric."""
    return words.change(metric, number).removeprefix("+").removesuffix(" pt")


def contrast_row(each: Contrast) -> list[str]:
    """Return a pair's row about pass@1."""
    found = each.differences.get(HEADLINE)
    shown = ["-", "-"] if found is None else [words.change(HEADLINE, found.difference), words.interval(found)]
    tested = ["-" if p is None else words.p_value(p) for p in (each.p, each.adjusted_p)]
    return [f"{each.second} - {each.first}", *shown, *tested, str(each.lost), str(each.gained)]


def phase_row(each: PhaseRow) -> list[str]:
    """Return a row of the phase table. `Reached` concerns a single metric and is not corrected."""
    name = f"{each.phase}: {each.goal}"
    start = [name, each.letter, each.dataset, words.label(each.metric)]
    if each.value is None:
        return [*start, "-", "-", "-", "-", "not measured"]
    metric, low, high = each.metric, each.low, each.high
    values = ["-" if each.baseline is None else words.value(metric, each.baseline), words.value(metric, each.value)]
    # The metric itself is the goal, with its own interval.
    if each.difference is None:
        own = "-" if low is None or high is None else f"{words.value(metric, low)} to {words.value(metric, high)}"
        return [*start, *values, "-", own, each.reached]
    interval = "-" if low is None or high is None else f"{words.change(metric, low)} to {words.change(metric, high)}"
    return [*start, *values, words.change(metric, each.difference), interval, each.reached]


def is_clear(each: Contrast) -> bool:
    """Return whether the difference is significant after the correction."""
    return each.adjusted_p is not None and each.adjusted_p < CLEAR


def flip_row(flip: FlipAcross) -> list[str]:
    """Return the outcome of a problem in each configuration."""
    return [flip.problem_id, *(each.text for each in flip.outcomes.values())]


def notes(dataset: DatasetAcross, found: SeveralRuns) -> Iterator[str]:
    """Yield explanations of what the metrics of a dataset can and cannot show."""
    if dataset.problems == 0:
        yield "No problem was judged in every run, so there is nothing to compare"
        return
    yield (
        f"{dataset.solved_by_all} problems solved by all, {dataset.solved_by_none} by none, {len(dataset.flips)} by "
        "some. Lost: solved only by the first of a pair; gained: only by the second"
    )
    yield (
        f"p (Holm): corrected over the {found.family} tests of pass@1 in this comparison. With a threshold of "
        f"{CLEAR}, at most {100 * CLEAR:.0f} % of such comparisons report a false difference. "
        "Intervals are not corrected"
    )
    if any(len(each.runs) > 1 for each in found.configurations):
        yield "Several seeds: mean over the seeds ± their standard deviation; differences use each problem's mean"
