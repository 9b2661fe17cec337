"""A bounded cache of recently used values. Pure."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class RecentlyUsed(Generic[Key, Value]):
    """Values by key, bounded by their total size; the least recently used value is evicted first.

    Args:
        capacity: of all values.
        size_of: returns a value's size, which must not change.
    """

    def __init__(self, capacity: int, size_of: Callable[[Value], int]) -> None:
        self._capacity = capacity
        self._size_of = size_of
        self._kept: OrderedDict[Key, Value] = OrderedDict()
        self.size = 0
        """Size of all values held."""

    def get(self, key: Key) -> Value | None:
        """Return the value and mark it as recently used, or None if it is absent."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: Key, value: Value) -> None:
        """Store a value, replacing the key's previous value. A value larger than the capacity is not stored, and evicts
        no other value."""
        old = self._kept.pop(key, None)
        if old is not None:
            self.size -= self._size_of(old)
        size = self._size_of(value)
        if size > self._capacity:
            return
        self._kept[key] = value
        self.size += size
        while self.size > self._capacity:
            _, dropped = self._kept.popitem(last=False)
            self.size -= self._size_of(dropped)
