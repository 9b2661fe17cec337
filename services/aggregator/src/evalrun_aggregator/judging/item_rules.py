"""The rules by which an item becomes a request, and the judge's answer its verdict."""

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
    """An item and its completion -> the request."""
    verdict: ReadVerdict = read_as_sent
    """An item and the judge's verdict -> its verdict."""
    feedback: NextFeedback = open_no_turn
    """An item, its completion and its verdict -> the text that opens its sample's next turn, empty if none opens."""
