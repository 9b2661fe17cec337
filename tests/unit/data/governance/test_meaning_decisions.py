"""What a judge is asked about a pair, how its answer is read, and what becomes of each pair."""

import json

import pytest

from evalrun_data.governance.allow_file import OverlapKind
from evalrun_data.governance.audit_result import AuditState, Overlap, UndecidedPair, decide_state
from evalrun_data.governance.meaning.meaning_result import CandidatePair, decide_pairs
from evalrun_data.governance.meaning.pair_judge import (
    MAX_CHARACTERS,
    PairAnswer,
    Question,
    question_body,
    read_answer,
)

SAME, DIFFERENT, UNDECIDED = PairAnswer.SAME, PairAnswer.DIFFERENT, PairAnswer.UNDECIDED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"answer": "same"}', SAME),
        ('\n{"answer":"different"} ', DIFFERENT),
        ("same", SAME),
        ("Different.", DIFFERENT),
        ('"same"', SAME),
        ("<think>They are not the same, so: different?</think>\nsame", SAME),
        ('<think>{"answer": "same"}</think>{"answer": "different"}', DIFFERENT),
        ("", UNDECIDED),
        ("The problems are the same.", UNDECIDED),
        ("not the same", UNDECIDED),
        ("same different", UNDECIDED),
        ('{"answer": "maybe"}', UNDECIDED),
        ('{"answer": "undecided"}', UNDECIDED),
        ('{"answer": ["same"]}', UNDECIDED),
        ('{"answer": true}', UNDECIDED),
        ('{"reply": "same"}', UNDECIDED),
        ('["same"]', UNDECIDED),
        ("1", UNDECIDED),
        ("null", UNDECIDED),
        ("[" * 100_000, UNDECIDED),
    ],
)
def test_read_answer_returns_same_different_or_undecided(text: str, expected: PairAnswer) -> None:
    assert read_answer(text) is expected


def test_question_is_greedy_bounded_and_has_two_possible_answers() -> None:
    body = json.loads(question_body(Question("sum " * 5000, "total \ud800"), "judge"))
    assert (body["model"], body["temperature"], body["n"]) == ("judge", 0, 1)
    schema = body["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["answer"]["enum"] == ["same", "different"]
    assert len(body["messages"][1]["content"]) < MAX_CHARACTERS + 200
    assert "[...]\n</first>" in body["messages"][1]["content"]


@pytest.mark.parametrize(
    ("cosine", "answer", "found", "left"),
    [
        (0.9, None, "embedder", None),
        (0.8, None, "embedder", None),
        (0.7, None, None, "not asked"),
        (0.9, SAME, "judge", None),
        (0.7, SAME, "judge", None),
        (0.9, DIFFERENT, None, None),
        (0.7, DIFFERENT, None, None),
        (0.9, UNDECIDED, "embedder", None),
        (0.7, UNDECIDED, None, "undecided"),
    ],
)
def test_answer_of_the_pair_judge_decides_else_the_cosine(
    cosine: float, answer: PairAnswer | None, found: str | None, left: str | None
) -> None:
    pair = CandidatePair("train/1", "test/1", cosine)
    same, undecided = decide_pairs([pair], [answer], 0.8)
    assert [each.found_by for each in same] == ([found] if found else [])
    assert [each.why for each in undecided] == ([left] if left else [])
    assert [each.pair for each in same] + [each.pair for each in undecided] == ([pair] if found or left else [])


def overlap(kind: OverlapKind, allowed: str | None) -> Overlap:
    return Overlap(kind, "train/1", "test/1", 0.1, 0.1, allowed, "statement", "judge", 0.7)


def undecided(allowed: str | None) -> UndecidedPair:
    return UndecidedPair("train/2", "test/2", 0.7, "undecided", allowed)


@pytest.mark.parametrize(
    ("overlaps", "pairs", "expected"),
    [
        ([], [], "passed"),
        ([overlap("meaning", "looked at")], [], "passed"),
        ([overlap("meaning", None)], [], "failed"),
        ([], [undecided(None)], "incomplete"),
        ([], [undecided("looked at")], "passed"),
        ([overlap("near", "looked at")], [undecided(None)], "incomplete"),
        ([overlap("near", None)], [undecided(None)], "failed"),
    ],
)
def test_an_audit_with_an_undecided_pair_has_not_passed(
    overlaps: list[Overlap], pairs: list[UndecidedPair], expected: AuditState
) -> None:
    assert decide_state(overlaps, pairs) == expected
