"""docs/runs.md lists every phase, condition and reason that there is, and no other."""

import re
from pathlib import Path
from typing import get_args

from builders.operator.world import generating

from evalrun_api.v1alpha1 import REASONS, ConditionType, Phase
from evalrun_operator.metrics import PHASES

PAGE = (Path(__file__).parents[3] / "docs" / "runs.md").read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def documented() -> dict[str, dict[str, str]]:
    """Return status by reason by condition, as the page's table has them."""
    found: dict[str, dict[str, str]] = {}
    condition = ""
    for name, reason, *_ in rows(PAGE.partition("## Conditions")[2])[2:]:
        condition = name or condition
        parts = re.fullmatch(r"(\w+) \((True|False|Unknown)\)", reason)
        assert parts is not None, reason
        found.setdefault(condition, {})[parts[1]] = parts[2]
    return found


def test_every_condition_and_reason_is_there_and_no_other() -> None:
    expected = {str(condition): {str(reason) for reason in reasons} for condition, reasons in REASONS.items()}
    assert {condition: set(reasons) for condition, reasons in documented().items()} == expected
    assert set(expected) == set(ConditionType)


def test_every_phase_is_there_and_no_other() -> None:
    assert {name for name, _ in rows(PAGE.partition("## Conditions")[0])[2:]} == set(get_args(Phase)) == set(PHASES)


def test_runs_have_the_statuses_that_the_page_gives() -> None:
    page = documented()
    for rollout in (True, False):
        world = generating(rollout=rollout)
        world.change_spec(suspend=True).settle().finalize().settle().change_spec(suspend=False).settle().kuberay()
        world.settle().jobs_run().settle().end_attempt(failed=True).settle().tick(60).settle().jobs_run().settle()
        world.generate_all().settle().judge_all(not_judged=3).settle()
        assert world.status.phase == "Degraded"
        for status in world.history:
            for condition in status.conditions:
                assert page[condition.type][condition.reason] == condition.status, (condition.type, condition.reason)
