"""Names of work items, as something to put into a set and as something to read."""

from evalrun.ledger.v1 import ledger_pb2 as ledger

Key = tuple[str, str, int, int, int]
"""Dataset, problem, sample, turn, repeat."""


def key_of(key: ledger.WorkKey) -> Key:
    """Give a work key as something to put into a set."""
    return key.dataset, key.problem_id, key.sample, key.turn, key.repeat


def describe(key: Key) -> str:
    """Name an item for people."""
    dataset, problem, sample, turn, repeat = key
    extra = (f" turn {turn}" if turn else "") + (f" repeat {repeat}" if repeat else "")
    return f"{dataset} {problem} sample {sample}{extra}"
