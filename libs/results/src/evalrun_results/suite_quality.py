"""Quality of a problem's tests, measured with programs whose correctness is known. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from evalrun_proto.judge.v1 import judge_pb2 as pb
from evalrun_results.metrics.intervals import wilson
from evalrun_results.samples import JsonObject, SampleResult

PASSED: Final = pb.TEST_STATUS_SUCCESS


@dataclass(frozen=True, slots=True)
class KnownProgram:
    """Result of the tests for a program."""

    is_correct: bool | None
    """None for a mutant of unknown correctness: an accepted mutant is wrong, or equivalent to the reference."""
    accepted: bool
    failed: frozenset[int]
    """Tests that it did not pass."""
    tests: int
    printed_otherwise: bool
    """Whether the program failed by wrong output only: it ran to its end."""
    mutant: str = ""
    """The change of a mutant."""


@dataclass(frozen=True, slots=True)
class SuiteQuality:
    """Known facts about a problem's tests."""

    dataset: str
    problem_id: str
    tests: int
    correct: int
    correct_accepted: int
    wrong: int
    wrong_rejected: int
    idle_tests: tuple[int, ...]
    """Tests without which the others still reject every rejected wrong program; empty if there are none."""
    rejected_for_output: int
    """Correct programs rejected only for their output: other outputs may be valid, and a checker needed."""
    mutants: int = 0
    survivors: tuple[str, ...] = ()
    """Changes of the mutants that pass."""
    wrong_mutants: tuple[str, ...] = ()
    """Changes of the mutants known to be wrong that pass."""

    @property
    def accepts_wrong(self) -> bool:
        """Whether a wrong program passes."""
        return self.wrong_rejected < self.wrong

    @property
    def rejects_correct(self) -> bool:
        """Whether a correct program fails."""
        return self.correct_accepted < self.correct

    def as_json(self) -> JsonObject:
        """Return it as plain values; each rate is null if no program of its kind was judged."""
        return {
            "dataset": self.dataset,
            "problem_id": self.problem_id,
            "tests": self.tests,
            "true_positive_rate": _rate(self.correct_accepted, self.correct),
            "true_negative_rate": _rate(self.wrong_rejected, self.wrong),
            "accepts_wrong": self.accepts_wrong,
            "rejects_correct": self.rejects_correct,
            "needs_checker": self.rejected_for_output > 0,
            "idle_tests": list(self.idle_tests),
            "mutants_rejected": _rate(self.mutants - len(self.survivors), self.mutants),
            "survivors": list(self.survivors),
            "wrong_mutants": list(self.wrong_mutants),
        }


def known_program(result: SampleResult, *, is_correct: bool | None, mutant: str = "") -> KnownProgram | None:
    """Return the result of a program, or None if it was not judged."""
    if result.verdict is None or not result.judged:
        return None
    failed = frozenset(place for place, test in enumerate(result.verdict.tests) if test.status != PASSED)
    kinds = {result.verdict.tests[place].status for place in failed}
    otherwise = kinds == {pb.TEST_STATUS_WRONG_ANSWER}
    return KnownProgram(is_correct, bool(result.accepted), failed, len(result.verdict.tests), otherwise, mutant)


def suite_qualities(programs: Mapping[tuple[str, str], Sequence[KnownProgram]]) -> list[SuiteQuality]:
    """Return the quality of each problem's tests.

    Args:
        programs: by dataset and problem.
    """
    found = []
    for (dataset, problem_id), judged in programs.items():
        changed = [program for program in judged if program.is_correct is None]
        correct = [program for program in judged if program.is_correct]
        wrong = [program for program in judged if program.is_correct is False]
        tests = max((program.tests for program in judged), default=0)
        rejecting = [program.failed for program in wrong + changed if not program.accepted and program.failed]
        found.append(
            SuiteQuality(
                dataset,
                problem_id,
                tests,
                correct=len(correct),
                correct_accepted=sum(program.accepted for program in correct),
                wrong=len(wrong),
                wrong_rejected=sum(not program.accepted for program in wrong),
                idle_tests=idle_tests(rejecting, tests),
                rejected_for_output=sum(program.printed_otherwise for program in correct if not program.accepted),
                mutants=len(changed),
                survivors=tuple(program.mutant for program in changed if program.accepted),
                wrong_mutants=tuple(program.mutant for program in wrong if program.accepted and program.mutant),
            )
        )
    return found


def idle_tests(failed: Iterable[frozenset[int]], tests: int) -> tuple[int, ...]:
    """Return tests that can be removed together while the remaining tests still reject each of these programs.

    Greedy set cover: repeatedly keeps the test that rejects most of the remaining programs, on a tie the earlier test.

    Args:
        failed: the tests that each rejected program fails.
        tests: how many there are.
    """
    left = [program for program in failed if program]
    if not left:
        return ()
    kept: set[int] = set()
    while left:
        rejects: defaultdict[int, int] = defaultdict(int)
        for program in left:
            for test in program:
                rejects[test] += 1
        best = min(rejects, key=lambda test: (-rejects[test], test))
        kept.add(best)
        left = [program for program in left if best not in program]
    return tuple(test for test in range(tests) if test not in kept)


def _rate(successes: int, trials: int) -> JsonObject | None:
    if not trials:
        return None
    low, high = wilson(successes, trials)
    return {"value": successes / trials, "low": low, "high": high, "programs": trials}
