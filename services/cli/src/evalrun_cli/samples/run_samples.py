"""Opens the samples of a run by its place: its outputs if it has ended, its ledger if not."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from evalrun_api.names import EVAL_RUN_PREFIX
from evalrun_cli.local.workspace import Workspace
from evalrun_results.sample_rows.stored_batches import StoredBatches
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.exits import BadInputError


class RunSamples(Protocol):
    """The samples of a run, as rows of its outputs."""

    def read(self, columns: Sequence[str] = (), problem: str | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Args:
            columns: columns to read; empty: all.
            problem: a hint: rows of other problems may be left out.
        """


def open_samples(place: str) -> RunSamples:
    """Open the samples of the run in a directory or at a URL.

    Raises:
        BadInputError: no run lies there, or it has no answers yet.
    """
    if place.startswith(EVAL_RUN_PREFIX):
        name = place.removeprefix(EVAL_RUN_PREFIX)
        raise BadInputError(f"{place}: fetch it first: evalrun results {name} --output DIR, then name DIR")
    if "://" in place:
        return StoredBatches(StoredRun.open(place))
    workspace = Workspace(Path(place).resolve())
    if workspace.summary.exists() or not workspace.ledger.exists():
        return StoredBatches(StoredRun.open(place))
    if not workspace.has_completions:
        raise BadInputError(f"{place}: the run has no answers yet: wait for the first, or read {workspace.logs}")
    # A run that has ended does not need this import.
    from evalrun_aggregator.sample_feed.ledger_batches import LedgerBatches

    return LedgerBatches(workspace.ledger)
