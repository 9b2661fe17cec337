"""The codec: what crosses comes back as it was, what lies is copied by its base type, what is no value is refused."""

import argparse
import array
import collections
import datetime
import decimal
import enum
import fractions
import io
import ipaddress
import json
import math
import pathlib
import re
import sys
import types
import uuid
import zoneinfo
from typing import Any, NamedTuple

import pytest

from evalrun_executor.calls import values
from evalrun_executor.calls.values import (
    Decoder,
    Encoder,
    Heap,
    TypeRefusedError,
    ValueRefusedError,
    changes,
    decode,
    dumps,
    encode,
    loads,
)

HUGE = 10**6000


def crossed(value: object) -> Any:
    return decode(loads(dumps(encode(value))))


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, 1, -1, 2**63 - 1, 2**63, -(2**63), 2**64, HUGE, -HUGE,
        0.0, 0.1, 1.0, 1e300, 5e-324, math.inf, -math.inf, 1e16, 2j, complex(0.1, -3.0), complex(math.inf, -0.0),
        "", "text", "\n\0\x7f", "é𝄞", "\ud800", "\ud83d\ude00", "a\udfffb", b"", b"\x00\xff\n",
        [], [1, [2, ["a"]]], (), (1,), ((), ((),)), set(), {1, 2}, {(1, 2.5), frozenset({2})}, frozenset(),
        frozenset({b"x"}),
        {}, {"b": 1, "a": 2}, {1: {2: 3}, (1, 2): [4], None: None, frozenset({1}): 0, 1.5: True},
        [1, 2**70], [1.5, math.inf], [True, None], [1, True, 1.0], ["a", "\ud800"], nested(values.MAX_DEPTH),
        int, str, ValueError, StopIteration, len, sorted, [int, max], type(None), ..., NotImplemented,
        collections.deque([1, 2], 5), collections.OrderedDict(b=1, a=2), collections.defaultdict(list, a=[1]),
        collections.Counter("aab"), bytearray(b"x"), range(1, 9, 2), slice(1, None), fractions.Fraction(1, 3),
        decimal.Decimal("1.10"), datetime.date(2024, 2, 29), datetime.timedelta(1, 2, 3),
        datetime.datetime(2024, 1, 2, 3, 4, 5, 6, datetime.UTC), datetime.time(1, 2), uuid.UUID(int=5),
        pathlib.PurePosixPath("/a/b"), re.compile("a+", re.IGNORECASE), types.SimpleNamespace(a=[1]),
        collections.Counter, collections.deque, fractions.Fraction, {"a": 1}.keys(), {"a": 1}.items(),
    ],
    ids=lambda value: f"{type(value).__name__}-{ascii(value)[:20]}" if value not in (HUGE, -HUGE) else "huge",
)  # fmt: skip
def test_value_comes_back_equal_and_of_the_same_type(value: object) -> None:
    back = crossed(value)
    assert back == value
    assert type(back) is type(value)


def test_nan_zero_sign_order_and_types_survive_the_crossing() -> None:
    assert math.isnan(crossed(math.nan))
    assert math.copysign(1, crossed(-0.0)) == -1
    assert math.copysign(1, crossed(complex(1, -0.0)).imag) == -1
    assert list(crossed({"b": 1, "a": 2})) == ["b", "a"]
    assert [type(item) for item in crossed([True, 1, 1.0])] == [bool, int, float]
    assert [type(item) for item in crossed([1, True])] == [int, bool]
    assert crossed("\ud83d\ude00") != "\U0001f600"


def test_encoded_text_is_one_ascii_line() -> None:
    text = dumps(encode({"a\n\u2028": [b"\n", "\ud800"]}))
    assert text.isascii()
    assert "\n" not in text


def test_sets_of_equal_content_are_encoded_in_the_same_order() -> None:
    first, second = set(), set()
    for item in (0, 8, 16, 24):
        first.add(item)
    for item in (24, 16, 8, 0):
        second.add(item)
    assert dumps(encode(first)) == dumps(encode(second))


