"""Derives the state of a run. Pure."""

from dataclasses import dataclass

from evalrun_proto.ledger.v1 import ledger_pb2


@dataclass(frozen=True)
class Progress:
    """The facts that the state is derived from."""

    started: bool
    """Whether a worker has asked for work, or there are completions."""
    remaining: int
    """Number of items without a completion, including later turns that a verdict may open."""
    unjudged: int
    """Number of items with a completion whose verdict is still to come."""
    not_judged: int
    """Number of items that the judge gave up."""
    outputs_written: bool
    failure: str | None = None
    """Reason why the run cannot continue without help."""
    ended_early: bool = False
    """Whether the run was told to end with what it has."""


def run_state(progress: Progress) -> "ledger_pb2.RunState.ValueType":
    """Return the state. A run has ended only once its outputs are written."""
    if progress.failure is not None:
        return ledger_pb2.RUN_STATE_FAILED
    if progress.ended_early:
        return ledger_pb2.RUN_STATE_DEGRADED if progress.outputs_written else ledger_pb2.RUN_STATE_JUDGING
    if progress.remaining:
        return ledger_pb2.RUN_STATE_GENERATING if progress.started else ledger_pb2.RUN_STATE_PREPARING
    if progress.unjudged or not progress.outputs_written:
        return ledger_pb2.RUN_STATE_JUDGING
    return ledger_pb2.RUN_STATE_DEGRADED if progress.not_judged else ledger_pb2.RUN_STATE_SUCCEEDED


def may_write_outputs(progress: Progress) -> bool:
    """Return whether only the outputs are missing: everything is decided, or nothing more is waited for."""
    decided = progress.ended_early or (not progress.remaining and not progress.unjudged)
    return decided and not progress.outputs_written and progress.failure is None
