"""Builds the reply to GetStatus, with the obstacle of the run in one line."""

from collections.abc import Mapping, Sequence

from evalrun_aggregator.gate_watch import GateWatch
from evalrun_aggregator.intake import Intake
from evalrun_aggregator.judging.dispatcher import Dispatcher
from evalrun_aggregator.judging.judge_descriptions import JudgeDescriptions
from evalrun_aggregator.progress import run_state
from evalrun_aggregator.replicas import ReplicaRegistry
from evalrun_aggregator.run_end import Outputs
from evalrun_aggregator.run_state import RunState
from evalrun_aggregator.start.start_warnings import language_warnings
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_proto.ledger.v1 import ledger_pb2
from evalrun_results.samples import FINAL_STATUS_NAMES

GATE_DECISIONS = {
    "NoRegression": ledger_pb2.GATE_DECISION_PASSED,
    "Regression": ledger_pb2.GATE_DECISION_FAILED,
    "Inconclusive": ledger_pb2.GATE_DECISION_INCONCLUSIVE,
    "BaselineNotFound": ledger_pb2.GATE_DECISION_NO_BASELINE,
    "Implausible": ledger_pb2.GATE_DECISION_IMPLAUSIBLE,
}
"""Decision by the reason of the condition GatePassed."""

PAUSED = "paused: nothing new is generated or judged until `evalrun ctl RUN resume`"


class StatusReport:
    """Reads the parts of a run; changes nothing.

    Args:
        state: the state of the run.
        intake: reports whether completions can be stored.
        dispatcher: reports whether verdicts come and can be stored.
        judges: report whether they can judge this run.
        replicas: the workers' reports.
        outputs: reports whether outputs can be written.
        start_warnings: warnings from before the generation.
        languages: how many problems of each dataset need a sandbox with each language.
        gate_watch: the sequential gates; None: the run has none.
    """

    def __init__(
        self,
        state: RunState,
        intake: Intake,
        dispatcher: Dispatcher,
        judges: JudgeDescriptions,
        replicas: ReplicaRegistry,
        outputs: Outputs,
        start_warnings: Sequence[str],
        languages: Mapping[str, Mapping[str, int]],
        gate_watch: GateWatch | None,
    ) -> None:
        self._state = state
        self._intake = intake
        self._dispatcher = dispatcher
        self._judges = judges
        self._replicas = replicas
        self._outputs = outputs
        self._start_warnings = tuple(start_warnings)
        self._languages = languages
        self._gate_watch = gate_watch

    def response(self) -> ledger_pb2.GetStatusResponse:
        """Return the run's status as a message."""
        state = self._state
        ended = state.ended
        response = ledger_pb2.GetStatusResponse(
            run=state.name,
            state=run_state(state.progress),
            output_tokens=state.output_tokens,
            elapsed_seconds=state.measure_elapsed_seconds(),
            judge_in_flight=self._dispatcher.in_flight,
            output_url=ended.output_url if ended else "",
            message=self._message(),
            replicas=self._replicas.list_replicas(state.clocks.monotonic()),
            gpu_seconds=self._replicas.gpu_seconds,
            wandb_url=ended.wandb_url if ended else "",
            attested_by=ended.attested_by if ended else "",
            warnings=self._warnings(),
            ended_early=state.ended_early,
            generating_seconds=state.work_time.generating_seconds,
            working_seconds=state.work_time.working_seconds,
            stopped_early=state.stopped_early,
            paused=state.is_paused and ended is None,
            max_in_flight=state.max_in_flight,
            stopped_by_user=state.is_stopped_by_user,
        )
        if ended is not None and ended.gate is not None:
            response.gate = GATE_DECISIONS[ended.gate.reason]
            response.gate_message = ended.gate.message
        response.datasets.extend(self._datasets())
        return response

    def _datasets(self) -> list[ledger_pb2.DatasetStatus]:
        ended, found = self._state.ended, []
        for counts in self._state.item_states.datasets:
            dataset = ledger_pb2.DatasetStatus(
                name=counts.name,
                total=counts.total,
                generated=counts.generated,
                judged=counts.judged,
                accepted=counts.accepted,
                not_judged=counts.not_judged,
                cancelled=counts.cancelled,
            )
            for number, count in counts.final_status.items():
                name = FINAL_STATUS_NAMES.get(judge_pb2.FinalStatus.ValueType(number), "unspecified")
                dataset.final_status[name] = count
            if ended is not None and (figure := ended.accepted_at_1.get(counts.name)) is not None:
                interval = ledger_pb2.Interval(value=figure.value, low=figure.low, high=figure.high)
                dataset.accepted_at_1.CopyFrom(interval)
            found.append(dataset)
        return found

    def _message(self) -> str:
        """Return the current obstacle in one line; empty if the run proceeds."""
        state = self._state
        if state.failure is not None:
            return state.failure
        if state.ended is not None:
            return "; ".join(state.ended.warnings)
        if state.is_paused and not state.is_writing:
            return PAUSED
        if (full := self._intake.storage_trouble or self._dispatcher.storage_trouble) is not None:
            return f"{full}: completions and verdicts wait until there is room"
        if state.item_states.unjudged and (trouble := self._judges.trouble or self._dispatcher.trouble) is not None:
            return f"waiting for the judge: {trouble}"
        if state.item_states.remaining and (trouble := self._replicas.trouble(state.clocks.monotonic())) is not None:
            return f"no endpoint answers: {trouble}"
        return (self._outputs.trouble or "writing outputs") if state.is_writing else ""

    def _warnings(self) -> list[str]:
        """Return the warnings to the user, one line each: about endpoints and, at the end, about results."""
        ended = self._state.ended
        notices = self._dispatcher.broken_tests.first_lines() if ended is None else ended.notices
        lost = () if self._gate_watch is None else self._gate_watch.warnings
        mute = language_warnings(self._languages, self._judges.languages)
        return [*self._start_warnings, *mute, *lost, *self._replicas.warnings, *notices]
