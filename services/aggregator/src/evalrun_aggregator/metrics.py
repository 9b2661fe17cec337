"""Every metric of evaluation.md section 7, for each dataset, with its 95 % interval. Pure.

The unit is the problem. With n > 1 a rate is the mean over problems of its share among the problem's judged samples;
tokens and seconds "a problem" are sums over its samples; a problem is solved where one of its samples was accepted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from evalrun_aggregator.figures import Figure, FigureSheet, Mask
from evalrun_aggregator.intervals import Floats
from evalrun_aggregator.problem_columns import ProblemColumns
from evalrun_aggregator.problem_totals import FINAL_STATUSES, NOT_JUDGED_REPEATS, DatasetTotals
from evalrun_aggregator.results import JsonObject, SampleResult

SEED: Final = 20_240_229
"""Of every bootstrap: the same results give the same bytes."""


@dataclass(frozen=True, slots=True)
class MetricOptions:
    """What the run's spec and its GPUs add to the results."""

    ks: tuple[int, ...] | None = None
    """The k of pass@k to report; None: 1, 10 and 100 as far as n reaches."""
    budget: bool = False
    """EVAL@budget: report `solved_within_budget`."""
    gpu_seconds: float | None = None
    """Every replica from its start to its release; None or 0 where there were none of ours."""
    gpu_hour_price: float | None = None
    throughput: bool = True
    """False: answers of an earlier run were judged again. From their requests to these verdicts is no one stretch."""
    seed: int = SEED


@dataclass(frozen=True, slots=True)
class DatasetMetrics:
    """What is reported of one dataset."""

    coverage: float
    """Judged / all, in samples."""
    accepted_bounds: tuple[float, float]
    """What accepted@1 would be had every sample that was not judged failed, and had it been accepted."""
    counts: JsonObject
    figures: Mapping[str, Figure]

    @property
    def not_judged(self) -> int:
        """Samples that count neither way."""
        count = self.counts["not_judged"]
        return count if isinstance(count, int) else 0

    @property
    def complete(self) -> bool:
        """Whether every sample was judged, those of noise-floor passes included; otherwise the run is degraded."""
        return self.not_judged == 0 and self.counts[NOT_JUDGED_REPEATS] == 0

    def summary(self) -> JsonObject:
        """Give the dataset's entry in summary.json."""
        return {
            "coverage": self.coverage,
            "accepted_bounds": list(self.accepted_bounds),
            "counts": self.counts,
            "metrics": {name: figure.as_json() for name, figure in self.figures.items()},
        }


@dataclass(slots=True)
class MetricsAccumulator:
    """Takes results one by one, in any order, and keeps a few numbers a problem."""

    _datasets: dict[str, DatasetTotals] = field(default_factory=dict)

    @property
    def datasets(self) -> Mapping[str, DatasetTotals]:
        """What is known so far, by dataset; not to be changed."""
        return self._datasets

    def add(self, result: SampleResult) -> None:
        """Take one result.

        Raises:
            ValueError: the same key was given before.
        """
        totals = self._datasets.get(result.dataset)
        if totals is None:
            totals = self._datasets[result.dataset] = DatasetTotals()
        totals.add(result)

    def finish(self, options: MetricOptions) -> dict[str, DatasetMetrics]:
        """Give the metrics of each dataset, in the order of their names."""
        datasets = {name: self._datasets[name] for name in sorted(self._datasets) if self._datasets[name].problems}
        shares = gpu_shares(datasets, options.gpu_seconds)
        return {name: dataset_metrics(totals, options, shares.get(name)) for name, totals in datasets.items()}


def compute_metrics(results: Iterable[SampleResult], options: MetricOptions) -> dict[str, DatasetMetrics]:
    """Give the metrics of each dataset over one pass of results."""
    accumulator = MetricsAccumulator()
    for result in results:
        accumulator.add(result)
    return accumulator.finish(options)


def gpu_shares(datasets: Mapping[str, DatasetTotals], gpu_seconds: float | None) -> dict[str, float]:
    """Split GPU seconds over datasets by output tokens; empty where there are none, or no way to split them."""
    if not gpu_seconds:
        return {}
    if len(datasets) == 1:
        return dict.fromkeys(datasets, gpu_seconds)
    tokens = sum(totals.all_output_tokens for totals in datasets.values())
    if tokens == 0 or not all(totals.tokens_known for totals in datasets.values()):
        return {}
    return {name: gpu_seconds * totals.all_output_tokens / tokens for name, totals in datasets.items()}


