"""What makes figures mislead is said in one line each, and nothing else is."""

from collections.abc import Sequence

import pytest
from builders.results.samples import sample_result, with_changes

from evalrun_proto.judge.v1 import judge_pb2 as pb
from evalrun_results.run_warnings import BrokenTests, RunWarnings, find_missing_package
from evalrun_results.samples import SampleResult


def lines(results: Sequence[SampleResult]) -> list[str]:
    warnings = RunWarnings()
    for result in results:
        warnings.add(result)
    return warnings.lines()


def without_program(problem: int, response: str = "", finish_reason: str = "stop") -> SampleResult:
    empty = sample_result(problem, 0, ["wrong_answer"], empty=True)
    return with_changes(empty, response=response, finish_reason=finish_reason)


def failed(package: str = "", *, status: str = "RUNTIME_ERROR") -> pb.Verdict:
    test = pb.TestResult(status=pb.TestStatus.Value(f"TEST_STATUS_{status}"), reason="any", missing_module=package)
    return pb.Verdict(final_status=pb.FinalStatus.Value(f"FINAL_STATUS_{status}"), judged=True, tests=[test])


def test_answers_that_are_all_empty_are_warned_of_with_the_likely_causes() -> None:
    results = [without_program(0), without_program(1, "<think>hm", "length"), without_program(2, "I cannot help.")]
    [line] = lines(results)
    assert line.startswith(
        "humaneval: 3 of 3 answers hold no program (1 have no text at all, 1 were cut at the token limit)"
    )
    assert "content is null" in line
    assert "maxNewTokens" in line


@pytest.mark.parametrize(("empty", "warned"), [(10, True), (9, True), (8, False), (0, False)])
def test_nine_empty_answers_of_ten_still_give_a_warning(empty: int, warned: bool) -> None:
    results = [without_program(number) if number < empty else sample_result(number, 0) for number in range(10)]
    assert bool(lines(results)) is warned


def test_noise_floor_repeats_and_answers_without_a_verdict_give_no_warning() -> None:
    assert lines([with_changes(without_program(0), repeat=1), with_changes(sample_result(1), verdict=None)]) == []


@pytest.mark.parametrize(
    ("verdict", "package"),
    [
        (failed("numpy"), "numpy"),
        (failed(), None),
        (failed("numpy", status="TIMEOUT"), None),
        (pb.Verdict(final_status=pb.FINAL_STATUS_SUCCESS, judged=True, accepted=True), None),
    ],
)
def test_missing_package_is_the_one_that_a_runtime_error_names(verdict: pb.Verdict, package: str | None) -> None:
    assert find_missing_package(verdict) == package


def test_packages_that_the_sandbox_lacks_are_counted_and_the_way_out_is_named() -> None:
    results = [with_changes(sample_result(number), verdict=failed("numpy")) for number in range(12)]
    results += [with_changes(sample_result(20), verdict=failed("scipy"))]
    results += [sample_result(21)]
    numpy, scipy = lines(results)
    assert numpy.startswith("12 answers import numpy, which this sandbox lacks")
    assert scipy.startswith("1 answer imports scipy, which this sandbox lacks")
    assert "--packages DIR" in numpy


def test_no_more_than_a_few_packages_are_named() -> None:
    packages = [f"made_up_{number}" for number in range(8)]
    found = lines([with_changes(sample_result(number), verdict=failed(name)) for number, name in enumerate(packages)])
    assert len(found) == 6
    assert found[-1] == "answers import 3 more packages that this sandbox lacks"


def broken(reason: str, cause: pb.TestCause.ValueType = pb.TEST_CAUSE_BROKEN_TEST, package: str = "") -> pb.Verdict:
    test = pb.TestResult(status=pb.TEST_STATUS_API_ERROR, reason=reason, cause=cause, missing_module=package)
    return pb.Verdict(final_status=pb.FINAL_STATUS_API_ERROR, judged=False, tests=[test])


def test_a_test_that_fails_by_itself_is_a_data_error_with_its_problem_and_its_import() -> None:
    numpy = broken("any words", package="numpy")
    results = [
        with_changes(sample_result(f"P/{number}", sample), verdict=numpy) for number in (7, 8) for sample in (0, 1)
    ]
    results += [
        with_changes(sample_result("P/9"), verdict=broken("the test itself fails: old", pb.TEST_CAUSE_UNSPECIFIED))
    ]
    [line] = lines(results)
    assert line.startswith("humaneval P/7 cannot be judged: any words. ")
    assert line.endswith("Data error: give it the package with --packages DIR, or correct the test (2 problems)")


def test_warning_of_broken_tests_stays_the_same_when_more_problems_fail() -> None:
    found = BrokenTests()
    failing = broken("the test itself fails: NameError: name 'x' is not defined")
    found.add("ds", "a", failing)
    first = found.first_lines()
    found.add("ds", "b", failing)
    assert found.first_lines() == first
    assert first[0].endswith("NameError: name 'x' is not defined. Data error: correct the test")
