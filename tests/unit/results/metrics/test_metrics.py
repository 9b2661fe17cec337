"""Each metric against a table worked out by hand, and the null rules."""

import json
from collections.abc import Mapping

import pytest
from builders.results.samples import EPOCH, compute_metrics, sample_result, with_changes

from evalrun_proto.judge.v1 import judge_pb2 as pb
from evalrun_results.metrics.accumulator import DatasetMetrics, MetricOptions
from evalrun_results.metrics.figures import Figure
from evalrun_results.metrics.intervals import wilson
from evalrun_results.metrics.problem_columns import ProblemColumns
from evalrun_results.metrics.problem_totals import DatasetTotals
from evalrun_results.samples import SampleResult


def measured(results: list[SampleResult], options: MetricOptions | None = None) -> DatasetMetrics:
    return compute_metrics(results, options or MetricOptions())["humaneval"]


def values(figures: Mapping[str, Figure]) -> dict[str, float | None]:
    return {name: figure.value for name, figure in figures.items()}


def greedy_run() -> list[SampleResult]:
    """Ten problems: one of each end, and two that were not judged."""
    return [
        sample_result(0, 0, ["success", "success"], output_tokens=100, gen_seconds=1.0, judged_after=2.0),
        sample_result(1, 0, ["success"], output_tokens=200, gen_seconds=2.0, judged_after=4.0),
        sample_result(2, 0, ["wrong_answer", "success"], output_tokens=300, gen_seconds=3.0, judged_after=6.0),
        sample_result(3, 0, ["timeout", "wrong_answer"], output_tokens=400, gen_seconds=4.0, judged_after=8.0),
        sample_result(4, 0, ["runtime_error", "timeout"], output_tokens=500, gen_seconds=5.0, judged_after=10.0),
        sample_result(5, 0, ["memory_limit", "success"], output_tokens=600, gen_seconds=6.0, judged_after=12.0),
        sample_result(6, 0, ["compile_error", "compile_error"], output_tokens=700, gen_seconds=7.0, judged_after=16.0),
        sample_result(7, 0, ["compile_error"], empty=True, output_tokens=800, gen_seconds=8.0, judged_after=14.0),
        sample_result(8, 0, ["success", "api_error"], output_tokens=900, gen_seconds=9.0, judged_after=50.0),
        sample_result(9, 0, None, output_tokens=1000, gen_seconds=10.0),
    ]


def test_greedy_run_has_the_expected_value_of_every_metric() -> None:
    options = MetricOptions(gpu_seconds=5500.0, gpu_hour_price=3.6)
    assert values(measured(greedy_run(), options).figures) == pytest.approx(
        {
            "accepted_at_1": 2 / 8,
            "pass_ratio_mean": (1 + 1 + 0.5 + 0 + 0 + 0.5 + 0 + 0) / 8,
            "pass_ratio_p50": 0.25,
            "pass_ratio_p90": 1.0,
            "exec_success_rate": 3 / 8,
            "syntax_error_rate": 1 / 8,
            "runtime_error_rate": 2 / 8,
            "timeout_rate": 1 / 8,
            "wrong_answer_rate": 1 / 8,
            "empty_output_rate": 1 / 8,
            "memory_limit_rate": 1 / 8,
            "guardrail_rate": 0.0,
            "forgeable_rate": 0.0,
            "extraction_fallback_rate": 1 / 8,
            "api_error_rate": 2 / 10,
            "zero_reward_rate": 4 / 8,
            "avg_total_gen_tokens": 450.0,
            "avg_gen_time": 4.5,
            "p50_gen_time": 4.5,
            "p95_gen_time": 7.65,
            "avg_total_judge_time": 7 / 8,
            "p50_total_judge_time": 1.0,
            "p95_total_judge_time": 1.0,
            "throughput": 8 / (12 + 2.75 + 1.5),
            "cost_per_solved_tokens": 150.0,
            "cost_per_solved_judge_time": 0.75,
            "tokens_per_solved": 5500 / 2,
            "judge_time_per_solved": 8 / 2,
            "gpu_seconds_per_solved": 5500 / 2,
            "money_per_solved": 5.5 / 2,
        }
    )


