"""Computes every metric of docs/outputs.md for each dataset, with its 95 % interval. Pure.

The unit is the problem. With n > 1 a rate is the mean over problems of its share among the problem's judged samples;
tokens and seconds "a problem" are sums over its samples; a problem is solved where one of its samples was accepted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from evalrun_results.metrics.activity import RunActivity, WorkShares
from evalrun_results.metrics.figures import Figure, FigureSheet, Mask
from evalrun_results.metrics.intervals import Floats
from evalrun_results.metrics.problem_columns import ProblemColumns
from evalrun_results.metrics.problem_totals import (
    FINAL_STATUSES,
    NOT_JUDGED_REPEATS,
    NOT_JUDGED_TURNS,
    OTHER_CAUSES,
    DatasetTotals,
)
from evalrun_results.metrics.turns import RECOVERY, add_turn_figures, left_out_at
from evalrun_results.samples import JsonObject, SampleResult

FLAGGED: Final = (
    *("truncated", "with_assumed_timeouts", "without_token_count", "cached", "forgeable"),
    *("accepted_by_case", "accepted_by_tolerance"),
)
"""Samples that are counted beside the figures."""
LISTED_CAUSES: Final = 20
"""Causes of answers that were not judged, with a count each."""
SEED: Final = 20_240_229
"""Of every bootstrap: the same results give the same bytes."""


@dataclass(frozen=True, slots=True)
class MetricOptions:
    """Inputs from the run's spec and its GPUs, besides the results."""

    ks: tuple[int, ...] | None = None
    """The k of pass@k to report; None: 1, 10 and 100 as far as n reaches."""
    budget: bool = False
    """EVAL@budget: report `solved_within_budget`."""
    turns: int = 1
    """EVAL@turns: report the figures of each of this many turns."""
    gpu_seconds: float | None = None
    """Every replica from its start to its release; None or 0 where there were none of ours."""
    gpu_hour_price: float | None = None
    throughput: bool = True
    """False: answers of an earlier run were judged again. From their requests to these verdicts is no one stretch."""
    seed: int = SEED


@dataclass(frozen=True, slots=True)
class DatasetMetrics:
    """The metrics of one dataset."""

    coverage: float
    """Judged / all, in samples."""
    accepted_bounds: tuple[float, float]
    """Bounds of accepted@1 if all samples that were not judged had failed, and if they had been accepted."""
    counts: JsonObject
    figures: Mapping[str, Figure]
    score_means: Mapping[str, float] = field(default_factory=dict)
    """By data source; empty where no grader scored anything."""

    @property
    def not_judged(self) -> int:
        """Samples that count neither way."""
        count = self.counts["not_judged"]
        return count if isinstance(count, int) else 0

    @property
    def complete(self) -> bool:
        """Whether every answer was judged, of every turn and noise-floor pass; otherwise the run is degraded."""
        others = (self.counts[NOT_JUDGED_REPEATS], self.counts[NOT_JUDGED_TURNS])
        return self.not_judged == 0 and others == (0, 0)

    def summary(self) -> JsonObject:
        """Return the dataset's entry in summary.json."""
        return {
            "coverage": self.coverage,
            "accepted_bounds": list(self.accepted_bounds),
            "counts": self.counts,
            **({"score_means": dict(self.score_means)} if self.score_means else {}),
            "metrics": {name: figure.as_json() for name, figure in self.figures.items()},
        }


@dataclass(slots=True)
class MetricsAccumulator:
    """Takes results one by one, in any order, and keeps a few numbers a problem."""

    _datasets: dict[str, DatasetTotals] = field(default_factory=dict)
    _activity: RunActivity = field(default_factory=RunActivity)

    @property
    def datasets(self) -> Mapping[str, DatasetTotals]:
        """Totals so far, by dataset; callers must not change them."""
        return self._datasets

    def add(self, result: SampleResult) -> None:
        """Add one result.

        Raises:
            ValueError: the same key was given before.
        """
        totals = self._datasets.get(result.dataset)
        if totals is None:
            totals = self._datasets[result.dataset] = DatasetTotals()
        totals.add(result)
        if result.repeat == 0:
            self._activity.add(result)

    def finish(self, options: MetricOptions) -> dict[str, DatasetMetrics]:
        """Return the metrics of each dataset, in the order in which they were first met: the spec's."""
        datasets = {name: self._datasets[name] for name in self._datasets if self._datasets[name].problems}
        shares = gpu_shares(datasets, options.gpu_seconds)
        work = self._work_shares(datasets) if options.throughput else None
        return {name: dataset_metrics(totals, options, shares.get(name), work) for name, totals in datasets.items()}

    def _work_shares(self, datasets: Mapping[str, DatasetTotals]) -> WorkShares | None:
        problems = [problem for totals in datasets.values() for problem in totals.problems.values()]
        return self._activity.shares(
            sum(problem.gen_seconds for problem in problems),
            sum(problem.judge_seconds for problem in problems),
            sum(problem.outcomes.seen > 0 for problem in problems),
        )


