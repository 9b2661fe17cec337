"""The queue: one key never twice at a time, none forgotten, none starved."""

import asyncio

from evalrun_operator.reconcilers.work_queue import FIRST, WorkQueue


class Recorder:
    """Work that waits to be let on, and records who was at it together."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.at_once: dict[str, int] = {}
        self.max_at_once = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.answers: dict[str, list[float | BaseException | None]] = {}
        self.progress = asyncio.Condition()

    async def work(self, key: str) -> float | None:
        self.started.append(key)
        self.at_once[key] = self.at_once.get(key, 0) + 1
        self.max_at_once = max(self.max_at_once, self.at_once[key])
        async with self.progress:
            self.progress.notify_all()
        await self.gate.wait()
        self.at_once[key] -= 1
        answers = self.answers.get(key, [])
        answer = answers.pop(0) if answers else None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def until_started(self, count: int) -> None:
        async with self.progress, asyncio.timeout(5):
            await self.progress.wait_for(lambda: len(self.started) >= count)


def queue_of(recorder: Recorder, workers: int = 4, first_workers: int = 0) -> WorkQueue[str]:
    clock = asyncio.get_running_loop().time
    return WorkQueue(recorder.work, workers, clock, mistake_seconds=0.01, first_workers=first_workers)


async def test_wakes_before_the_work_starts_are_merged() -> None:
    recorder = Recorder()
    queue = queue_of(recorder)
    queue.start()
    for _ in range(5):
        queue.wake("a")
    queue.wake("b")
    await recorder.until_started(2)
    await queue.stop()
    assert sorted(recorder.started) == ["a", "b"]


async def test_a_wake_during_the_work_is_followed_by_more_work_and_never_at_the_same_time() -> None:
    recorder = Recorder()
    recorder.gate.clear()
    queue = queue_of(recorder)
    queue.start()
    queue.wake("a")
    await recorder.until_started(1)
    queue.wake("a")
    queue.wake("a")
    queue.wake("b")  # is not held up by the busy one
    await recorder.until_started(2)
    assert recorder.started == ["a", "b"]
    recorder.gate.set()
    await recorder.until_started(3)
    await queue.stop()
    assert recorder.started == ["a", "b", "a"]
    assert recorder.max_at_once == 1


async def test_work_asks_to_be_done_again_later_and_an_earlier_wake_wins() -> None:
    recorder = Recorder()
    recorder.answers = {"a": [0.01, 3600.0]}
    queue = queue_of(recorder)
    queue.start()
    queue.wake("a")
    await recorder.until_started(2)
    queue.wake("a")
    await recorder.until_started(3)
    await queue.stop()
    assert recorder.started == ["a", "a", "a"]


async def test_work_queue_first_item_overtakes_waiting_items() -> None:
    recorder = Recorder()
    queue = queue_of(recorder, workers=1)
    queue.start()
    for key in "abc":
        queue.wake(key)
    queue.wake("d", FIRST)
    await recorder.until_started(4)
    await queue.stop()
    assert recorder.started == ["d", "a", "b", "c"]


async def test_stopped_queue_drops_every_key() -> None:
    recorder = Recorder()
    queue = queue_of(recorder)
    queue.wake("stood by")
    queue.start()
    queue.wake("later", 3600.0)
    await queue.stop()
    queue.wake("led no more")
    queue.start()
    queue.wake("now")
    await recorder.until_started(1)
    await asyncio.sleep(0)
    await queue.stop()
    assert recorder.started == ["now"]


async def test_worker_survives_an_unexpected_error_and_repeats_the_key() -> None:
    recorder = Recorder()
    recorder.answers = {"a": [ZeroDivisionError("ours")]}
    queue = queue_of(recorder, workers=1)
    queue.start()
    queue.wake("a")
    await recorder.until_started(2)
    await queue.stop()
    assert recorder.started == ["a", "a"]


async def test_keys_worked_on_at_once_never_exceed_the_workers() -> None:
    recorder = Recorder()
    recorder.gate.clear()
    queue = queue_of(recorder, workers=2)
    queue.start()
    for key in "abc":
        queue.wake(key)
    await recorder.until_started(2)
    await asyncio.sleep(0)
    assert len(recorder.started) == 2
    recorder.gate.set()
    await recorder.until_started(3)
    await queue.stop()


async def test_work_queue_first_item_has_a_worker_of_its_own() -> None:
    recorder = Recorder()
    recorder.gate.clear()
    queue = queue_of(recorder, workers=1, first_workers=1)
    queue.start()
    queue.wake("long")
    await recorder.until_started(1)
    queue.wake("later")
    queue.wake("urgent", FIRST)
    await recorder.until_started(2)
    assert recorder.started == ["long", "urgent"]
    recorder.gate.set()
    await recorder.until_started(3)
    assert recorder.started[2] == "later"
    await queue.stop()


async def test_a_cancellation_within_the_work_ends_no_worker() -> None:
    recorder = Recorder()
    recorder.answers["a"] = [asyncio.CancelledError(), None]
    queue = queue_of(recorder, workers=1)
    queue.start()
    queue.wake("a")
    await recorder.until_started(2)
    await queue.stop()
    assert recorder.started == ["a", "a"]


async def test_work_queue_keys_of_a_crowded_group_delay_another_group_by_one_key_each() -> None:
    recorder = Recorder()
    recorder.gate.clear()
    queue = WorkQueue(recorder.work, 1, asyncio.get_running_loop().time, group=lambda key: key[0])
    queue.start()
    for number in range(200):
        queue.wake(f"a{number}", FIRST if number % 2 else 0.0)
    queue.wake("b-first", FIRST)
    queue.wake("b-later")
    await recorder.until_started(1)
    recorder.gate.set()
    await recorder.until_started(202)
    await queue.stop()
    assert recorder.started.index("b-first") <= 2
    assert recorder.started.index("b-later") <= 103  # the urgent ones of both groups come before
    assert [key for key in recorder.started if key.startswith("a")][:3] == ["a1", "a3", "a5"]


async def test_work_queue_key_woken_again_with_first_is_worked_on_once_and_before_others() -> None:
    recorder = Recorder()
    recorder.gate.clear()
    queue = queue_of(recorder, workers=1)
    queue.start()
    queue.wake("busy")
    await recorder.until_started(1)
    for key in ("a", "b", "c"):
        queue.wake(key)
    queue.wake("c", FIRST)
    recorder.gate.set()
    await recorder.until_started(4)
    await queue.stop()
    assert recorder.started == ["busy", "c", "a", "b"]
