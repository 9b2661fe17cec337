"""Ends a run: writes the outputs from the ledger, then records the end in the ledger."""

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evalrun_aggregator.finish.output_retry import OutputRetry
from evalrun_aggregator.finish.output_signature import OutputSignature
from evalrun_aggregator.finish.partial_results import partial_because
from evalrun_aggregator.finish.run_info import run_info
from evalrun_aggregator.finish.sample_stream import NO_ANSWER, make_missing_sample, sample_results
from evalrun_aggregator.gate_watch import GateWatch
from evalrun_aggregator.judging.judge_descriptions import JudgeDescriptions
from evalrun_aggregator.ledger.entries import StoredSample
from evalrun_aggregator.ledger.item_states import ItemState
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_aggregator.replicas import ReplicaRegistry
from evalrun_aggregator.run_end import OutputError, RunEnd
from evalrun_aggregator.run_state import RunState
from evalrun_aggregator.start.facts import end_facts
from evalrun_aggregator.start.problems import RunProblems, count_raced_problems
from evalrun_aggregator.turns.idleness import idle_share
from evalrun_aggregator.weights_version import FACT as WEIGHTS_VERSION
from evalrun_api.run_config import RunConfig
from evalrun_results.comparisons.gate import GateResult
from evalrun_results.comparisons.run_gate import NOTHING_SAID, make_gate_decider
from evalrun_results.metrics.problem_totals import DatasetTotals
from evalrun_results.outputs.stopped_early import StoppedDataset, StoppedEarly
from evalrun_results.samples import SampleResult

if TYPE_CHECKING:
    from evalrun_attest.keys import SigningKey

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OutputJob:
    """Input of the outputs' writer. Its samples can be read any number of times."""

    order: RunConfig
    samples: Callable[[], Iterable[SampleResult]]
    run_info: dict[str, object]
    audit_files: Mapping[str, bytes]
    """Manifests and audits of the data, by their names in `audit/`."""
    gpu_seconds: float
    export_seconds: float
    """Maximum seconds of each export."""
    finished_at: float
    """Unix seconds."""
    decide_gates: Callable[[Mapping[str, DatasetTotals]], Sequence[GateResult]] | None
    """Decides the gates; None if the run has no gate."""
    stopped: StoppedEarly | None
    """How the gates ended the run; None if they did not."""
    staging: Path
    """A directory on this machine with room for outputs that are sent to a remote place: the ledger's directory."""
    wait: Callable[[str], bool]
    """Waits after a remote place refused the outputs, given the error; returns whether to try again."""
    generation: Callable[[], dict[str, float | int | None]] | None = None
    """Returns busy and idle seconds of the replicas; None if no turn depends on a verdict."""
    partial: str = ""
    """Reason why the results are not those of all problems; empty if they are."""
    signature: OutputSignature | None = None
    """Signs the outputs; None if no key was given."""


OutputWriter = Callable[[OutputJob], RunEnd]
"""Blocking; raises OSError if the outputs cannot be written. Each file is written completely or not at all."""


