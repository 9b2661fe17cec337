"""Shares of runs as settings write them."""

import pytest

from evalrun_runtime.run_shares import shares_of


def test_a_runs_name_may_hold_an_equals_sign() -> None:
    assert shares_of(["grpo-7b=3", "a=b=0.5"]) == {"grpo-7b": 3.0, "a=b": 0.5}


@pytest.mark.parametrize("text", ["grpo", "=3", "grpo=", "grpo=0", "grpo=-1", "grpo=nan", "grpo=inf", "grpo=three"])
def test_what_is_no_share_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write RUN=WEIGHT with a weight above 0"):
        shares_of([text])


def test_a_run_has_one_share() -> None:
    with pytest.raises(ValueError, match="name it once"):
        shares_of(["grpo=3", "grpo=2"])