def gpu_shares(datasets: Mapping[str, DatasetTotals], gpu_seconds: float | None) -> dict[str, float]:
    """Split GPU seconds over datasets by output tokens. Returns an empty mapping if they cannot be split."""
    if not gpu_seconds:
        return {}
    if len(datasets) == 1:
        return dict.fromkeys(datasets, gpu_seconds)
    tokens = sum(totals.all_output_tokens for totals in datasets.values())
    if tokens == 0 or not all(totals.tokens_known for totals in datasets.values()):
        return {}
    return {name: gpu_seconds * totals.all_output_tokens / tokens for name, totals in datasets.items()}


def dataset_metrics(
    totals: DatasetTotals, options: MetricOptions, gpu_seconds: float | None, work: WorkShares | None
) -> DatasetMetrics:
    """Return the metrics of one dataset.

    Args:
        totals: by problem.
        options: of the run.
        gpu_seconds: the dataset's share; None where unknown.
        work: what each unit of work took of the run's active time; None if there is no throughput to tell.
    """
    columns = ProblemColumns.of(totals)
    sheet = FigureSheet(clustered=bool((columns.seen > 1).any()))
    left_out: JsonObject = {}
    _verdict_figures(sheet, columns)
    _token_and_time_figures(sheet, columns)
    _throughput_figure(sheet, columns, work)
    _per_solved_figures(sheet, columns, gpu_seconds, options.gpu_hour_price)
    if sheet.clustered:
        for k in columns.default_ks() if options.ks is None else options.ks:
            enough = columns.judged >= k
            sheet.mean_share(f"pass_at_{k}", columns.pass_at(k), enough)
            left_out[f"pass_at_{k}"] = int((~enough).sum())
    if options.budget:
        left_out["solved_within_budget"] = _budget_figure(sheet, columns)
    if options.turns > 1:
        add_turn_figures(sheet, columns.problems, options.turns)
        left_out[RECOVERY] = left_out_at(columns.problems, options.turns)
    if columns.comparable.any():
        sheet.share("flip_rate", columns.flips, columns.comparable, columns.comparable > 0)
    figures = sheet.figures(options.seed)
    return DatasetMetrics(
        coverage=float(columns.judged.sum() / columns.seen.sum()) if len(columns.seen) else 0.0,
        accepted_bounds=columns.accepted_bounds(),
        counts=_counts(totals, columns, left_out),
        figures=_with_high_bounds(figures, columns) if totals.flags["with_assumed_timeouts"] else figures,
        score_means=columns.score_means(),
    )


def problem_values(
    columns: ProblemColumns, ks: Iterable[int] = (), *, budget: bool = False, turns: int = 0
) -> dict[str, tuple[Floats, Mask]]:
    """Return, for each metric that is a mean over problems, every problem's value and which problems have one.

    By the very formulas of the figures: two runs are compared by the differences of these values.

    Args:
        columns: the problems.
        ks: of pass@k.
        budget: whether `solved_within_budget` is asked for.
        turns: up to which turn figures by turn are asked for; 0: none.
    """
    sheet = FigureSheet(clustered=True)
    _verdict_figures(sheet, columns)
    _token_and_time_figures(sheet, columns)
    for k in ks:
        sheet.mean_share(f"pass_at_{k}", columns.pass_at(k), columns.judged >= k)
    if budget:
        _budget_figure(sheet, columns)
    if turns:
        add_turn_figures(sheet, columns.problems, turns)
    return sheet.means()


def _budget_figure(sheet: FigureSheet, columns: ProblemColumns) -> int:
    """Return how many problems are left out: unsolved with a sample that was not judged, so that nobody can tell."""
    told = columns.solved | (columns.judged == columns.seen)
    sheet.share("solved_within_budget", columns.solved, np.ones_like(columns.seen), told)
    return int((~told).sum())


def _verdict_figures(sheet: FigureSheet, columns: ProblemColumns) -> None:
    judged, some = columns.judged, columns.judged > 0
    status = columns.statuses
    sheet.share("accepted_at_1", columns.accepted, judged, some)
    _pass_ratio_figures(sheet, columns.pass_ratio(), columns.pass_ratio_count > 0)
    sheet.share("exec_success_rate", status["success"] + status["wrong_answer"], judged, some)
    for name in ("syntax_error", "runtime_error", "timeout", "wrong_answer", "empty_output"):
        sheet.share(f"{name}_rate", status[name], judged, some)
    sheet.share("memory_limit_rate", columns.memory_limit, judged, some)
    sheet.share("api_error_rate", columns.seen - judged, columns.seen, columns.seen > 0)
    sheet.share("zero_reward_rate", columns.zero_rewards, judged, some)
    _score_figure(sheet, columns)


