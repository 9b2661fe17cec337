"""OpenRLHF's remote reward model, as it sends and reads it."""

import pytest

from evalrun_reward.openrlhf import extract_answer, make_response, read_samples, strip_special_tokens
from evalrun_reward.wire import OpenRlhfRequest, OpenRlhfResponse, Outcome, Result
from evalrun_runtime.exits import BadInputError


@pytest.mark.parametrize(
    ("query", "prompt", "answer"),
    [
        ("Add two.print(2)", "Add two.", "print(2)"),
        ("<s>Add two.print(2)</s>", "Add two.", "print(2)"),
        ("<|im_start|>user\nq<|im_end|>\nprint(2)<|im_end|>\n<|endoftext|>", "q<|im_end|>", "\nprint(2)"),
        ("Add two. Add two.x", "Add two.", " Add two.x"),
        ("pprint(1)", "p", "print(1)"),
        ("decoded otherwise: x", "Add two.", "decoded otherwise: x"),
        ("x<eos>", "", "x"),
        ("x<\uff5cend\u2581of\u2581sentence\uff5c>", "", "x"),
        ("a <b> c", "", "a <b> c"),
    ],
)
def test_extract_answer_returns_the_text_after_the_prompt(query: str, prompt: str, answer: str) -> None:
    assert extract_answer(query, prompt) == answer


def test_a_long_answer_of_blanks_or_tokens_ends_within_the_tests_own_limit() -> None:  # quadratic took hours
    assert strip_special_tokens(" " * 1_000_000 + "x") == " " * 1_000_000 + "x"
    assert strip_special_tokens("x" + "<|pad|> " * 50_000) == "x"


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(BadInputError, match="2, 1 and 1"):
        read_samples(OpenRlhfRequest(["a", "b"], ["p"], ["{}"]))


RIGHT = Result("0", Outcome.JUDGED, reward=1.0, accepted=True)
UNKNOWN = Result("1", Outcome.NOT_JUDGED, reason="no sandbox")
INVALID = Result("2", Outcome.INVALID, reason="no tests")


def test_each_query_has_one_reward() -> None:
    answer = make_response([RIGHT, RIGHT], None)
    assert isinstance(answer, OpenRlhfResponse)
    assert answer.rewards == answer.scores == [1.0, 1.0]
    assert answer.extra_logs["judged"] == [1.0, 1.0]


def test_not_judged_answer_has_no_reward_unless_a_number_is_configured() -> None:
    assert make_response([RIGHT, UNKNOWN], None) is UNKNOWN
    named = make_response([RIGHT, UNKNOWN], -0.5)
    assert isinstance(named, OpenRlhfResponse)
    assert named.rewards == [1.0, -0.5]
    assert named.extra_logs["judged"] == [1.0, 0.0]


def test_an_invalid_label_never_has_a_reward() -> None:
    assert make_response([INVALID], 0.0) is INVALID
