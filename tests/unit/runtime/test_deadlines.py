"""Deadlines follow the work, end it, and cross between processes as what is left of them."""

import asyncio

import pytest
from builders.virtual_time import run_virtually

from evalrun_runtime.deadlines import HEADER, DeadlineError, deadline_headers, read_deadline, seconds_left, until


def now() -> float:
    return asyncio.get_running_loop().time()


def test_work_ends_at_its_deadline_and_its_tasks_inherit_the_deadline() -> None:
    async def scene() -> None:
        left: list[float | None] = []

        async def started() -> None:
            await asyncio.sleep(4)
            left.append(seconds_left())

        async def work() -> None:
            async with until(now() + 10):
                await asyncio.create_task(started())
                await asyncio.sleep(100)

        with pytest.raises(DeadlineError):
            await work()
        assert (left, now(), seconds_left()) == ([6.0], 10.0, None)

    run_virtually(scene())


def test_earlier_of_two_nested_deadlines_holds() -> None:
    async def scene() -> None:
        async with until(now() + 5):
            async with until(now() + 50):
                assert seconds_left() == 5
            async with until(None):
                assert seconds_left() == 5
            with pytest.raises(DeadlineError):
                async with until(now() + 1):
                    await asyncio.sleep(2)
            assert seconds_left() == 4

    run_virtually(scene())


def test_deadline_in_the_past_starts_no_work() -> None:
    async def scene() -> None:
        reached = []

        async def work() -> None:
            async with until(now() - 1):
                await asyncio.sleep(0)
                reached.append("after the first wait")

        with pytest.raises(DeadlineError):
            await work()
        assert reached == []

    run_virtually(scene())


def test_other_errors_and_cancellations_pass_through() -> None:
    async def scene() -> None:
        with pytest.raises(TimeoutError):
            async with until(now() + 10):
                raise TimeoutError("of a connection")

        async def endless() -> None:
            async with until(now() + 10):
                await asyncio.sleep(100)

        task = asyncio.create_task(endless())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtually(scene())


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("1500", 1.5), ("0", 0.0), ("", None), ("-1", None), ("soon", None), ("1e3", None), ("9" * 400, None)],
)
def test_read_deadline_reads_milliseconds_and_ignores_other_text(header: str, seconds: float | None) -> None:
    async def scene() -> None:
        await asyncio.sleep(7)
        deadline = read_deadline({HEADER: header} if header else {})
        assert deadline == (None if seconds is None else 7 + seconds)

    run_virtually(scene())


def test_deadline_headers_send_the_remaining_milliseconds() -> None:
    async def scene() -> None:
        assert deadline_headers() == {}
        async with until(now() + 10):
            await asyncio.sleep(2.5)
            assert deadline_headers() == {HEADER: "7500"}
        async with until(float("inf")):
            assert deadline_headers() == {HEADER: "1000000000"}

    run_virtually(scene())
