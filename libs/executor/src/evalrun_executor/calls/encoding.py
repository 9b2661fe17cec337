"""Encodes values as structures; see `values`."""

from __future__ import annotations

from _collections import (  # type: ignore[import-not-found]  # no stubs; a tenth of collections' cost
    OrderedDict,
    defaultdict,
    deque,
)
from math import isfinite

from evalrun_executor.calls.buffers import buffer_state, describe_view, find_buffer_name, numpy_scalar
from evalrun_executor.calls.exceptions import describe_exception
from evalrun_executor.calls.heap import Heap
from evalrun_executor.calls.json_text import MAX_BYTES, TypeRefusedError, ValueRefusedError, dumps, to_text
from evalrun_executor.calls.opaque import description
from evalrun_executor.calls.originals import (
    ATOMS,
    CHANGING,
    Json,
    Value,
    all_,
    find_base,
    has_own,
    hashes_by_identity,
    id_,
    issubclass_,
    len_,
    list_,
    list_slots,
    map_,
    max_,
    min_,
    qualified_name,
    range_,
    read_state,
    repr_,
    set_,
    sorted_,
    type_,
    type_name,
)
from evalrun_executor.calls.standard_values import (
    NAME_OF,
    PARTS,
    VIEWS,
    find_viewed,
    list_fields,
    standard_class,
    standard_name,
    stateful_name,
)

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Mark = Callable[[Value], Json]

MAX_DEPTH = 64
_DEEP = 32
"""From this depth on mutable containers are filled later: values of any depth cross, and recursion stays bounded."""
_SMALL = 1 << 63
_CONTAINER = 24
"""Minimum bytes that a container counts. A container that unfolds without end is refused within about two seconds."""


