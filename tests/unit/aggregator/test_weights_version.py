"""A run's answers are of one version of the weights, over a real ledger."""

import asyncio
from pathlib import Path

import pytest

from evalrun_aggregator.ledger.errors import LedgerError
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_aggregator.weights_version import FACT, OtherWeightsError, WeightsVersion


async def test_first_weights_version_is_kept_and_another_is_refused_with_both_names(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        weights = WeightsVersion(ledger, {})
        await weights.admit(["aaa", "aaa"])
        await weights.admit(["aaa"])
        with pytest.raises(OtherWeightsError, match="of the weights bbb, and this run's are of aaa"):
            await weights.admit(["aaa", "bbb"])
        await weights.admit(["aaa"])


async def test_batch_of_two_versions_is_refused_and_sets_no_version(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        weights = WeightsVersion(ledger, {})
        with pytest.raises(OtherWeightsError):
            await weights.admit(["bbb", "aaa"])
        await weights.admit(["bbb"])


async def test_answers_without_a_weights_version_are_always_accepted(tmp_path: Path) -> None:
    """A worker of an earlier release, or an endpoint of somebody else's: they never knew what they serve."""
    async with Ledger(tmp_path / "l.db") as ledger:
        weights = WeightsVersion(ledger, {})
        await weights.admit([""])
        assert FACT not in ledger.reader.facts()
        await weights.admit(["", "aaa"])
        await weights.admit([""])


async def test_the_version_outlives_the_process(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        await WeightsVersion(ledger, {}).admit(["aaa"])
    async with Ledger(tmp_path / "l.db") as ledger:
        with pytest.raises(OtherWeightsError):
            await WeightsVersion(ledger, ledger.reader.facts()).admit(["bbb"])


async def test_simultaneous_versions_only_one_is_accepted(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        weights = WeightsVersion(ledger, {})
        ends = await asyncio.gather(weights.admit(["aaa"]), weights.admit(["bbb"]), return_exceptions=True)
        assert [type(end) for end in ends] == [type(None), OtherWeightsError]
        assert ledger.reader.facts()[FACT] == "aaa"


class FullOnce(Ledger):
    """Has no room for the first facts."""

    is_full = True

    async def set_facts(self, **facts: str) -> None:
        if self.is_full:
            self.is_full = False
            raise LedgerError("the disk is full")
        await super().set_facts(**facts)


async def test_admit_after_a_failed_write_writes_the_version(tmp_path: Path) -> None:
    async with FullOnce(tmp_path / "l.db") as ledger:
        weights = WeightsVersion(ledger, {})
        with pytest.raises(LedgerError):
            await weights.admit(["aaa"])
        await weights.admit(["aaa"])
        assert ledger.reader.facts()[FACT] == "aaa"
