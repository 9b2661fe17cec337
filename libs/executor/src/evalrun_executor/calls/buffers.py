"""Values that can change and hold no other values: arrays, buffers of `io`, and what numpy has."""

from __future__ import annotations

import sys

from evalrun_executor.calls.json_text import ValueRefusedError
from evalrun_executor.calls.originals import Json, Value, issubclass_, list_, qualified_name, str_, type_

TYPE_CHECKING = False  # as typing's, without its import
if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_SHARED = 4
"""A view crosses with the array behind it, unless that is more times larger."""


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
    if thing.dtype.str != kind:
        thing.dtype = kind
    if list(thing.shape) != shape:
        thing.resize(shape, refcheck=False)
    thing[...] = _from_bytes(kind, data).reshape(shape)


BUFFERS: dict[str, tuple[str, Callable[[Value], Json], Callable[[Value, Json], None]]] = {
    "array": ("array", lambda v: [v.typecode, bytes.hex(v.tobytes())], _write_array),
    "StringIO": ("io", lambda v: [str_(v.getvalue()), v.tell()], _write_stream),
    "BytesIO": ("io", lambda v: [bytes.hex(v.getvalue()), v.tell()], _write_stream),
    "ndarray": ("numpy", lambda v: [str_(v.dtype.str), list_(v.shape), bytes.hex(v.tobytes())], _write_numpy),
}
"""Module, state and writer of each, by the type's name. A state is plain JSON."""


def find_buffer_name(kind: Value) -> str:
    """Return the name of a type of `BUFFERS`; empty for any other."""
    name = qualified_name(kind)
    found = BUFFERS.get(name) if type_(name) is str else None
    module = None if found is None else sys.modules.get(found[0])
    return name if module is not None and vars(module).get(name) is kind else ""


def buffer_state(value: Value, name: str) -> Json:
    """Return what a buffer holds. Raises ValueRefusedError where it is closed, or holds objects."""
    try:
        state = BUFFERS[name][1](value)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueRefusedError(f"value of type {name} that cannot be read") from error
    if name == "ndarray" and not _is_plain(state[0]):
        raise ValueRefusedError(f"array of {state[0]}")
    return state


def new_buffer(name: str, state: Json) -> Value:
    """Return a buffer that is still empty, for `write_buffer`; without numpy, a list stands for its arrays.

    Raises:
        ValueRefusedError: there is no such buffer.
    """
    module = BUFFERS[name][0]
    if module == "numpy":
        try:
            numpy: Value = __import__("numpy")
        except ImportError:
            return []
        if not _is_plain(state[0]):
            raise ValueRefusedError("malformed value")
        return numpy.empty((0,), state[0])
    kind: Value = getattr(__import__(module), name)
    return kind(state[0]) if module == "array" else kind()


def write_buffer(thing: Value, state: Json) -> None:
    """Give a buffer what it holds. Raises ValueError and the like where `state` is none."""
    if type(thing) is list:
        thing[:] = _plain_items(state)
    else:
        BUFFERS[type(thing).__name__][2](thing, state)


def describe_view(value: Value) -> tuple[Value, list[Json]] | None:
    """Return the array behind a view of numpy, and what makes the view of it; None where it is no view."""
    owner = value.base
    kind = type_(value)
    while type_(owner) is kind and type_(owner.base) is kind:
        owner = owner.base
    if type_(owner) is not kind or owner.base is not None or not owner.flags["C_CONTIGUOUS"]:
        return None
    if owner.nbytes > _MAX_SHARED * max(value.nbytes, 64) or not _is_plain(owner.dtype.str):
        return None
    offset = value.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    return owner, [str_(value.dtype.str), list_(value.shape), list_(value.strides), int(offset)]


def new_view(owner: Value, parts: Json) -> Value:
    """Return the view of an array from `describe_view`. Raises ValueRefusedError where numpy is missing."""
    if type(owner) is list:
        raise ValueRefusedError("view of an array, without numpy")
    kind, shape, strides, offset = parts
    if not _is_plain(kind):
        raise ValueRefusedError("malformed value")
    numpy: Value = __import__("numpy")
    return numpy.ndarray(shape, kind, owner, offset, strides)


def numpy_scalar(value: Value, kind: Value) -> list[Value] | None:
    """Return type, bytes and the plain value of a scalar of numpy; None for any other value."""
    numpy = sys.modules.get("numpy")
    generic: Value = getattr(numpy, "generic", None)
    if numpy is None or type_(generic) is not type_ or not issubclass_(kind, generic):
        return None
    name = str_(value.dtype.str)
    return [name, value.tobytes(), value.tolist()] if _is_plain(name) else None


def new_scalar(name: str, data: bytes, plain: Value) -> Value:
    """Return a scalar of numpy; without numpy, its plain value."""
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
    made = numpy.empty(shape, object)
    for place in numpy.ndindex(shape):
        item = items
        for number in place:
            item = item[number]
        made[place] = item
    return made


def _is_plain(name: Json) -> bool:
    """Return whether a type's name is one of numpy's own types without fields and objects."""
    return type(name) is str and len(name) < 32 and name[:1] in "<>|=" and name[1:2] in tuple("biufcmMSU")


def _from_bytes(name: str, data: str) -> Value:
    if not _is_plain(name):
        raise ValueRefusedError("malformed value")
    numpy: Value = __import__("numpy")
    return numpy.frombuffer(bytes.fromhex(data), name)


def _plain_items(state: Json) -> list[Value]:
    """Return what an array's `tolist` says, without numpy."""
    name, shape, data = state
    sizes = {"b1": "?", "i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q"}
    form = {**sizes, "f4": "f", "f8": "d"}.get(name[1:])
    if form is None or name[0] == ">" or not shape or 0 in shape:
        raise ValueRefusedError("array, without numpy")
    view: Value = memoryview(bytes.fromhex(data))
    items: list[Value] = view.cast(form, shape).tolist()
    return items
