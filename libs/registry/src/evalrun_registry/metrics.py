"""Every metric of a run. A new metric is a description here and an estimator in `evalrun_results.metrics.estimators`.

The order is that of summary.json and of docs/outputs.md. Metrics of a turn that stand side by side are written turn by
turn.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from evalrun_registry.metric import Column, Interval, Measured, Metric, NamedMetric, Table, Unit

_RATIO_OF_TESTS: Final = (
    "passed tests / tests of a problem; `high_bound` beside the interval: had every assumed timeout passed "
    "(`counts.with_assumed_timeouts`: answers that have some)"
)
_GEN_TIME: Final = "from request to last byte"
_JUDGE_TIME: Final = "CPU seconds of the runs that decided"
_OF_THE_SOLVED: Final = "of the solved problems alone / solved"
_PER_SOLVED: Final = "of the whole run / solved"
_BY_TURN: Final = (
    "EVAL@turns, as are the following: accepted in turn t or before; no test passed by the last answer up to turn t"
)
_RECOVERY: Final = "accepted by turn t, by the last turn / failed in the first"


def _percentile(name: str, title: str, formula: str, percentile: int, unit: Unit, *, falls: bool) -> Metric:
    return Metric(name, title, formula, unit, Interval.PERCENTILE, falls, percentile=percentile)


def _make_status_rate(name: str, title: str, rank: int, formula: str = "ended so") -> Metric:
    return Metric(name, title, formula, falls=True, gates=True, columns=(Column(Table.COMPARISON, rank),))


METRICS: Final = (
    Metric(
        "accepted_at_1",
        "pass@1",
        "accepted / judged",
        gates=True,
        columns=(
            Column(Table.END, 1, prominent=True),
            Column(Table.HEADLINE, 1, prominent=True),
            Column(Table.COMPARISON, 1),
        ),
    ),
    Metric(
        "pass_ratio_mean",
        "pass ratio",
        _RATIO_OF_TESTS,
        interval=Interval.MEAN_SHARE,
        gates=True,
        columns=(
            Column(Table.END, 2, "pass\nratio"),
            Column(Table.HEADLINE, 5, "Pass ratio"),
            Column(Table.COMPARISON, 7),
        ),
    ),
    _percentile("pass_ratio_p50", "pass ratio, median", _RATIO_OF_TESTS, 50, Unit.SHARE, falls=False),
    _percentile("pass_ratio_p90", "pass ratio, 90th percentile", _RATIO_OF_TESTS, 90, Unit.SHARE, falls=False),
    Metric(
        "exec_success_rate",
        "runs to its end",
        "ended as `success` or `wrong_answer`",
        gates=True,
        columns=(Column(Table.HEADLINE, 6, "Runs to its end"), Column(Table.COMPARISON, 9)),
    ),
    _make_status_rate("syntax_error_rate", "syntax error", 13),
    _make_status_rate("runtime_error_rate", "runtime error", 11),
    _make_status_rate("timeout_rate", "timeout", 12),
    _make_status_rate("wrong_answer_rate", "wrong answer", 10),
    _make_status_rate("empty_output_rate", "empty output", 14),
    Metric(
        "memory_limit_rate",
        "memory limit",
        "ended as `runtime_error`, and a test was stopped at the memory limit",
        falls=True,
    ),
    Metric(
        "guardrail_rate",
        "guardrail",
        "nothing to run, no code found, answer cut, or generation truncated",
        falls=True,
        gates=True,
    ),
    Metric("forgeable_rate", "forgeable", "the verdict could be forged ([why](verdicts.md))", falls=True),
    Metric(
        "extraction_fallback_rate",
        "program not in a code block",
        "the program was not in a tagged code block: an untagged or unclosed one, the whole text, or none",
        falls=True,
        gates=True,
    ),
    Metric("api_error_rate", "not judged", "not judged / all", falls=True),
    _make_status_rate(
        "zero_reward_rate",
        "no test passed",
        15,
        "no test passed; of answers that a [grader](graders.md) scored: a score of 0",
    ),
    Metric(
        "score_mean",
        "score",
        "mean over problems of the mean score of its answers, as verl computes it; only where a [grader](graders.md) "
        "scored answers. `score_means` beside the metrics has it by data source",
        Unit.SCORE,
        Interval.MEAN_SHARE,
        columns=(Column(Table.RESULTS, 6, "score"), Column(Table.COMPARISON, 8)),
    ),
    Metric(
        "avg_total_gen_tokens",
        "tokens a problem",
        "output tokens a problem",
        Unit.NUMBER,
        Interval.MEAN,
        falls=True,
        columns=(Column(Table.HEADLINE, 8, "Tokens a problem"), Column(Table.COMPARISON, 16)),
    ),
    Metric(
        "avg_gen_time",
        "generation, s",
        _GEN_TIME,
        Unit.SECONDS,
        Interval.MEAN,
        falls=True,
        columns=(Column(Table.COMPARISON, 17),),
    ),
    _percentile("p50_gen_time", "generation, s, median", _GEN_TIME, 50, Unit.SECONDS, falls=True),
    _percentile("p95_gen_time", "generation, s, 95th percentile", _GEN_TIME, 95, Unit.SECONDS, falls=True),
    Metric(
        "avg_total_judge_time",
        "judging, CPU s",
        _JUDGE_TIME,
        Unit.SECONDS,
        Interval.MEAN,
        falls=True,
        columns=(Column(Table.HEADLINE, 9, "Judge CPU a problem"), Column(Table.COMPARISON, 18)),
    ),
    _percentile("p50_total_judge_time", "judging, CPU s, median", _JUDGE_TIME, 50, Unit.SECONDS, falls=True),
    _percentile("p95_total_judge_time", "judging, CPU s, 95th percentile", _JUDGE_TIME, 95, Unit.SECONDS, falls=True),
    Metric(
        "throughput",
        "problems a second",
        "problems / their part of the seconds in which the run generated or judged (`activity.py`): split by the "
        "seconds of requests and the CPU seconds of tests, so that equal datasets get equal figures; `null` where "
        "answers were made elsewhere or judged again",
        Unit.NUMBER,
        Interval.RATIO,
    ),
    Metric(
        "cost_per_solved_tokens", "tokens of a solved problem", _OF_THE_SOLVED, Unit.NUMBER, Interval.MEAN, falls=True
    ),
    Metric(
        "cost_per_solved_judge_time",
        "judge CPU of a solved problem",
        _OF_THE_SOLVED,
        Unit.SECONDS,
        Interval.MEAN,
        falls=True,
    ),
    Metric(
        "tokens_per_solved",
        "tokens per solved problem",
        _PER_SOLVED,
        Unit.NUMBER,
        Interval.RATIO,
        falls=True,
        columns=(Column(Table.COST, 1, "Tokens"),),
    ),
    Metric(
        "judge_time_per_solved",
        "judge CPU per solved problem",
        _PER_SOLVED,
        Unit.SECONDS,
        Interval.RATIO,
        falls=True,
        columns=(Column(Table.COST, 2, "Judge CPU"),),
    ),
    Metric(
        "gpu_seconds_per_solved",
        "GPU time per solved problem",
        _PER_SOLVED,
        Unit.SECONDS,
        Interval.RATIO,
        falls=True,
        columns=(Column(Table.COST, 3, "GPU time"),),
    ),
    Metric(
        "money_per_solved",
        "money per solved problem",
        _PER_SOLVED,
        Unit.NUMBER,
        Interval.RATIO,
        falls=True,
        columns=(Column(Table.COST, 4, "Money"),),
    ),
    Metric(
        "pass_at_<k>",
        "pass@<k>",
        "1 - C(n-c,k) / C(n,k), over problems with k judged samples; with several samples",
        interval=Interval.MEAN_SHARE,
        measured=Measured.SAMPLES,
        gates=True,
        columns=(
            Column(Table.RESULTS, 1, first=2),
            Column(
                Table.HEADLINE,
                4,
                prominent=True,
                first=2,
                # pass_at_1 is the same metric as accepted_at_1, whose title is pass@1.
            ),
            Column(Table.COMPARISON, 5, first=2),
        ),
    ),
    Metric(
        "solved_within_budget",
        "solved within budget",
        "solved; EVAL@budget",
        measured=Measured.BUDGET,
        gates=True,
        columns=(
            Column(Table.RESULTS, 3),
            Column(Table.HEADLINE, 3, "Solved within budget", prominent=True),
            Column(Table.COMPARISON, 6),
        ),
    ),
    Metric(
        "accepted_by_turn_<t>",
        "accepted by turn <t>",
        _BY_TURN,
        measured=Measured.TURNS,
        gates=True,
        columns=(
            Column(Table.RESULTS, 2, first=2),
            Column(Table.TURNS, 1, "Accepted so far"),
            Column(Table.COMPARISON, 3),
        ),
    ),
    Metric(
        "zero_reward_rate_by_turn_<t>",
        "no test passed by turn <t>",
        _BY_TURN,
        falls=True,
        measured=Measured.TURNS,
        columns=(Column(Table.TURNS, 3, "No test passed"),),
    ),
    Metric(
        "avg_gen_tokens_turn_<t>",
        "tokens of turn <t>",
        "output tokens of turn t, over the problems that had one",
        Unit.NUMBER,
        Interval.MEAN,
        falls=True,
        measured=Measured.TURNS,
        columns=(Column(Table.TURNS, 4, "Tokens a problem"),),
    ),
    Metric(
        "recovery_rate_by_turn_<t>",
        "recovery rate by turn <t>",
        _RECOVERY,
        measured=Measured.TURNS,
        columns=(Column(Table.TURNS, 2, "Recovered of those that failed at first"), Column(Table.COMPARISON, 4)),
        first=2,
    ),
    Metric(
        "recovery_rate",
        "recovery rate",
        _RECOVERY,
        measured=Measured.TURNS,
        gates=True,
        columns=(
            Column(Table.RESULTS, 4),
            Column(Table.HEADLINE, 2, "Recovery rate", prominent=True),
            Column(Table.COMPARISON, 2),
        ),
    ),
    Metric(
        "turns_to_accept",
        "turns up to acceptance",
        "turns up to acceptance, over the accepted samples",
        Unit.NUMBER,
        Interval.RATIO,
        falls=True,
        measured=Measured.TURNS,
    ),
    Metric(
        "flip_rate",
        "noise floor",
        "verdicts of noise-floor repeats that differ from the run's own; `noiseFloorRepeats`",
        falls=True,
        measured=Measured.REPEATS,
        columns=(Column(Table.RESULTS, 5), Column(Table.HEADLINE, 10, "Noise floor")),
    ),
)

HEADLINE: Final = METRICS[0].to_named(0)
"""The metric by which runs are told apart at a glance: in statuses, on dashboards, in tests of several runs."""

_BY_NAME: Final = {metric.name: metric for metric in METRICS}


def find_metric(name: str) -> NamedMetric | None:
    """Return the metric of a name in summary.json, or None of that name."""
    if (metric := _BY_NAME.get(name)) is not None and not metric.number:
        return metric.to_named(0)
    stem = name.rstrip("0123456789")
    numbered = next((each for each in METRICS if each.number and each.stem == stem), None)
    return None if numbered is None or stem == name else numbered.to_named(int(name[len(stem) :]))


def metrics_in(table: Table) -> list[tuple[Metric, Column]]:
    """Return the metrics that a table shows, in its order, each with its column."""
    found = [(metric, column) for metric in METRICS if (column := metric.column(table)) is not None]
    return sorted(found, key=lambda pair: pair[1].rank)


def shown_in(table: Table, names: Iterable[str]) -> Iterator[tuple[NamedMetric, Column]]:
    """Yield the metrics among these names that a table shows, in its order; several k or turns come by number."""
    found = [known for name in set(names) if (known := find_metric(name)) is not None]
    for metric, column in metrics_in(table):
        numbers = sorted(each.number for each in found if each.metric is metric)
        yield from (
            (metric.to_named(number), column) for number in numbers if not metric.number or number >= column.first
        )


def gate_metrics(*, falls: bool) -> list[Metric]:
    """Return the metrics of a direction that may gate: first the plain names, then those with a k or a turn."""
    found = [metric for metric in METRICS if metric.gates and metric.falls is falls]
    return [metric for metric in found if not metric.number] + sorted(
        (metric for metric in found if metric.number), key=lambda metric: metric.name
    )


def is_share(name: str) -> bool:
    """Return whether a metric's values are shares of 1; a metric that is not known here counts as a share."""
    named = find_metric(name)
    return named is None or named.metric.is_share


def falls(name: str) -> bool:
    """Return whether a lower value of a metric is better; an unknown metric counts as better when higher."""
    named = find_metric(name)
    return named is not None and named.metric.falls