class Encoder:
    """Encodes values as structures that JSON can hold.

    Args:
        heap: the test's heap; without it nothing is shared, and no opaque object crosses.
        mark: returns the mark of an object that is no value; raises ValueRefusedError if the object may not cross at
            all.
        numbers: give new objects numbers and encode known objects as references; False: encode by content alone, to
            sort.
    """

    def __init__(self, heap: Heap | None = None, mark: Mark | None = None, *, numbers: bool = True) -> None:
        self._heap = heap
        self._mark = mark
        self._numbers = numbers and heap is not None
        self._left = MAX_BYTES
        self._unfilled: list[tuple[Value, Value]] = []
        """Containers that have a number and whose contents are not written yet, with the types that read them."""
        self._open: dict[int, None] = {}
        """Tuples and frozensets that are being encoded: nothing can refer to them yet."""
        self._filling: dict[int, None] = {}
        """Instances that are being encoded: their hash may depend on attributes that are not there yet."""

    def whole(self, value: Value) -> Json:
        """Return the structure of a value of any depth; see `encode`."""
        structure = self.encode(value)
        return {"H": [structure, self.fillings()]} if self._unfilled else structure

    def fillings(self) -> list[Json]:
        """Return references and contents of the containers that were left to fill, in the form of `changes`."""
        found = []
        # The loop ends although the list grows in it: each container is added once, when its number is given.
        for thing, base in self._unfilled:
            reference = None if self._heap is None else self._heap.reference(thing)
            found.append([reference, self.contents(thing, base, 1, hashed=False)])
        self._unfilled = []
        return found

    def encode(self, value: Value, depth: int = 0, *, hashed: bool = False) -> Json:
        """Return the value's structure.

        Args:
            value: any object.
            depth: nesting depth of the value.
            hashed: the value is in a set or a key, or inside such a value. The other side hashes it when it builds it,
                so it may hold no opaque object, whose hash would be a call.

        Raises:
            ValueRefusedError: the value cannot cross.
        """
        kind = type_(value)
        if kind is int:
            return value if -_SMALL < value < _SMALL else self._long(value)
        if kind is str:
            return self._text(value)
        if value is None or kind is bool:
            return value
        if kind is float:
            return value if isfinite(value) else self._encode_non_finite(value)
        if kind is bytes:
            return self._bytes(value)
        if kind is complex:
            return self._complex(value)
        return self._object(value, kind, depth, hashed)

    def _object(self, value: Value, kind: Value, depth: int, hashed: bool) -> Json:
        heap = self._heap
        if self._numbers and heap is not None:
            place = heap.places.get(id_(value))
            # In a key the test's side needs a value that it can hash itself: a reference to an opaque object would need
            # a call.
            if place is not None and (not hashed or heap.mine == "a" or self._hashes_alike(value, kind)):
                # A tuple that holds itself has no value to refer to yet while it is built. The same holds for an
                # instance whose hash reads its attributes.
                if id_(value) in self._open or (hashed and id_(value) in self._filling):
                    raise ValueRefusedError("value that holds itself by a tuple or a hash")
                return {place[0]: place[1]}
        way = _WAYS.get(kind)
        if way is not None:
            return way(self, value, depth, hashed)
        name = NAME_OF.get(id_(value))
        if name is not None:
            return {"n": name}
        if issubclass_(kind, type_):
            name = standard_name(value)
            if name:
                return {"n": name}
        standard = self._standard(value, kind, depth, hashed)
        if standard is not None:
            return standard
        base = find_base(kind)
        if base is not None:
            return self._encode_derived(value, kind, base, depth, hashed)
        return self._other(value, kind, depth, hashed)

    def _hashes_alike(self, value: Value, kind: Value) -> bool:
        """Return whether the tests' side can hash its own version of the value.

        Raises:
            ValueRefusedError: the value holds an opaque object.
        """
        if kind is tuple and ATOMS.issuperset(map_(type_, value)):
            return True
        known = self._heap is not None and self._heap.known.get(type_name(value)) is kind
        named = issubclass_(kind, tuple) and list_fields(kind) is not None
        if known and hashes_by_identity(kind):
            return True
        if not known and not named and kind is not tuple and kind is not frozenset:
            return False
        # The encoding itself is not needed. It raises if anything inside cannot be hashed on the other side.
        Encoder(self._heap, self._mark, numbers=False).encode(value, hashed=True)
        return True

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ValueRefusedError(f"value larger than {MAX_BYTES >> 20} MiB")

    def _add(self, value: Value) -> None:
        if self._numbers and self._heap is not None:
            self._heap.add(value, self._heap.mine)

    def _settle(self, value: Value) -> None:
        if self._numbers and self._heap is not None:
            self._heap.settle(value)

    def _long(self, value: Value) -> Json:
        # An int's subclass may override every method, so the plain value comes from `int` itself.
        plain = int.__pos__(value)
        if -_SMALL < plain < _SMALL:
            return plain
        self._spend(plain.bit_length() >> 2)
        return {"i": hex(plain)}

    def _float(self, value: Value) -> Json:
        plain = float.__pos__(value)
        return plain if isfinite(plain) else {"f": repr_(plain)}

    def _encode_non_finite(self, value: Value) -> Json:
        """Encode an infinity or a NaN. A NaN equals nothing but itself, so it is numbered as mutable objects are."""
        if value == value or not self._numbers or self._heap is None:
            return {"f": repr_(value)}
        name = NAME_OF.get(id_(value))
        if name is not None:
            return {"n": name}
        known = self._heap.reference(value)
        if known is None:
            self._add(value)
        return known or {"F": None}

    def _text(self, value: Value) -> Json:
        plain = str.__str__(value)
        self._spend(len_(plain))
        try:
            plain.encode()
        except UnicodeEncodeError:
            return {"u": plain.encode("utf-8", "surrogatepass").hex()}
        return plain

    def _bytes(self, value: Value) -> Json:
        self._spend(2 * bytes.__len__(value))
        return {"b": bytes.hex(value)}

    def _complex(self, value: Value) -> Json:
        parts = (vars(complex)["real"].__get__(value), vars(complex)["imag"].__get__(value))
        return {"c": [self._float(part) for part in parts]}

    def _items(self, items: list[Value], depth: int, hashed: bool) -> list[Value]:
        if depth >= MAX_DEPTH:
            raise ValueRefusedError(f"value nested deeper than {MAX_DEPTH}")
        self._spend(_CONTAINER + 2 * len_(items))
        # These three shortcuts skip the encoder for each item, which is most of the time for a list of a million
        # numbers.
        kinds = set_(map_(type_, items))
        if kinds == {int} and min_(items) > -_SMALL and max_(items) < _SMALL:
            return items
        if kinds == {float} and all_(map_(isfinite, items)):
            return items
        if kinds <= {bool, type_(None)}:
            return items
        return [self.encode(item, depth + 1, hashed=hashed) for item in items]

    def contents(self, value: Value, base: Value, depth: int, hashed: bool) -> Json:
        """Return the contents of a container, read by the methods of `base`."""
        # A key must be complete at once, because the other side hashes it. Everything else may be filled later.
        if depth >= _DEEP and self._numbers and not hashed and base in _FILLED:
            self._unfilled.append((value, base))
            return []
        if base is list:
            return self._items(list_(list.__iter__(value)), depth, hashed)
        if base is deque:
            return self._items(list_(deque.__iter__(value)), depth, hashed)
        if base is tuple:
            return self._items(list_(tuple.__iter__(value)), depth, hashed)
        if base is set or base is frozenset:
            return self._members(list_(base.__iter__(value)), depth)
        if base is bytearray:
            self._spend(2 * bytearray.__len__(value))
            return bytearray.hex(value)
        if base is dict:
            # OrderedDict keeps an order of its own, which dict's methods do not see.
            owner = OrderedDict if issubclass_(type_(value), OrderedDict) else dict
            return self._pairs(list_(owner.items(value)), depth, hashed)
        state = read_state(value) or {}
        return self._pairs(list_(dict.items(state)), depth, hashed)

    def _members(self, items: list[Value], depth: int) -> list[Value]:
        """Return a set's items in the order of their texts, whatever the order in this process."""
        if not self._numbers or ATOMS.issuperset(map_(type_, items)):
            return sorted_(self._items(items, depth, True), key=to_text)  # noqa: FBT003
        # Numbers are given in the order in which items are written. The order is therefore found first, by content
        # alone.
        contents = Encoder(self._heap, self._mark, numbers=False)._items(items, depth, True)  # noqa: FBT003
        texts = list_(map_(to_text, contents))
        order = sorted_(range_(len_(items)), key=texts.__getitem__)
        return self._items([items[number] for number in order], depth, True)  # noqa: FBT003

    def _pairs(self, pairs: list[tuple[Value, Value]], depth: int, hashed: bool) -> Json:
        keys = self._items([key for key, _ in pairs], depth, True)  # noqa: FBT003
        values = self._items([item for _, item in pairs], depth, hashed)
        flat: list[Value] = [None] * (2 * len_(keys))
        flat[::2] = keys
        flat[1::2] = values
        return flat

    def _list(self, value: Value, depth: int, hashed: bool) -> Json:
        # The number is given before the items, because an item may refer to the list itself.
        self._add(value)
        items = self.contents(value, list, depth, hashed)
        self._settle(value)
        return items

    def _tuple(self, value: Value, depth: int, hashed: bool) -> Json:
        return {"t": self._encode_fixed(value, tuple, depth, hashed)}

    def _frozenset(self, value: Value, depth: int, hashed: bool) -> Json:
        return {"z": self._encode_fixed(value, frozenset, depth, hashed)}

    def _encode_fixed(self, value: Value, base: Value, depth: int, hashed: bool) -> Json:
        """Return the contents of a container that cannot be filled after its creation."""
        self._add(value)
        self._open[id_(value)] = None
        items = self.contents(value, base, depth, hashed)
        del self._open[id_(value)]
        return items

    def _deque(self, value: Value, depth: int, hashed: bool) -> Json:
        self._add(value)
        items = {"q": [value.maxlen, self.contents(value, deque, depth, hashed)]}
        self._settle(value)
        return items

    def _default(self, value: Value, depth: int, hashed: bool) -> Json:
        self._add(value)
        factory = self.encode(value.default_factory, depth + 1, hashed=hashed)
        items = {"D": [factory, self.contents(value, dict, depth, hashed)]}
        self._settle(value)
        return items

    def _standard(self, value: Value, kind: Value, depth: int, hashed: bool) -> Json:
        """Return the structure of a value of the standard library; None for any other value."""
        name = qualified_name(kind)
        if type_(name) is not str:
            return None
        scalar = numpy_scalar(value, kind)
        if scalar is not None:
            return {"v": ["numpy.generic", [self.encode(part, depth + 1, hashed=hashed) for part in scalar]]}
        if find_buffer_name(kind) and not hashed:
            return self._buffer(value, name, depth)
        way = PARTS.get(name)
        # A view of a dict is recognized by its type itself: the type's name proves nothing, since a program may choose
        # it.
        if way is None:
            return None
        module, parts = way
        if module == "builtins":
            if kind is not VIEWS.get(name, kind):
                return None
        elif kind is not standard_class(module, name):
            return None
        if name == "Counter":
            self._add(value)
            structure: Json = {"K": self.contents(value, dict, depth, hashed)}
            self._settle(value)
            return structure
        if name == "SimpleNamespace":
            self._add(value)
            structure = {"N": self.contents(value, None, depth, hashed)}
            self._settle(value)
            return structure
        if name in VIEWS:
            return {"w": [name, self.encode(find_viewed(value), depth + 1)]} if not hashed else None
        return {"v": [f"{module}.{name}", [self.encode(part, depth + 1, hashed=hashed) for part in parts(value)]]}

    def _buffer(self, value: Value, name: str, depth: int) -> Json:
        view = describe_view(value) if name == "ndarray" and self._numbers else None
        if view is not None:
            owner = self.encode(view[0], depth + 1)
            self._add(value)
            return {"V": [owner, view[1]]}
        if name == "ndarray" and value.dtype.hasobject and value.dtype.names is None:
            return {"v": ["numpy.object", [self.encode(part, depth + 1) for part in (value.shape, value.tolist())]]}
        state = buffer_state(value, name)
        self._spend(len_(dumps(state)))
        self._add(value)
        self._settle(value)
        return {"B": [name, state]}

    def _encode_derived(self, value: Value, kind: Value, base: Value, depth: int, hashed: bool) -> Json:
        """Encode an instance of a subclass of a plain type."""
        fields = list_fields(kind) if base is tuple else None
        if fields is not None:
            return {"T": [qualified_name(kind), fields, self._encode_fixed(value, tuple, depth, hashed)]}
        # The tests' side sends a derived value as its plain base, because the program does not have the test's class.
        if self._heap is None or self._heap.mine == "a":
            return self._as_base(value, base, depth, hashed)
        if self._heap.known.get(type_name(value)) is kind:
            enum = self._enum(value, kind)
            if enum is not None:
                return enum
            if base in CHANGING:
                return self._instance(value, kind, base, depth, hashed)
        if hashed:
            return self._as_base(value, base, depth, hashed)
        self._add(value)
        structure = {"S": [description(kind, base), self._as_base(value, base, depth, hashed, inner=True)]}
        self._settle(value)
        return structure

    def _as_base(self, value: Value, base: Value, depth: int, hashed: bool, *, inner: bool = False) -> Json:
        if base is int:
            return self._long(value)
        if base is float:
            return self._float(value)
        if base is str:
            return self._text(value)
        if base is bytes:
            return self._bytes(value)
        if base is complex:
            return self._complex(value)
        if hashed and base in CHANGING:
            raise TypeRefusedError(f"value of type {type_name(value)} in a set or a key")
        if not inner:
            # In a set the other side sees a value of the base type only. Elsewhere it may see the value itself, so it
            # has a number.
            self._add(_plain_copy(value, base) if hashed else value)
        items = self.contents(value, base, depth, hashed)
        if not inner:
            self._settle(value)
        tag = TAGS[base]
        if base is deque:
            return {"q": [None, items]}
        return items if tag == "" else {tag: items}

    def _instance(self, value: Value, kind: Value, base: Value, depth: int, hashed: bool) -> Json:
        by_identity = hashes_by_identity(kind)
        # This encoding is for sorting only. It shows plain attributes alone, because the instance may hold itself.
        if self._heap is not None and not self._numbers and by_identity:
            shown = [part for pair in dict.items(read_state(value) or {}) for part in pair if type_(part) in ATOMS]
            return {"I": [type_name(value), self._items(shown, depth, hashed)]}
        hashed = hashed and not by_identity
        self._add(value)
        if not by_identity:
            self._filling[id_(value)] = None
        state = self.contents(value, None, depth, hashed)
        slots = [
            [name, self.encode(object.__getattribute__(value, name), depth + 1, hashed=hashed)]
            for name in list_slots(kind)
            if has_own(value, name)
        ]
        content = None if base is None else self._as_base(value, base, depth, hashed=False, inner=True)
        self._filling.pop(id_(value), None)
        self._settle(value)
        return {"I": [stateful_name(kind) or type_name(value), state, slots, content]}

    def _other(self, value: Value, kind: Value, depth: int, hashed: bool) -> Json:
        heap = self._heap
        if issubclass_(kind, BaseException) and not hashed:
            return {"X": exception_parts(value, heap)}
        if heap is not None:
            if heap.known.get(type_name(value)) is kind or stateful_name(kind):
                return self._enum(value, kind) or self._instance(value, kind, None, depth, hashed)
            if heap.mine == "p" and not hashed:
                self._spend(_CONTAINER)
                heap.add(value, "p")
                return {"h": description(kind)}
        if self._mark is None:
            raise TypeRefusedError(f"value of type {type_name(value)}")
        if self._numbers or heap is None:
            return self._mark(value)
        place = heap.places.get(id_(value))
        # This encoding is for sorting only: a mark is made once, when the value itself is encoded.
        return {"m": place or type_name(value)}

    def _enum(self, value: Value, kind: Value) -> Json:
        enum = standard_class("enum", "Enum")
        if enum is None or not issubclass_(kind, enum):
            return None
        flag = standard_class("enum", "Flag")
        if issubclass_(kind, flag):
            return {"E": [type_name(value), None, int.__pos__(object.__getattribute__(value, "_value_"))]}
        return {"E": [type_name(value), object.__getattribute__(value, "_name_"), None]}


