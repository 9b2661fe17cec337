"""Fences between generators, over a real ledger."""

from pathlib import Path

import pytest

from evalrun_aggregator.epochs import Epochs, SupersededError
from evalrun_aggregator.ledger.ledger import Ledger


async def test_a_lower_epoch_is_refused_once_a_higher_one_has_asked_for_work(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        epochs = Epochs(ledger, {})
        await epochs.admit(7)
        epochs.check(7)
        await epochs.admit(9)
        await epochs.admit(9)
        with pytest.raises(SupersededError, match="epoch 9; this call has 7"):
            epochs.check(7)
        with pytest.raises(SupersededError):
            await epochs.admit(0)


async def test_only_asking_for_work_raises_the_epoch(tmp_path: Path) -> None:
    """A generator that reports before it has asked for work replaces nobody."""
    async with Ledger(tmp_path / "l.db") as ledger:
        epochs = Epochs(ledger, {})
        await epochs.admit(7)
        epochs.check(9)
        epochs.check(7)


async def test_the_epoch_outlives_the_process(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        await Epochs(ledger, {}).admit(9)
    async with Ledger(tmp_path / "l.db") as ledger:
        with pytest.raises(SupersededError):
            Epochs(ledger, ledger.reader.facts()).check(8)


async def test_generator_without_an_epoch_is_always_admitted(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        epochs = Epochs(ledger, {})
        await epochs.admit(0)
        epochs.check(0)
