"""Acts of control and their results as messages of ledger.proto."""

from typing import Final

from evalrun_aggregator.control.acts import (
    MAX_IN_FLIGHT,
    Act,
    Pause,
    Refusal,
    RequeueNotJudged,
    Resume,
    SetConcurrency,
    Standing,
    Stop,
    decide,
)
from evalrun_proto.ledger.v1 import ledger_pb2

REFUSALS: Final = {
    Refusal.ENDED: ledger_pb2.CONTROL_REFUSAL_ENDED,
    Refusal.ENDING: ledger_pb2.CONTROL_REFUSAL_ENDING,
    Refusal.FAILED: ledger_pb2.CONTROL_REFUSAL_FAILED,
    Refusal.NO_ANSWER: ledger_pb2.CONTROL_REFUSAL_NO_ANSWER,
}


class UnusableRequestError(Exception):
    """A request names no known act, or a limit out of range."""


def make_request(act: Act) -> ledger_pb2.ControlRunRequest:
    """Return the request for an act."""
    match act:
        case Pause():
            return ledger_pb2.ControlRunRequest(pause=ledger_pb2.PauseAct())
        case Resume():
            return ledger_pb2.ControlRunRequest(resume=ledger_pb2.ResumeAct())
        case RequeueNotJudged():
            return ledger_pb2.ControlRunRequest(requeue_not_judged=ledger_pb2.RequeueNotJudgedAct())
        case SetConcurrency(bound):
            wanted = ledger_pb2.SetConcurrencyAct(max_in_flight=bound)
            return ledger_pb2.ControlRunRequest(set_concurrency=wanted)
        case Stop():
            return ledger_pb2.ControlRunRequest(stop=ledger_pb2.StopAct())


def refusal_once_ended(act: Act) -> "ledger_pb2.ControlRefusal.ValueType":
    """Return the refusal of an act by a run that has ended, for callers that find no process left to reply."""
    decided = decide(act, Standing(ended=True))
    return REFUSALS[decided] if isinstance(decided, Refusal) else ledger_pb2.CONTROL_REFUSAL_UNSPECIFIED


def read_act(request: ledger_pb2.ControlRunRequest) -> Act:
    """Return the act that a request names. Raises UnusableRequestError."""
    match request.WhichOneof("act"):
        case "pause":
            return Pause()
        case "resume":
            return Resume()
        case "requeue_not_judged":
            return RequeueNotJudged()
        case "set_concurrency":
            asked = request.set_concurrency
            bound = asked.max_in_flight if asked.HasField("max_in_flight") else None
            if bound is not None and not 1 <= bound <= MAX_IN_FLIGHT:
                raise UnusableRequestError(f"max_in_flight is {bound}: from 1 to {MAX_IN_FLIGHT}, or absent")
            return SetConcurrency(bound)
        case "stop":
            return Stop()
    raise UnusableRequestError("act: this version of evalrun knows no such act")