def test_coverage_and_bounds_are_reported_with_the_counts() -> None:
    metrics = measured(greedy_run())
    assert metrics.coverage == 0.8
    assert metrics.accepted_bounds == pytest.approx((2 / 10, 4 / 10))
    assert metrics.counts == {
        "problems": 10,
        "solved_problems": 2,
        "samples": 10,
        "judged": 8,
        "accepted": 2,
        "not_judged": 2, "not_judged_repeats": 0, "not_judged_later_turns": 0,
        "memory_limit": 1,
        "tests": {
            "success": 5, "wrong_answer": 2, "runtime_error": 1, "timeout": 2, "memory_limit": 1, "compile_error": 3,
        },
        "final_status": {
            "success": 2, "empty_output": 1, "syntax_error": 1, "runtime_error": 2, "timeout": 1, "wrong_answer": 1,
            "api_error": 2,
        },
        "left_out_problems": {},
        "truncated": 0,
        "with_assumed_timeouts": 0,
        "without_token_count": 0,
        "cached": 0,
        "forgeable": 0, "forgeable_causes": {}, "judged_together": 0,
        "accepted_by_case": 0,
        "accepted_by_tolerance": 0,
        "with_several_tests": 6,
        "not_judged_causes": {"no sandbox answered": 1, "no verdict came": 1},
    }  # fmt: skip


def test_a_failed_test_beside_an_unjudged_one_is_judged_without_a_pass_ratio() -> None:
    metrics = measured([sample_result(0, 0, ["wrong_answer", "api_error"]), sample_result(1)])
    assert metrics.coverage == 1.0
    assert metrics.figures["accepted_at_1"].value == 0.5
    assert metrics.figures["wrong_answer_rate"].value == 0.5
    assert metrics.figures["api_error_rate"].value == 0.0
    assert metrics.figures["zero_reward_rate"].value == 0.0
    assert (metrics.figures["pass_ratio_mean"].value, metrics.figures["pass_ratio_mean"].n) == (1.0, 1)


def test_proportions_at_one_sample_have_wilsons_interval_and_means_the_bootstraps() -> None:
    figures = measured(greedy_run()).figures
    accepted = figures["accepted_at_1"]
    assert (accepted.low, accepted.high, accepted.method, accepted.n) == (*wilson(2, 8), "wilson", 8)
    assert {name for name, figure in figures.items() if figure.method == "wilson"} == {
        "accepted_at_1", "exec_success_rate", "syntax_error_rate", "runtime_error_rate", "timeout_rate",
        "wrong_answer_rate", "empty_output_rate", "memory_limit_rate", "guardrail_rate",
        "forgeable_rate", "extraction_fallback_rate", "api_error_rate", "zero_reward_rate",
    }  # fmt: skip
    assert figures["api_error_rate"].n == 10


def test_rates_over_several_samples_are_bootstrapped_over_problems() -> None:
    rows = [sample_result(p, s, ["success"] if s < p % 3 else ["timeout"]) for p in range(60) for s in range(2)]
    figures = measured(rows).figures
    assert figures["accepted_at_1"].method == figures["timeout_rate"].method == "bootstrap"
    assert figures["syntax_error_rate"].method == "plus_four"  # none: the bootstrap would be sure of it
    assert figures["p50_gen_time"].method == "order_statistics"
    assert (figures["accepted_at_1"].value, figures["accepted_at_1"].n) == (0.5, 60)


def test_a_problem_weighs_the_same_however_many_samples_were_judged() -> None:
    rows = [sample_result(0, s) for s in range(4)]
    rows += [sample_result(1, 0, ["wrong_answer"]), *(sample_result(1, s, None) for s in range(1, 4))]
    rows += [sample_result(2, s, None) for s in range(4)]
    metrics = measured(rows)
    assert (metrics.figures["accepted_at_1"].value, metrics.figures["accepted_at_1"].n) == (0.5, 2)
    assert metrics.figures["api_error_rate"].value == pytest.approx((0 + 0.75 + 1) / 3)
    assert metrics.coverage == 5 / 12
    low, high = metrics.accepted_bounds
    assert (low, high) == pytest.approx((1 / 3, (1 + 0.75 + 1) / 3))


def test_two_samples_per_problem_use_the_clustered_interval() -> None:
    metrics = measured([sample_result(problem, sample) for problem in range(5) for sample in range(2)])
    assert metrics.figures["accepted_at_1"].method == "plus_four"
    assert "pass_at_1" in metrics.figures


