"""What a check's passes say of a trainer, as figures and as an exit code."""

import math

import pytest

from evalrun_cli.reward_check.result import Pass, Row, Trouble, exit_code, make_json, make_row
from evalrun_cli.reward_check.ways import EVALRUN, OWN
from evalrun_runtime.exits import ExitCode

DESERVED = [1.0, 0.5, 0.0]


def row(way: str, *rewards: float | None) -> Row:
    given = Pass(way, Trouble.BROKEN_CALLS, rewards, {}, calls=10, broken=2, seconds=1.5)
    return make_row(given, DESERVED)


def test_row_counts_wrong_and_absent_rewards_separately() -> None:
    given = row(OWN, 1.0, 0.25, None)
    assert (given.wrong, given.absent, given.mean, given.true_mean) == (1, 1, 0.625, 0.5)
    assert given.answers_per_second == 2.0


def test_reward_rounded_to_32_bits_is_not_wrong() -> None:
    assert row(EVALRUN, 1.0, 0.5 + 1e-8, 0.0).wrong == 0


def test_without_any_reward_there_is_no_mean() -> None:
    given = row(EVALRUN, None, None, None)
    assert math.isnan(given.mean)
    assert make_json([given], "verl", "0.9.1")["passes"][0]["mean_reward"] is None


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([row(EVALRUN, *DESERVED)], ExitCode.SUCCEEDED),
        ([row(OWN, 0.0, 0.0, None), row(EVALRUN, *DESERVED)], ExitCode.SUCCEEDED),
        ([row(EVALRUN, 1.0, 0.5, None)], ExitCode.DEGRADED),
        ([row(EVALRUN, 0.0, 0.5, None)], ExitCode.FAILED),
    ],
)
def test_only_our_own_rewards_decide_the_exit_code(rows: list[Row], code: ExitCode) -> None:
    assert exit_code(rows) == code
