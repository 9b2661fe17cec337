"""Gates as tests of pytest. The conftest.py of the root directory says `pytest_plugins = ["evalrun.pytest_plugin"]`."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from evalrun import GateDecisions, RunResult, gate

Policy = str | Path | Iterable[Mapping[str, Any]]


@pytest.fixture
def evalrun_gate() -> Callable[[str | Path | RunResult, Policy], GateDecisions]:
    """Give a function that takes a run and a policy as `evalrun.gate` does, and fails the test unless all gates pass.

    A gate that is inconclusive has not passed. What cannot be used, a run that is not there or a mistake in the policy,
    raises `evalrun.BadInputError`: the test ends in an error, not in a decision.
    """

    def check(run: str | Path | RunResult, policy: Policy) -> GateDecisions:
        decided = gate(run, policy)
        if not decided.passed:
            pytest.fail("\n".join(f"{each.decision}: {each.message}" for each in decided.results), pytrace=False)
        return decided

    return check
