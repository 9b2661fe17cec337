"""A comparison of several runs as a self-contained HTML page in the report's frame. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from evalrun_cli.comparisons import text as words
from evalrun_cli.comparisons.several_text import (
    CONTRAST_HEADINGS,
    PHASE_HEADINGS,
    PHASES_TITLE,
    contrast_row,
    is_clear,
    notes,
    phase_row,
    place,
    render_standing,
    shown_standings,
    title,
)
from evalrun_results.comparisons.phases import NO_PHASES, PhaseRow, PhaseTable
from evalrun_results.comparisons.several import HEADLINE, Contrast, DatasetAcross, FlipAcross, SeveralRuns, Standing
from evalrun_results.report.forest import Shift, forest
from evalrun_results.report.markup import Child, Markup, element, joined
from evalrun_results.report.page import make_foldable, page, table
from evalrun_results.report.plots import draw_interval_bar
from evalrun_results.report.statuses import LABELS, pill

VERDICTS: Final[Mapping[str, str]] = {"yes": "reached", "no": "not reached", "open": "open", "-": "not measured"}
SHIFTS_TITLE = f"Differences of {words.label(HEADLINE)} on {{}}, with intervals"


def several_page(found: SeveralRuns, phases: PhaseTable = NO_PHASES) -> str:
    """Return the page, with the phase table if any."""
    rows: list[list[Child]] = [
        [element("b", each.letter), each.label, element("span", place(each), class_="mono")]
        for each in found.configurations
    ]
    return page(
        f"{len(found.configurations)} runs compared",
        element("h1", "Runs compared"),
        table(["", "Run", "Where"], rows),
        _warnings(found.warnings),
        _phases(phases, found.datasets),
        [_dataset(each, found) for each in found.datasets],
    )


def _warnings(warnings: Sequence[str]) -> Markup | None:
    if not warnings:
        return None
    items = element("ul", [element("li", warning) for warning in warnings])
    return element("div", element("b", "What the runs do not have in common"), items, class_="notice")


def _dataset(dataset: DatasetAcross, found: SeveralRuns) -> Markup:
    letters = [each.letter for each in found.configurations]
    figures: list[list[Child]] = [
        [words.label(metric), *(_mark_up_standing(metric, each) for each in standings.values())]
        for metric, standings in shown_standings(dataset)
    ]
    numbers = frozenset(range(1, len(CONTRAST_HEADINGS)))
    return joined(
        element("h2", title(dataset)),
        element("div", table(["", *letters], figures, right=frozenset(range(1, len(letters) + 1))), class_="panel"),
        element(
            "div", table(CONTRAST_HEADINGS, [_contrast(each) for each in dataset.contrasts], right=numbers),
            class_="panel",
        ),
        forest(list(_shifts(dataset.contrasts)), SHIFTS_TITLE.format(dataset.dataset)),
        [element("p", f"{note}.") for note in notes(dataset, found)],
        _flips(dataset.flips, letters),
    )  # fmt: skip


def _phases(phases: PhaseTable, datasets: Sequence[DatasetAcross]) -> Markup | None:
    if not phases.columns:
        return None
    cells: list[list[Child]] = [[*phase_row(each)] for each in phases.rows]
    return joined(
        element("h2", "Phases side by side"),
        element("div", _side_by_side(phases, datasets), class_="panel"),
        element("h2", PHASES_TITLE),
        element("div", table(PHASE_HEADINGS, cells), class_="panel"),
    )


def _side_by_side(phases: PhaseTable, datasets: Sequence[DatasetAcross]) -> Markup:
    """Return the figures that are a goal of any phase, in every phase; a phase's own goals have a verdict."""
    goals = {(each.letter, each.dataset, each.metric): each for each in phases.rows}
    figures = dict.fromkeys((each.dataset, each.metric) for each in phases.rows)
    standings = {dataset.dataset: dataset.standings for dataset in datasets}
    rows: list[list[Child]] = [["", "goal", *(column.goal for column in phases.columns)]]
    for dataset, metric in figures:
        measured = standings.get(dataset, {}).get(metric, {})
        cells = [
            _phase_cell(metric, measured.get(column.letter), goals.get((column.letter, dataset, metric)))
            for column in phases.columns
        ]
        rows.append([dataset, words.label(metric), *cells])
    return table(["Dataset", "Headline", *(f"{column.phase} ({column.letter})" for column in phases.columns)], rows)


def _phase_cell(metric: str, standing: Standing | None, goal: PhaseRow | None) -> Child:
    if standing is not None:
        value, low, high = standing.value, standing.low, standing.high
    # Only this run has the metric.
    elif goal is not None and goal.value is not None and goal.difference is None:
        value, low, high = goal.value, goal.low, goal.high
    else:
        return "not measured" if goal is not None else "-"
    shown = words.value(metric, value)
    if low is not None and high is not None:
        shown += f", {words.value(metric, low)} to {words.value(metric, high)}"
    return shown if goal is None else element("b", f"{shown}: {VERDICTS[goal.reached]}")


def _shifts(contrasts: Sequence[Contrast]) -> Iterator[Shift]:
    for each in contrasts:
        found = each.differences.get(HEADLINE)
        if found is not None and found.low is not None and found.high is not None:
            yield Shift(f"{each.second} - {each.first}", found.difference, found.low, found.high)


def _mark_up_standing(metric: str, each: Standing) -> Child:
    shown = render_standing(metric, each)
    return joined(shown, draw_interval_bar(each.value, each.low, each.high)) if metric == HEADLINE else shown


def _contrast(each: Contrast) -> list[Child]:
    name, difference, *rest = contrast_row(each)
    if is_clear(each):
        rises = each.differences[HEADLINE].difference > 0
        return [name, element("b", difference, class_="up" if rises else "down"), *rest]
    return [name, difference, *rest]


def _flips(flips: Sequence[FlipAcross], letters: Sequence[str]) -> Markup | None:
    if not flips:
        return None
    rows: list[list[Child]] = [
        [
            element("span", flip.problem_id, class_="mono"),
            *(pill(each.text) if each.text in LABELS else each.text for each in flip.outcomes.values()),
        ]
        for flip in flips
    ]
    return make_foldable(f"Solved by some ({len(flips)})", table(["Problem", *letters], rows), is_open=len(flips) <= 20)