class Colour(enum.IntEnum):
    RED = 3


class Pair(NamedTuple):
    a: int
    b: str


def moved() -> collections.OrderedDict[str, int]:
    ordered = collections.OrderedDict(a=1, b=2)
    ordered.move_to_end("a")
    return ordered


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (moved(), collections.OrderedDict(b=2, a=1)),
        (Colour.RED, 3),
        ([Colour.RED], [3]),
    ],
)
def test_subclass_instance_becomes_its_base_type(value: object, plain: Any) -> None:
    back = crossed(value)
    assert back == plain
    assert type(back) is type(plain)
    if isinstance(plain, dict):
        assert [*back] == [*plain.keys()]


def pair() -> tuple[Heap, Heap]:
    """The two sides of one test: the assertions' and the program's."""
    return Heap("a"), Heap("p")


def sent(value: object, given: Heap, taken: Heap) -> Any:
    """What the other side has of a value, through the text on the wire."""
    return Decoder(taken).decode(loads(dumps(encode(value, given))))


@pytest.mark.parametrize(
    "value",
    [
        array.array("d", [1.5, 2]), ipaddress.ip_address("::1"), ipaddress.ip_network("10.0.0.0/8"),
        ipaddress.ip_interface("10.1.0.1/8"), pathlib.PureWindowsPath("c:/x"), pathlib.Path("/x"),
        uuid.UUID(int=7), zoneinfo.ZoneInfo("UTC"), memoryview(b"abc"), memoryview(bytearray(b"abc"))[1:].toreadonly(),
        collections.ChainMap({1: 2}, {3: 4}), collections.UserDict(a=1), collections.UserList([1]),
        collections.UserString("x"), types.MappingProxyType({1: 2}), argparse.Namespace(a=1),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_standard_value_crosses_as_itself(value: Any) -> None:
    back = sent(value, *pair())
    assert type(back) is type(value)
    assert back == value


def test_a_stream_crosses_with_its_position_and_its_changes() -> None:
    ours, theirs = pair()
    text, data = io.StringIO("one\ntwo"), io.BytesIO(b"\x00\xff")
    text.seek(4)
    (text2, data2) = sent([text, data], ours, theirs)
    assert (text2.read(), data2.getvalue()) == ("two", b"\x00\xff")
    text2.write("!")
    Decoder(ours).apply(changes(theirs, theirs.objects["a"]))
    assert (text.getvalue(), text.tell()) == ("one\ntwo!", 8)


def test_array_crosses_with_its_sharing_and_later_changes() -> None:
    ours, theirs = pair()
    numbers = array.array("i", [3, 1])
    first, second = sent([numbers, numbers], ours, theirs)
    assert first is second
    first.append(2)
    Decoder(ours).apply(changes(theirs, theirs.objects["a"]))
    assert numbers.tolist() == [3, 1, 2]
    assert changes(theirs, theirs.objects["a"]) == []


@pytest.mark.parametrize("depth", [100, 10_000])
def test_a_value_of_any_depth_crosses(depth: int) -> None:
    deep = nested(depth)
    back, levels = sent(deep, *pair()), 0
    while type(back) is list:
        back, levels = back[0], levels + 1
    assert (back, levels) == (1, depth)


def test_a_chain_of_objects_of_any_length_crosses() -> None:
    class Node:
        following: object = None

    ours, theirs = Heap("a", {Node.__qualname__: Node}), Heap("p", {Node.__qualname__: Node})
    chain = None
    for _ in range(10_000):
        made = Node()
        made.following = chain
        chain = made
    back, length = sent(chain, ours, theirs), 0
    while back is not None:
        assert type(back) is Node
        back, length = back.following, length + 1
    assert length == 10_000


def test_nan_keeps_its_identity() -> None:
    ours, theirs = pair()
    nan = float("nan")
    (theirs_nan, other) = sent([nan, nan], ours, theirs)
    assert theirs_nan is other
    assert sent([theirs_nan], theirs, ours) == [nan]
    assert sent([float("nan")], theirs, ours) != [nan]
    assert sent(math.nan, theirs, ours) is math.nan


class Errors(ExceptionGroup):
    pass


def test_exception_group_crosses_with_its_members() -> None:
    ours, theirs = pair()
    group = sent(ExceptionGroup("two", [ValueError(1), ExceptionGroup("in", [KeyError("k")])]), theirs, ours)
    assert type(group) is ExceptionGroup
    assert (group.message, [type(inner) for inner in group.exceptions]) == ("two", [ValueError, ExceptionGroup])
    assert group.subgroup(KeyError) is not None
    assert isinstance(sent(Errors("own", [ValueError()]), theirs, ours), ExceptionGroup)


def test_attributes_of_an_exception_outside_its_arguments_cross() -> None:
    ours, theirs = pair()
    error = sent(OSError(2, "gone", "file.txt"), theirs, ours)
    assert (type(error), error.errno, error.filename) == (FileNotFoundError, 2, "file.txt")
    wrong = sent(SyntaxError("no", ("f.py", 3, 1, "x y")), theirs, ours)
    assert (wrong.lineno, wrong.filename, wrong.text) == (3, "f.py", "x y")
    text = sent(UnicodeEncodeError("ascii", "\xe9", 0, 1, "no"), theirs, ours)
    assert (text.start, text.encoding) == (0, "ascii")


def test_flags_of_a_shared_class_cross_in_any_combination() -> None:
    ours, theirs = Heap("a", {"Access": Access}), Heap("p", {"Access": Access})
    assert sent(Access.READ | Access.WRITE, theirs, ours) is Access.READ | Access.WRITE
    assert sent(Access(0), theirs, ours) is Access(0)


class Access(enum.IntFlag):
    READ = 1
    WRITE = 2


def test_numpy_values_cross_with_type_and_shape() -> None:
    numpy = pytest.importorskip("numpy")
    for value in (
        numpy.arange(6).reshape(2, 3), numpy.zeros((2, 0)), numpy.float32(0.1), numpy.int64(3), numpy.bool_(True),  # noqa: FBT003
        numpy.array(["ab", "c"]), numpy.complex128(1j), numpy.array(5.0), numpy.datetime64("2024-01-02"),
        numpy.array([1, None], object), numpy.asfortranarray(numpy.eye(3)),
    ):  # fmt: skip
        back = sent(value, *pair())
        assert type(back) is type(value)
        assert (back.dtype, back.shape) == (value.dtype, value.shape)
        assert numpy.array_equal(back, value)


def test_view_of_an_array_stays_a_view() -> None:
    numpy = pytest.importorskip("numpy")
    ours, theirs = pair()
    array_here = numpy.zeros((3, 2))
    there = sent(array_here, ours, theirs)
    view = sent(there[::2, 1], theirs, ours)
    view[0] = 5
    assert array_here.tolist() == [[0, 5], [0, 0], [0, 0]]
    there.sort()
    there[1] = 7
    Decoder(ours).apply(changes(theirs, theirs.objects["a"]))
    assert array_here[1].tolist() == [7, 7]


@pytest.mark.parametrize(
    "structure",
    [
        {"B": ["ndarray", ["|O", [1], "00" * 8]]}, {"B": ["ndarray", ["<i8", [5], "00" * 8]]}, {"B": ["x", []]},
        {"B": ["array", ["Z", ""]]}, {"V": [[], []]}, {"v": ["numpy.generic", ["|O", {"b": "00" * 8}, 1]]},
        {"V": [{"B": ["ndarray", ["<i8", [1], "00" * 8]]}, ["<i8", [9], [8], 0]]}, {"H": [[], [[{"p": 9}, []]]]},
        {"I": ["collections.Counter", [], [], None]}, {"E": ["x", None, 1]},
    ],
)  # fmt: skip
def test_a_forged_structure_of_a_standard_value_is_refused(structure: object) -> None:
    pytest.importorskip("numpy")
    with pytest.raises(ValueRefusedError):
        Decoder(Heap("a")).decode(structure)


class LyingInt(int):
    __class__ = float  # type: ignore[assignment]  # the lie

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "5"

    def __index__(self) -> int:
        return 5

    def __pos__(self) -> int:
        return 5

    def bit_length(self) -> int:
        return 5


class LyingStr(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "lie"

    def encode(self, *_: object) -> bytes:
        return b"lie"


class LyingFloat(float):
    def __float__(self) -> float:
        return 5.0

    def __pos__(self) -> float:
        return 5.0


class LyingDict(dict[str, int]):
    def items(self) -> Any:
        return [("lie", 5)]

    def __iter__(self) -> Any:
        return iter(["lie"])


class LyingList(list[int]):
    def __iter__(self) -> Any:
        return iter([5])

    def __len__(self) -> int:
        return 1


class LyingBytes(bytes):
    def hex(self, *_: object) -> str:
        return "05"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (LyingInt(1), 1), (LyingStr("x"), "x"), (LyingFloat(1.5), 1.5), (LyingDict(a=1), {"a": 1}),
        (LyingList([1, 2]), [1, 2]), (LyingBytes(b"x"), b"x"), ([LyingInt(1)], [1]), ({LyingInt(7)}, {7}),
        ({LyingStr("k"): LyingInt(2)}, {"k": 2}),
    ],
)  # fmt: skip
def test_a_lying_subclass_is_read_by_its_base_type(value: object, plain: object) -> None:
    back = crossed(value)
    assert type(back) is type(plain)
    assert back == plain


class AlwaysEqual:
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (AlwaysEqual(), "AlwaysEqual"),
        ([AlwaysEqual()], "AlwaysEqual"),
        ({AlwaysEqual(): 1}, "AlwaysEqual"),
        ((n for n in [1]), "generator"),
        (lambda: 0, "function"),
        (eval, "builtin_function_or_method"),
        (type, "type"),
        (nested(values.MAX_DEPTH + 1), "deeper than 64"),
        ("x" * (values.MAX_BYTES + 1), "larger than 32 MiB"),
        (b"x" * values.MAX_BYTES, "larger than 32 MiB"),
    ],
    ids=["object", "inside", "key", "generator", "lambda", "eval", "type", "deep", "str", "bytes"],
)
def test_value_that_cannot_cross_is_refused_by_its_type(value: object, says: str) -> None:
    with pytest.raises(ValueRefusedError, match=says):
        crossed(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(ValueRefusedError, match="deeper"):
        encode(loop)


def test_a_small_object_that_unfolds_without_end_is_refused_soon() -> None:
    value: object = [1, 2]
    for _ in range(50):
        value = [value, value]
    with pytest.raises(ValueRefusedError, match="larger"):
        encode(value)


def test_value_that_cannot_cross_is_replaced_by_the_callers_mark() -> None:
    thing = AlwaysEqual()
    structure = encode([1, thing], None, lambda found: {"g": type(found).__name__})
    assert structure == [1, {"g": "AlwaysEqual"}]
    back: Any = decode(structure, None, lambda tag, payload: (tag, payload))
    assert back == [1, ("g", "AlwaysEqual")]
    with pytest.raises(ValueRefusedError):
        decode(structure)


class Sides:
    """The program's heap and the test's, and what crosses between them."""

    def __init__(self) -> None:
        self.heaps = {"a": Heap("a", {"Pair": Pair, "Node": Node}), "p": Heap("p", {"Pair": Pair, "Node": Node})}

    def cross(self, value: object, side: str = "p") -> Any:
        """Send a value from a side to the other; give what arrives."""
        structure = loads(dumps(Encoder(self.heaps[side]).encode(value)))
        return Decoder(self.heaps["a" if side == "p" else "p"], None, lambda told, content: (told, content)).decode(
            structure
        )

    def tell(self, side: str = "p") -> None:
        here = self.heaps[side]
        told = changes(here, [thing for made in here.objects.values() for thing in made])
        Decoder(self.heaps["a" if side == "p" else "p"]).apply(loads(dumps(told)))


class Node:
    def __init__(self, value: int, *after: "Node") -> None:
        self.value, self.after = value, [*after]


@pytest.mark.parametrize("side", ["a", "p"])
def test_shared_objects_stay_shared_after_crossing(side: str) -> None:
    row = [0]
    sides = Sides()
    first, second = sides.cross([row, row, (row, {"k": row})], side), sides.cross({"again": row}, side)
    assert first[0] is first[1] is first[2][0] is first[2][1]["k"] is second["again"]
    assert sides.cross([0], side) is not first[0]


def test_object_that_returns_is_the_identical_object() -> None:
    sides = Sides()
    mine: list[Any] = [1, [2]]
    theirs = sides.cross(mine, "a")
    assert sides.cross(theirs) is mine
    assert sides.cross((theirs[1], theirs)) == (mine[1], mine)
    assert sides.cross((theirs[1],))[0] is mine[1]


def test_values_that_hold_themselves_cross() -> None:
    sides = Sides()
    loop: list[Any] = [1]
    loop.append({"self": (loop,)})
    there = sides.cross(loop)
    assert there[1]["self"][0] is there


@pytest.mark.parametrize(
    ("made", "change"),
    [
        ([1], lambda x: x.append(2)),
        ([[1], [2]], lambda x: x[1].append(x[0])),
        (([1],), lambda x: x[0].append(x)),
        ({"a": 1}, lambda x: x.update(b=[3])),
        (collections.OrderedDict(a=1, b=2), lambda x: x.move_to_end("a")),
        ({1}, lambda x: x.add(2)),
        (collections.deque([1, 2]), lambda x: x.rotate()),
        (bytearray(b"a"), lambda x: x.extend(b"b")),
        (collections.Counter("a"), lambda x: x.update("ab")),
        (types.SimpleNamespace(a=1), lambda x: setattr(x, "b", [1])),
        ([1], lambda x: x.append(x)),
    ],
)
def test_changes_of_an_object_are_applied_on_the_other_side(made: Any, change: Any) -> None:
    sides = Sides()
    there = sides.cross(made)
    kept = there[0] if type(made) is tuple else there
    change(made)
    sides.tell()
    assert repr(there) == repr(made)
    assert (there[0] if type(made) is tuple else there) is kept


def test_instances_of_shared_classes_are_rebuilt_from_their_attributes() -> None:
    sides = Sides()
    tail = Node(2)
    there = sides.cross(Node(1, tail, tail))
    assert type(there) is Node
    assert (there.value, there.after[0].value) == (1, 2)
    assert there.after[0] is there.after[1]
    assert type(sides.cross(Pair(1, "x"))) is Pair
    tail.value = 5
    sides.tell()
    assert there.after[0].value == 5


def test_subclass_instance_crosses_with_the_content_of_its_plain_type() -> None:
    sides = Sides()
    (told, content) = sides.cross(LyingInt(3))
    assert (told[0], content) == ("LyingInt", 3)
    (told, content) = sides.cross(AlwaysEqual())
    assert (told[0], content) == ("AlwaysEqual", None)
    assert [values.SPECIALS[way] for way in told[2]] == ["eq", "hash"]


def test_forget_after_removes_objects_of_a_refused_value() -> None:
    heap = Heap("p")
    before = len(heap.objects["p"])
    with pytest.raises(ValueRefusedError):
        Encoder(heap).encode([[1], {AlwaysEqual(): 1}])
    heap.forget_after(before)
    assert (heap.objects["p"], heap.places) == ([], {})


@pytest.mark.parametrize(
    "structure",
    [
        {}, {"t": 1}, {"x": []}, {"t": [], "s": []}, {"d": [1]}, {"s": [[1]]}, {"d": [[1], 2]}, {"i": "zz"}, {"i": 3},
        {"b": "0"}, {"b": 1}, {"c": [1.0]}, {"c": ["a", "b"]}, {"f": "1"}, {"f": []}, {"u": "ff"}, {"n": "eval"},
        {"n": "__import__"}, {"n": []}, {"r": 0}, {"h": [0, 0, "x"]}, {"n": "type"},
        {"n": "os.system"}, {"n": "re.compile"}, {"a": 0}, {"p": -1}, {"p": "x"}, {"v": ["os.system", ["x"]]},
        {"v": ["builtins.eval", ["1"]]}, {"v": ["builtins.range", []]}, {"v": 1}, {"T": ["x y", ["a"], [1]]},
        {"T": ["x", ["a", "a"], [1]]}, {"I": ["Node", [], [], None]}, {"E": ["Node", "x"]}, {"S": [["x", "", []], 1]},
        {"w": ["dict_keys", 1]}, {"w": ["__class__", {"d": []}]}, {"q": ["x", []]}, {"D": [5, []]}, {"y": [1]},
        {"items": []}, {"__class__": []}, {"K": [[1], 2]},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_a_forged_structure_is_refused(structure: object) -> None:
    with pytest.raises(ValueRefusedError):
        decode(structure)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "nul", "1" * 5000, '"\\ud8'])
def test_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueRefusedError):
        loads(text)


