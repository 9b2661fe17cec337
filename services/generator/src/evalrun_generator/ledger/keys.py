"""Keys of work items: hashable, and as text for messages."""

from evalrun_proto.ledger.v1 import ledger_pb2 as ledger

Key = tuple[str, str, int, int, int]
"""Dataset, problem, sample, turn, repeat."""


def key_of(key: ledger.WorkKey) -> Key:
    """Return a work key as a hashable tuple."""
    return key.dataset, key.problem_id, key.sample, key.turn, key.repeat


def describe(key: Key) -> str:
    """Return a human-readable name of an item."""
    dataset, problem, sample, turn, repeat = key
    extra = (f" turn {turn}" if turn else "") + (f" repeat {repeat}" if repeat else "")
    return f"{dataset} {problem} sample {sample}{extra}"
