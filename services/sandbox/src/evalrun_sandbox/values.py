"""Plain values that cross between candidate and assertions, as JSON text. Standard library only, no code is evaluated.

What crosses: None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict (any plain hashable key,
order kept), nested up to `MAX_DEPTH`, up to `MAX_BYTES` of text. A subclass (Counter, namedtuple, IntEnum, the
program's own) is copied to its base type by the base type's own methods, so that nothing a program overrides is ever
asked; a deque becomes a list, numpy scalars and arrays what their `tolist` says. Builtin types, exceptions and the
harmless builtin functions cross by name. Anything else is the caller's to name by a mark (`opaque`), or refused.

In JSON: None, bool, int, float, str and list stand for themselves. The others are objects with one key:
`t` tuple, `s` set, `z` frozenset (elements sorted by their text), `d` dict (key, value, key, value, ...), `b` bytes
(hexadecimal), `c` complex [real, imaginary], `i` long int (hexadecimal), `f` nan, inf or -inf, `u` str with lone
surrogates (hexadecimal UTF-8, surrogates passed), `n` builtin name; `MARKS` are the caller's: `r` the result of an
earlier call, `h` an opaque object, `g` a name of the program.
"""

from __future__ import annotations

import builtins
import sys
from _collections import OrderedDict, deque  # type: ignore[import-not-found]  # no stubs; a tenth of collections' cost
from json import JSONDecodeError, JSONDecoder, JSONEncoder
from math import isfinite

TYPE_CHECKING = False  # as typing's, without its import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Value = Any  # whatever a program may have made
    Json = Any  # whatever JSON may hold
    Opaque = Callable[[Value], Json]
    Find = Callable[[str, Json], Value]

MAX_DEPTH = 64
MAX_BYTES = 16 * 1024 * 1024
MARKS = frozenset("rhg")

_FUNCTIONS = (
    "abs all any ascii bin callable chr divmod format hash hex isinstance issubclass iter len max min next oct ord pow"
    " repr round sorted sum"
)
_TYPES = (
    "bool bytearray bytes complex dict enumerate filter float frozenset int list map object range reversed set slice"
    " str tuple zip"
)
# Not among them, for a test may call what the program returned: eval, exec, open, getattr, type with three arguments.
_NAMED: dict[str, object] = {name: getattr(builtins, name) for name in (_FUNCTIONS + " " + _TYPES).split()}
_NAMED.update(
    (name, thing)
    for name, thing in vars(builtins).items()
    if isinstance(thing, type) and issubclass(thing, BaseException)
)
_NAME_OF = {id(thing): name for name, thing in _NAMED.items()}
_ATOMS = frozenset((type(None), bool, str))
_SMALL = 1 << 63
_NAME_LENGTH = 200
_CONTAINER = 24
"""Bytes that a container counts at least: one that unfolds without end is refused within about two seconds."""

# Bound now: a program may replace the builtins before its values are encoded.
_type, _issubclass, _len, _id, _list, _set, _map, _all, _max, _min, _sorted, _str, _repr = (
    type, issubclass, len, id, list, set, map, all, max, min, sorted, str, repr,
)  # fmt: skip
_type_name = vars(type)["__qualname__"].__get__
_encode_text = JSONEncoder(ensure_ascii=True, check_circular=False, allow_nan=False, separators=(",", ":")).encode
_decode_text = JSONDecoder().decode


class ValueRefusedError(Exception):
    """A value that cannot cross; the message names its type, or why."""


