"""Texts from programs, models and users' files, made fit for UTF-8. Pure."""

from collections.abc import Mapping


def replace_surrogates(text: str) -> str:
    r"""Return a text with each lone surrogate (`"\ud800"`) as U+FFFD, and each pair as the character it spells.

    JSON and Python's own texts can hold surrogates; UTF-8, and so files, MessagePack and protobuf, cannot.
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def replace_surrogates_within(value: object) -> object:
    """Return a value as JSON holds it, with `replace_surrogates` applied to each of its texts, keys included."""
    match value:
        case str():
            return replace_surrogates(value)
        case Mapping():
            return {replace_surrogates_within(key): replace_surrogates_within(item) for key, item in value.items()}
        case list() | tuple():
            return [replace_surrogates_within(item) for item in value]
    return value
