"""Keeps a run's answers to one version of the weights: the first that is stored, on disk before its answers are.

Replicas take other weights, nodes read other copies of a file, and a checkpoint's files are rewritten between a kill
and the next start. A result of two models would be of neither, so the second one's answers are not stored.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from evalrun_aggregator.ledger.ledger import Ledger

FACT: Final = "weights_version"


class OtherWeightsError(Exception):
    """Completions are of other weights than those of the run."""


class WeightsVersion:
    """The version of the weights that a run's answers are of.

    Args:
        ledger: where it is kept.
        facts: of the ledger.
    """

    def __init__(self, ledger: Ledger, facts: Mapping[str, str]) -> None:
        self._ledger = ledger
        self._version = facts.get(FACT, "")
        self._is_written = bool(self._version)

    async def admit(self, versions: Iterable[str]) -> None:
        """Check what the completions of a batch are of, and note the run's first version. Empty ones are not known.

        Raises:
            OtherWeightsError: one is another than the run's.
            LedgerError: it cannot be written down.
        """
        named = sorted({version for version in versions if version})
        expected = self._version or (named[0] if named else "")
        others = [version for version in named if version != expected]
        if others:
            raise OtherWeightsError(
                f"completions of the weights {others[0]}, and this run's are of {expected}: a replica serves other "
                "weights, or the files of the checkpoint have changed. Write the files as they were and run again, or "
                "start a new run"
            )
        if expected and not self._is_written:
            # Known before it is on disk: what comes meanwhile is compared with it, and writes it once more.
            self._version = expected
            await self._ledger.set_facts(**{FACT: expected})
            self._is_written = True
