"""Finds problems of the same meaning: embeds every statement, and asks a model about the nearest pairs if there is one.

Each problem is compared with every problem of the other datasets, exactly. Memory holds the vectors of the datasets to
evaluate, and those of a few hundred rows of a training split.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import numpy as np

from evalrun_data.governance.compared_texts import TRAIN, DatasetTexts, ProblemText
from evalrun_data.governance.meaning.meaning_result import (
    COSINE_DIGITS,
    CandidatePair,
    JudgeSummary,
    MeaningPair,
    MeaningResult,
    decide_pairs,
)
from evalrun_data.governance.meaning.onnx_embedder import Embedder
from evalrun_data.governance.meaning.pair_judge import JudgedPairs, PairAnswer, PairJudge, Question
from evalrun_data.governance.meaning.vectors import Vectors, nearest
from evalrun_data.governance.shingles import containment, jaccard, make_shingles, squeeze

ROWS_AT_ONCE: Final = 256
TIMED_TEXTS: Final = 16
"""Texts that are embedded once more than needed, to estimate how long all of them take."""
PROGRESS_SECONDS: Final = 10.0
QUESTION_TOKENS: Final = 200
"""Tokens of a question, beside its two texts."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class MeaningThresholds:
    """Cosines from which a pair counts."""

    min_cosine: float
    judge_min_cosine: float
    """Cosine from which the judge is asked."""
    max_judged_pairs: int


@dataclass(frozen=True, slots=True)
class _Cost:
    texts: int
    tokens: int
    cut: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Side:
    """Position of a text of a candidate."""

    dataset: int
    place: int


@dataclass(frozen=True, slots=True)
class _Embedded:
    """Problems of a dataset with their vectors."""

    dataset: int
    keys: Sequence[str]
    places: Sequence[int]
    vectors: Vectors


class _Candidates:
    """The pairs that are near enough, and where their texts are."""

    def __init__(self, min_cosine: float, known: AbstractSet[tuple[str, str]]) -> None:
        self._min_cosine = min_cosine
        self._known = known
        self.pairs: list[CandidatePair] = []
        self.sides: list[tuple[_Side, _Side]] = []

    def add(self, rows: _Embedded, references: _Embedded, dataset: str) -> None:
        """Add the nearest reference of each row, unless its text was found in that dataset already."""
        best, cosines = nearest(rows.vectors, references.vectors)
        for row, at, exact in zip(range(len(best)), best.tolist(), cosines.tolist(), strict=True):
            cosine = round(min(1.0, exact), COSINE_DIGITS)
            if cosine >= self._min_cosine and (rows.keys[row], dataset) not in self._known:
                self.pairs.append(CandidatePair(rows.keys[row], references.keys[at], cosine))
                self.sides.append(
                    (_Side(rows.dataset, rows.places[row]), _Side(references.dataset, references.places[at]))
                )