def test_pass_at_k_leaves_out_problems_with_too_few_judged_samples() -> None:
    rows = [sample_result(0, s, ["success"] if s == 0 else ["timeout"]) for s in range(4)]
    rows += [sample_result(1, s, ["success"] if s < 2 else None) for s in range(4)]
    metrics = measured(rows, MetricOptions(ks=(1, 2, 3)))
    found = {k: metrics.figures[f"pass_at_{k}"] for k in (1, 2, 3)}
    assert [found[k].value for k in (1, 2, 3)] == pytest.approx([(0.25 + 1) / 2, (0.5 + 1) / 2, 0.75])
    assert [found[k].n for k in (1, 2, 3)] == [2, 2, 1]
    assert metrics.counts["left_out_problems"] == {"pass_at_1": 0, "pass_at_2": 0, "pass_at_3": 1}


def test_pass_at_k_is_reported_where_there_are_several_samples_only() -> None:
    assert not any("pass_at" in name for name in measured(greedy_run(), MetricOptions(ks=(1,))).figures)
    rows = [sample_result(0, s) for s in range(12)]
    assert {name for name in measured(rows).figures if "pass_at" in name} == {"pass_at_1", "pass_at_10"}


def test_run_without_accepted_answers_has_null_per_solved_metrics() -> None:
    rows = [sample_result(p, 0, ["wrong_answer"]) for p in range(5)]
    metrics = measured(rows, MetricOptions(gpu_seconds=100.0, gpu_hour_price=1.0))
    per_solved = {name: figure for name, figure in metrics.figures.items() if "_per_solved" in name}
    assert len(per_solved) == 6
    assert {(f.value, f.low, f.high) for f in per_solved.values()} == {(None, None, None)}
    json.dumps(metrics.summary(), allow_nan=False)


def test_run_without_judged_answers_has_no_score() -> None:
    metrics = measured([sample_result(p, 0, None) for p in range(3)])
    assert metrics.coverage == 0.0
    assert metrics.accepted_bounds == (0.0, 1.0)
    assert metrics.figures["accepted_at_1"] == Figure(None, None, None, "wilson", 0)
    assert metrics.figures["pass_ratio_p50"] == Figure(None, None, None, "none", 0)
    assert metrics.figures["api_error_rate"].value == 1.0
    assert metrics.figures["throughput"].value is None


def test_without_gpus_or_a_price_their_figures_are_null() -> None:
    for options in (MetricOptions(), MetricOptions(gpu_seconds=0.0, gpu_hour_price=2.0)):
        figures = measured(greedy_run(), options).figures
        assert figures["gpu_seconds_per_solved"].value is None
        assert figures["money_per_solved"].value is None
    assert measured(greedy_run(), MetricOptions(gpu_seconds=9.0)).figures["money_per_solved"].value is None


def test_gpu_seconds_are_split_over_datasets_by_output_tokens_of_every_pass() -> None:
    rows = [sample_result(0, output_tokens=300), sample_result(0, repeat=1, output_tokens=300)]
    rows += [sample_result(0, dataset="mbpp_reg", output_tokens=200)]
    found = compute_metrics(rows, MetricOptions(gpu_seconds=80.0))
    shares = {name: metrics.figures["gpu_seconds_per_solved"].value for name, metrics in found.items()}
    assert shares == pytest.approx({"humaneval": 60.0, "mbpp_reg": 20.0})


@pytest.mark.parametrize("tokens", [None, 0])
def test_gpu_seconds_without_token_counts_are_not_split(tokens: int | None) -> None:
    rows = [sample_result(0, 0), sample_result(0, 0, dataset="mbpp_reg", output_tokens=tokens)]
    if tokens == 0:
        rows[0] = sample_result(0, 0, output_tokens=0)
    for metrics in compute_metrics(rows, MetricOptions(gpu_seconds=80.0)).values():
        assert metrics.figures["gpu_seconds_per_solved"].value is None


@pytest.mark.parametrize(
    ("tokens", "seconds"),
    [([100, 300], [15.0, 45.0]), ([100, 300, None], [10.0, 30.0, 20.0]), ([None, None], [30.0, 30.0]), ([0], [60.0])],
)
def test_gpu_seconds_are_split_over_problems_by_tokens(tokens: list[int | None], seconds: list[float]) -> None:
    totals = DatasetTotals()
    for place, count in enumerate(tokens):
        totals.add(sample_result(place, 0, output_tokens=count))
    assert ProblemColumns.from_totals(totals).gpu_seconds(60.0).tolist() == pytest.approx(seconds)


