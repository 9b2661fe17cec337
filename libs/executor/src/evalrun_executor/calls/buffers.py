"""Mutable values that hold no other values: arrays, buffers of `io`, and numpy's arrays and scalars."""

from __future__ import annotations

import sys

from evalrun_executor.calls.json_text import ValueRefusedError
from evalrun_executor.calls.originals import Json, Value, issubclass_, list_, qualified_name, str_, type_

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_SHARED = 4
"""A view crosses with the array behind it, unless the array is more than this many times larger."""


def _write_array(thing: Value, state: Json) -> None:
    kind = type(thing)
    thing[:] = kind(thing.typecode, bytes.fromhex(state[1]))


def _write_stream(thing: Value, state: Json) -> None:
    text, position = state
    thing.seek(0)
    thing.truncate()
    thing.write(text if type(thing).__name__ == "StringIO" else bytes.fromhex(text))
    thing.seek(position)


def _write_numpy(thing: Value, state: Json) -> None:
    kind, shape, data = state
    # The caller may have changed the array's type or shape in place, so both are restored before the contents.
    if thing.dtype.str != kind:
        thing.dtype = kind
    # A view that the program still holds would make `resize` fail without `refcheck=False`, and the update would be
    # lost.
    if list(thing.shape) != shape:
        thing.resize(shape, refcheck=False)
    thing[...] = _from_bytes(kind, data).reshape(shape)


BUFFERS: dict[str, tuple[str, Callable[[Value], Json], Callable[[Value, Json], None]]] = {
    "array": ("array", lambda v: [v.typecode, bytes.hex(v.tobytes())], _write_array),
    "StringIO": ("io", lambda v: [str_(v.getvalue()), v.tell()], _write_stream),
    "BytesIO": ("io", lambda v: [bytes.hex(v.getvalue()), v.tell()], _write_stream),
    "ndarray": ("numpy", lambda v: [str_(v.dtype.str), list_(v.shape), bytes.hex(v.tobytes())], _write_numpy),
}
"""Module, function that reads the state, and function that writes it, by the type's name. A state is plain JSON."""


def find_buffer_name(kind: Value) -> str:
    """Return the name of a type of `BUFFERS`; empty for any other type."""
    name = qualified_name(kind)
    found = BUFFERS.get(name) if type_(name) is str else None
    module = None if found is None else sys.modules.get(found[0])
    # A program may define a class with one of these names: only the identical type counts. A module that was never
    # imported cannot have made the value.
    return name if module is not None and vars(module).get(name) is kind else ""


def buffer_state(value: Value, name: str) -> Json:
    """Return the state of a buffer. Raises ValueRefusedError if the buffer is closed, or holds objects."""
    try:
        state = BUFFERS[name][1](value)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueRefusedError(f"value of type {name} that cannot be read") from error
    # An array of objects holds pointers, whose bytes mean nothing in another process.
    if name == "ndarray" and not _is_plain(state[0]):
        raise ValueRefusedError(f"array of {state[0]}")
    return state


def new_buffer(name: str, state: Json) -> Value:
    """Return an empty buffer for `write_buffer`. Without numpy a list takes the place of its arrays.

    Raises:
        ValueRefusedError: the buffer is malformed.
    """
    module = BUFFERS[name][0]
    if module == "numpy":
        try:
            numpy: Value = __import__("numpy")
        except ImportError:
            return []
        # The type's name comes from a hostile process, and numpy would parse any text as a type.
        if not _is_plain(state[0]):
            raise ValueRefusedError("malformed value")
        return numpy.empty((0,), state[0])
    kind: Value = getattr(__import__(module), name)
    return kind(state[0]) if module == "array" else kind()


def write_buffer(thing: Value, state: Json) -> None:
    """Write the state into a buffer. Raises ValueError and the like if the state is malformed."""
    if type(thing) is list:
        thing[:] = _plain_items(state)
    else:
        BUFFERS[type(thing).__name__][2](thing, state)


def describe_view(value: Value) -> tuple[Value, list[Json]] | None:
    """Return the array behind a numpy view and the parts of the view; None if the value is no such view."""
    owner = value.base
    kind = type_(value)
    # A view of a view refers to the first view. Walk to the array that owns the memory, so that changes reach all views
    # of it.
    while type_(owner) is kind and type_(owner.base) is kind:
        owner = owner.base
    if type_(owner) is not kind or owner.base is not None or not owner.flags["C_CONTIGUOUS"]:
        return None
    # A small view of a huge array would carry the whole array over, so that view crosses as a copy.
    if owner.nbytes > _MAX_SHARED * max(value.nbytes, 64) or not _is_plain(owner.dtype.str):
        return None
    offset = value.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    return owner, [str_(value.dtype.str), list_(value.shape), list_(value.strides), int(offset)]


def new_view(owner: Value, parts: Json) -> Value:
    """Return the view of an array from `describe_view`. Raises ValueRefusedError if numpy is missing."""
    if type(owner) is list:
        raise ValueRefusedError("view of an array, without numpy")
    kind, shape, strides, offset = parts
    if not _is_plain(kind):
        raise ValueRefusedError("malformed value")
    numpy: Value = __import__("numpy")
    return numpy.ndarray(shape, kind, owner, offset, strides)


def numpy_scalar(value: Value, kind: Value) -> list[Value] | None:
    """Return the type, the bytes and the plain value of a numpy scalar; None for any other value."""
    numpy = sys.modules.get("numpy")
    generic: Value = getattr(numpy, "generic", None)
    if numpy is None or type_(generic) is not type_ or not issubclass_(kind, generic):
        return None
    name = str_(value.dtype.str)
    return [name, value.tobytes(), value.tolist()] if _is_plain(name) else None


def new_scalar(name: str, data: bytes, plain: Value) -> Value:
    """Return a numpy scalar; without numpy, its plain value."""
    try:
        __import__("numpy")
    except ImportError:
        return plain
    return _from_bytes(name, data.hex()).reshape(())[()]


def new_objects(shape: tuple[int, ...], items: Value) -> Value:
    """Return an array of objects; without numpy, nested lists."""
    try:
        numpy: Value = __import__("numpy")
    except ImportError:
        return items
    # `numpy.array(items)` would turn items that are sequences themselves into further dimensions.
    made = numpy.empty(shape, object)
    for place in numpy.ndindex(shape):
        item = items
        for number in place:
            item = item[number]
        made[place] = item
    return made


def _is_plain(name: Json) -> bool:
    """Return whether the name is that of a numpy type without fields or objects."""
    return type(name) is str and len(name) < 32 and name[:1] in "<>|=" and name[1:2] in tuple("biufcmMSU")


def _from_bytes(name: str, data: str) -> Value:
    if not _is_plain(name):
        raise ValueRefusedError("malformed value")
    numpy: Value = __import__("numpy")
    return numpy.frombuffer(bytes.fromhex(data), name)


def _plain_items(state: Json) -> list[Value]:
    """Return what the array's `tolist` returns, without numpy."""
    name, shape, data = state
    # The standard library's `memoryview.cast` reads the common types of the machine's own byte order only.
    sizes = {"b1": "?", "i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q"}
    form = {**sizes, "f4": "f", "f8": "d"}.get(name[1:])
    if form is None or name[0] == ">" or not shape or 0 in shape:
        raise ValueRefusedError("array, without numpy")
    view: Value = memoryview(bytes.fromhex(data))
    items: list[Value] = view.cast(form, shape).tolist()
    return items
