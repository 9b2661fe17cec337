"""What crosses in mode `calls` is read by an image of another release: a change of it needs another version."""

import array
import collections
import datetime
import decimal
import fractions
import io
import ipaddress
import math
import operator
import types
import uuid

import msgspec
import pytest

from evalrun_executor.api import (
    WIRE_VERSION,
    CompileResult,
    Limits,
    ProgramRun,
    RunReply,
    RunRequest,
    SandboxInfo,
    list_spoken_versions,
)
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
    '{"w":["memoryview",{"b":"78"}]}': memoryview(b"x"),
    '{"w":["mappingproxy",{"d":["a",1]}]}': types.MappingProxyType({"a": 1}),
    '{"n":"operator.add"}': operator.add,
    '{"v":["ipaddress.IPv4Address",["10.0.0.1"]]}': ipaddress.IPv4Address("10.0.0.1"),
    '{"B":["array",["b","0102"]]}': array.array("b", [1, 2]),
    '{"B":["StringIO",["x",0]]}': io.StringIO("x"),
    '{"B":["BytesIO",["78",0]]}': io.BytesIO(b"x"),
}
"""Values by their encoding. Another text for one of them: raise `WIRE_VERSION`, then write it here."""


@pytest.mark.parametrize(("text", "value"), TEXTS.items())
def test_a_value_crosses_as_this_version_says(text: str, value: object) -> None:
    assert (WIRE_VERSION, dumps(encode(value))) == (1, text)


MESSAGES = {
    (
        "87a86c616e6775616765a6707974686f6ea4636f6465a170a6696e7075747391c40178a66c696d69747383ac74696d655f73"
        "65636f6e6473cb3ff8000000000000aa6d656d6f72795f6d696240aa6f75747075745f6b696220a46d6f6465a563616c6c73"
        "b373746f705f61667465725f74696d656f75747302ad696e707574735f646967657374c40164"
    ): RunRequest("python", "p", [b"x"], Limits(1.5, 64, 32), "calls", 2, b"d"),
    (
        "83a7636f6d70696c6583a6737461747573a26f6ba77365636f6e6473cb3fe0000000000000a6737464657272c40163a47275"
        "6e73918aa3656e64a6657869746564a9657869745f636f646500a67374646f7574c4016fa6737464657272c40165ab637075"
        "5f7365636f6e6473cb3fe0000000000000ac77616c6c5f7365636f6e6473cb3ff8000000000000af7065616b5f6d656d6f72"
        "795f6d696208a9636f6e6669726d6564c2a86d65617375726564c3a8736c6f776e657373cb4004000000000000a56c657665"
        "6ca466756c6c"
    ): RunReply(
        CompileResult("ok", 0.5, b"c"),
        [ProgramRun("exited", 0, b"o", b"e", 0.5, 1.5, 8, confirmed=False, slowness=2.5)],
        "full",
    ),
}
"""Messages by their MessagePack. Another one for one of them: raise `WIRE_VERSION`, then write it here."""


@pytest.mark.parametrize(("packed", "message"), MESSAGES.items())
def test_messages_of_this_version_keep_their_form(packed: str, message: RunRequest | RunReply) -> None:
    assert (WIRE_VERSION, msgspec.msgpack.encode(message).hex()) == (1, packed)
    assert msgspec.msgpack.decode(bytes.fromhex(packed), type=type(message)) == message


@pytest.mark.parametrize(
    ("gateway", "oldest", "spoken", "common"),
    [
        (1, 1, [], 1),  # a sandbox built before it said which versions it speaks
        (2, 1, [], 1),
        (3, 1, [], None),
        (1, 1, [1], 1),
        (1, 1, [1, 2], 1),
        (2, 1, [1], 1),
        (2, 1, [1, 2], 2),
        (2, 2, [2, 3], 2),
        (1, 2, [2, 3], None),
        (4, 1, [1, 2], None),
    ],
)
def test_common_version_is_newest_that_both_speak(
    gateway: int, oldest: int, spoken: list[int], common: int | None
) -> None:
    info = SandboxInfo("1", "full", 1, [], "3.11", calls_version=oldest, wire_versions=spoken)
    assert info.common_version(gateway) == common


def test_spoken_versions_are_newest_and_one_before() -> None:
    assert [list_spoken_versions(newest) for newest in (1, 2, 3)] == [[1], [1, 2], [2, 3]]