def test_unknown_token_counts_are_left_out_and_never_taken_for_zero() -> None:
    rows = [
        sample_result(0, output_tokens=100),
        sample_result(1, output_tokens=None),
        sample_result(2, output_tokens=50),
    ]
    metrics = measured(rows)
    assert (metrics.figures["avg_total_gen_tokens"].value, metrics.figures["avg_total_gen_tokens"].n) == (75.0, 2)
    assert (metrics.figures["tokens_per_solved"].value, metrics.figures["tokens_per_solved"].n) == (75.0, 2)
    assert metrics.counts["without_token_count"] == 1


def test_answers_made_elsewhere_have_no_tokens_no_times_and_no_throughput() -> None:
    row = with_changes(sample_result(output_tokens=None, gen_seconds=None), started_at=None)
    found = values(measured([row]).figures)
    for name in ("avg_total_gen_tokens", "avg_gen_time", "p95_gen_time", "throughput", "tokens_per_solved"):
        assert found[name] is None, name
    assert found["judge_time_per_solved"] == 0.5


def test_a_problems_tokens_and_seconds_are_sums_over_its_samples() -> None:
    rows = [sample_result(p, s, output_tokens=10 * (p + 1), gen_seconds=1.0) for p in range(2) for s in range(3)]
    found = values(measured(rows).figures)
    assert found["avg_total_gen_tokens"] == 45.0
    assert found["avg_gen_time"] == 3.0
    assert found["avg_total_judge_time"] == 1.5
    assert found["tokens_per_solved"] == 45.0


def test_throughput_counts_the_seconds_of_generation_and_judging() -> None:
    """Requests of 2 s at 10 to 14 s; tests of 0.75 s that end at 20, 25, ... 40 s; the waits do not count."""
    rows = [with_changes(sample_result(p, judged_after=20.0 + 5 * p), started_at=EPOCH + 10 + p) for p in range(5)]
    assert measured(rows).figures["throughput"].value == pytest.approx(5 / (6 + 5 * 0.75))
    assert measured(rows, MetricOptions(throughput=False)).figures["throughput"].value is None


def test_budget_run_reports_solved_within_budget() -> None:
    rows = [sample_result(0, 0, ["timeout"]), sample_result(0, 1)]
    rows += [sample_result(1, 0, ["timeout"]), sample_result(1, 1, ["timeout"]), sample_result(1, 2, ["timeout"])]
    rows += [sample_result(2, 0, ["timeout"]), sample_result(2, 1, None)]  # the judge cannot tell
    metrics = measured(rows, MetricOptions(budget=True))
    solved = metrics.figures["solved_within_budget"]
    assert (solved.value, solved.n, solved.method) == (0.5, 2, "plus_four")
    assert isinstance(left_out := metrics.counts["left_out_problems"], dict)
    assert left_out["solved_within_budget"] == 1
    assert "solved_within_budget" not in measured(rows).figures


def test_a_budget_leaves_out_problems_that_one_more_verdict_could_solve() -> None:
    rows = [
        *(sample_result(0, sample, ["success"] if sample else None) for sample in range(2)),  # solved, whatever
        *(sample_result(1, sample, ["wrong_answer"] if sample else None) for sample in range(2)),  # nobody can tell
        *(sample_result(problem, sample, ["wrong_answer"]) for problem in (2, 3, 4) for sample in range(2)),
    ]
    metrics = measured(rows, MetricOptions(budget=True))
    assert (metrics.figures["solved_within_budget"].value, metrics.figures["solved_within_budget"].n) == (0.25, 4)
    assert metrics.counts["left_out_problems"] == {"pass_at_1": 0, "solved_within_budget": 1}


def test_problems_without_a_verdict_to_compare_are_not_in_the_noise_floor() -> None:
    rows = [sample_result(problem, 0, repeat=repeat) for problem in range(3) for repeat in range(2)]
    rows[1] = sample_result(0, 0, None, repeat=1)
    flips = measured(rows).figures["flip_rate"]
    assert (flips.value, flips.n) == (0.0, 2)


