"""Preparations before a zygote's first fork, so that its children go on sharing its pages.

Each page that a child writes to is copied for it, at 1 to 3 us. It writes wherever it counts a reference, and into the
free room that the allocators have between what the zygote holds. docs/decisions/0038 has the page faults that each
function here spares.
"""

from __future__ import annotations

import ctypes
import gc
import sys

_Count = ctypes.c_uint32
_MORE = 5
_LARGEST_SMALL = 512
"""Bytes of the largest object that has a place in a pool."""
_STEP = 16
_POOL_BYTES = 1 << 14 if sys.version_info >= (3, 10) else 1 << 12
_POOL_HEAD = 48
_FRESH_BLOCKS = 3
"""One after the other from its head on: so a pool begins that has not been used."""
_MAX_POOLS = 4
"""Of one size that are filled: the calls below make integers of 32 bytes themselves, so no pool of those seems new."""
_LARGE_CHUNKS = tuple(1 << power for power in range(17, 9, -1))
_SMALL_CHUNKS = range(1000, 23, -_STEP)


def keep_pages_shared() -> None:
    """Turn what this process holds immortal, and use up the free room between it. Call it once, before the forks."""
    immortalize()
    fill_pools()
    fill_heap()


def immortalize() -> int:
    """Turn every object immortal that the garbage collector finds, and what those refer to; return how many.

    Python 3.12 and newer leave the count of an immortal object alone (PEP 683): None, small integers and the like.
    Objects that `gc.freeze` hid, and what only they refer to, stay as they are; so do all where `has_immortal_objects`
    is false.
    """
    if not has_immortal_objects():
        return 0
    counts = (_Count * (1 << 46)).from_address(0)  # by address / 4: an object of ctypes for each would take 20 ms
    forever = counts[id(None) >> 2]
    waiting = gc.get_objects()
    made = 0
    while waiting:
        mortal = []
        for found in waiting:
            place = id(found) >> 2
            if counts[place] != forever:
                counts[place] = forever
                mortal.append(found)
        made += len(mortal)
        waiting = gc.get_referents(*mortal)
    return made


def has_immortal_objects() -> bool:
    """Return whether an object with the count of None keeps it, and the count lies where ordinary builds have it.

    Builds for debugging or without a global lock begin their objects otherwise.
    """
    if sys.implementation.name != "cpython" or sys.version_info < (3, 12) or sys.byteorder != "little":
        return False
    if sys.maxsize < 2**32 or set(sys.abiflags) & set("dt"):
        return False
    sample = object()
    count = _Count.from_address(id(sample))
    before = count.value
    references = [sample] * _MORE
    if count.value != before + _MORE:
        return False
    count.value = _Count.from_address(id(None)).value
    references.append(sample)
    return count.value == _Count.from_address(id(None)).value


def fill_pools() -> None:
    """Fill the pools that hold Python's small objects, so that a child's first of each size begins a new pool.

    In a pool that has been used, a child would write to its head and to a free block, each on a page of its own.
    """
    take = ctypes.pythonapi.PyObject_Malloc
    take.argtypes, take.restype = [ctypes.c_size_t], ctypes.c_void_p
    for size in range(_STEP, _LARGEST_SMALL + 1, _STEP):
        fresh = 0
        for _ in range(_MAX_POOLS * _POOL_BYTES // size):
            place = take(size) % _POOL_BYTES
            fresh = fresh + 1 if place == _POOL_HEAD + fresh * size else int(place == _POOL_HEAD)
            if fresh == _FRESH_BLOCKS:
                break


def fill_heap() -> None:
    """Use up the free chunks of the C library's heap, so that a child's come from its end, one beside the other.

    Those that `trim_heap` has given back stay so: only the head of a chunk is written.
    """
    libc = ctypes.CDLL(None)
    try:
        state, take = libc.mallinfo2, libc.malloc
    except AttributeError:  # a C library other than glibc, or one older than 2.33
        return
    state.restype, take.restype = _HeapState, ctypes.c_void_p
    end = state().keepcost
    for size in (*_LARGE_CHUNKS, *_SMALL_CHUNKS):
        before = end
        while end == before:  # else it came from the end of the heap: no chunk of this size is free
            take(size)
            end = state().keepcost


class _HeapState(ctypes.Structure):
    """struct mallinfo2; `keepcost`: free bytes at the end of the heap."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip
