"""The few C types and calls that confinement needs, built from the internals of `ctypes`.

Importing `ctypes` takes 4 ms of each call to a stock SandboxFusion server, and makes the process larger.
"""

# mypy: disable-error-code="type-arg"
# Why: their base is generic for the type checker only.
from __future__ import annotations

from _ctypes import (
    FUNCFLAG_CDECL,
    FUNCFLAG_USE_ERRNO,
    CFuncPtr,
    _SimpleCData,
    addressof,
    dlopen,
    dlsym,
    get_errno,
)

__all__ = ("Char", "Function", "Int", "Long", "Pointer", "Text", "ULong", "addressof", "get_errno", "load_function")


class Char(_SimpleCData):
    """A byte; an array of them is a buffer."""

    _type_ = "c"


class Int(_SimpleCData):
    """An int."""

    _type_ = "i"


class Long(_SimpleCData):
    """A long."""

    _type_ = "l"


class ULong(_SimpleCData):
    """An unsigned long."""

    _type_ = "L"


class Pointer(_SimpleCData):
    """A pointer: None, bytes or an address."""

    _type_ = "P"


class Text(_SimpleCData):
    """A pointer to bytes that end with 0."""

    _type_ = "z"


class Function(CFuncPtr):
    """A function of the C library that returns an int and keeps errno apart."""

    _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
    _restype_ = Int


_LIBRARY = dlopen(None, 0)  # type: ignore[arg-type]  # None: what this process has loaded


def load_function(name: str) -> Function:
    """Return a function of the C library. Raises OSError."""
    return Function(dlsym(_LIBRARY, name))
