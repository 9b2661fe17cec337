"""Checks the labels and annotations of a manifest as the API server does. Pure.

The CRD's schema does not cover metadata: its rules are Kubernetes' own and apply to every kind of object.
"""

import re
from collections.abc import Iterator

from evalrun_api.checks import Value, Violation

MAX_NAME = 63
MAX_PREFIX = 253
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
KEY_ADVICE = (
    f"write at most {MAX_NAME} characters of a-z, A-Z, 0-9, '-', '_' and '.', a letter or digit first and last, "
    "after a domain and '/' if you like: example.com/team"
)
VALUE_ADVICE = (
    f"write at most {MAX_NAME} characters of a-z, A-Z, 0-9, '-', '_' and '.', a letter or digit first and last"
)


def metadata_problems(metadata: Value) -> Iterator[Violation]:
    """Yield everything about name, labels and annotations that the API server refuses."""
    if not isinstance(metadata, dict):
        return
    if not isinstance(metadata.get("name"), str):
        yield Violation("metadata.name", "is missing: write what the run is to be called")
    for field in ("labels", "annotations"):
        notes = metadata.get(field)
        for key, value in notes.items() if isinstance(notes, dict) else ():
            # Of an annotation's key the API server compares the lower-case form.
            if not is_qualified_name(key if field == "labels" else str(key).lower()):
                yield Violation(f"metadata.{field}", f"the key {key!r} is not allowed: {KEY_ADVICE}")
            if field == "labels" and isinstance(value, str) and not is_label_value(value):
                yield Violation(f"metadata.labels.{key}", f"the value {value!r} is not allowed: {VALUE_ADVICE}")


def is_qualified_name(key: str) -> bool:
    """Return whether a label may have this key."""
    prefix, slash, name = key.rpartition("/")
    if slash and not (len(prefix) <= MAX_PREFIX and _DOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


def is_label_value(value: str) -> bool:
    """Return whether a label may have this value; an empty value is valid."""
    return not value or (len(value) <= MAX_NAME and _NAME.fullmatch(value) is not None)
