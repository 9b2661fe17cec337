from collections.abc import AsyncIterator

import pytest_asyncio
from builders.judge.sandbox import started

from evalrun_executor.executor import Executor, ExecutorPlan


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def executor() -> AsyncIterator[Executor]:
    """Two slots; the level that this machine reaches, for what ordinary programs see is the same at each."""
    async with started(ExecutorPlan(slots=2, queue=64, allow_uncontained=True)) as running:
        yield running
