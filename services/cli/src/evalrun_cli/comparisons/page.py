"""A comparison or the decisions of gates as a self-contained HTML page in the report's frame. Pure."""

from collections.abc import Iterator, Sequence

from evalrun_cli.comparisons import text as words
from evalrun_registry.metrics import falls, is_share
from evalrun_results.comparisons.comparison import Comparison, DatasetComparison, Flip, RunFacts
from evalrun_results.comparisons.differences import Difference
from evalrun_results.comparisons.gate import GateResult
from evalrun_results.comparisons.roles import render_dataset_name
from evalrun_results.report.forest import Shift, forest
from evalrun_results.report.headline import GATE_CLASS
from evalrun_results.report.markup import Child, Markup, element, joined
from evalrun_results.report.page import make_foldable, page, table
from evalrun_results.report.statuses import LABELS, pill

NUMBERS = frozenset({1, 2, 3, 4})


def comparison_page(comparison: Comparison) -> str:
    """Return the page."""
    runs = (("A", comparison.baseline), ("B", comparison.candidate))
    return page(
        f"{comparison.baseline.label} against {comparison.candidate.label}",
        element("h1", "Two runs compared"),
        table(["", "Run", "Where", "State"], [_run(letter, run) for letter, run in runs]),
        _warnings(comparison.warnings),
        [_dataset(each) for each in comparison.datasets],
    )


def gate_page(decisions: Sequence[GateResult]) -> str:
    """Return the page of a policy's gates."""
    headings = ["Gate", "Decision", "Baseline", "Why"]
    rows = [_gate(each) for each in decisions]
    return page("Gates", element("h1", "Gates"), element("div", table(headings, rows), class_="panel gates"))


def _gate(each: GateResult) -> list[Child]:
    return [
        joined(each.dataset, element("small", each.metric)),
        element("span", each.decision.value, class_=f"pill {GATE_CLASS[each.decision.value]}"),
        element("span", each.baseline, class_="mono"),
        joined(each.message, [element("small", note) for note in words.gate_notes(each)]),
    ]


def _run(letter: str, run: RunFacts) -> list[Child]:
    place = element("span", run.place, class_="mono")
    return [element("b", letter), run.label, place, str(run.summary.get("state", ""))]


def _warnings(warnings: Sequence[str]) -> Markup | None:
    if not warnings:
        return None
    items = element("ul", [element("li", warning) for warning in warnings])
    return element("div", element("b", "What the runs do not have in common"), items, class_="notice")


def _dataset(each: DatasetComparison) -> Markup:
    differences = words.shown_differences(each)
    left_out = any(found.left_out for found in differences)
    headings = ["", "A", "B", "B \u2212 A", "95 % interval", *["Problems"] * left_out]
    rows = [_row(found, show_problems=left_out) for found in differences]
    return joined(
        element("h2", render_dataset_name(each.dataset, each.role)),
        element("p", _counts(each), class_="quiet"),
        element("div", table(headings, rows, right=NUMBERS | {5}), class_="panel") if rows else None,
        forest(list(_shifts(differences)), f"Differences on {each.dataset}, with their 95 % intervals"),
        [element("p", f"{note}.") for note in words.notes(each)],
        _flips("Solved only by A", each.lost),
        _flips("Solved only by B", each.gained),
    )


def _shifts(differences: Sequence[Difference]) -> Iterator[Shift]:
    for found in differences:
        if is_share(found.metric) and found.low is not None and found.high is not None:
            yield Shift(words.label(found.metric), found.difference, found.low, found.high)


def _counts(each: DatasetComparison) -> str:
    return (
        f"{each.problems} problems judged in both: {each.both_solved} solved by both, "
        f"{each.neither_solved} by neither, {len(each.lost)} only by A, {len(each.gained)} only by B"
    )


def _row(found: Difference, *, show_problems: bool) -> list[Child]:
    name = found.metric
    better = (found.difference < 0) == falls(name)
    clear = words.is_clear(found)
    difference = words.change(name, found.difference)
    shown = element("b", difference, class_="up" if better else "down") if clear else element("span", difference)
    row: list[Child] = [words.label(name), words.value(name, found.baseline), words.value(name, found.candidate)]
    return [*row, shown, words.interval(found), *[found.problems] * show_problems]


def _flips(title: str, flips: Sequence[Flip]) -> Markup | None:
    if not flips:
        return None
    rows: list[list[Child]] = [
        [
            element("span", flip.problem_id, class_="mono"),
            _render_outcome(flip.baseline.text),
            _render_outcome(flip.candidate.text),
        ]
        for flip in flips
    ]
    return make_foldable(f"{title} ({len(flips)})", table(["Problem", "A", "B"], rows), is_open=len(flips) <= 20)


def _render_outcome(text: str) -> Child:
    return pill(text) if text in LABELS else text
