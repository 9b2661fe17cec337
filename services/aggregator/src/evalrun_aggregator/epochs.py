"""Fences generators: once a later generator has asked for work, an earlier one can neither take nor store anything.

A generator on a node that was cut off from the network continues there, and may come back after another generator has
taken its place. The highest epoch is on disk before it counts, so that a restart of the aggregator does not let the
earlier generator in.
"""

from collections.abc import Mapping

from evalrun_aggregator.ledger.ledger import Ledger

FACT = "generator_epoch"


class SupersededError(Exception):
    """A call comes from a generator that was replaced by another."""


class Epochs:
    """The epoch of the generator that may write.

    Args:
        ledger: stores the epoch.
        facts: the facts of the ledger.
    """

    def __init__(self, ledger: Ledger, facts: Mapping[str, str]) -> None:
        self._ledger = ledger
        self._highest = int(facts.get(FACT, "0"))

    async def admit(self, epoch: int) -> None:
        """Record the epoch of a worker that asks for work.

        Raises:
            SupersededError: a later worker has asked before.
            LedgerError: the epoch cannot be stored.
        """
        if epoch > self._highest:
            await self._ledger.set_facts(**{FACT: str(epoch)})
            # Another call may have raised the epoch meanwhile.
            self._highest = max(self._highest, epoch)
        self.check(epoch)

    def check(self, epoch: int) -> None:
        """Raise SupersededError if a later worker has asked for work."""
        if epoch < self._highest:
            raise SupersededError(
                f"a later generator of this run has taken over (epoch {self._highest}; this call has {epoch}): "
                "end this one"
            )
