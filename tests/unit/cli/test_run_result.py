"""The results of a run in Python."""

from pathlib import Path

import pytest

from evalrun_cli.api import RunResult
from evalrun_runtime.exits import BadInputError, ExitCode

FIGURES = {"accepted_at_1": {"value": 0.625}, "pass_ratio_mean": {"value": None}}
RESULT = RunResult(
    Path("out"), {"state": "Degraded", "datasets": {"mine": {"metrics": FIGURES}}, "warnings": []}, ExitCode.DEGRADED
)


@pytest.mark.parametrize(
    ("dataset", "metric", "says"),
    [
        ("mine", "nope", "out: mine has no metric 'nope': it has accepted_at_1, pass_ratio_mean"),
        ("yours", "accepted_at_1", "out: no dataset 'yours': it has mine"),
    ],
)
def test_a_figure_that_is_not_there_lists_those_that_are(dataset: str, metric: str, says: str) -> None:
    with pytest.raises(BadInputError, match=f"^{says}$"):
        RESULT.metric(dataset, metric)


def test_repr_is_one_line() -> None:
    assert repr(RESULT) == "<RunResult Degraded mine: 62.5 % in out>"
    assert RESULT.metric("mine", "pass_ratio_mean") is None
