"""The end of a run: outputs written from the ledger, then the end recorded in it."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from evalrun_aggregator.facts import ended_facts
from evalrun_aggregator.judge_book import JudgeBook
from evalrun_aggregator.ledger import Ledger
from evalrun_aggregator.problems import RunProblems
from evalrun_aggregator.replicas import ReplicaBook
from evalrun_aggregator.results import SampleResult
from evalrun_aggregator.run import Clocks, DecidedGate, Ended, Interval, OutputError
from evalrun_aggregator.run_info import run_info
from evalrun_aggregator.sample_stream import sample_results
from evalrun_aggregator.work_order import WorkOrder

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OutputJob:
    """What the writer of the outputs gets. Its samples can be read as often as it likes."""

    order: WorkOrder
    samples: Callable[[], Iterable[SampleResult]]
    run_info: dict[str, object]
    gpu_seconds: float
    export_seconds: float
    """That each export may take."""
    staging: Path
    """A folder on this machine with room for the outputs of a remote place: the ledger's."""


@dataclass(frozen=True)
class Written:
    """What was written."""

    output_url: str
    accepted_at_1: dict[str, Interval]
    gate: DecidedGate | None = None
    wandb_url: str = ""
    warnings: tuple[str, ...] = ()


OutputWriter = Callable[[OutputJob], Written]
"""Blocking; raises OSError where the outputs cannot be written. What it leaves is whole or not there."""


class Finisher:
    """Ends a run."""

    def __init__(
        self,
        order: WorkOrder,
        problems: RunProblems,
        ledger: Ledger,
        replicas: ReplicaBook,
        judges: JudgeBook,
        started_at: float,
        clocks: Clocks,
        write: OutputWriter,
        *,
        export_seconds: float,
    ) -> None:
        self._order = order
        self._problems = problems
        self._ledger = ledger
        self._replicas = replicas
        self._judges = judges
        self._started_at = started_at
        self._clocks = clocks
        self._write = write
        self._export_seconds = export_seconds

    async def finish(self) -> Ended:
        """Write the outputs, then record the end.

        Raises:
            OutputError: they could not be written; starting again writes them.
            LedgerError: the disk failed or is full.
        """
        finished_at = self._clocks.now()
        info = await asyncio.to_thread(  # git may take its time
            run_info,
            self._order,
            self._problems,
            judges=self._judges.descriptions,
            containment_levels=self._judges.containment_levels,
            replicas=self._ledger.reader.replicas(),
            gpu_seconds=self._replicas.gpu_seconds,
            started_at=self._started_at,
            ended_at=finished_at,
        )
        job = OutputJob(
            order=self._order,
            samples=lambda: sample_results(self._ledger.samples(), self._problems, self._order.spec.model.path),
            run_info=info,
            gpu_seconds=self._replicas.gpu_seconds,
            export_seconds=self._export_seconds,
            staging=self._ledger.path.parent,
        )
        try:
            written = await asyncio.to_thread(self._write, job)
        except OSError as error:
            raise OutputError(f"the outputs could not be written to {self._order.output_dir}: {error}") from error
        ended = Ended(
            finished_at,
            written.output_url,
            written.accepted_at_1,
            written.gate,
            wandb_url=written.wandb_url,
            warnings=written.warnings,
        )
        await self._ledger.finish(ended_facts(ended))
        return ended
