"""Shares of runs as settings write them."""

import pytest

from evalrun_runtime.declared_shares import FLOOR, Priority, divide_slots
from evalrun_runtime.run_shares import parse_priorities, parse_shares


def test_a_runs_name_may_hold_an_equals_sign() -> None:
    assert parse_shares(["grpo-7b=3", "a=b=0.5"]) == {"grpo-7b": 3.0, "a=b": 0.5}


@pytest.mark.parametrize("text", ["grpo", "=3", "grpo=", "grpo=0", "grpo=-1", "grpo=nan", "grpo=inf", "grpo=three"])
def test_malformed_share_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write RUN=WEIGHT with a weight above 0"):
        parse_shares([text])


def test_share_given_twice_for_a_run_is_refused() -> None:
    with pytest.raises(ValueError, match="name it once"):
        parse_shares(["grpo=3", "grpo=2"])


def test_priorities_of_names_each_priority() -> None:
    found = parse_priorities(["eval/nightly=high", "a=b=low", "c=normal"])
    assert found == {"eval/nightly": Priority.HIGH, "a=b": Priority.LOW, "c": Priority.NORMAL}


@pytest.mark.parametrize("text", ["grpo", "=high", "grpo=", "grpo=3", "grpo=HIGH", "grpo=highest"])
def test_priorities_of_another_text_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write RUN=high, RUN=normal or RUN=low"):
        parse_priorities([text])


def test_priorities_of_a_run_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="name it once"):
        parse_priorities(["grpo=high", "grpo=low"])


@pytest.mark.parametrize(
    ("waiting", "parts"),
    [
        ([], {}),
        (["low"], {"low": 1.0}),
        (["a", "b"], {"a": 0.75, "b": 0.25}),
        (["a", "low"], {"a": 1 - FLOOR, "low": FLOOR}),
        (["high", "a", "b"], {"high": 1 - FLOOR, "a": FLOOR * 0.75, "b": FLOOR * 0.25}),
        (["high", "a", "low"], {"high": 1 - 2 * FLOOR, "a": FLOOR, "low": FLOOR}),
    ],
)
def test_divide_slots_lower_priorities_keep_the_floor(waiting: list[str], parts: dict[str, float]) -> None:
    found = divide_slots(waiting, {"a": 3.0}, {"high": Priority.HIGH, "low": Priority.LOW})
    assert found == pytest.approx(parts)
