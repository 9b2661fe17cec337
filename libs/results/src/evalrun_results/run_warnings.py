"""Causes of misleading figures although every answer was judged: empty answers, packages the sandbox lacks. Pure.

Warnings stand in summary.json, in the report, in the run's status and on the terminal. They change no verdict.

They are made of the tests' causes. Verdicts of older judges have no cause, and lead to no warning; summary.json's
`not_judged_causes` still counts their reason.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from evalrun_client.grader import scoreless_test
from evalrun_proto.judge.v1 import judge_pb2 as pb
from evalrun_results.samples import SampleResult

EMPTY_SHARE: Final = 0.9
"""Share of completions without a program from which a dataset's metrics describe the setup rather than the model."""
MAX_PACKAGES: Final = 5
MAX_SCORELESS: Final = 10
"""Maximum number of named reasons for which graders gave no score; summary.json's not_judged_causes has more."""

FAILED_RUNNING: Final = (pb.FINAL_STATUS_RUNTIME_ERROR, pb.FINAL_STATUS_WRONG_ANSWER)


@dataclass
class _Answers:
    """Counts of a dataset's completions."""

    count: int = 0
    without_program: int = 0
    blank: int = 0
    """Completions without any text, among those without a program."""
    cut: int = 0
    """Completions cut at the token limit, among those without a program."""


class _Failure(NamedTuple):
    """Reason for which completions are not judged. Equal reasons are reported once."""

    reason: str
    lacks_package: bool


@dataclass
class BrokenTests:
    """Tests that fail by themselves, so that no completion can pass them, by their error; and graders that fail."""

    _scoreless: Counter[_Failure] = field(default_factory=Counter)
    """Completions without a grader's score."""
    _problems: dict[_Failure, dict[tuple[str, str], None]] = field(default_factory=dict)

    def add(self, dataset: str, problem_id: str, verdict: pb.Verdict) -> None:
        """Add a verdict."""
        if verdict.judged:
            return
        scoreless = scoreless_test(verdict)
        if scoreless is not None:
            failure = _make_failure(scoreless)
            if len(self._scoreless) < MAX_SCORELESS or self._scoreless[failure]:
                self._scoreless[failure] += 1
        for test in verdict.tests:
            if test.cause == pb.TEST_CAUSE_BROKEN_TEST:
                self._problems.setdefault(_make_failure(test), {})[dataset, problem_id] = None
                return

    def first_lines(self) -> list[str]:
        """Return a line for each failure. Its text does not depend on the number of problems."""
        scoreless = [f"answers are not judged: {failure.reason}{_remedy(failure)}" for failure in self._scoreless]
        return [self._line(failure, next(iter(found))) for failure, found in self._problems.items()] + scoreless

    def lines(self) -> list[str]:
        """Return a line for each failure, with the number of problems."""
        return [
            self._line(failure, next(iter(found))) + (f" ({len(found)} problems)" if len(found) > 1 else "")
            for failure, found in self._problems.items()
        ] + [
            f"{count} answer{'s are' if count > 1 else ' is'} not judged: {failure.reason}{_remedy(failure)}"
            for failure, count in self._scoreless.most_common()
        ]

    def _line(self, failure: _Failure, problem: tuple[str, str]) -> str:
        remedy = "correct the test"
        if failure.lacks_package:
            remedy = "give it the package with --packages DIR, or correct the test"
        return f"{' '.join(problem)} cannot be judged: {failure.reason}. Data error: {remedy}"


def _make_failure(test: pb.TestResult) -> _Failure:
    return _Failure(test.reason, bool(test.missing_module))


def _remedy(failure: _Failure) -> str:
    """Return the remedy for a grader that lacks a package; empty for other failures."""
    if not failure.lacks_package:
        return ""
    return ". Give the sandbox the package: --packages DIR, or an image that has it (docs/graders.md)"


@dataclass
class RunWarnings:
    """Collects warnings from results."""

    _answers: dict[str, _Answers] = field(default_factory=dict)
    _packages: Counter[str] = field(default_factory=Counter)
    _broken: BrokenTests = field(default_factory=BrokenTests)

    def add(self, result: SampleResult) -> None:
        """Add a judged completion of the run itself. Others are ignored."""
        if result.repeat or result.verdict is None:
            return
        self._broken.add(result.dataset, result.problem_id, result.verdict)
        answers = self._answers.get(result.dataset)
        if answers is None:
            answers = self._answers[result.dataset] = _Answers()
        answers.count += 1
        if result.verdict.final_status == pb.FINAL_STATUS_EMPTY_OUTPUT:
            answers.without_program += 1
            answers.blank += not result.response.strip()
            answers.cut += result.finish_reason == "length"
        elif (package := find_missing_package(result.verdict)) is not None:
            self._packages[package] += 1

    def lines(self) -> list[str]:
        """Return the warnings, one line each."""
        return [*self._broken.lines(), *self._empty_lines(), *self._package_lines()]

    def _empty_lines(self) -> Iterator[str]:
        for name, answers in self._answers.items():
            if answers.without_program >= EMPTY_SHARE * answers.count:
                shares = f"{answers.blank} have no text at all, {answers.cut} were cut at the token limit"
                yield (
                    f"{name}: {answers.without_program} of {answers.count} answers hold no program ({shares}). Likely "
                    "causes: the server puts the text elsewhere (content is null beside reasoning_content or "
                    "tool_calls), thoughts use up maxNewTokens, or the chat template is not the model's"
                )

    def _package_lines(self) -> Iterator[str]:
        for package, count in self._packages.most_common(MAX_PACKAGES):
            answers = "1 answer imports" if count == 1 else f"{count} answers import"
            yield (
                f"{answers} {package}, which this sandbox lacks: judged as runtime errors. If answers may use it, give "
                "the sandbox a directory with the package: --packages DIR"
            )
        if len(self._packages) > MAX_PACKAGES:
            yield f"answers import {len(self._packages) - MAX_PACKAGES} more packages that this sandbox lacks"


def find_missing_package(verdict: pb.Verdict) -> str | None:
    """Return the package whose absence failed the program, or None. The program could have faked it."""
    if verdict.accepted or verdict.final_status not in FAILED_RUNNING:
        return None
    # Iterating over a message's field takes three times as long.
    for test in verdict.tests[:]:
        if test.status == pb.TEST_STATUS_RUNTIME_ERROR and test.missing_module:
            return test.missing_module
    return None
