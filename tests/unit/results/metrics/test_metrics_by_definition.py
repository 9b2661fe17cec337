"""Random runs: every figure equals its definition, written again the slow way, whatever the order of the results."""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from builders.results.samples import compute_metrics, sample_result

from evalrun_results.metrics.accumulator import MetricOptions
from evalrun_results.samples import SampleResult

ENDS: Sequence[list[str] | None] = (
    ["success", "success"], ["success"], ["wrong_answer", "success"], ["timeout"], ["runtime_error", "success"],
    ["memory_limit"], ["compile_error"], ["compile_timeout", "compile_timeout"], ["api_error", "success"],
    ["api_error", "wrong_answer"], None,
)  # fmt: skip


def random_run(seed: int) -> list[SampleResult]:
    chance = random.Random(seed)
    samples = chance.choice([1, 1, 2, 5])
    rows = [
        sample_result(
            problem,
            sample,
            chance.choice(ENDS),
            empty=False,
            output_tokens=chance.choice([None, *range(1, 40)]) if seed % 3 == 0 else chance.randrange(1, 2000),
            gen_seconds=chance.random() * 9,
            judged_after=10 + chance.random() * 100,
            cpu_time=chance.random(),
        )
        for problem in range(chance.randrange(1, 40))
        for sample in range(samples if seed % 2 else chance.randrange(1, samples + 1))
    ]
    chance.shuffle(rows)
    return rows


def mean(values: Sequence[float]) -> float | None:
    return None if not values else sum(values) / len(values)


def by_definition(rows: Sequence[SampleResult]) -> dict[str, float | None]:
    problems: dict[str, list[SampleResult]] = defaultdict(list)
    for row in rows:
        problems[row.problem_id].append(row)
    judged = {name: [row for row in group if row.judged] for name, group in problems.items()}
    judged = {name: group for name, group in judged.items() if group}

    def rate(hit: Callable[[SampleResult], bool]) -> float | None:
        return mean([sum(map(hit, group)) / len(group) for group in judged.values()])

    def total(group: Sequence[SampleResult]) -> float:
        return sum(row.total_judge_time or 0.0 for row in group)

    ratios = [[row.pass_ratio for row in group if row.pass_ratio is not None] for group in judged.values()]
    pass_ratios = [sum(group) / len(group) for group in ratios if group]
    solved = [name for name, group in judged.items() if any(row.accepted for row in group)]
    counted = [name for name, group in problems.items() if all(row.output_tokens is not None for row in group)]
    tokens = {name: sum(row.output_tokens or 0 for row in problems[name]) for name in counted}
    solved_tokens = [tokens[name] for name in solved if name in tokens]
    judge_times = [total(problems[name]) for name in judged]
    gen_times = [sum(row.gen_seconds or 0.0 for row in problems[name]) for name in judged]
    return {
        "accepted_at_1": rate(lambda row: row.accepted is True),
        "pass_ratio_mean": mean(pass_ratios),
        "pass_ratio_p90": float(np.percentile(pass_ratios, 90)) if pass_ratios else None,
        "exec_success_rate": rate(lambda row: row.final_status in {"success", "wrong_answer"}),
        "syntax_error_rate": rate(lambda row: row.final_status == "syntax_error"),
        "runtime_error_rate": rate(lambda row: row.final_status == "runtime_error"),
        "timeout_rate": rate(lambda row: row.final_status == "timeout"),
        "zero_reward_rate": rate(lambda row: row.pass_ratio == 0),
        "api_error_rate": mean([sum(not row.judged for row in group) / len(group) for group in problems.values()]),
        "avg_total_gen_tokens": mean([tokens[name] for name in judged if name in tokens]),
        "avg_gen_time": mean(gen_times),
        "p95_gen_time": float(np.percentile(gen_times, 95)) if gen_times else None,
        "avg_total_judge_time": mean(judge_times),
        "p50_total_judge_time": float(np.percentile(judge_times, 50)) if judge_times else None,
        "throughput": len(judged) / active_seconds(rows) if judged else None,
        "cost_per_solved_tokens": mean(solved_tokens),
        "cost_per_solved_judge_time": mean([total(problems[name]) for name in solved]),
        "tokens_per_solved": sum(tokens.values()) / len(solved_tokens) if solved_tokens else None,
        "judge_time_per_solved": total(rows) / len(solved) if solved else None,
    }


def active_seconds(rows: Sequence[SampleResult]) -> float:
    """Seconds in which anything was generated or judged; gaps below a second are none."""
    pieces = []
    for row in rows:
        if row.started_at is not None:
            generated = row.started_at + (row.gen_seconds or 0.0)
            pieces.append((row.started_at, generated))
            if row.judged_at is not None:
                took = sum(test.duration for test in row.verdict.tests) if row.verdict else 0.0
                began = max(generated, row.judged_at - took)
                pieces.append((began, max(began, row.judged_at)))
    seconds, until = 0.0, float("-inf")
    for start, end in sorted(pieces):
        since = until if start - until <= 1.0 else start
        seconds += max(0.0, end - since)
        until = max(until, end)
    return seconds


@pytest.mark.parametrize("seed", range(30))
def test_figures_equal_their_definitions_on_random_runs(seed: int) -> None:
    rows = random_run(seed)
    figures = compute_metrics(rows, MetricOptions())["humaneval"].figures
    expected = by_definition(rows)
    assert {name: figures[name].value for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(30, 50))
def test_intervals_contain_their_value_and_do_not_depend_on_the_order(seed: int) -> None:
    rows = random_run(seed)
    metrics = compute_metrics(rows, MetricOptions(gpu_seconds=10.0, gpu_hour_price=2.0))["humaneval"]
    low, high = metrics.accepted_bounds
    accepted = metrics.figures["accepted_at_1"].value
    assert accepted is None or low - 1e-12 <= accepted <= high + 1e-12
    for name, figure in metrics.figures.items():
        if figure.value is None:
            assert (figure.low, figure.high) == (None, None), name
        elif figure.n >= 15 and figure.high is not None:
            assert figure.low is not None
            assert figure.low - 1e-9 <= figure.value <= figure.high + 1e-9, name
    random.Random(seed).shuffle(rows)
    again = compute_metrics(rows, MetricOptions(gpu_seconds=10.0, gpu_hour_price=2.0))["humaneval"]
    for name, figure in again.figures.items():
        before = metrics.figures[name]
        assert (figure.value, figure.low, figure.high) == pytest.approx((before.value, before.low, before.high)), name
