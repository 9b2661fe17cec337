"""Converts structures to JSON text and back, and defines the error for values that cannot cross."""

from __future__ import annotations

from json import JSONDecodeError, JSONDecoder, JSONEncoder

from evalrun_executor.calls.originals import Json, len_

MAX_BYTES = 32 * 1024 * 1024
to_text = JSONEncoder(ensure_ascii=True, check_circular=False, allow_nan=False, separators=(",", ":")).encode
_from_text = JSONDecoder().decode


class ValueRefusedError(Exception):
    """A value that cannot cross; the message names its type or the reason."""


class TypeRefusedError(ValueRefusedError):
    """A value of a type that never crosses, whatever its size."""


def dumps(structure: Json) -> str:
    """Return the JSON text of a structure: ASCII, on one line.

    Raises:
        ValueRefusedError: the text is longer than `MAX_BYTES`.
    """
    text = to_text(structure)
    if len_(text) > MAX_BYTES:
        raise ValueRefusedError(f"value larger than {MAX_BYTES >> 20} MiB")
    return text


def loads(text: str) -> Json:
    """Parse JSON text.

    Raises:
        ValueRefusedError: the text is not JSON, or is nested too deep for the parser.
    """
    try:
        return _from_text(text)
    except (JSONDecodeError, ValueError, RecursionError) as error:
        raise ValueRefusedError("malformed text") from error
