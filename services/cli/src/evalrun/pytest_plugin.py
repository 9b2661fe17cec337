"""Gates as tests of pytest. The root directory's conftest.py contains `pytest_plugins = ["evalrun.pytest_plugin"]`."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from evalrun import GateDecisions, RunResult, gate

Policy = str | Path | Iterable[Mapping[str, Any]]


@pytest.fixture
def evalrun_gate() -> Callable[[str | Path | RunResult, Policy], GateDecisions]:
    """Return a function that takes a run and a policy as `evalrun.gate` does, and fails the test unless all gates pass.

    An inconclusive gate has not passed. A missing run or a mistake in the policy raises `evalrun.BadInputError`, so
    that the test fails with that error instead of a decision.
    """

    def check(run: str | Path | RunResult, policy: Policy) -> GateDecisions:
        decided = gate(run, policy)
        if not decided.passed:
            pytest.fail("\n".join(f"{each.decision}: {each.message}" for each in decided.results), pytrace=False)
        return decided

    return check
