"""The rules that turn an item into a request, and the judge's reply into a verdict."""

from collections.abc import Callable
from dataclasses import dataclass

from evalrun_aggregator.ledger.entries import StoredCompletion
from evalrun_proto.judge.v1 import judge_pb2

BuildRequest = Callable[[int, StoredCompletion], judge_pb2.JudgeRequest]
ReadVerdict = Callable[[int, judge_pb2.Verdict], judge_pb2.Verdict]
NextFeedback = Callable[[int, StoredCompletion, judge_pb2.Verdict], str]


def read_as_sent(_index: int, verdict: judge_pb2.Verdict) -> judge_pb2.Verdict:
    """Return the judge's verdict unchanged."""
    return verdict


def open_no_turn(_index: int, _completion: StoredCompletion, _verdict: judge_pb2.Verdict) -> str:
    """Return no feedback: the run has no further turns."""
    return ""


@dataclass(frozen=True)
class ItemRules:
    """A run's rules for its items. Pure functions of an item's index."""

    request: BuildRequest
    """Builds the request from an item and its completion."""
    verdict: ReadVerdict = read_as_sent
    """Returns an item's verdict from the judge's verdict."""
    feedback: NextFeedback = open_no_turn
    """Returns the text that opens a sample's next turn, from an item, its completion and its verdict; empty if none
    opens."""