def test_the_noise_floor_is_the_share_of_verdicts_that_flip() -> None:
    rows = [sample_result(p, 0, ["success"] if p < 4 else ["timeout"]) for p in range(8)]
    passes: dict[int, dict[int, list[str] | None]] = {1: {0: ["timeout"]}, 2: {0: ["timeout"], 5: ["success"], 6: None}}
    for repeat, changed in passes.items():
        for p in range(8):
            own = ["success"] if p < 4 else ["timeout"]
            rows.insert(0, sample_result(p, 0, changed.get(p, own), repeat=repeat, output_tokens=10**6))
    figures = measured(rows).figures
    assert figures["flip_rate"].value == pytest.approx((2 / 2 + 1 / 2) / 8)
    assert (figures["flip_rate"].n, figures["flip_rate"].method) == (8, "plus_four")
    assert figures["accepted_at_1"].value == 0.5
    assert figures["avg_total_gen_tokens"].value == 100.0
    assert "flip_rate" not in measured(greedy_run()).figures


def test_one_noise_floor_pass_is_a_proportion() -> None:
    rows = [sample_result(p, 0, repeat=r) for p in range(9) for r in (0, 1)]
    rows += [sample_result(9, 0), sample_result(9, 0, ["timeout"], repeat=1)]
    flips = measured(rows).figures["flip_rate"]
    assert (flips.value, flips.low, flips.high, flips.method) == (0.1, *wilson(1, 10), "wilson")


def test_cached_forgeable_truncated_and_uncounted_answers_are_counted() -> None:
    rows = [sample_result(problem, 0) for problem in range(6)]
    for row in rows[:1]:
        assert row.verdict is not None
        row.verdict.cached = True
    for row in rows[1:3]:
        assert row.verdict is not None
        row.verdict.forgeable = True
    rows[3:] = [with_changes(row, finish_reason="length", output_tokens=None) for row in rows[3:]]
    counts = measured(rows).counts
    assert {name: counts[name] for name in ("cached", "forgeable", "truncated", "without_token_count")} == {
        "cached": 1, "forgeable": 2, "truncated": 3, "without_token_count": 3,
    }  # fmt: skip


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="P/00003 sample 1 was given twice"):
        measured([sample_result(3, 1), sample_result(3, 1)])


def test_datasets_keep_the_order_of_the_run() -> None:
    rows = [sample_result(0, dataset=name) for name in ("mbpp_reg", "humaneval", "codecontests_valid")]
    assert list(compute_metrics(rows, MetricOptions())) == ["mbpp_reg", "humaneval", "codecontests_valid"]


def test_metrics_of_several_datasets_are_separate() -> None:
    rows = [sample_result(0), sample_result(0, 0, ["timeout"], dataset="mbpp_reg")]
    found = compute_metrics(rows, MetricOptions())
    assert list(found) == ["humaneval", "mbpp_reg"]
    assert [metrics.figures["accepted_at_1"].value for metrics in found.values()] == [1.0, 0.0]


def test_finish_dataset_sampled_for_training_has_counts_and_no_metrics() -> None:
    found = measured(greedy_run(), MetricOptions(sampled=frozenset({"humaneval"})))
    assert (found.figures, found.counts["judged"]) == ({}, 8)
    assert not found.complete
    assert measured(greedy_run(), MetricOptions(sampled=frozenset({"mbpp"}))).figures


def test_rates_of_guardrails_and_of_forgeable_verdicts_are_shares_of_the_judged() -> None:
    results = [sample_result(number, 0, ["success"]) for number in range(4)]
    for result, guardrails, forgeable, extraction in (
        (results[0], [pb.GUARDRAIL_NO_CODE_FOUND, pb.GUARDRAIL_ANSWER_CUT], False, pb.EXTRACTION_METHOD_WHOLE_TEXT),
        (results[1], [], True, pb.EXTRACTION_METHOD_UNTAGGED_BLOCK),
        (results[2], [], False, pb.EXTRACTION_METHOD_VERBATIM),
    ):
        assert result.verdict is not None
        result.verdict.guardrails.extend(guardrails)
        result.verdict.forgeable = forgeable
        result.verdict.extraction = extraction
    found = values(measured(results).figures)
    rates = ("guardrail_rate", "forgeable_rate", "extraction_fallback_rate")
    assert [found[name] for name in rates] == [1 / 4, 1 / 4, 2 / 4]