def _range(encoder: Encoder, value: Value, depth: int, hashed: bool) -> Json:
    return {"v": ["builtins.range", [encoder.encode(part) for part in (value.start, value.stop, value.step)]]}


def _slice(encoder: Encoder, value: Value, depth: int, hashed: bool) -> Json:
    parts = (value.start, value.stop, value.step)
    return {"v": ["builtins.slice", [encoder.encode(part, depth + 1, hashed=hashed) for part in parts]]}


def _container(tag: str, base: Value) -> Callable[[Encoder, Value, int, bool], Json]:
    def way(encoder: Encoder, value: Value, depth: int, hashed: bool) -> Json:
        encoder._add(value)
        structure = {tag: encoder.contents(value, base, depth, hashed)}
        encoder._settle(value)
        return structure

    return way


def _plain_copy(value: Value, base: Value) -> Value:
    """Copy the items of a derived tuple or frozenset without calling the value's own methods."""
    return tuple(list_(tuple.__iter__(value))) if base is tuple else base(value)


_FILLED = (list, dict, deque, set, None)
"""Types, or bases of types, that `Decoder.apply` can fill."""
TAGS: dict[Value, str] = {list: "", tuple: "t", dict: "d", set: "s", frozenset: "z", deque: "q", bytearray: "y"}
_WAYS: dict[Value, Callable[[Encoder, Value, int, bool], Json]] = {
    list: Encoder._list,
    tuple: Encoder._tuple,
    dict: _container("d", dict),
    set: _container("s", set),
    frozenset: Encoder._frozenset,
    bytearray: _container("y", bytearray),
    OrderedDict: _container("O", dict),
    deque: Encoder._deque,
    defaultdict: Encoder._default,
    range: _range,
    slice: _slice,
}