class Finisher:
    """Ends a run."""

    def __init__(
        self,
        order: RunConfig,
        problems: RunProblems,
        ledger: Ledger,
        state: RunState,
        replicas: ReplicaRegistry,
        judges: JudgeDescriptions,
        write: OutputWriter,
        *,
        export_seconds: float,
        retry: OutputRetry,
        watch: GateWatch | None,
        key: "SigningKey | None" = None,
    ) -> None:
        self._order = order
        self._problems = problems
        self._ledger = ledger
        self._state = state
        self._replicas = replicas
        self._judges = judges
        self._write = write
        self._export_seconds = export_seconds
        self._retry = retry
        self._watch = watch
        self._key = key

    @property
    def trouble(self) -> str:
        """The error that prevents writing the outputs, in one line; empty without an error."""
        return self._retry.trouble

    async def finish(self, partial: str = "") -> RunEnd:
        """Write the outputs, then record the end.

        Args:
            partial: why the run ends before everything was decided; empty for any other run.

        Raises:
            OutputError: the outputs could not be written; a restart writes them.
            LedgerError: the disk failed or is full.
        """
        finished_at = self._state.clocks.now()
        partial = partial or self._state.cut_short
        missing = list(self._state.item_states.find_missing_rows())
        absent = self._state.item_states.count_absent_problems()
        incomplete = partial_because(partial, missing, self._problems, absent=absent)
        await self._judges.refresh()
        # The call runs git, which may be slow.
        info = await asyncio.to_thread(
            run_info,
            self._order,
            self._problems,
            judges=self._judges.descriptions,
            containment_levels=self._judges.containment_levels,
            replicas=self._ledger.reader.replicas(),
            gpu_seconds=self._replicas.gpu_seconds,
            weights_version=self._ledger.reader.facts().get(WEIGHTS_VERSION, ""),
            started_at=self._state.started_at,
            ended_at=finished_at,
            partial=incomplete,
            attested_by="" if self._key is None else self._key.public.id,
            events=self._ledger.reader.events(self._state.started_at),
        )
        job = OutputJob(
            order=self._order,
            samples=lambda: sample_results(
                heapq.merge(
                    self._read_counted_samples(),
                    map(make_missing_sample, missing),
                    key=lambda sample: sample.completion.row,
                ),
                self._problems,
                self._order.spec.model.evaluated,
                undecided=f"the run ended early: {partial}" if partial else NO_ANSWER,
            ),
            run_info=info,
            audit_files={
                name: content
                for dataset in self._problems.datasets
                if dataset.audit is not None
                for name, content in dataset.audit.files.items()
            },
            gpu_seconds=self._replicas.gpu_seconds,
            export_seconds=self._export_seconds,
            finished_at=finished_at,
            decide_gates=self._decide_gates(partial, info),
            stopped=self._describe_early_stop(),
            staging=self._ledger.path.parent,
            generation=self._generation(),
            wait=self._retry.wait,
            partial=incomplete,
            signature=None if self._key is None else OutputSignature(self._key, self._problems, self._order.base_dir),
        )
        try:
            end = await asyncio.to_thread(self._write, job)
        except OSError as error:
            raise OutputError(f"the outputs could not be written to {self._order.output_dir}: {error}") from error
        except asyncio.CancelledError:
            # The waiting thread would keep the process from ending.
            self._retry.stop()
            raise
        await self._ledger.finish(end_facts(end))
        return end

    def _generation(self) -> Callable[[], dict[str, float | int | None]] | None:
        turns = self._order.spec.protocol.turns
        if turns is None or self._order.responses is not None:
            return None
        return lambda: idle_share(self._ledger.replica_requests())

    def _read_counted_samples(self) -> Iterator[StoredSample]:
        """Read the samples whose results count. Samples that the gates made needless stay in the ledger only."""
        items, item_states = self._problems.items, self._state.item_states
        if not any(counts.cancelled for counts in item_states.datasets):
            yield from self._ledger.samples()
            return
        for sample in self._ledger.samples():
            index = items.index_of_row(sample.completion.row)
            if index is None or item_states.state(index) is not ItemState.CANCELLED:
                yield sample

    def _decide_gates(
        self, partial: str, run_info: Mapping[str, object]
    ) -> Callable[[Mapping[str, DatasetTotals]], Sequence[GateResult]] | None:
        gates, watch = self._order.spec.gates, self._watch
        if not gates:
            return None
        drawn, decided = (NOTHING_SAID, {}) if watch is None else (watch.drawn, watch.decided)
        return make_gate_decider(gates, self._order.base_dir, drawn, decided, partial=partial, run_info=run_info)

    def _describe_early_stop(self) -> StoppedEarly | None:
        spec, item_states = self._order.spec, self._state.item_states
        if not any(counts.cancelled for counts in item_states.datasets):
            return None
        similar = {name for gate in spec.gates if gate.population == "similar" for name in gate.dataset_names}
        names = [each.name for each in self._problems.items.datasets]
        raced = {
            names[number]: count for number, count in count_raced_problems(self._order, self._problems.items).items()
        }
        kept = raced if self._watch is None else self._watch.kept
        datasets = {}
        for counts, dataset in zip(item_states.datasets, self._problems.items.datasets, strict=True):
            size = len(dataset.problem_ids)
            datasets[counts.name] = StoppedDataset(
                problems=kept.get(counts.name, size),
                of_problems=size,
                cancelled=counts.cancelled,
                population="similar" if counts.name in similar else "benchmark",
            )
        return StoppedEarly(spec.protocol.seed, datasets, "race" if raced else "gates")
