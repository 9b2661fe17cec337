from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from builders.judge.sandbox import started

from evalrun_executor.executor import Executor, ExecutorPlan
from evalrun_sandbox.sessions.interpreter import Interpreters


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sandbox() -> AsyncIterator[Executor]:
    """Two slots, fully contained; skips where this machine cannot."""
    async with started(ExecutorPlan(slots=2, queue=64, allow_uncontained=True)) as running:
        if running.report.level != "full":
            pytest.skip(f"this machine reaches level {running.report.level}: {'; '.join(running.report.missing)}")
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def interpreters(sandbox: Executor) -> AsyncIterator[Interpreters]:
    """Of live sessions, contained like the sandbox's programs."""
    running = Interpreters(sandbox.zygote_plan)
    yield running
    await running.close()
