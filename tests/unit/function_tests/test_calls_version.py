"""What crosses in mode `calls` is read by an image of another release: a change of it needs another version."""

import collections
import datetime
import decimal
import fractions
import math
import types
import uuid

import pytest

from evalrun_executor.api import CALLS_VERSION
from evalrun_executor.calls.values import dumps, encode

TEXTS = {
    "null": None,
    "true": True,
    '{"i":"0x400000000000000000"}': 2**70,
    '{"f":"inf"}': math.inf,
    '{"c":[0.0,1.0]}': 1j,
    '{"u":"eda080"}': "\ud800",
    '{"b":"78"}': b"x",
    '{"y":"78"}': bytearray(b"x"),
    '{"t":[1]}': (1,),
    '{"s":[1,2]}': {1, 2},
    '{"z":[3]}': frozenset({3}),
    '{"d":["a",1]}': {"a": 1},
    '{"q":[2,[1]]}': collections.deque([1], 2),
    '{"O":["a",1]}': collections.OrderedDict(a=1),
    '{"K":["a",2,"b",1]}': collections.Counter("aab"),
    '{"D":[{"n":"list"},["a",[1]]]}': collections.defaultdict(list, a=[1]),
    '{"n":"len"}': len,
    '{"n":"ValueError"}': ValueError,
    '{"X":{"type":"ValueError","base":"ValueError","args":{"t":["x"]},"message":"x","suppress":false}}': ValueError(
        "x"
    ),
    '{"v":["builtins.range",[1,9,2]]}': range(1, 9, 2),
    '{"v":["builtins.slice",[1,null,null]]}': slice(1, None),
    '{"v":["fractions.Fraction",[1,3]]}': fractions.Fraction(1, 3),
    '{"v":["decimal.Decimal",["1.10"]]}': decimal.Decimal("1.10"),
    '{"v":["datetime.date",[2024,2,29]]}': datetime.date(2024, 2, 29),
    '{"v":["uuid.UUID",["00000000-0000-0000-0000-000000000005"]]}': uuid.UUID(int=5),
    '{"N":["a",1]}': types.SimpleNamespace(a=1),
    '{"w":["dict_keys",{"d":["a",1]}]}': {"a": 1}.keys(),
}
"""Values by their encoding. Another text for one of them: raise `CALLS_VERSION`, then write it here."""


@pytest.mark.parametrize(("text", "value"), TEXTS.items())
def test_a_value_crosses_as_this_version_says(text: str, value: object) -> None:
    assert (CALLS_VERSION, dumps(encode(value))) == (1, text)
