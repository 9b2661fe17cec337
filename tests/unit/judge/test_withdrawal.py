"""A request of a stream that its client takes back: stopped wherever it is, and nothing else."""

import asyncio

import pytest

from evalrun_judge.rpc.withdrawal import OpenRequests, WithdrawnError


class Work:
    """Waits until it is let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.began = asyncio.Event()
        self.stopped = False

    async def __call__(self) -> str:
        self.began.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.stopped = True
            raise
        return "verdict"


async def test_withdrawn_request_stops_and_the_others_continue() -> None:
    requests, one, other = OpenRequests(), Work(), Work()
    for name in ("one", "other"):
        requests.expect(name)
    tasks = [asyncio.create_task(requests.work(name, work())) for name, work in (("one", one), ("other", other))]
    await one.began.wait()
    await other.began.wait()
    requests.withdraw("one")
    with pytest.raises(WithdrawnError):
        await tasks[0]
    other.go.set()
    assert await tasks[1] == "verdict"
    assert (one.stopped, other.stopped) == (True, False)


async def test_request_withdrawn_before_its_turn_does_not_begin() -> None:
    requests, work = OpenRequests(), Work()
    requests.expect("one")
    requests.withdraw("one")
    with pytest.raises(WithdrawnError):
        await requests.work("one", work())
    assert not work.began.is_set()


async def test_withdrawal_of_an_answered_or_unknown_request_has_no_effect() -> None:
    requests, work = OpenRequests(), Work()
    work.go.set()
    requests.withdraw("one")
    requests.expect("one")
    assert await requests.work("one", work()) == "verdict"
    requests.withdraw("one")
    requests.expect("one")  # the id may be used again
    assert await requests.work("one", work()) == "verdict"


async def test_end_of_the_stream_cancels_requests_instead_of_withdrawing_them() -> None:
    for withdrawn_too in (False, True):
        requests, work = OpenRequests(), Work()
        requests.expect("one")
        task = asyncio.create_task(requests.work("one", work()))
        await work.began.wait()
        if withdrawn_too:
            requests.withdraw("one")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
