"""Faults one by one and together, over four sandboxes: every verdict right, none lost, none a failure of the program.

By default the three that reach farthest, on a few verdicts; EVALRUN_TEST_FULL_LOAD=1: all of them, 1,000 verdicts each.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from builders.judge.load import ALL_FAULTS, KINDS, finals, load, several_sandboxes, storm

from evalrun_cli.local.processes import ServiceProcess

FULL = os.environ.get("EVALRUN_TEST_FULL_LOAD") == "1"
VERDICTS = 1000 if FULL else 70

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1800 if FULL else 180)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandboxes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[list[ServiceProcess]]:
    async with several_sandboxes(tmp_path_factory.mktemp("sandboxes")) as several:
        yield several


@pytest.mark.parametrize("fault", ALL_FAULTS if FULL else ("hang", "client gone", "together"))
async def test_no_fault_changes_or_loses_a_verdict(fault: str, sandboxes: list[ServiceProcess], tmp_path: Path) -> None:
    requests, right = load(-(-VERDICTS // KINDS))
    verdicts, broken = await storm(tmp_path, sandboxes, fault, requests)
    assert finals(verdicts) == right
    assert broken > 0