def _score_figure(sheet: FigureSheet, columns: ProblemColumns) -> None:
    """Report the mean score as verl computes it, over the problems that a grader scored; nothing without a grader."""
    scored = columns.score_count > 0
    if not scored.any():
        return
    scores = columns.score()
    shares = bool((scores[scored] >= 0).all() and (scores[scored] <= 1).all())
    (sheet.mean_share if shares else sheet.mean)("score_mean", scores, scored)


def _pass_ratio_figures(sheet: FigureSheet, pass_ratio: Floats, rated: Mask) -> None:
    sheet.mean_share("pass_ratio_mean", pass_ratio, rated)
    sheet.percentile("pass_ratio_p50", pass_ratio, rated, 50)
    sheet.percentile("pass_ratio_p90", pass_ratio, rated, 90)


def _with_high_bounds(figures: Mapping[str, Figure], columns: ProblemColumns) -> dict[str, Figure]:
    """Return the figures, those of the pass ratio with what they were had every assumed time-out passed."""
    sheet = FigureSheet(clustered=True)
    _pass_ratio_figures(sheet, columns.pass_ratio_high(), columns.pass_ratio_count > 0)
    high = sheet.values()
    return {name: replace(figure, high_bound=high.get(name)) for name, figure in figures.items()}


def _token_and_time_figures(sheet: FigureSheet, columns: ProblemColumns) -> None:
    some = columns.judged > 0
    sheet.mean("avg_total_gen_tokens", columns.output_tokens, some & columns.tokens_known)
    timed = some & columns.gen_seconds_known
    sheet.mean("avg_gen_time", columns.gen_seconds, timed)
    sheet.percentile("p50_gen_time", columns.gen_seconds, timed, 50)
    sheet.percentile("p95_gen_time", columns.gen_seconds, timed, 95)
    sheet.mean("avg_total_judge_time", columns.judge_seconds, some)
    sheet.percentile("p50_total_judge_time", columns.judge_seconds, some, 50)
    sheet.percentile("p95_total_judge_time", columns.judge_seconds, some, 95)


def _throughput_figure(sheet: FigureSheet, columns: ProblemColumns, work: WorkShares | None) -> None:
    """Return a ratio of sums over problems like the others: each problem carries a part of the run's active time."""
    judged = (columns.judged > 0).astype(np.float64)
    known = np.full(len(judged), work is not None and bool(judged.any()))
    sheet.ratio("throughput", judged, np.zeros(len(judged)) if work is None else columns.active_seconds(work), known)


def _per_solved_figures(
    sheet: FigureSheet, columns: ProblemColumns, gpu_seconds: float | None, gpu_hour_price: float | None
) -> None:
    solved = columns.solved.astype(np.float64)
    everything = columns.seen > 0
    known = columns.tokens_known
    sheet.mean("cost_per_solved_tokens", columns.output_tokens, columns.solved & known)
    sheet.mean("cost_per_solved_judge_time", columns.judge_seconds, columns.solved)
    sheet.ratio("tokens_per_solved", columns.output_tokens, solved, known)
    sheet.ratio("judge_time_per_solved", columns.judge_seconds, solved, everything)
    gpu = columns.gpu_seconds(gpu_seconds)
    price = None if gpu_hour_price is None else gpu_hour_price / 3600
    sheet.ratio("gpu_seconds_per_solved", gpu, solved, everything if gpu_seconds else ~everything)
    sheet.ratio("money_per_solved", gpu * (price or 0), solved, everything if gpu_seconds and price else ~everything)


def _causes(causes: Counter[str]) -> JsonObject:
    """Return the most frequent causes with their counts, and the others' sum."""
    named = sorted((-count, cause) for cause, count in causes.items() if cause != OTHER_CAUSES)
    listed: JsonObject = {cause: -count for count, cause in named[:LISTED_CAUSES]}
    others = causes[OTHER_CAUSES] - sum(count for count, _ in named[LISTED_CAUSES:])
    return {**listed, OTHER_CAUSES: others} if others else listed


def _counts(totals: DatasetTotals, columns: ProblemColumns, left_out: JsonObject) -> JsonObject:
    """Count samples, unless the name says problems; all are of the run itself, not of noise-floor passes."""
    not_judged = int((columns.seen - columns.judged).sum())
    statuses: Counter[str] = Counter({name: int(columns.statuses[name].sum()) for name in FINAL_STATUSES})
    statuses["api_error"] += not_judged
    return {
        "problems": len(columns.seen),
        "solved_problems": int(columns.solved.sum()),
        "samples": int(columns.seen.sum()),
        "judged": int(columns.judged.sum()),
        "accepted": int(columns.accepted.sum()),
        "not_judged": not_judged,
        "not_judged_causes": _causes(totals.causes),
        "memory_limit": int(columns.memory_limit.sum()),
        "final_status": dict(statuses),
        "left_out_problems": left_out,
        NOT_JUDGED_REPEATS: totals.flags[NOT_JUDGED_REPEATS],
        NOT_JUDGED_TURNS: totals.flags[NOT_JUDGED_TURNS],
        **{name: totals.flags[name] for name in FLAGGED},
    }
