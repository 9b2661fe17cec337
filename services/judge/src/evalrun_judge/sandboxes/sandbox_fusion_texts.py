"""Texts of a stock SandboxFusion server with information that no status or field has. Pure.

The server returns 500 for unexpected errors, and its output fields hold an error's text in place of undecodable output.
`VERSION` is the image of these texts.
"""

from typing import Final

VERSION: Final = "server-20250609"

_NO_ROW: Final = "'NoneType' object is not iterable"
_NO_TABLE: Final = "'NoneType' object has no attribute 'fetch_one'"
_NOT_DECODED: Final = b"[DecodeError] "


def says_no_such_row(detail: str) -> bool:
    """Return whether the detail of a 500 means that the server has no row of this id."""
    return detail == _NO_ROW


def says_no_rows(detail: str) -> bool:
    """Return whether the detail of a 500 means that the server lists a dataset but has no rows of it."""
    return detail.endswith(_NO_TABLE)


def says_not_decoded(stdout: bytes) -> bool:
    """Return whether an output replaces bytes that are not UTF-8. A program can print the same."""
    return stdout.startswith(_NOT_DECODED)
