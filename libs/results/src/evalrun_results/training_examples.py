"""A run's completions as training examples: accepted completions, pairs, and all of a problem's. Pure.

A completion that was not judged is no example; a result that can be forged proves no right program. Only first turns
count: the feedback before later turns is not stored.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from evalrun_results.samples import SampleResult

ProblemKey = tuple[str, str]
"""Dataset and problem."""


@dataclass(slots=True)
class Answers:
    """The completions of a problem, by verdict, in the order of their samples."""

    accepted: list[SampleResult] = field(default_factory=list)
    """Each program once."""
    rejected: list[SampleResult] = field(default_factory=list)
    """Each program once."""
    every: list[SampleResult] = field(default_factory=list)
    """All completions, including those that are not judged and those that repeat a program."""

    def pairs(self, limit: int) -> list[tuple[SampleResult, SampleResult]]:
        """Return at most `limit` pairs of chosen and rejected completions; no completion is in two pairs."""
        return list(zip(self.accepted, self.rejected, strict=False))[:limit]


def answers_by_problem(results: Iterable[SampleResult]) -> Mapping[ProblemKey, Answers]:
    """Return the answers of each problem."""
    found: dict[ProblemKey, Answers] = {}
    seen: set[tuple[ProblemKey, str]] = set()
    for result in sorted(results, key=lambda each: (each.dataset, each.problem_id, each.sample)):
        if result.turn or result.repeat:
            continue
        key = (result.dataset, result.problem_id)
        answers = found.setdefault(key, Answers())
        answers.every.append(result)
        program = _program(result)
        if not result.judged or result.verdict is None or (key, program) in seen:
            continue
        if result.accepted and not result.verdict.forgeable:
            answers.accepted.append(result)
        elif result.accepted is False:
            answers.rejected.append(result)
        else:
            continue
        seen.add((key, program))
    return found


def _program(result: SampleResult) -> str:
    """Return the program of a completion without blank lines and trailing blanks; its text if no program was found."""
    text = (result.verdict.code if result.verdict is not None else "") or result.response
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())