def dataset_metrics(totals: DatasetTotals, options: MetricOptions, gpu_seconds: float | None) -> DatasetMetrics:
    """Give the metrics of one dataset. `gpu_seconds`: its share; None where unknown."""
    columns = ProblemColumns.of(totals)
    sheet = FigureSheet(clustered=bool((columns.seen > 1).any()))
    left_out: JsonObject = {}
    _verdict_figures(sheet, columns)
    _token_and_time_figures(sheet, columns, totals.first_request_at if options.throughput else None)
    _per_solved_figures(sheet, columns, gpu_seconds, options.gpu_hour_price)
    if sheet.clustered:
        for k in columns.default_ks() if options.ks is None else options.ks:
            enough = columns.judged >= k
            sheet.mean(f"pass_at_{k}", columns.pass_at(k), enough)
            left_out[f"pass_at_{k}"] = int((~enough).sum())
    if options.budget:
        left_out["solved_within_budget"] = _budget_figure(sheet, columns)
    if columns.comparable.any():
        sheet.share("flip_rate", columns.flips, columns.comparable, columns.comparable > 0)
    return DatasetMetrics(
        coverage=float(columns.judged.sum() / columns.seen.sum()) if len(columns.seen) else 0.0,
        accepted_bounds=columns.accepted_bounds(),
        counts=_counts(totals, columns, left_out),
        figures=sheet.figures(options.seed),
    )


def problem_values(
    columns: ProblemColumns, ks: Iterable[int] = (), *, budget: bool = False
) -> dict[str, tuple[Floats, Mask]]:
    """Give, for each metric that is a mean over problems, every problem's value and which problems have one.

    By the very formulas of the figures: two runs are compared by the differences of these values.

    Args:
        columns: the problems.
        ks: of pass@k.
        budget: whether `solved_within_budget` is asked for.
    """
    sheet = FigureSheet(clustered=True)
    _verdict_figures(sheet, columns)
    _token_and_time_figures(sheet, columns, None)
    for k in ks:
        sheet.mean(f"pass_at_{k}", columns.pass_at(k), columns.judged >= k)
    if budget:
        _budget_figure(sheet, columns)
    return sheet.means()


def _budget_figure(sheet: FigureSheet, columns: ProblemColumns) -> int:
    """Give how many problems are left out: unsolved with a sample that was not judged, so that nobody can tell."""
    told = columns.solved | (columns.judged == columns.seen)
    sheet.share("solved_within_budget", columns.solved, np.ones_like(columns.seen), told)
    return int((~told).sum())


def _verdict_figures(sheet: FigureSheet, columns: ProblemColumns) -> None:
    judged, some = columns.judged, columns.judged > 0
    status = columns.statuses
    sheet.share("accepted_at_1", columns.accepted, judged, some)
    rated = columns.pass_ratio_count > 0
    pass_ratio = columns.pass_ratio()
    sheet.mean("pass_ratio_mean", pass_ratio, rated)
    sheet.percentile("pass_ratio_p50", pass_ratio, rated, 50)
    sheet.percentile("pass_ratio_p90", pass_ratio, rated, 90)
    sheet.share("exec_success_rate", status["success"] + status["wrong_answer"], judged, some)
    for name in ("syntax_error", "runtime_error", "timeout", "wrong_answer", "empty_output"):
        sheet.share(f"{name}_rate", status[name], judged, some)
    sheet.share("memory_limit_rate", columns.memory_limit, judged, some)
    sheet.share("api_error_rate", columns.seen - judged, columns.seen, columns.seen > 0)
    sheet.share("zero_reward_rate", columns.zero_rewards, judged, some)


def _token_and_time_figures(sheet: FigureSheet, columns: ProblemColumns, first_request_at: float | None) -> None:
    some = columns.judged > 0
    sheet.mean("avg_total_gen_tokens", columns.output_tokens, some & columns.tokens_known)
    timed = some & columns.gen_seconds_known
    sheet.mean("avg_gen_time", columns.gen_seconds, timed)
    sheet.percentile("p50_gen_time", columns.gen_seconds, timed, 50)
    sheet.percentile("p95_gen_time", columns.gen_seconds, timed, 95)
    sheet.mean("avg_total_judge_time", columns.judge_seconds, some)
    sheet.percentile("p50_total_judge_time", columns.judge_seconds, some, 50)
    sheet.percentile("p95_total_judge_time", columns.judge_seconds, some, 95)
    # The wall time from the first request to the last verdict is the sum of the gaps between verdicts: so each problem
    # carries a part of it, and throughput is a ratio of sums over problems like the others.
    gaps, timed = columns.verdict_gaps(first_request_at)
    sheet.ratio("throughput", timed.astype(np.float64), gaps, timed)


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
        "memory_limit": int(columns.memory_limit.sum()),
        "final_status": dict(statuses),
        "left_out_problems": left_out,
        NOT_JUDGED_REPEATS: totals.flags[NOT_JUDGED_REPEATS],
        **{name: totals.flags[name] for name in ("truncated", "without_token_count", "cached", "forgeable")},
    }
