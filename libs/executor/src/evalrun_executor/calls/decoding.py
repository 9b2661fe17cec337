"""Decodes structures to values; see `values`. Never evaluates code."""

from __future__ import annotations

from _collections import (  # type: ignore[import-not-found]  # no stubs; a tenth of collections' cost
    OrderedDict,
    defaultdict,
    deque,
)
from math import isfinite

from evalrun_executor.calls.buffers import find_buffer_name, new_buffer, new_objects, new_scalar, new_view, write_buffer
from evalrun_executor.calls.encoding import MAX_DEPTH, TAGS
from evalrun_executor.calls.exceptions import restore_exception
from evalrun_executor.calls.heap import Heap, list_parts
from evalrun_executor.calls.json_text import ValueRefusedError
from evalrun_executor.calls.originals import CHANGING, Json, Value, find_base, list_slots, read_state
from evalrun_executor.calls.standard_values import NAMED, import_name, list_fields, stateful_class

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Find = Callable[[str, Json], Value]

MARKS = frozenset("rgL")


class Decoder:
    """Builds values from structures; never evaluates code.

    Args:
        heap: the test's heap; without it references and opaque objects are refused.
        find: `find(tag, payload)` returns the object of a mark; without it marks are refused.
        opaque: `opaque(description, content)` returns the stand-in for an object of the program. `content` is the plain
            value that the object derives from, or None.
    """

    def __init__(
        self, heap: Heap | None = None, find: Find | None = None, opaque: Callable[[Json, Value], Value] | None = None
    ) -> None:
        self.heap = heap
        self._find = find
        self._opaque = opaque

    def decode(self, structure: Json, depth: int = 0, *, hashed: bool = False) -> Value:
        """Return the value of a structure.

        Raises:
            ValueRefusedError: the structure is not one that `encode` makes.
        """
        kind = type(structure)
        if structure is None or kind in (bool, int, str, float):
            if kind is float and not isfinite(structure):
                raise ValueRefusedError("malformed value")
            return structure
        # `encode` refuses deeper values. A hostile structure could otherwise exhaust the stack of this process.
        if depth > MAX_DEPTH + 2:
            raise ValueRefusedError(f"value nested deeper than {MAX_DEPTH}")
        if kind is list:
            made: list[Value] = []
            self._fill(made, structure, depth, hashed)
            return made
        if kind is dict and len(structure) == 1:
            ((tag, payload),) = structure.items()
            try:
                if tag in MARKS and self._find is not None:
                    return self._find(tag, payload)
                if tag in ("a", "p"):
                    return self._known(tag, payload)
                return getattr(self, f"_read_{tag}")(payload, depth, hashed)
            # A hostile structure fails in some reader with any of these errors. All of them mean the same: malformed.
            except (LookupError, ValueError, TypeError, ArithmeticError, AttributeError) as error:
                raise ValueRefusedError("malformed value") from error
        raise ValueRefusedError("malformed value")

    def apply(self, changed: Json) -> list[Value]:
        """Apply what `changes` returned to the objects of this side. Return the objects.

        Raises:
            ValueRefusedError: the structure is malformed.
        """
        found = []
        try:
            for reference, contents in changed:
                thing = self.decode(reference)
                if list_parts(thing) is None:
                    raise ValueRefusedError("malformed change")
                self._write(thing, contents, 1, hashed=False)
                found.append(thing)
        except (TypeError, ValueError) as error:
            raise ValueRefusedError("malformed change") from error
        return found

    def _known(self, side: str, number: Json) -> Value:
        if self.heap is None or type(number) is not int or number < 0:
            raise ValueRefusedError("malformed value")
        return self.heap.objects[side][number]

    def _keep(self) -> int:
        """Reserve the next number of the other side for an object that does not exist yet."""
        if self.heap is None:
            return -1
        made = self.heap.objects[self.heap.theirs]
        # Both sides number an object when they first meet it, before its contents: reserving later would shift all
        # numbers.
        made.append(None)
        return len(made) - 1

    def _place(self, number: int, thing: Value) -> None:
        if number >= 0 and self.heap is not None:
            self.heap.place(self.heap.theirs, number, thing)

    def _read_H(self, payload: Json, depth: int, hashed: bool) -> Value:  # noqa: N802 - the tag
        structure, fillings = payload
        if depth or hashed:
            raise ValueRefusedError("malformed value")
        made = self.decode(structure, 1)
        self.apply(fillings)
        return made

    def _read_F(self, _payload: Json, _depth: int, _hashed: bool) -> Value:  # noqa: N802 - the tag
        # A NaN equals nothing, so a test finds it again by identity alone: it has a number, unlike other floats.
        number = self._keep()
        made = float("nan")
        self._place(number, made)
        return made

    def _read_B(self, payload: Json, _depth: int, _hashed: bool) -> Value:  # noqa: N802 - the tag
        name, state = payload
        number = self._keep()
        made = new_buffer(name, state)
        self._place(number, made)
        write_buffer(made, state)
        if self.heap is not None:
            self.heap.settle(made)
        return made

    def _read_V(self, payload: Json, depth: int, hashed: bool) -> Value:  # noqa: N802 - the tag
        owner, parts = payload
        behind = self.decode(owner, depth + 1, hashed=hashed)
        number = self._keep()
        made = new_view(behind, parts)
        self._place(number, made)
        return made

    def _fill(self, thing: Value, contents: Json, depth: int, hashed: bool) -> Value:
        """Register a new mutable object, and fill it."""
        self._place(self._keep(), thing)
        return self._write(thing, contents, depth, hashed)

    def _write(self, thing: Value, contents: Json, depth: int, hashed: bool) -> Value:
        if type(thing) is list and type(contents) is list:
            thing[:] = self._items(contents, depth, hashed)
        else:
            self._write_other(thing, contents, depth, hashed)
        # The contents are now what both sides know: a later change shows against them.
        if self.heap is not None:
            self.heap.settle(thing)
        return thing

    def _write_other(self, thing: Value, contents: Json, depth: int, hashed: bool) -> None:
        # The base type's own methods are used, so that no overriding method of a known class runs here.
        base = find_base(type(thing))
        if base is list:
            list.__setitem__(thing, slice(None), self._items(contents, depth, hashed))
        elif base is dict:
            pairs = self._pairs(contents, depth, hashed)
            owner = OrderedDict if isinstance(thing, OrderedDict) else dict
            owner.clear(thing)
            for key, item in pairs:
                owner.__setitem__(thing, key, item)
        elif base is set:
            items = self._items(contents, depth, hashed=True)
            set.clear(thing)
            set.update(thing, items)
        elif base is deque:
            items = self._items(contents, depth, hashed)
            deque.clear(thing)
            deque.extend(thing, items)
        elif base is bytearray:
            bytearray.__setitem__(thing, slice(None), bytes.fromhex(contents))
        elif base is None and find_buffer_name(type(thing)):
            write_buffer(thing, contents)
        elif base is None:
            state = read_state(thing)
            if state is None:
                raise ValueRefusedError("malformed value")
            pairs = self._pairs(contents, depth, hashed)
            if not all(type(name) is str for name, _ in pairs):
                raise ValueRefusedError("malformed value")
            state.clear()
            state.update(pairs)
        else:
            raise ValueRefusedError("malformed value")

    def _items(self, payload: Json, depth: int, hashed: bool) -> list[Value]:
        if type(payload) is not list:
            raise ValueRefusedError("malformed value")
        # A list of plain integers needs no decoding.
        if {int}.issuperset(map(type, payload)):
            return payload
        return [self.decode(item, depth + 1, hashed=hashed) for item in payload]

    def _pairs(self, payload: Json, depth: int, hashed: bool) -> list[tuple[Value, Value]]:
        if type(payload) is not list or len(payload) % 2:
            raise ValueRefusedError("malformed value")
        keys = self._items(payload[::2], depth, hashed=True)
        return list(zip(keys, self._items(payload[1::2], depth, hashed), strict=True))

    def _read_t(self, payload: Json, depth: int, hashed: bool) -> Value:
        number = self._keep()
        # A tuple is made after its items, but numbered before them, in the order in which `encode` met it.
        made = tuple(self._items(payload, depth, hashed))
        self._place(number, made)
        return made

    def _read_z(self, payload: Json, depth: int, hashed: bool) -> Value:
        number = self._keep()
        made = frozenset(self._items(payload, depth, hashed=True))
        self._place(number, made)
        return made

    def _read_s(self, payload: Json, depth: int, hashed: bool) -> Value:
        return self._fill(set(), payload, depth, hashed)

    def _read_d(self, payload: Json, depth: int, hashed: bool) -> Value:
        return self._fill({}, payload, depth, hashed)

    def _read_O(self, payload: Json, depth: int, hashed: bool) -> Value:  # noqa: N802 - the tag
        return self._fill(OrderedDict(), payload, depth, hashed)

    def _read_K(self, payload: Json, depth: int, hashed: bool) -> Value:  # noqa: N802 - the tag
        return self._fill(import_name("collections", "Counter")(), payload, depth, hashed)

    def _read_N(self, payload: Json, depth: int, hashed: bool) -> Value:  # noqa: N802 - the tag
        return self._fill(import_name("types", "SimpleNamespace")(), payload, depth, hashed)

    def _read_y(self, payload: Json, depth: int, hashed: bool) -> Value:
        return self._fill(bytearray(), payload, depth, hashed)

    def _read_q(self, payload: Json, depth: int, hashed: bool) -> Value:
        longest, items = payload
        return self._fill(deque((), longest), items, depth, hashed)

    def _read_D(self, payload: Json, depth: int, hashed: bool) -> Value:  # noqa: N802 - the tag
        factory, items = payload
        number = self._keep()
        made = defaultdict(self.decode(factory, depth + 1, hashed=hashed))
        self._place(number, made)
        return self._write(made, items, depth, hashed)

    def _read_c(self, payload: Json, depth: int, hashed: bool) -> Value:
        real, imaginary = self._items(payload, depth, hashed)
        if type(real) is not float or type(imaginary) is not float:
            raise ValueRefusedError("malformed value")
        return complex(real, imaginary)

    def _read_b(self, payload: Json, _depth: int, _hashed: bool) -> Value:
        return bytes.fromhex(payload)

    def _read_i(self, payload: Json, _depth: int, _hashed: bool) -> Value:
        return int(payload, 16)

    def _read_f(self, payload: Json, _depth: int, _hashed: bool) -> Value:
        return {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}[payload]

    def _read_u(self, payload: Json, _depth: int, _hashed: bool) -> Value:
        return bytes.fromhex(payload).decode("utf-8", "surrogatepass")

    def _read_n(self, payload: Json, _depth: int, _hashed: bool) -> Value:
        module, _, name = payload.rpartition(".")
        return NAMED[payload] if payload in NAMED or not module else import_name(module, name)

    def _read_v(self, payload: Json, depth: int, hashed: bool) -> Value:
        kind, parts = payload
        module, _, name = kind.rpartition(".")
        given = self._items(parts, depth, hashed)
        if module == "builtins":
            return {"range": range, "slice": slice}[name](*given)
        if kind == "numpy.generic":
            return new_scalar(*given)
        if kind == "numpy.object":
            return new_objects(*given)
        if kind == "re.Pattern":
            return __import__("re").compile(*given)
        return import_name(module, name)(*given)

    def _read_w(self, payload: Json, depth: int, hashed: bool) -> Value:
        kind, behind = payload
        viewed = self.decode(behind, depth + 1, hashed=hashed)
        if kind == "memoryview":
            return memoryview(viewed)
        if kind == "mappingproxy":
            return type(vars(type))(viewed)
        owner = OrderedDict if isinstance(viewed, OrderedDict) else dict
        return {"dict_keys": owner.keys, "dict_values": owner.values, "dict_items": owner.items}[kind](viewed)

    def _read_T(self, payload: Json, depth: int, hashed: bool) -> Value:  # noqa: N802 - the tag
        name, fields, items = payload
        number = self._keep()
        made = tuple.__new__(self._make_named_class(name, tuple(fields)), self._items(items, depth, hashed))
        self._place(number, made)
        return made

    def _make_named_class(self, name: str, fields: tuple[str, ...]) -> Value:
        known = self.heap.known.get(name) if self.heap is not None else None
        # A named tuple of a class that the prompt defines must be of the test's own class, or `isinstance` would
        # differ.
        if known is not None and list_fields(known) == list(fields):
            return known
        found = _NAMED_TUPLES.get((name, fields))
        if found is None:
            # The name becomes source text inside `namedtuple`, so a hostile name must be an identifier.
            if not name.replace(".", "").replace("<locals>", "").isidentifier():
                raise ValueRefusedError("malformed value")
            found = __import__("collections").namedtuple(name.rpartition(".")[2], fields)
            _NAMED_TUPLES[name, fields] = found
        return found

    def _read_I(self, payload: Json, depth: int, hashed: bool) -> Value:  # noqa: N802 - the tag
        name, state, slots, content = payload
        if self.heap is None:
            raise ValueRefusedError("malformed value")
        kind: Value = self.heap.known.get(name) or stateful_class(name)
        number = self._keep()
        base = find_base(kind)
        # `__init__` is not called: it may have effects, and all attributes come from the structure.
        made = object.__new__(kind) if base is None else base.__new__(kind)
        self._place(number, made)
        pairs = self._pairs(state, depth, hashed)
        if pairs:
            object.__getattribute__(made, "__dict__").update(pairs)
        # Only slots that the class declares may be set, since `object.__setattr__` would set any descriptor.
        for slot, item in slots:
            if type(slot) is not str or slot not in list_slots(kind):
                raise ValueRefusedError("malformed value")
            object.__setattr__(made, slot, self.decode(item, depth + 1, hashed=hashed))
        if content is not None:
            if base not in CHANGING:
                raise ValueRefusedError("malformed value")
            ((_, items),) = content.items() if type(content) is dict else (("", content),)
            self._write(made, items, depth, hashed=False)
        self.heap.settle(made)
        return made

    def _read_E(self, payload: Json, _depth: int, _hashed: bool) -> Value:  # noqa: N802 - the tag
        name, member, flags = payload
        if self.heap is None:
            raise ValueRefusedError("malformed value")
        kind: Value = self.heap.known[name]
        return kind[member] if flags is None else kind(flags)

    def _read_S(self, payload: Json, depth: int, hashed: bool) -> Value:  # noqa: N802 - the tag
        description, content = payload
        if self.heap is None or self._opaque is None or hashed:
            raise ValueRefusedError("malformed value")
        # The stand-in's number comes before those of its contents, as on the other side.
        number = self._keep()
        inner = Decoder(None)
        inner_kind = type(content)
        if (inner_kind is dict and len(content) == 1 and next(iter(content)) in _HOLDERS) or inner_kind is list:
            tag, items = next(iter(content.items())) if inner_kind is dict else ("", content)
            base = _HOLDERS[tag]
            if base in (tuple, frozenset):
                made = self._opaque(description, base(self._items(items, depth, base is frozenset)))
                self._place(number, made)
                return made
            if base is deque:
                _, items = items
            made = self._opaque(description, base())
            self._place(number, made)
            return self._write(made, items, depth, hashed=False)
        made = self._opaque(description, inner.decode(content))
        self._place(number, made)
        return made

    def _read_X(self, payload: Json, _depth: int, _hashed: bool) -> Value:  # noqa: N802 - the tag
        return exception_from(payload, self)

    def _read_h(self, payload: Json, _depth: int, hashed: bool) -> Value:
        if self.heap is None or self._opaque is None or hashed:
            raise ValueRefusedError("malformed value")
        number = self._keep()
        made = self._opaque(payload, None)
        self._place(number, made)
        return made


_HOLDERS: dict[str, Value] = {tag: base for base, tag in TAGS.items()}
_NAMED_TUPLES: dict[tuple[str, tuple[str, ...]], Value] = {}


def decode(
    structure: Json,
    heap: Heap | None = None,
    find: Find | None = None,
    opaque: Callable[[Json, Value], Value] | None = None,
) -> Value:
    """Return the value of a structure; see `Decoder`."""
    return Decoder(heap, find, opaque).decode(structure)


def exception_from(parts: Json, decoder: Decoder | None = None) -> BaseException:
    """Return the exception that `encoding.exception_parts` described.

    Args:
        parts: the description.
        decoder: decodes the description's values; its heap keeps the program's classes, so that each keeps its
            identity.

    Raises:
        ValueRefusedError: the description is malformed.
    """
    decoder = decoder or Decoder()
    return restore_exception(parts, decoder.decode, {} if decoder.heap is None else decoder.heap.classes)
