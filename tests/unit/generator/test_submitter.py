import asyncio
from collections.abc import Callable, Sequence

from builders.generator.work import work_items

from evalrun_generator.ledger.fake_ledger import FakeLedger
from evalrun_generator.ledger.submitter import Submitter
from evalrun_proto.ledger.v1 import ledger_pb2 as ledger


def completions(count: int) -> list[ledger.Completion]:
    return [ledger.Completion(key=item.key, text="x") for item in work_items(count)]


async def submitted(
    fake: FakeLedger, use: Callable[[Submitter], None], *, batch_size: int = 4, delay: float = 60.0
) -> list[ledger.Completion]:
    """Run a submitter over what `use` gives it, then flush; gives what it acknowledged."""
    acknowledged: list[ledger.Completion] = []
    submitter = Submitter(fake, batch_size=batch_size, delay=delay, acknowledged=acknowledged.extend)
    running = asyncio.create_task(submitter.run())
    use(submitter)
    await asyncio.wait_for(submitter.flush(), 5)
    assert submitter.pending == 0
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return acknowledged


def add_all(given: Sequence[ledger.Completion]) -> Callable[[Submitter], None]:
    def use(submitter: Submitter) -> None:
        for completion in given:
            submitter.add(completion)

    return use


async def test_full_batches_are_sent_at_once_and_none_is_larger() -> None:
    fake = FakeLedger(work_items(8))
    given = completions(8)
    assert await submitted(fake, add_all(given)) == given
    assert fake.batches == [4, 4]


async def test_a_flush_does_not_wait_for_others() -> None:
    fake = FakeLedger(work_items(3))
    await submitted(fake, add_all(completions(3)))
    assert fake.batches == [3]


async def test_single_completion_is_sent_after_the_delay() -> None:
    fake = FakeLedger(work_items(1))
    submitter = Submitter(fake, batch_size=4, delay=0.001, acknowledged=lambda batch: None)
    running = asyncio.create_task(submitter.run())
    submitter.add(completions(1)[0])
    await asyncio.wait_for(fake.changed.wait(), 5)
    assert fake.remaining == 0
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_completions_added_during_a_call_form_the_next_batch() -> None:
    class Slow(FakeLedger):
        def __init__(self, items: Sequence[ledger.WorkItem]) -> None:
            super().__init__(items)
            self.entered, self.gate = asyncio.Event(), asyncio.Event()

        async def submit(self, completions: Sequence[ledger.Completion]) -> int:
            self.entered.set()
            await self.gate.wait()
            return await super().submit(completions)

    fake, given = Slow(work_items(4)), completions(4)
    submitter = Submitter(fake, batch_size=64, delay=0.001, acknowledged=lambda batch: None)
    running = asyncio.create_task(submitter.run())
    submitter.add(given[0])
    await fake.entered.wait()
    for completion in given[1:]:
        submitter.add(completion)
    assert submitter.pending == 4  # the first one, too: the ledger does not have it yet
    fake.gate.set()
    await asyncio.wait_for(submitter.flush(), 5)
    assert fake.batches == [1, 3]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_unknown_keys_are_dropped_alone() -> None:
    fake = FakeLedger(work_items(3))
    given = [*completions(3), ledger.Completion(key=ledger.WorkKey(dataset="other"))]
    assert await submitted(fake, add_all(given)) == given
    assert fake.remaining == 0