class Encoder:
    """Turns one value into what JSON can hold.

    Args:
        opaque: gives the mark (`{"h": ...}`) of an object that cannot be copied; raises ValueRefusedError where it
            may not cross at all. Without it every such object is refused.
    """

    def __init__(self, opaque: Opaque | None = None) -> None:
        self._opaque = opaque
        self._left = MAX_BYTES

    def encode(self, value: Value, depth: int = 0, *, hashed: bool = False) -> Json:
        """Give the value's structure.

        Raises:
            ValueRefusedError: it cannot cross.
        """
        kind = _type(value)
        if kind is int:
            return value if -_SMALL < value < _SMALL else self._long(value)
        if kind is str:
            return self._text(value)
        if value is None or kind is bool:
            return value
        if kind is float:
            return value if isfinite(value) else {"f": _repr(value)}
        for plain, way in _WAYS:
            if kind is plain or _issubclass(kind, plain):
                return way(self, value, depth, hashed)
        return self._other(value, depth, hashed)

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ValueRefusedError(f"value larger than {MAX_BYTES >> 20} MiB")

    def _long(self, value: Value) -> Json:
        plain = int.__pos__(value)
        if -_SMALL < plain < _SMALL:
            return plain
        self._spend(plain.bit_length() >> 2)
        return {"i": hex(plain)}

    def _float(self, value: Value, _depth: int, _hashed: bool) -> Json:
        plain = float.__pos__(value)
        return plain if isfinite(plain) else {"f": _repr(plain)}

    def _text(self, value: Value) -> Json:
        plain = str.__str__(value)
        self._spend(_len(plain))
        try:
            plain.encode()
        except UnicodeEncodeError:
            return {"u": plain.encode("utf-8", "surrogatepass").hex()}
        return plain

    def _bytes(self, value: Value, _depth: int, _hashed: bool) -> Json:
        self._spend(2 * bytes.__len__(value))
        return {"b": bytes.hex(value)}

    def _complex(self, value: Value, depth: int, hashed: bool) -> Json:
        parts = (vars(complex)["real"].__get__(value), vars(complex)["imag"].__get__(value))
        return {"c": [self._float(part, depth, hashed) for part in parts]}

    def _items(self, items: list[Value], depth: int, hashed: bool) -> list[Value]:
        if depth >= MAX_DEPTH:
            raise ValueRefusedError(f"value nested deeper than {MAX_DEPTH}")
        self._spend(_CONTAINER + 2 * _len(items))
        kinds = _set(_map(_type, items))
        if kinds == {int} and _min(items) > -_SMALL and _max(items) < _SMALL:
            return items
        if kinds == {float} and _all(_map(isfinite, items)):
            return items
        if kinds <= {bool, _type(None)}:
            return items
        return [self.encode(item, depth + 1, hashed=hashed) for item in items]

    def _list(self, value: Value, depth: int, hashed: bool) -> Json:
        return self._items(_list(list.__iter__(value)), depth, hashed)

    def _deque(self, value: Value, depth: int, hashed: bool) -> Json:
        return self._items(_list(deque.__iter__(value)), depth, hashed)

    def _tuple(self, value: Value, depth: int, hashed: bool) -> Json:
        return {"t": self._items(_list(tuple.__iter__(value)), depth, hashed)}

    def _set(self, value: Value, depth: int, _hashed: bool) -> Json:
        return {"s": _sorted(self._items(_list(set.__iter__(value)), depth, True), key=_sort_key)}  # noqa: FBT003

    def _frozenset(self, value: Value, depth: int, _hashed: bool) -> Json:
        return {"z": _sorted(self._items(_list(frozenset.__iter__(value)), depth, True), key=_sort_key)}  # noqa: FBT003

    def _dict(self, value: Value, depth: int, hashed: bool) -> Json:
        # OrderedDict keeps an order of its own, which dict's methods do not see.
        owner = OrderedDict if _issubclass(_type(value), OrderedDict) else dict
        pairs = _list(owner.items(value))
        keys = self._items([key for key, _ in pairs], depth, True)  # noqa: FBT003
        values = self._items([item for _, item in pairs], depth, hashed)
        flat: list[Value] = [None] * (2 * _len(keys))
        flat[::2] = keys
        flat[1::2] = values
        return {"d": flat}

    def _other(self, value: Value, depth: int, hashed: bool) -> Json:
        name = _NAME_OF.get(_id(value))
        if name is not None:
            return {"n": name}
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            for name in ("ndarray", "generic"):
                kind: Value = getattr(numpy, name, None)
                if _type(kind) is _type and _issubclass(_type(value), kind):
                    copied = kind.tolist(value)
                    if _type(copied) is not _type(value):
                        return self.encode(copied, depth, hashed=hashed)
        if self._opaque is None or hashed:
            raise ValueRefusedError(f"value of type {type_name(value)}")
        return self._opaque(value)


_WAYS = (
    (list, Encoder._list),
    (tuple, Encoder._tuple),
    (dict, Encoder._dict),
    (set, Encoder._set),
    (frozenset, Encoder._frozenset),
    (complex, Encoder._complex),
    (bytes, Encoder._bytes),
    (float, Encoder._float),
    (str, lambda self, value, _depth, _hashed: self._text(value)),
    (int, lambda self, value, _depth, _hashed: self._long(value)),
    (deque, Encoder._deque),
)


def _sort_key(structure: Json) -> str:
    return _encode_text(structure)


def type_name(value: Value) -> str:
    """Give the name of the value's type, as it was defined; never asks the value."""
    return _str(_type_name(_type(value)))[:_NAME_LENGTH]


def encode(value: Value, opaque: Opaque | None = None) -> Json:
    """Give the structure of one value; see `Encoder`."""
    return Encoder(opaque).encode(value)


