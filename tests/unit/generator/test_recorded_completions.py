import pytest

from evalrun_generator.recorded.recorded_completions import (
    EchoCompletions,
    PromptUnknownError,
    RecordedAnswer,
    RecordedCompletions,
    approximate_tokens,
)

CHAT = (("user", "solve it"),)


def completions(base_seed: int = 0) -> RecordedCompletions:
    made = RecordedCompletions(base_seed)
    made.add("p/0", [CHAT, "solve it"], [RecordedAnswer("zero"), RecordedAnswer("one"), RecordedAnswer("two")])
    made.add("p/1", ["unanswered"], [])
    return made


@pytest.mark.parametrize(
    ("base_seed", "seed", "text"),
    [
        (0, None, "zero"),
        (0, 0, "zero"),
        (0, 2, "two"),
        (0, 3, "zero"),
        (42, 42, "zero"),
        (42, 44, "two"),
        (42, 41, "two"),
    ],
)
def test_the_seed_chooses_the_sample(base_seed: int, seed: int | None, text: str) -> None:
    assert completions(base_seed).find(CHAT, seed).text == text
    assert completions(base_seed).find("solve it", seed).text == text


def test_further_choices_give_the_next_samples() -> None:
    assert [completions().find(CHAT, 1, choice).text for choice in range(3)] == ["one", "two", "zero"]


def test_unknown_prompt_is_named_in_the_error() -> None:
    with pytest.raises(PromptUnknownError, match="nothing is recorded for this prompt: 'solve that'"):
        completions().find((("user", "solve\n that"),), None)
    with pytest.raises(PromptUnknownError, match="no completion is recorded for problem p/1"):
        completions().find("unanswered", None)


def test_add_of_a_known_prompt_returns_its_first_problem_and_stores_nothing() -> None:
    made = completions()
    assert made.add("p/9", [CHAT], [RecordedAnswer("other")]) == "p/0"
    assert made.find(CHAT, None).text == "zero"


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("éé", 1), ("\ud800", 1)])
def test_approximate_tokens_counts_four_bytes_per_token(text: str, tokens: int) -> None:
    assert approximate_tokens(text) == tokens


def test_echo_answers_any_prompt_with_the_given_number_of_tokens() -> None:
    said = EchoCompletions(3).find("whatever", 7)
    assert said.text.split() == ["word"] * 3
    assert said.output_tokens == 3


def test_a_conversation_gets_the_samples_answer_of_its_turn_whatever_the_replies_say() -> None:
    first, second = (RecordedAnswer(f"s{s} t0", later=(RecordedAnswer(f"s{s} t1"),)) for s in range(2))
    completions = RecordedCompletions(base_seed=5)
    completions.add("d/p", [(("user", "Solve."),)], [first, second])
    turn_1 = (("user", "Solve."), ("assistant", "s1 t0"), ("user", "wrong"))
    assert completions.find(turn_1, seed=6).text == "s1 t1"
    assert completions.find(turn_1[:1], seed=6).text == "s1 t0"
    with pytest.raises(PromptUnknownError, match="turn 2 of problem d/p"):
        completions.find((*turn_1, ("assistant", "s1 t1"), ("user", "wrong")), seed=6)
    with pytest.raises(PromptUnknownError, match="nothing is recorded"):
        completions.find((("user", "Other."), *turn_1[1:]), seed=6)
