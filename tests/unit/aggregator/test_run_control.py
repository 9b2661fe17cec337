"""Acts on a run whose disk fails: nothing is changed that the ledger does not have."""

import random
from pathlib import Path

import pytest
from builders.aggregator.process import MemoryJudge

from evalrun_aggregator.clocks import Clocks
from evalrun_aggregator.control.acts import Pause, Refusal, RequeueNotJudged, SetConcurrency
from evalrun_aggregator.control.run_control import ActResult, RunControl
from evalrun_aggregator.judging.dispatcher import Dispatcher, DispatchSettings
from evalrun_aggregator.judging.item_rules import ItemRules
from evalrun_aggregator.ledger.entries import StoredCompletion, StoredEvent
from evalrun_aggregator.ledger.errors import LedgerBrokenError
from evalrun_aggregator.ledger.item_states import ItemState
from evalrun_aggregator.ledger.items import DatasetItems, RunItems
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_aggregator.run_state import RunState
from evalrun_aggregator.start.facts import LedgerIdentity
from evalrun_aggregator.start.ledger_start import open_run
from evalrun_proto.judge.v1 import judge_pb2


class NoEvents:
    """Metrics that nobody reads."""

    def record_completion(self, dataset: str, completion: StoredCompletion) -> None:
        del dataset, completion

    def record_progress(self, now: float) -> None:
        del now


async def opened(ledger: Ledger) -> tuple[RunState, RunControl]:
    """Open a run of four answers, two of which were not judged."""
    items = RunItems([DatasetItems("a", ["a1", "a2", "a3", "a4"])])
    run = await open_run(
        ledger, items, LedgerIdentity("r", "generation", "judging"), rejudge=None, retry_not_judged=False,
        responses=None, budget=None, now=1.0,
    )  # fmt: skip
    state = RunState("r", run, NoEvents(), Clocks(lambda: 5.0, lambda: 5.0))
    for index, accepted in enumerate((True, False, False)):
        state.item_states.move(index, ItemState.GENERATED)
        state.item_states.judge(index, judged=accepted, accepted=accepted, final_status=1)
    dispatcher = Dispatcher(
        run.item_states, ledger, [MemoryJudge()], ItemRules(lambda *_: judge_pb2.JudgeRequest()),
        DispatchSettings(), clocks=state.clocks, chance=random.Random(0), traces=None, on_stored=state.note_verdicts,
    )  # fmt: skip
    return state, RunControl(state, ledger, dispatcher, not_asked_for)


async def not_asked_for() -> None:
    raise AssertionError("no act here ends the run")


async def test_acts_and_their_effects_are_stored_in_the_ledger(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        state, control = await opened(ledger)
        assert await control.perform(Pause()) == ActResult(changed=True)
        assert await control.perform(Pause()) == ActResult()
        assert await control.perform(SetConcurrency(3)) == ActResult(changed=True)
        assert await control.perform(RequeueNotJudged()) == ActResult(changed=True, requeued=2)
        assert (state.item_states.unjudged, state.item_states.count(ItemState.ACCEPTED)) == (2, 1)
        assert (state.allowed_in_flight, state.max_in_flight) == (0, 3)
        facts = ledger.reader.facts()
        assert (facts["paused"], facts["max_in_flight"]) == ("yes", "3")
        assert ledger.reader.events() == [
            StoredEvent(5.0, "pause"), StoredEvent(5.0, "set", "concurrency=3"),
            StoredEvent(5.0, "requeue-not-judged", "2 answers"),
        ]  # fmt: skip
        assert ledger.reader.events(since=6.0) == []


@pytest.mark.parametrize("act", [Pause(), SetConcurrency(3), RequeueNotJudged()], ids=str)
async def test_act_that_cannot_be_stored_leaves_the_run_unchanged(
    act: Pause | SetConcurrency | RequeueNotJudged, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "l.db")
    state, control = await opened(ledger)
    await ledger.close()
    with pytest.raises(LedgerBrokenError):
        await control.perform(act)
    assert (state.is_paused, state.max_in_flight) == (False, None)
    assert (state.item_states.count(ItemState.NOT_JUDGED), state.item_states.unjudged) == (2, 0)


async def test_a_failed_run_takes_no_act(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        state, control = await opened(ledger)
        state.fail("the judge refuses")
        assert await control.perform(Pause()) == ActResult(refusal=Refusal.FAILED)
        assert ledger.reader.events() == []
