"""A dataset's part of the report: outcomes, distributions, and notable problems. Pure."""

import heapq
from collections.abc import Iterator
from typing import Final

from evalrun_registry.metric import Table
from evalrun_registry.metrics import metrics_in, shown_in
from evalrun_results.metrics.problem_totals import DatasetTotals, ProblemTotals
from evalrun_results.report import quantities as shown
from evalrun_results.report.breakdowns import breakdowns
from evalrun_results.report.disagreements import Disagreements
from evalrun_results.report.distributions import amount_bars, share_bars
from evalrun_results.report.headline import interval_text
from evalrun_results.report.json_access import Json, amount, count, inside, mapping, text
from evalrun_results.report.markup import Child, Markup, element, joined
from evalrun_results.report.page import make_foldable, table
from evalrun_results.report.plots import draw_histogram, draw_stacked_bar
from evalrun_results.report.statuses import LABELS

LISTED: Final = 10
"""Problems of each kind."""


def dataset_section(
    name: str, dataset: Json, totals: DatasetTotals | None, disagreements: Disagreements | None
) -> Markup:
    """Return the plots and tables of a dataset.

    Args:
        name: of the dataset.
        dataset: its entry in summary.json.
        totals: by problem; None where the results are not at hand.
        disagreements: between comparators, or None.
    """
    problems = {} if totals is None else {key: each for key, each in totals.problems.items() if each.outcomes.seen}
    plots: list[Child] = [_panel("How the answers ended", _endings(dataset))]
    if problems:
        ratios = [each.pass_ratio_sum / each.pass_ratio_count for each in problems.values() if each.pass_ratio_count]
        judging = [each.judge_seconds for each in problems.values() if each.outcomes.judged]
        generation = [each.gen_seconds for each in problems.values() if each.with_gen_seconds == each.answers]
        # With a single completion and test per problem the plot would repeat the table of final statuses.
        if not set(ratios) <= {0.0, 1.0}:
            title = "Tests passed, share of each problem"
            plots.append(_panel(title, draw_histogram(share_bars(ratios), "pass ratio by problem")))
        plots += [
            _panel("Generation time per problem", _times(generation, "answers made elsewhere carry no time")),
            _panel("Judge time per problem, CPU", _times(judging, "nothing was judged")),
        ]
    return joined(
        element("div", plots, class_="grid plots"),
        _failures(dataset),
        *breakdowns(dataset),
        _turns(mapping(dataset, "metrics")),
        element("div", *_lists(problems), class_="grid"),
        _disagreements(disagreements) if disagreements is not None else None,
        make_foldable(f"Every figure of {name}", _figures(mapping(dataset, "metrics"))),
    )


def _mono(text: str) -> Markup:
    return element("span", text, class_="mono")


def _panel(title: str, *content: Child) -> Markup:
    return element("div", element("h3", title), *content, class_="panel")


def _failures(dataset: Json) -> Markup | None:
    """Return the classes of failed completions; None if no class was recognized."""
    listed = inside(dataset, "failures")
    rows: list[list[Child]] = []
    for found in listed if isinstance(listed, list) else []:
        examples = inside(found, "examples")
        names = [text(each, "problem_id") for each in examples] if isinstance(examples, list) else []
        rows.append([text(found, "answers"), text(found, "says"), _mono(", ".join(names)), text(found, "advice")])
    if not rows:
        return None
    return _panel("Why answers failed", table(["Answers", "Are", "Such as", "What to do"], rows, right=frozenset({0})))


def _times(values: list[float], otherwise: str) -> Markup:
    if not values:
        return element("p", otherwise, class_="quiet")
    return draw_histogram(amount_bars(values, shown.round_seconds), "seconds by problem")


def _endings(dataset: Json) -> Markup:
    counts = mapping(dataset, "counts", "final_status")
    parts = {status: count(counts, status) for status in LABELS}
    total = sum(parts.values())
    rows: list[list[Child]] = []
    for status, number in parts.items():
        if number:
            key = element("span", class_=f"key {status}")
            rows.append([joined(key, LABELS[status]), number, shown.percent(number / total)])
    extras = [
        f"{words}: {number}"
        for field, words in (
            ("memory_limit", "Runtime errors at the memory limit"),
            ("truncated", "Answers cut by the token limit"),
            ("with_assumed_timeouts", "Answers with tests that were stopped early, after three timeouts"),
            ("accepted_by_case", "Accepted only because letters compare without case"),
            ("accepted_by_tolerance", "Accepted only within a tolerance of numbers"),
            ("cached", "Verdicts from the cache"),
        )
        if (number := count(dataset, "counts", field))
    ]
    causes = mapping(dataset, "counts", "forgeable_causes")
    extras += [f"Verdicts that can be forged ({cause}): {number}" for cause, number in causes.items()]
    return joined(
        draw_stacked_bar(parts, LABELS, "answers by final status"),
        table(["", "Answers", "Share"], rows, right=frozenset({1, 2})) if rows else None,
        [element("p", extra, class_="quiet") for extra in extras],
    )


