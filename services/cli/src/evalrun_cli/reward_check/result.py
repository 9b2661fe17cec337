"""The findings of a check, as a table, as JSON and as an exit code. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rich import box
from rich.table import Table

from evalrun_cli.reward_check.ways import EVALRUN, OWN
from evalrun_runtime.exits import ExitCode


class Trouble(StrEnum):
    """The trouble that the calls of a pass meet."""

    NONE = "none"
    BROKEN_CALLS = "broken calls"
    """A share of the calls is broken."""
    KILLED_PARTS = "killed parts"
    """The sandbox is killed in the middle of the pass, and so is the judge if it is used."""


TOLERANCE = 1e-6
"""Difference between a reward and the same number in 32 bits, as a trainer may store it."""


@dataclass(frozen=True)
class Pass:
    """All completions, asked for once in one way.

    Args:
        way: OWN or EVALRUN.
        trouble: the trouble of its calls.
        rewards: rewards that the trainer got, in order; None without a reward.
        errors: exceptions in place of a reward, by type.
        calls: number of calls through a proxy.
        broken: number of broken calls.
        seconds: duration of the pass.
    """

    way: str
    trouble: Trouble
    rewards: Sequence[float | None]
    errors: Mapping[str, int]
    calls: int
    broken: int
    seconds: float


@dataclass(frozen=True)
class Row:
    """The numbers of a pass."""

    given: Pass
    wrong: int
    """Number of rewards that the completion does not deserve."""
    absent: int
    """Number of completions without a reward."""
    mean: float
    """Mean of the rewards that the trainer got; NaN without any."""
    true_mean: float
    """Mean of the deserved rewards of all completions."""
    answers_per_second: float


def make_row(given: Pass, deserved: Sequence[float]) -> Row:
    """Return the numbers of a pass, from the rewards that its completions deserve."""
    pairs = [(reward, right) for reward, right in zip(given.rewards, deserved, strict=True) if reward is not None]
    return Row(
        given=given,
        wrong=sum(1 for reward, right in pairs if abs(reward - right) > TOLERANCE),
        absent=len(deserved) - len(pairs),
        mean=sum(reward for reward, _ in pairs) / len(pairs) if pairs else math.nan,
        true_mean=sum(deserved) / len(deserved),
        answers_per_second=len(deserved) / given.seconds,
    )


def exit_code(rows: Sequence[Row]) -> ExitCode:
    """Return FAILED if evalrun returned a wrong reward, DEGRADED if it returned none for a completion.

    Rewards by the trainer's own client do not count.
    """
    ours = [row for row in rows if row.given.way == EVALRUN]
    if any(row.wrong for row in ours):
        return ExitCode.FAILED
    return ExitCode.DEGRADED if any(row.absent for row in ours) else ExitCode.SUCCEEDED


def make_table(rows: Sequence[Row], trainer: str, version: str) -> Table:
    """Return the table of a check."""
    named = f"{trainer} {version}" if version else "evalrun_trainers alone"
    title = f"Rewards of {named}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("asked through", no_wrap=True)
    table.add_column("trouble", no_wrap=True)
    for heading in (
        "broken\ncalls",
        "wrong\nrewards",
        "without\nreward",
        "mean\nreward",
        "its\nshift",
        "per\nsecond",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            f"{trainer} itself" if row.given.way == OWN else "evalrun",
            row.given.trouble,
            str(row.given.broken),
            str(row.wrong),
            str(row.absent),
            f"{row.mean:.4f}",
            f"{row.mean - row.true_mean:+.4f}",
            f"{row.answers_per_second:.0f}",
        )
    return table


def make_json(rows: Sequence[Row], trainer: str, version: str) -> dict[str, Any]:
    """Return the numbers of all passes as JSON."""
    passes = [
        {
            "way": row.given.way,
            "trouble": row.given.trouble,
            "wrong": row.wrong,
            "without_reward": row.absent,
            "mean_reward": None if math.isnan(row.mean) else row.mean,
            "deserved_mean": row.true_mean,
            "errors": dict(row.given.errors),
            "calls": row.given.calls,
            "calls_broken": row.given.broken,
            "answers_per_second": row.answers_per_second,
        }
        for row in rows
    ]
    return {"trainer": trainer, "version": version, "passes": passes}
