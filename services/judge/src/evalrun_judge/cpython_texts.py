"""The text by which CPython ends a program that lacks a package. Pure.

A missing package leaves no other trace. The text is that of CPython 3.3 to 3.14; a program can print the same.
"""

import re
from typing import Final

_NOT_FOUND: Final = re.compile(rb"ModuleNotFoundError: No module named '([\w.]{1,264})'")
_PACKAGE: Final = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)


def parse_missing_package(stderr: bytes) -> str:
    """Return the package whose absence ended a program, by the last line of its stderr; empty if another cause did."""
    found = _NOT_FOUND.match(stderr.rstrip().rpartition(b"\n")[2])
    return "" if found is None else parse_package(found[1].decode("ascii", "replace"))


def parse_package(module: object) -> str:
    """Return the package of a module that an untrusted program names; empty if that is not a module's name."""
    package = module.partition(".")[0] if isinstance(module, str) else ""
    return package if _PACKAGE.fullmatch(package) else ""