def _lists(problems: dict[str, ProblemTotals]) -> Iterator[Markup]:
    def slowest(seconds: dict[str, float]) -> list[list[Child]]:
        top = heapq.nsmallest(LISTED, seconds.items(), key=lambda item: (-item[1], item[0]))
        return [[_mono(name), shown.seconds(value), _describe_end(problems[name])] for name, value in top]

    right = frozenset({1})
    judged = {name: each.judge_seconds for name, each in problems.items() if each.judge_seconds > 0}
    generated = {name: each.gen_seconds for name, each in problems.items() if each.gen_seconds > 0}
    if judged:
        yield _panel("Slowest to judge", table(["Problem", "CPU", "Ended"], slowest(judged), right=right))
    if generated:
        yield _panel("Slowest to generate", table(["Problem", "Time", "Ended"], slowest(generated), right=right))
    if flaky := flakiest(problems):
        rows: list[list[Child]] = [[_mono(name), words] for name, words in flaky]
        yield _panel("Flakiest", table(["Problem", "Verdicts"], rows))


def flakiest(problems: dict[str, ProblemTotals]) -> list[tuple[str, str]]:
    """Return the problems whose verdicts differ most: between noise-floor repeats, then among samples."""
    ranked = []
    for name, problem in problems.items():
        judged, accepted = problem.outcomes.judged.bit_count(), problem.outcomes.accepted.bit_count()
        flips, comparable = problem.flips()
        split = min(accepted, judged - accepted) / judged if judged else 0.0
        if flips or split:
            words = [f"{accepted} of {judged} accepted"] if judged > 1 else []
            words += [f"{flips} of {comparable} repeats differ"] if flips else []
            ranked.append((-(flips / comparable if comparable else 0.0), -split, name, "; ".join(words)))
    return [(name, words) for _, _, name, words in sorted(ranked)[:LISTED]]


def _describe_end(problem: ProblemTotals) -> str:
    judged = problem.outcomes.judged.bit_count()
    if judged == 0:
        return LABELS["api_error"]
    if judged == 1:
        status = next(iter(problem.statuses), "")
        return LABELS.get(status, status)
    return f"{problem.outcomes.accepted.bit_count()} of {judged} accepted"


def _disagreements(found: Disagreements) -> Markup:
    rows: list[list[Child]] = [
        [_mono(name), found.would_accept[name], found.would_reject[name]] for name in found.comparators
    ]
    examples: list[list[Child]] = [
        [_mono(problem), sample, "accepted" if accepted else "rejected", ", ".join(names)]
        for problem, sample, accepted, names in found.examples
    ]
    more = found.answers - len(found.examples)
    return _panel(
        "Comparators that would have decided otherwise",
        table(["Comparator", "Would also accept", "Would reject"], rows, right=frozenset({1, 2})),
        make_foldable(
            f"{found.answers} answers",
            table(["Problem", "Sample", "Decided", "Otherwise by"], examples, right=frozenset({1})),
            element("p", f"and {more} more: results.jsonl has them all", class_="quiet") if more > 0 else None,
        ),
    )


TURN_COLUMNS: Final = metrics_in(Table.TURNS)
"""Metrics by turn."""


def _turns(metrics: Json) -> Markup | None:
    """Return the table of accepted samples by turn, or None with a single turn."""
    count_of_turns = max((metric.number for metric, _ in shown_in(Table.TURNS, metrics)), default=0)
    if not count_of_turns:
        return None
    rows: list[list[Child]] = []
    for turn in range(1, count_of_turns + 1):
        names = [metric.to_named(turn).name for metric, _ in TURN_COLUMNS]
        rows.append([str(turn), *(_turn_figure(name, metrics) for name in names)])
    mean = shown.figure("turns_to_accept", amount(metrics, "turns_to_accept", "value"))
    return _panel(
        "By turn",
        table(
            ["Turn", *(column.heading for _, column in TURN_COLUMNS)],
            rows,
            right=frozenset(range(1, 1 + len(TURN_COLUMNS))),
        ),
        element("p", f"Turns up to acceptance, in the mean of those that were accepted: {mean}", class_="quiet"),
    )


def _turn_figure(name: str, metrics: Json) -> Child:
    if name not in metrics:
        # Nothing can recover in the first turn.
        return ""
    value = shown.figure(name, amount(metrics, name, "value"))
    return joined(value, element("small", interval_text(name, metrics)))


def _figures(metrics: Json) -> Markup:
    rows: list[list[Child]] = [
        [
            _mono(name),
            shown.figure(name, amount(metrics, name, "value")),
            interval_text(name, metrics),
            count(metrics, name, "n"),
        ]
        for name in metrics
    ]
    return table(["Metric", "Value", "95 % interval", "Problems"], rows, right=frozenset({1, 3}))
