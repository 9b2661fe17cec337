"""A thousand rows of a batch, 50 of which nobody can judge. Needs the standard library alone: trainers read it too."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, cycle, islice
from typing import Any

Row = Mapping[str, Any]

ODD = 50
EVERY = 20
"""Each so many rows have one that is odd."""
PROGRAM = "```python\nprint(1)\n```"


def nested(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


TRUTHS: Mapping[str, Any] = {
    "None": None,
    "NaN": math.nan,
    "infinity": math.inf,
    "a number": 7,
    "a bool": True,
    "a list": [1, "2"],
    "a lone surrogate": {"inputs": ["\ud800"], "outputs": ["1"]},
    "NaN among the outputs": {"inputs": ["1\n"], "outputs": [math.nan]},
    "an infinite number in a text": '{"inputs": [1e400], "outputs": ["1"]}',
    "texts in place of lists": {"inputs": "1\n", "outputs": 3},
    "no outputs": {"inputs": ["1\n"]},
    "no tests": {"inputs": [], "outputs": []},
    "half a text": '{"inputs": ["1',
}
"""What is no tests, as JSON's Python dialect can write it."""
UNWRITABLE_TRUTHS: Mapping[str, Any] = {
    "bytes": b"\xff\x00",
    "bytes among the inputs": {"inputs": [b"1\n"], "outputs": ["1"]},
    "an integer of 5,000 digits": 10**5000,
    "an object": object(),
    "a hundred thousand lists": nested(100_000),
    "a list of 900 levels": nested(900),
}
"""The same as JSON cannot write it, or as no reader of JSON takes it."""
ANSWERS: Mapping[str, Any] = {"None": None, "NaN": math.nan, "a number": 3, "a list": ["x"], "an object": {"a": "x"}}
UNWRITABLE_ANSWERS: Mapping[str, Any] = {"bytes": b"print(1)", "a huge integer": 10**5000}
"""What is no answer."""


def odd_rows(truths: Sequence[Any], answers: Sequence[Any], usual_truth: str) -> list[Row]:
    """Return 50 rows, each with one of these truths or answers."""
    by_truth = ({"solution": PROGRAM, "ground_truth": truth} for truth in truths)
    by_answer = ({"solution": answer, "ground_truth": usual_truth} for answer in answers)
    rows = islice(cycle([*by_truth, *by_answer]), ODD)
    return [{"data_source": "codecontests", **row} for row in rows]


def mixed(exact: Sequence[Row], odd: Sequence[Row]) -> list[Row]:
    """Return all rows; every 20th is odd."""
    usual, unusual = iter(exact), iter(odd)
    groups: Iterator[Iterator[Row]] = (chain(islice(usual, EVERY - 1), [next(unusual)]) for _ in odd)
    return list(chain.from_iterable(groups))


def of_exact(values: Sequence[Any]) -> list[Any]:
    return [value for number, value in enumerate(values, 1) if number % EVERY]


def of_odd(values: Sequence[Any]) -> list[Any]:
    return list(values[EVERY - 1 :: EVERY])