class MeaningStage:
    """The stage with its models."""

    def __init__(
        self,
        embedder: Embedder,
        thresholds: MeaningThresholds,
        judge: PairJudge | None,
        say: Say,
        clock: Callable[[], float],
    ) -> None:
        """Start nothing yet.

        Args:
            embedder: makes the vectors.
            thresholds: see there.
            judge: None: the cosine alone decides.
            say: tells the user what it will cost, and how far it is.
            clock: seconds.
        """
        self._embedder = embedder
        self._thresholds = thresholds
        self._judge = judge
        self._say = say
        self._clock = clock
        self._next_line = 0.0

    def run(self, datasets: Sequence[DatasetTexts], known: AbstractSet[tuple[str, str]]) -> MeaningResult:
        """Compare every pair of datasets except two training splits.

        Args:
            datasets: all of them.
            known: problems that were found in another dataset by their text, each with that dataset's name; they are
                not reported again.
        """
        cost = self._measure(datasets)
        self._announce(cost)
        candidates = self._candidates(datasets, known, cost.texts)
        answers, summary = self._judge_candidates(datasets, candidates.pairs, candidates.sides)
        found, undecided = decide_pairs(candidates.pairs, answers, self._thresholds.min_cosine)
        place = dict(zip(candidates.pairs, candidates.sides, strict=True))
        return MeaningResult(
            self._embedder.sha256,
            self._thresholds.min_cosine,
            self._embedder.max_tokens,
            cost.texts,
            cost.cut,
            tuple(_add_text_figures(each, *_find_texts(datasets, place[each.pair])) for each in found),
            tuple(undecided),
            summary,
        )

    def _measure(self, datasets: Sequence[DatasetTexts]) -> _Cost:
        """Count tokens, and time a few texts. Reads every text once more than the comparison does."""
        texts = tokens = cut = 0
        timed: list[str] = []
        for dataset in datasets:
            for chunk in _chunks(dataset):
                lengths = self._embedder.count_tokens([text for _, _, text in chunk])
                texts += len(chunk)
                cut += sum(length > self._embedder.max_tokens for length in lengths)
                tokens += sum(min(length, self._embedder.max_tokens) for length in lengths)
                timed += [text for _, _, text in chunk[:: max(1, len(chunk) // 4)]][: TIMED_TEXTS - len(timed)]
        if not timed:
            return _Cost(0, 0, 0, 0.0)
        sample = sum(min(each, self._embedder.max_tokens) for each in self._embedder.count_tokens(timed))
        # The first text takes longer.
        self._embedder.embed(timed[:1])
        begin = self._clock()
        self._embedder.embed(timed)
        return _Cost(texts, tokens, cut, (self._clock() - begin) * tokens / max(1, sample))

    def _announce(self, cost: _Cost) -> None:
        self._say(
            f"embedder: {cost.texts:,} texts, {cost.tokens:,} tokens, about {_duration(cost.seconds)} on this machine; "
            f"{cost.cut:,} texts are longer than {self._embedder.max_tokens:,} tokens and are cut there"
        )
        if self._judge is not None:
            bound = min(cost.texts, self._thresholds.max_judged_pairs)
            tokens = bound * (2 * cost.tokens // max(1, cost.texts) + QUESTION_TOKENS)
            self._say(
                f"pair judge: at most {self._thresholds.max_judged_pairs:,} questions to {self._judge.model}, about "
                f"{tokens:,} tokens, about {_duration(bound * self._judge.seconds_per_pair)}"
            )

    def _candidates(
        self, datasets: Sequence[DatasetTexts], known: AbstractSet[tuple[str, str]], texts: int
    ) -> _Candidates:
        """Return each problem with the nearest one of each other dataset, where that is near enough."""
        least = self._thresholds.min_cosine if self._judge is None else self._thresholds.judge_min_cosine
        found = _Candidates(least, known)
        done = 0

        def embed_dataset(number: int) -> Iterator[_Embedded]:
            nonlocal done
            for chunk in _chunks(datasets[number]):
                vectors = self._embedder.embed([text for _, _, text in chunk])
                yield _Embedded(number, [key for _, key, _ in chunk], array("Q", [at for at, _, _ in chunk]), vectors)
                done += len(chunk)
                self._line(f"embedder: {done:,} of {texts:,} texts")

        held: list[_Embedded] = []
        for number, dataset in enumerate(datasets):
            if dataset.role != TRAIN and (parts := list(embed_dataset(number))):
                held.append(_join_parts(parts))
        for number, dataset in enumerate(datasets):
            if dataset.role == TRAIN:
                for rows in embed_dataset(number):
                    for reference in held:
                        found.add(rows, reference, datasets[reference.dataset].name)
        for index, one in enumerate(held):
            for rows in _pieces(one):
                for reference in held[index + 1 :]:
                    found.add(rows, reference, datasets[reference.dataset].name)
        return found

    def _judge_candidates(
        self,
        datasets: Sequence[DatasetTexts],
        candidates: Sequence[CandidatePair],
        sides: Sequence[tuple[_Side, _Side]],
    ) -> tuple[list[PairAnswer | None], JudgeSummary | None]:
        """Ask about the nearest candidates. Without a judge there is no answer to any."""
        answers: list[PairAnswer | None] = [None] * len(candidates)
        if self._judge is None:
            return answers, None
        order = sorted(range(len(candidates)), key=lambda each: -candidates[each].cosine)
        asked = order[: self._thresholds.max_judged_pairs]
        self._say(f"pair judge: {len(candidates):,} pairs are near enough, {len(asked):,} are asked about")
        questions = [Question(*map(_choose_text, _find_texts(datasets, sides[each]))) for each in asked]

        def report(done: int) -> None:
            self._line(f"pair judge: {done:,} of {len(asked):,} answers")

        judged = self._judge.judge(questions, report) if questions else JudgedPairs(())
        for each, answer in zip(asked, judged.answers, strict=True):
            answers[each] = answer
        if judged.outage:
            self._say(f"pair judge: no further answers: {judged.outage}")
        counts = {answer: answers.count(answer) for answer in (*PairAnswer, None)}
        return answers, JudgeSummary(
            self._judge.model,
            self._thresholds.judge_min_cosine,
            self._thresholds.max_judged_pairs,
            len(candidates) - counts[None],
            counts[PairAnswer.SAME],
            counts[PairAnswer.DIFFERENT],
            counts[PairAnswer.UNDECIDED],
            counts[None],
            judged.outage,
        )

    def _line(self, line: str) -> None:
        now = self._clock()
        if now >= self._next_line:
            if self._next_line:
                self._say(line)
            self._next_line = now + PROGRESS_SECONDS


def _chunks(dataset: DatasetTexts) -> Iterator[list[tuple[int, str, str]]]:
    """Yield place, key and compared text of a few hundred problems at a time; those without a word have no meaning."""
    worded = (
        (place, f"{dataset.name}/{text.problem_id}", compared)
        for place, text in enumerate(dataset.texts)
        if squeeze(compared := _choose_text(text))
    )
    while chunk := list(islice(worded, ROWS_AT_ONCE)):
        yield chunk


def _join_parts(parts: Sequence[_Embedded]) -> _Embedded:
    return _Embedded(
        parts[0].dataset,
        [key for part in parts for key in part.keys],
        array("Q", (place for part in parts for place in part.places)),
        np.concatenate([part.vectors for part in parts]),
    )


def _pieces(whole: _Embedded) -> Iterator[_Embedded]:
    for begin in range(0, len(whole.keys), ROWS_AT_ONCE):
        part = slice(begin, begin + ROWS_AT_ONCE)
        yield _Embedded(whole.dataset, whole.keys[part], whole.places[part], whole.vectors[part])


def _choose_text(text: ProblemText) -> str:
    return text.compared_parts.get("statement") or text.text


def _find_texts(datasets: Sequence[DatasetTexts], sides: tuple[_Side, _Side]) -> tuple[ProblemText, ProblemText]:
    first, second = (datasets[side.dataset].texts[side.place] for side in sides)
    return first, second


def _add_text_figures(found: MeaningPair, first: ProblemText, second: ProblemText) -> MeaningPair:
    one, other = make_shingles(first.text), make_shingles(second.text)
    return replace(found, jaccard=jaccard(one, other), containment=containment(other, one))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
