"""Samples that another comparator would have decided otherwise, gathered from the stream of results. Pure."""

from bisect import insort
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from evalrun_results.samples import JsonObject, SampleResult

EXAMPLES: Final = 20
"""Maximum examples per dataset: the first by problem and sample, whatever the stream's order."""


@dataclass(slots=True)
class Disagreements:
    """Disagreements of comparators in a dataset."""

    would_accept: Counter[str] = field(default_factory=Counter)
    """Rejected completions that a comparator would have accepted, by comparator."""
    would_reject: Counter[str] = field(default_factory=Counter)
    answers: int = 0
    examples: list[tuple[str, int, bool, tuple[str, ...]]] = field(default_factory=list)
    """Problem, sample, accepted, comparators."""

    @property
    def comparators(self) -> list[str]:
        """Every comparator that disagrees."""
        return sorted({*self.would_accept, *self.would_reject})

    def as_json(self, accepted: int) -> JsonObject:
        """Return the dataset's `comparators` of summary.json. `accepted`: its accepted answers, as decided."""
        return {
            "changed_answers": self.answers,
            "otherwise": {
                name: {
                    "would_accept": self.would_accept[name],
                    "would_reject": self.would_reject[name],
                    "accepted": accepted + self.would_accept[name] - self.would_reject[name],
                }
                for name in self.comparators
            },
            "examples": [
                {"problem_id": problem, "sample": sample, "accepted": decided, "comparators": list(names)}
                for problem, sample, decided, names in self.examples
            ],
        }


@dataclass(slots=True)
class DisagreementLog:
    """Collects disagreements from results."""

    datasets: dict[str, Disagreements] = field(default_factory=dict)

    def add(self, result: SampleResult) -> None:
        """Add a result. Noise-floor repeats and later turns are ignored."""
        verdict = result.verdict
        if verdict is None or not verdict.disagreeing_comparators or not result.judged or result.repeat or result.turn:
            return
        found = self.datasets.setdefault(result.dataset, Disagreements())
        found.answers += 1
        (found.would_reject if result.accepted else found.would_accept).update(verdict.disagreeing_comparators)
        names = tuple(verdict.disagreeing_comparators)
        insort(found.examples, (result.problem_id, result.sample, bool(result.accepted), names))
        del found.examples[EXAMPLES:]
