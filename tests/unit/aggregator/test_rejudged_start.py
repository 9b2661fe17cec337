"""A run that was cancelled and is judged again: what it never drew stays missing, and its results stay partial."""

from pathlib import Path

import pytest

from evalrun_aggregator.ledger.entries import StoredCompletion
from evalrun_aggregator.ledger.item_states import ItemState
from evalrun_aggregator.ledger.items import DatasetItems, RunItems
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_aggregator.start.facts import LedgerIdentity, protocol_facts
from evalrun_aggregator.start.ledger_start import OpenedRun, open_run
from evalrun_api.run_config import Protocol

IDENTITY = LedgerIdentity("r", "generation", "judging")


FIRST = StoredCompletion(0, "x", "stop", 1, 1, 0.0, 1)


async def opened_again(path: Path, items: RunItems, ended_early: str, asked: int) -> OpenedRun:
    async with Ledger(path) as ledger:
        await open_at(ledger, items, None, [])
        await ledger.add_completions([FIRST])
        await ledger.set_facts(ended_early=ended_early)
        await open_at(ledger, items, "again", [asked])
        return await open_at(ledger, items, "again", [asked])  # started once more after a crash


async def open_at(ledger: Ledger, items: RunItems, rejudge: str | None, asked: list[int]) -> OpenedRun:
    return await open_run(
        ledger,
        items,
        IDENTITY,
        rejudge=rejudge,
        retry_not_judged=False,
        responses=None,
        budget=None,
        asked=asked,
        now=1.0,
    )


@pytest.mark.parametrize("ended_early", ["cancelled by the user", ""])
async def test_open_run_that_rejudges_keeps_why_the_run_ended_early(ended_early: str, tmp_path: Path) -> None:
    found = await opened_again(
        tmp_path / "l.db", RunItems([DatasetItems("a", ["a1", "a2"])], samples=2), ended_early, 2
    )
    assert (found.cut_short, found.ended_early) == (ended_early, "")
    assert found.item_states.count(ItemState.MISSING) == 3


async def test_open_run_that_rejudges_turns_counts_only_first_answers_as_missing(tmp_path: Path) -> None:
    items = RunItems([DatasetItems("a", ["a1", "a2"])], samples=1, turns=3)
    found = await opened_again(tmp_path / "l.db", items, "cancelled", 1)
    assert found.item_states.count(ItemState.MISSING) == 1


@pytest.mark.parametrize(("seeds", "told"), [(1, False), (3, True)])
def test_protocol_facts_omit_seeds_for_one_seed(seeds: int, told: bool) -> None:
    """Or no run that an earlier release began could be resumed."""
    fields = {"name": "EVAL@k", "k": [1], "temperature": "0.8", "seeds": seeds}
    assert ("seeds" in protocol_facts(Protocol.model_validate(fields))) == told
