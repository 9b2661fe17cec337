"""JSON as files hold it: always valid UTF-8, with null for NaN and Infinity, whatever texts models and users write.
Pure."""

import json
from collections.abc import Mapping

from pydantic_core import PydanticSerializationError, from_json, to_json

from evalrun_runtime.unicode_text import replace_surrogates_within


def json_line(value: Mapping[str, object]) -> bytes:
    """Return a line of JSON without its newline.

    A lone surrogate (a user's file may spell one, "\\ud800") is no character and has no UTF-8: it becomes U+FFFD.
    """
    try:
        return to_json(value, inf_nan_mode="null")
    except (PydanticSerializationError, UnicodeEncodeError):
        return to_json(replace_surrogates_within(value), inf_nan_mode="null")


def json_document(value: Mapping[str, object], *, sort_keys: bool = False) -> bytes:
    """Return an indented JSON document, with its last newline."""
    plain = from_json(json_line(value))
    return (json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False, sort_keys=sort_keys) + "\n").encode()
