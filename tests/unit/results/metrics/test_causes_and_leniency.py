"""Why answers were not judged, and what acceptances rest on: in counts, rows, stored runs, the report."""

from dataclasses import replace
from pathlib import Path

from builders.results.samples import compute_metrics, sample_result
from builders.results.stored_runs import write_run
from builders.results.web_page import Page

from evalrun_results.metrics.accumulator import LISTED_CAUSES, MetricOptions
from evalrun_results.metrics.problem_totals import MAX_CAUSES, NO_REASON, OTHER_CAUSES, DatasetTotals
from evalrun_results.outputs.result_row import result_row
from evalrun_results.samples import SampleResult
from evalrun_results.stored_run import StoredRun

PATCHED = "api_error: the test uses patch, which does not reach the program"
CRASHED = "api_error: the checker ended with exit code 1, which is no answer"


def not_judged(problem: int, reason: str) -> SampleResult:
    return replace(sample_result(problem, 0, ["api_error"]), not_judged_reason=reason)


def accepted(problem: int, *rests_on: str) -> SampleResult:
    result = sample_result(problem)
    assert result.verdict is not None
    result.verdict.rests_on.extend(rests_on)
    return result


def results() -> list[SampleResult]:
    causes = [not_judged(0, CRASHED), not_judged(1, PATCHED), not_judged(2, PATCHED), not_judged(3, "")]
    return [*causes, accepted(4, "case"), accepted(5, "case", "tolerance"), accepted(6)]


def test_causes_are_counted_the_most_frequent_first() -> None:
    counts = compute_metrics(results(), MetricOptions())["humaneval"].counts
    causes = counts["not_judged_causes"]
    assert isinstance(causes, dict)
    assert list(causes.items()) == [(PATCHED, 2), (CRASHED, 1), (NO_REASON, 1)]


def test_rare_causes_are_counted_together() -> None:
    many = [not_judged(number, f"cause {number}") for number in range(LISTED_CAUSES + 3)]
    causes = compute_metrics(many, MetricOptions())["humaneval"].counts["not_judged_causes"]
    assert isinstance(causes, dict)
    assert len(causes) == LISTED_CAUSES + 1
    assert causes[OTHER_CAUSES] == 3


def test_a_million_different_causes_take_no_more_room() -> None:
    totals = DatasetTotals()
    for number in range(MAX_CAUSES + 7):
        totals.add(not_judged(number, f"cause {number}"))
    assert len(totals.causes) == MAX_CAUSES + 1
    assert totals.causes[OTHER_CAUSES] == 7


def test_acceptances_that_rest_on_case_or_tolerance_are_counted() -> None:
    counts = compute_metrics(results(), MetricOptions())["humaneval"].counts
    assert (counts["accepted_by_case"], counts["accepted_by_tolerance"]) == (2, 1)
    assert [result_row(result).rests_on for result in results()[4:]] == [["case"], ["case", "tolerance"], []]


def test_stored_run_and_report_show_causes_and_leniencies(tmp_path: Path) -> None:
    write_run(tmp_path, results())
    totals = StoredRun.open(str(tmp_path)).totals()["humaneval"]
    assert totals.causes == {PATCHED: 2, CRASHED: 1, NO_REASON: 1}
    assert (totals.flags["accepted_by_case"], totals.flags["accepted_by_tolerance"]) == (2, 1)
    text = Page.of((tmp_path / "report.html").read_text()).text
    assert f"humaneval: {PATCHED} (2)" in text
    assert "Accepted only because letters compare without case: 2" in text
    assert "Accepted only within a tolerance of numbers: 1" in text