def decode(structure: Json, find: Find | None = None, depth: int = 0) -> Value:
    """Give the value of a structure; never evaluates code.

    Args:
        structure: as parsed from JSON.
        find: `find(tag, payload)` gives the object of a mark; without it marks are refused.
        depth: of nesting so far.

    Raises:
        ValueRefusedError: it is not a structure that `encode` makes.
    """
    kind = type(structure)
    if structure is None or kind in (bool, int, str, float):
        if kind is float and not isfinite(structure):
            raise ValueRefusedError("malformed value")
        return structure
    if depth > MAX_DEPTH:
        raise ValueRefusedError(f"value nested deeper than {MAX_DEPTH}")
    if kind is list:
        return [decode(item, find, depth + 1) for item in structure]
    if kind is dict and len(structure) == 1:
        ((tag, payload),) = structure.items()
        try:
            if tag in MARKS and find is not None:
                return find(tag, payload)
            return _READERS[tag](payload, find, depth)
        except (KeyError, ValueError, TypeError, IndexError, OverflowError) as error:
            raise ValueRefusedError("malformed value") from error
    raise ValueRefusedError("malformed value")


def _decoded(payload: Json, find: Find | None, depth: int) -> list[Value]:
    if type(payload) is not list:
        raise ValueRefusedError("malformed value")
    return [decode(item, find, depth + 1) for item in payload]


def _read_dict(payload: Json, find: Find | None, depth: int) -> dict[Value, Value]:
    flat = _decoded(payload, find, depth)
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _read_complex(payload: Json, find: Find | None, depth: int) -> complex:
    real, imaginary = _decoded(payload, find, depth)
    if type(real) is not float or type(imaginary) is not float:
        raise ValueRefusedError("malformed value")
    return complex(real, imaginary)


_READERS: dict[str, Callable[[Json, Find | None, int], Value]] = {
    "t": lambda payload, find, depth: tuple(_decoded(payload, find, depth)),
    "s": lambda payload, find, depth: set(_decoded(payload, find, depth)),
    "z": lambda payload, find, depth: frozenset(_decoded(payload, find, depth)),
    "d": _read_dict,
    "c": _read_complex,
    "b": lambda payload, _find, _depth: bytes.fromhex(payload),
    "i": lambda payload, _find, _depth: int(payload, 16),
    "f": lambda payload, _find, _depth: {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}[payload],
    "u": lambda payload, _find, _depth: bytes.fromhex(payload).decode("utf-8", "surrogatepass"),
    "n": lambda payload, _find, _depth: _NAMED[payload],
}


def dumps(structure: Json) -> str:
    """Give the JSON text of a structure: ASCII, on one line.

    Raises:
        ValueRefusedError: it is longer than `MAX_BYTES`.
    """
    text = _encode_text(structure)
    if _len(text) > MAX_BYTES:
        raise ValueRefusedError(f"value larger than {MAX_BYTES >> 20} MiB")
    return text


def loads(text: str) -> Json:
    """Parse JSON text.

    Raises:
        ValueRefusedError: it is not JSON, or nested too deep for the parser.
    """
    try:
        return _decode_text(text)
    except (JSONDecodeError, ValueError, RecursionError) as error:
        raise ValueRefusedError("malformed text") from error


def exception_parts(error: BaseException) -> dict[str, Json]:
    """Describe an exception for the other side: `type`, `base` (the nearest builtin class), `args`, `message`."""
    kind = _type(error)
    base = "Exception"
    for ancestor in type.mro(kind):
        if _NAME_OF.get(_id(ancestor)) not in (None, "object"):
            base = _NAME_OF[_id(ancestor)]
            break
    try:
        arguments = encode(vars(BaseException)["args"].__get__(error))
        dumps(arguments)
    except ValueRefusedError:
        arguments = {"t": []}
    try:
        message = str.__str__(_str(error))[:2000].encode("ascii", "backslashreplace").decode()
    except BaseException:  # noqa: BLE001 - the program's own __str__
        message = ""
    return {"type": type_name(error), "base": base, "args": arguments, "message": message}


def exception_from(parts: Json) -> BaseException:
    """Make the exception that `exception_parts` described: of the builtin class, or of a class of that name below it.

    Raises:
        ValueRefusedError: not such a description.
    """
    if type(parts) is not dict:
        raise ValueRefusedError("malformed exception")
    base = _NAMED.get(str(parts.get("base")))
    name, arguments = parts.get("type"), decode(parts.get("args"))
    if not isinstance(base, type) or not issubclass(base, BaseException) or type(name) is not str:
        raise ValueRefusedError("malformed exception")
    if issubclass(base, BaseExceptionGroup):
        base = Exception  # a group of what did not cross
    if type(arguments) is not tuple or "\0" in name:
        raise ValueRefusedError("malformed exception")
    kind: Value = base if base.__name__ == name else type(name[:_NAME_LENGTH], (base,), {"__module__": "program"})
    try:
        error: BaseException = kind.__new__(kind, *arguments)
    except TypeError as problem:
        raise ValueRefusedError("malformed exception") from problem
    error.args = arguments
    return error
