"""Live sessions' interpreters for tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from evalrun_sandbox.sessions.interpreter import Interpreter, Interpreters, Outcome

OUTPUT_BYTES = 1 << 16


@asynccontextmanager
async def opened(interpreters: Interpreters, memory: int = 256) -> AsyncIterator[Interpreter]:
    """Return an interpreter; close it, and wait until nothing of it is left."""
    interpreter, _ = await interpreters.open(memory, {})
    try:
        yield interpreter
    finally:
        interpreter.close()
        async with asyncio.timeout(60):
            await asyncio.wait([interpreter.ended])


async def executed(interpreter: Interpreter, code: str, seconds: float = 10.0) -> Outcome:
    return await interpreter.execute(code, seconds, OUTPUT_BYTES)
