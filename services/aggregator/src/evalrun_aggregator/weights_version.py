"""Restricts a run's completions to a single version of the weights: the first that is stored.

The version is on disk before its completions are. Replicas load other weights, nodes read other copies of a file, and a
checkpoint's files are rewritten between a kill and the next start. A result of two models would describe neither, so
completions of a second version are not stored.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from evalrun_aggregator.ledger.ledger import Ledger

FACT: Final = "weights_version"


class OtherWeightsError(Exception):
    """Completions come from other weights than those of the run."""


class WeightsVersion:
    """The version of the weights of a run's completions.

    Args:
        ledger: stores the version.
        facts: the facts of the ledger.
    """

    def __init__(self, ledger: Ledger, facts: Mapping[str, str]) -> None:
        self._ledger = ledger
        self._version = facts.get(FACT, "")
        self._is_written = bool(self._version)

    async def admit(self, versions: Iterable[str]) -> None:
        """Check the weights of a batch's completions, and record the run's first version. An empty version is unknown.

        Raises:
            OtherWeightsError: a version differs from the run's.
            LedgerError: the version cannot be stored.
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
            # The version is set before it is on disk: other batches that arrive meanwhile are compared with it, and
            # write it too.
            self._version = expected
            await self._ledger.set_facts(**{FACT: expected})
            self._is_written = True