def test_a_nan_of_plain_json_is_refused() -> None:
    with pytest.raises(ValueRefusedError):
        decode(loads("[NaN]"))


class OddError(KeyError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (ValueError("x", 1), ValueError),
        (json.JSONDecodeError("m", "d", 1), ValueError),
        (OddError("k"), KeyError),
        (SystemExit(3), SystemExit),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "r"), UnicodeDecodeError),
        (OSError(2, "gone"), OSError),
        (ExceptionGroup("g", [ValueError()]), Exception),
        (ZeroDivisionError(AlwaysEqual()), ZeroDivisionError),
    ],
)
def test_exception_comes_back_as_its_builtin_class(error: BaseException, base: type[BaseException]) -> None:
    back = values.exception_from(loads(dumps(values.exception_parts(error))))
    assert isinstance(back, base)
    assert type(back).__name__ == type(error).__name__
    if isinstance(error, OSError | KeyError):
        assert back.args == error.args


@pytest.mark.parametrize(
    "parts",
    [1, {}, {"base": "int", "type": "x", "args": {"t": []}}, {"base": "ValueError", "type": 1, "args": {"t": []}},
     {"base": "ValueError", "type": "a\0b", "args": {"t": []}}, {"base": "ValueError", "type": "x", "args": 3}],
)  # fmt: skip
def test_a_forged_exception_is_refused(parts: object) -> None:
    with pytest.raises(ValueRefusedError):
        values.exception_from(parts)


def test_huge_integers_cross_despite_the_digit_limit() -> None:
    assert sys.get_int_max_str_digits() < 6000
    assert crossed(HUGE) == HUGE


@pytest.mark.parametrize(
    ("value", "kind"),
    [(object(), TypeRefusedError), ("x" * (values.MAX_BYTES + 1), ValueRefusedError)],
    ids=["type", "size"],
)
def test_encode_value_that_cannot_cross_raises_by_its_kind(value: object, kind: type[Exception]) -> None:
    with pytest.raises(ValueRefusedError) as refused:
        encode(value)
    assert type(refused.value) is kind


@pytest.mark.parametrize(
    "error", [NameError("any words", name="x"), ModuleNotFoundError("any words", name="a.b"), ImportError("none")]
)
def test_exception_that_crosses_keeps_the_missing_name(error: NameError | ImportError) -> None:
    restored = values.exception_from(loads(dumps(values.exception_parts(error))))
    assert isinstance(restored, NameError | ImportError)
    assert restored.name == error.name
