"""Tests that were stopped early after too many timeouts: what figures, rows and the report say of them."""

from pathlib import Path

import pytest
from builders.results.samples import compute_metrics, sample_result, verdict, with_changes
from builders.results.stored_runs import write_run
from builders.results.web_page import Page

from evalrun_results.metrics.accumulator import MetricOptions
from evalrun_results.outputs.qa_logs import error_breakdown
from evalrun_results.outputs.result_row import result_row
from evalrun_results.samples import SampleResult
from evalrun_results.stored_run import StoredRun


def with_assumed(problem: int, statuses: list[str]) -> SampleResult:
    made, assumed = verdict(statuses), statuses.count("assumed_timeout")
    made.assumed_timeouts = assumed
    made.pass_ratio_high = (statuses.count("success") + assumed) / len(statuses)
    return with_changes(sample_result(problem), verdict=made)


def two_problems() -> list[SampleResult]:
    late = ["timeout"] * 3 + ["success"] * 3 + ["assumed_timeout"] * 2
    return [with_assumed(0, late), sample_result(1, 0, ["success"])]


def test_the_pass_ratio_has_an_upper_bound_beside_its_interval() -> None:
    metrics = compute_metrics(two_problems(), MetricOptions())["humaneval"]
    mean = metrics.figures["pass_ratio_mean"]
    assert (mean.value, mean.high_bound) == pytest.approx(((0.375 + 1) / 2, (0.625 + 1) / 2))
    assert mean.as_json()["high_bound"] == mean.high_bound
    assert metrics.figures["pass_ratio_p50"].high_bound == pytest.approx((0.625 + 1) / 2)
    assert metrics.figures["accepted_at_1"].high_bound is None
    assert metrics.counts["with_assumed_timeouts"] == 1


def test_run_without_assumed_timeouts_has_no_upper_bound() -> None:
    metrics = compute_metrics([sample_result(0), sample_result(1)], MetricOptions())["humaneval"]
    assert "high_bound" not in metrics.figures["pass_ratio_mean"].as_json()
    assert metrics.counts["with_assumed_timeouts"] == 0


def test_rows_carry_the_count_and_the_bound() -> None:
    late, quick = (result_row(result) for result in two_problems())
    assert (late.pass_ratio, late.pass_ratio_high, late.assumed_timeouts) == (0.375, 0.625, 2)
    assert (quick.pass_ratio, quick.pass_ratio_high, quick.assumed_timeouts) == (1.0, 1.0, 0)
    assert late.final_status == "timeout"
    assert [test.verl_code for test in late.tests] == [-3] * 3 + [1] * 3 + [-3] * 2


def test_assumed_timeouts_count_as_timeouts_in_the_error_breakdown() -> None:
    assert error_breakdown(two_problems()[0].verdict)["timeout"] == 5


def test_stored_run_and_report_show_assumed_timeouts(tmp_path: Path) -> None:
    write_run(tmp_path, two_problems())
    totals = StoredRun.open(str(tmp_path)).totals()["humaneval"]
    assert totals.flags["with_assumed_timeouts"] == 1
    assert totals.problems["P/00000"].pass_ratio_high_sum == 0.625
    text = Page.of((tmp_path / "report.html").read_text()).text.replace("\u00a0", " ")
    assert "81.2 % had every assumed timeout passed" in text
    assert "Answers with tests that were stopped early, after three timeouts: 1" in text
