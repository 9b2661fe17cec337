"""How good tests are, told by programs whose correctness is known."""

import random

import pytest
from builders.results.samples import sample_result

from evalrun_results.suite_quality import KnownProgram, SuiteQuality, idle_tests, known_program, suite_qualities


def program(*statuses: str, is_correct: bool) -> KnownProgram:
    known = known_program(sample_result(0, 0, list(statuses)), is_correct=is_correct)
    assert known is not None
    return known


def quality(*programs: KnownProgram) -> SuiteQuality:
    (found,) = suite_qualities({("contest", "sum"): programs})
    return found


def test_good_suite_accepts_correct_and_rejects_wrong_programs() -> None:
    found = quality(
        program("success", "success", is_correct=True),
        program("wrong_answer", "success", is_correct=False),
        program("success", "timeout", is_correct=False),
    )
    assert (found.accepts_wrong, found.rejects_correct, found.idle_tests) == (False, False, ())
    assert found.as_json()["true_negative_rate"] == pytest.approx(
        {"value": 1.0, "low": 0.342, "high": 1.0, "programs": 2}, abs=1e-3
    )


def test_a_wrong_program_that_passes_and_a_right_one_that_fails_are_faults() -> None:
    found = quality(program("success", is_correct=False), program("runtime_error", is_correct=True))
    assert (found.accepts_wrong, found.rejects_correct, found.rejected_for_output) == (True, True, 0)


@pytest.mark.parametrize(
    ("statuses", "otherwise"),
    [(["wrong_answer", "success"], 1), (["wrong_answer", "timeout"], 0), (["runtime_error", "success"], 0)],
)
def test_a_right_program_rejected_for_its_output_alone_asks_for_a_checker(statuses: list[str], otherwise: int) -> None:
    assert quality(program(*statuses, is_correct=True)).rejected_for_output == otherwise


def test_not_judged_programs_are_left_out_of_the_quality() -> None:
    assert known_program(sample_result(0, 0, ["api_error"]), is_correct=True) is None
    assert known_program(sample_result(0, 0, None), is_correct=True) is None
    only_right = quality(program("success", is_correct=True))
    assert only_right.as_json()["true_negative_rate"] is None
    assert only_right.idle_tests == ()


def test_a_mutant_that_passes_is_named_and_is_no_wrong_program() -> None:
    changed = [
        known_program(sample_result(0, 0, [status, "success"]), is_correct=None, mutant=f"line {number}")
        for number, status in enumerate(["wrong_answer", "success", "timeout"])
    ]
    found = quality(*(each for each in changed if each is not None))
    assert (found.mutants, found.survivors, found.accepts_wrong, found.idle_tests) == (3, ("line 1",), False, (1,))
    rate = found.as_json()["mutants_rejected"]
    assert isinstance(rate, dict)
    assert rate["value"] == pytest.approx(2 / 3)
    assert rate["programs"] == 3
    assert found.as_json()["true_negative_rate"] is None


def test_a_mutant_known_to_be_wrong_is_a_wrong_program_with_a_name() -> None:
    passing = known_program(sample_result(0, 0, ["success"]), is_correct=False, mutant="line 1")
    failing = known_program(sample_result(0, 1, ["timeout"]), is_correct=False, mutant="line 2")
    assert passing is not None
    assert failing is not None
    found = quality(passing, failing)
    assert (found.accepts_wrong, found.wrong, found.wrong_rejected, found.mutants) == (True, 2, 1, 0)
    assert found.as_json()["wrong_mutants"] == ["line 1"]


def test_idle_tests_are_those_that_reject_no_further_program() -> None:
    assert idle_tests([frozenset({0, 1}), frozenset({1, 2})], 4) == (0, 2, 3)
    assert idle_tests([frozenset({0}), frozenset({1, 2})], 3) == (2,)
    assert idle_tests([], 3) == ()


def test_without_its_idle_tests_a_suite_rejects_the_same_programs() -> None:
    chance = random.Random(1)
    for _ in range(200):
        failed = [frozenset(chance.sample(range(8), chance.randint(1, 4))) for _ in range(chance.randint(1, 9))]
        idle = set(idle_tests(failed, 8))
        assert all(tests - idle for tests in failed)


def test_suites_weakened_to_half_their_tests_are_found() -> None:
    """Of each problem's wrong programs one fails in a single test: half of the suites lose that test."""
    chance, weakened, programs = random.Random(2), set(), {}
    for number in range(200):
        kept = set(range(10))
        if number % 2:
            weakened.add(f"p{number}")
            kept = set(range(5))
        wrong = [{chance.randrange(5)} for _ in range(3)] + [{9 if number % 4 < 2 else chance.randrange(5)}]
        rows = [["success"] * len(kept)]
        rows += [["wrong_answer" if test in failing else "success" for test in sorted(kept)] for failing in wrong]
        judged = [program(*row, is_correct=place == 0) for place, row in enumerate(rows)]
        programs["contest", f"p{number}"] = judged
    found = {each.problem_id for each in suite_qualities(programs) if each.accepts_wrong}
    assert found == {name for name in weakened if int(name[1:]) % 4 < 2}, "those whose telling test is gone, no other"
