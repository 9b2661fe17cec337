"""Records the objects of a test that both sides know: their numbers, and their contents when both sides last agreed."""

from __future__ import annotations

from _collections import (  # type: ignore[import-not-found]  # no stubs; a tenth of collections' cost
    OrderedDict,
    deque,
)
from operator import is_
from sys import intern

from evalrun_executor.calls.buffers import buffer_state, find_buffer_name
from evalrun_executor.calls.json_text import dumps
from evalrun_executor.calls.originals import (
    ATOMS,
    CHANGING,
    Json,
    Value,
    all_,
    find_base,
    getrefcount,
    id_,
    issubclass_,
    len_,
    list_,
    map_,
    read_state,
    set_,
    type_,
)

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Heap:
    """The objects of a test that both sides know.

    Args:
        mine: the letter of this side: `a` for the assertions, `p` for the program.
        known: the classes of this side that the other side has too, by name.
    """

    def __init__(self, mine: str, known: dict[str, type] | None = None) -> None:
        self.mine = mine
        self.theirs = "p" if mine == "a" else "a"
        self.objects: dict[str, list[Value]] = {"a": [], "p": []}
        self.places: dict[int, tuple[str, int]] = {}
        self.shapes: dict[int, list[Value]] = {}
        """Contents of mutable objects when both sides last agreed on them."""
        self.known = {} if known is None else known
        self.classes: dict[str, Value] = {}
        """Exception classes of the other side, and those by which a test catches some of them."""

    def add(self, thing: Value, side: str) -> None:
        """Register an object under the next number of the side that created the object."""
        made = self.objects[side]
        self.places[id_(thing)] = side, len_(made)
        made.append(thing)

    def forget_after(self, count: int) -> None:
        """Take back this side's numbers after the first `count`: their objects did not cross."""
        made = self.objects[self.mine]
        for thing in made[count:]:
            self.places.pop(id_(thing), None)
            self.shapes.pop(id_(thing), None)
        del made[count:]

    def place(self, side: str, number: int, thing: Value) -> None:
        """Put an object where a number was reserved for it."""
        self.objects[side][number] = thing
        self.places[id_(thing)] = side, number

    def settle(self, thing: Value) -> None:
        """Record that both sides know the object as it is now."""
        shape = list_parts(thing)
        if shape is not None:
            self.shapes[id_(thing)] = shape

    def reference(self, thing: Value) -> Json:
        """Return the reference to a known object; None for other objects."""
        place = self.places.get(id_(thing))
        return None if place is None else {place[0]: place[1]}

    def find_changed(self, things: Iterable[Value]) -> list[Value]:
        """Return the objects that have changed since both sides last agreed."""
        found = []
        for thing in things:
            known = self.shapes.get(id_(thing))
            if known is not None:
                now = list_parts(thing)
                # Items are compared by identity: `==` would run the program's own code, and equal objects may still be
                # different ones.
                if now is not None and (len_(now) != len_(known) or not all_(map_(is_, now, known))):
                    found.append(thing)
        return found

    def find_reached(self, roots: Iterable[Value]) -> list[Value]:
        """Return the known containers among these values and inside them."""
        # A list instead of recursion: values may be nested deeper than Python's stack allows.
        found, seen, waiting = [], set_(), list_(roots)
        while waiting:
            thing = waiting.pop()
            if type_(thing) in ATOMS or id_(thing) in seen:
                continue
            seen.add(id_(thing))
            if id_(thing) in self.places:
                found.append(thing)
            shape = _inside(thing)
            if shape and not ATOMS.issuperset(map_(type_, shape)):
                waiting += shape
        return found

    def held(self, things: list[Value], counted: dict[int, int]) -> list[Value]:
        """Return the objects that something beside this heap holds, and the known containers that these lead to.

        The caller must hold the objects in `things` only, apart from as many references as `counted` gives by id.
        """
        # References from one of the objects to another are known, so they are counted and subtracted below.
        inner: dict[int, int] = {}
        for thing in things:
            shapes = self.shapes.get(id_(thing))
            for held in (_inside(thing) or (), shapes or ()):
                for item in held:
                    if type_(item) not in ATOMS:
                        inner[id_(item)] = inner.get(id_(item), 0) + 1
        kept = []
        for thing in things:
            # Four references are ours: the heap's own list, the caller's list, the loop's name, and the argument of
            # getrefcount.
            if getrefcount(thing) - 4 - inner.get(id_(thing), 0) - counted.get(id_(thing), 0) > 0:
                kept.append(thing)  # noqa: PERF401 - a comprehension would count differently from Python to Python
        if not kept:
            return kept
        return [thing for thing in self.find_reached(kept) if id_(thing) in self.shapes]


def list_parts(thing: Value) -> list[Value] | None:
    """Return the contents of a mutable object in one list; None for immutable objects."""
    kind = type_(thing)
    if kind is list:
        return list_(thing)
    base = find_base(kind)
    if base is list:
        return list_(list.__iter__(thing))
    if base is dict:
        owner = OrderedDict if issubclass_(kind, OrderedDict) else dict
        return [part for pair in owner.items(thing) for part in pair]
    if base is set:
        return list_(set.__iter__(thing))
    if base is deque:
        return list_(deque.__iter__(thing))
    if base is bytearray:
        return [bytes(thing)]
    if base is None:
        name = find_buffer_name(kind)
        if name:
            # Interned, so that the text is the identical object as long as nothing changes: `find_changed` compares by
            # identity.
            return [intern(dumps(buffer_state(thing, name)))]
        state = read_state(thing)
        if state is not None:
            return [part for pair in dict.items(state) for part in pair]
    return None


def _inside(thing: Value) -> list[Value] | None:
    """Return the contents of a value that can hold other values; None for any other value."""
    kind = type_(thing)
    if kind is tuple or (issubclass_(kind, tuple) and kind not in ATOMS):
        return list_(tuple.__iter__(thing))
    base = find_base(kind)
    return list_parts(thing) if base in CHANGING or base is None else None
