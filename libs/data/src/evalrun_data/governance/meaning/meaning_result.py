"""The findings of the stage for meaning, and the decision about each pair. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from evalrun_data.governance.meaning.pair_judge import PairAnswer

FoundBy = Literal["embedder", "judge"]
WhyOpen = Literal["undecided", "not asked"]
COSINE_DIGITS: Final = 4
"""Digits of a cosine that are kept: further digits depend on the machine, and the audit's hash must not."""


@dataclass(frozen=True, slots=True)
class CandidatePair:
    """A problem and the one of another dataset that is nearest to it."""

    first: str
    """`DATASET/PROBLEM_ID`."""
    second: str
    cosine: float


@dataclass(frozen=True, slots=True)
class MeaningPair:
    """A pair that is taken for the same problem."""

    pair: CandidatePair
    found_by: FoundBy
    jaccard: float = 0.0
    containment: float = 0.0


@dataclass(frozen=True, slots=True)
class OpenPair:
    """A pair that the judge was to decide about and did not."""

    pair: CandidatePair
    why: WhyOpen


@dataclass(frozen=True, slots=True)
class JudgeSummary:
    """The questions to a model, and its replies."""

    model: str
    min_cosine: float
    max_pairs: int
    asked: int
    same: int
    different: int
    undecided: int
    not_asked: int
    """Beyond `max_pairs`, or after an outage."""
    outage: str


@dataclass(frozen=True, slots=True)
class MeaningResult:
    """The whole stage."""

    model_sha256: Mapping[str, str]
    min_cosine: float
    max_tokens: int
    texts: int
    cut: int
    """Texts of which the model saw only the first `max_tokens`."""
    found: tuple[MeaningPair, ...]
    open: tuple[OpenPair, ...]
    judge: JudgeSummary | None


def decide_pairs(
    candidates: Sequence[CandidatePair], answers: Sequence[PairAnswer | None], min_cosine: float
) -> tuple[list[MeaningPair], list[OpenPair]]:
    """Return the pairs that are the same problem, and those that nobody decided about.

    The judge's word counts. Without one the cosine counts: a high one is enough, a low one decides nothing.

    Args:
        candidates: in any order.
        answers: one per candidate; None for a candidate that was not asked about.
        min_cosine: from which a pair counts as the same without a judge.
    """
    found: list[MeaningPair] = []
    undecided: list[OpenPair] = []
    for candidate, answer in zip(candidates, answers, strict=True):
        if answer is PairAnswer.SAME:
            found.append(MeaningPair(candidate, "judge"))
        elif answer is PairAnswer.DIFFERENT:
            continue
        elif candidate.cosine >= min_cosine:
            found.append(MeaningPair(candidate, "embedder"))
        else:
            undecided.append(OpenPair(candidate, "not asked" if answer is None else "undecided"))
    return found, undecided