def encode(value: Value, heap: Heap | None = None, mark: Mark | None = None) -> Json:
    """Return the structure of a value; see `Encoder`."""
    return Encoder(heap, mark).whole(value)


def changes(heap: Heap, things: list[Value], mark: Mark | None = None) -> list[Json]:
    """Return the structure from which `Decoder.apply` repeats the changes of these objects.

    Raises:
        ValueRefusedError: something in them cannot cross.
    """
    encoder = Encoder(heap, mark)
    found = []
    for thing in heap.find_changed(things):
        # Settle the object before its contents are encoded, because it may hold itself.
        heap.settle(thing)
        base = find_base(type_(thing))
        name = find_buffer_name(type_(thing))
        contents = buffer_state(thing, name) if name else encoder.contents(thing, base, 1, hashed=False)
        found.append([heap.reference(thing), contents])
    return found + encoder.fillings()


def _try_encode(value: Value, heap: Heap | None) -> Json:
    """Return the structure of a value; None if the value cannot cross."""
    before = 0 if heap is None else len(heap.objects[heap.mine])
    try:
        structure = encode(value, heap)
        dumps(structure)
    except (ValueRefusedError, RecursionError, MemoryError):
        if heap is not None:
            # Numbers of objects that did not cross would make both sides count differently.
            heap.forget_after(before)
        return None
    return structure


def exception_parts(error: BaseException, heap: Heap | None = None) -> dict[str, Json]:
    """Describe an exception for the other side. Parts that cannot cross are left out."""
    return describe_exception(error, lambda value: _try_encode(value, heap))
