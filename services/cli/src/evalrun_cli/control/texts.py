"""The texts of `evalrun ctl`: the result of an act, and the remedy if a run refuses it. Pure."""

from dataclasses import dataclass
from typing import Final

from evalrun_aggregator.control.acts import Act, Pause, RequeueNotJudged, Resume, SetConcurrency, Stop
from evalrun_aggregator.control.words import render_words
from evalrun_cli.local.display import STATE_NAMES
from evalrun_proto.ledger.v1 import ledger_pb2


@dataclass(frozen=True)
class ControlledRun:
    """A run as its user names it, and the command that continues it after its end."""

    name: str
    """Name as in `evalrun ctl NAME`."""
    remedy: str
    """A clause with the command that helps after the run's end, such as `evalrun resume DIR does the rest`."""


REFUSED: Final = {
    ledger_pb2.CONTROL_REFUSAL_ENDED: "{name} has ended: {remedy}",
    ledger_pb2.CONTROL_REFUSAL_ENDING: "{name} is ending, its outputs are being written: once they are, {remedy}",
    ledger_pb2.CONTROL_REFUSAL_FAILED: "{name} cannot go on and takes no more acts: {remedy}",
    ledger_pb2.CONTROL_REFUSAL_NO_ANSWER: "{name} has no answer yet, so there is nothing to keep: wait for the first",
}


def refusal_text(response: ledger_pb2.ControlRunResponse, run: ControlledRun) -> str | None:
    """Return why a run refused an act, and a remedy; None if it accepted the act."""
    if response.refusal == ledger_pb2.CONTROL_REFUSAL_UNSPECIFIED:
        return None
    unknown = "{name} did not take it, for a reason that a newer evalrun knows: {remedy}"
    return REFUSED.get(response.refusal, unknown).format(name=run.name, remedy=run.remedy)


def outcome_text(act: Act, response: ledger_pb2.ControlRunResponse, run: ControlledRun) -> str:
    """Return the result of an accepted act, in one line."""
    return f"{run.name}: {_effect(act, response, run)}"


def outcome_json(act: Act, response: ledger_pb2.ControlRunResponse, run: ControlledRun) -> dict[str, object]:
    """Return the result of an accepted act as JSON for programs."""
    return {
        "run": run.name,
        "act": " ".join(render_words(act)),
        "changed": response.changed,
        "state": STATE_NAMES.get(response.state, "unknown"),
        "paused": response.paused,
        "concurrency": response.max_in_flight if response.HasField("max_in_flight") else None,
        "in_flight": response.in_flight,
        "requeued": response.requeued,
    }


def _effect(act: Act, response: ledger_pb2.ControlRunResponse, run: ControlledRun) -> str:
    already = "" if response.changed else "already "
    match act:
        case Pause():
            ends = f"; {response.in_flight} requests in flight end" if response.in_flight else ""
            return f"{already}paused{ends}; go on with: evalrun ctl {run.name} resume"
        case Resume():
            return "goes on" if response.changed else "is not paused"
        case SetConcurrency(bound):
            most = "as many requests in flight as the endpoints take"
            return f"{already}{most if bound is None else f'at most {bound} requests in flight'}"
        case RequeueNotJudged():
            if not response.changed:
                return "every answer so far is judged, or waits for the judge"
            return f"{response.requeued} answers that were not judged are judged again"
        case Stop():
            return "has ended already" if not response.changed else "ends now, with what it has"
