"""Throughput of a run with several datasets: by the work that each caused, not by its place in the file."""

import random

import pytest
from builders.results.samples import EPOCH, compute_metrics, sample_result, with_changes

from evalrun_results.metrics.accumulator import MetricOptions, MetricsAccumulator
from evalrun_results.metrics.activity import ActiveTime
from evalrun_results.samples import SampleResult


def throughput(rows: list[SampleResult]) -> dict[str, float | None]:
    metrics = compute_metrics(rows, MetricOptions())
    return {name: each.figures["throughput"].value for name, each in metrics.items()}


def pipelined(names: list[str], *, problems: int = 40, gen: float = 2.0, cpu: float = 3.0) -> list[SampleResult]:
    """Equal datasets, one after the other: requests one at a time, and one judge that is the bottleneck."""
    rows, judge_free = [], 0.0
    for number, (name, problem) in enumerate((name, problem) for name in names for problem in range(problems)):
        started = gen * number
        judge_free = max(judge_free, started + gen) + 1.5 * cpu
        row = sample_result(problem, dataset=name, gen_seconds=gen, cpu_time=cpu, judged_after=judge_free)
        rows.append(with_changes(row, started_at=EPOCH + started))
    return rows


def test_equal_datasets_have_equal_throughput_in_any_order() -> None:
    """Windows from first request to last verdict overlap: they gave 0.22 and 0.14 problems/s here."""
    found = throughput(pipelined(["first", "second"]))
    assert found["first"] == pytest.approx(found["second"])
    assert found["first"] == pytest.approx(80 / (2.0 + 80 * 4.5))
    assert found == pytest.approx(throughput(pipelined(["second", "first"])))


def test_the_datasets_seconds_are_the_runs() -> None:
    rows = [*pipelined(["first", "second"]), *pipelined(["slow"], cpu=9.0)]
    rows = [with_changes(row, started_at=(row.started_at or 0) + 1000 * (row.dataset == "slow"),
                         judged_at=(row.judged_at or 0) + 1000 * (row.dataset == "slow")) for row in rows]  # fmt: skip
    seconds = {name: 40 / (value or 0) for name, value in throughput(rows).items()}
    assert sum(seconds.values()) == pytest.approx((2 + 80 * 4.5) + (2 + 40 * 13.5))
    assert seconds["slow"] > 2 * seconds["first"]


def test_a_pause_of_the_run_does_not_count() -> None:
    rows = pipelined(["first"])
    late = [with_changes(row, problem_id=f"later {row.problem_id}", started_at=(row.started_at or 0) + 90_000,
                         judged_at=(row.judged_at or 0) + 90_000) for row in rows]  # fmt: skip
    assert throughput([*rows, *late]) == pytest.approx(throughput(rows))


def test_throughput_does_not_depend_on_the_order_of_results() -> None:
    rows = pipelined(["first", "second"])
    shuffled = rows.copy()
    random.Random(1).shuffle(shuffled)
    assert throughput(shuffled) == throughput(rows)


def test_noise_floor_repeats_take_no_time_of_the_run() -> None:
    rows = pipelined(["first"])
    repeats = [with_changes(row, repeat=1, started_at=(row.started_at or 0) + 5000) for row in rows]
    assert throughput([*rows, *repeats]) == throughput(rows)


def test_answers_made_elsewhere_have_no_throughput() -> None:
    assert throughput([with_changes(row, started_at=None) for row in pipelined(["first"])]) == {"first": None}


def test_active_time_is_the_union_of_its_intervals() -> None:
    found, random_intervals = ActiveTime(), random.Random(3)
    seconds: set[int] = set()
    for _ in range(300):
        start = 10 * random_intervals.randrange(2000)
        end = start + 10 * random_intervals.randrange(30)
        found.add(start, end)
        seconds.update(range(start, end))
    assert found.seconds == len(seconds)


def test_active_time_stays_small_where_work_follows_work() -> None:
    found = ActiveTime()
    for number in range(10_000):
        found.add(number * 1.5, number * 1.5 + 1.0)
    assert found.seconds == pytest.approx(15_000, abs=1)
    assert len(found._starts) == 1


def test_an_accumulator_without_results_has_no_metrics() -> None:
    assert MetricsAccumulator().finish(MetricOptions()) == {}
