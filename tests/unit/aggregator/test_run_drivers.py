"""Ends of a run's background parts: one that nobody asked for fails the run, which would otherwise wait for ever."""

import asyncio

import pytest

from evalrun_aggregator.run_driver import explain_unexpected_end


async def end(how: str) -> None:
    if how == "waits":
        await asyncio.Event().wait()
    if how == "a call within it was cancelled":
        raise asyncio.CancelledError
    if how == "fails":
        raise KeyError("row")


@pytest.mark.parametrize(("how", "told"), [
    ("returns", ""),
    ("waits", ""),
    ("a call within it was cancelled", "the part 'judge' of the run was cut off"),
    ("fails", "unexpected KeyError: 'row'"),
])  # fmt: skip
async def test_unrequested_end_is_reported(how: str, told: str) -> None:
    task = asyncio.create_task(end(how), name="judge")
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert explain_unexpected_end(task) == told
