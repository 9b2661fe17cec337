"""A verl configuration as leaves by dotted path, with a record of how each was converted. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from evalrun_runtime.exits import BadInputError

Fate = Literal["mapped", "default", "ignored", "refused", "unknown"]

_REFERENCE = re.compile(r"\$\{(?:oc\.select:)?\s*([A-Za-z0-9_.]+)\s*(?:,\s*([^${}]*))?\}")
_MAX_REFERENCES = 10


@dataclass(frozen=True)
class Entry:
    """Result of the conversion of a key."""

    key: str
    value: object
    fate: Fate
    note: str
    """The field that the key became, or the reason why it became none."""


class Document:
    """The keys of a configuration file. Every key ends up in `entries`."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.where = where
        self._leaves = dict(_leaves(values))
        self._entries: dict[str, Entry] = {}

    def has(self, *keys: str) -> bool:
        """Return whether the file contains any of these keys, or a key below any of them."""
        return any(leaf == key or leaf.startswith(f"{key}.") for leaf in self._leaves for key in keys)

    def list_children(self, key: str) -> list[str]:
        """Return the names directly below a key; none if it is a leaf."""
        below = (leaf.removeprefix(f"{key}.") for leaf in self._leaves if leaf.startswith(f"{key}."))
        return list(dict.fromkeys(name.partition(".")[0] for name in below))

    def value(self, key: str) -> Any:  # noqa: ANN401 - YAML
        """Return a key's value, with references such as ${data.max_prompt_length} followed; None if it is not set.

        Raises:
            BadInputError: the value refers to something that only Hydra can resolve.
        """
        value = self._leaves.get(key)
        for _ in range(_MAX_REFERENCES):
            if not isinstance(value, str) or "${" not in value:
                return None if value == "???" else value
            found = _REFERENCE.fullmatch(value.strip())
            if found is None:
                break
            named, fallback = found.groups()
            value = self._leaves[named] if named in self._leaves else _scalar(fallback)
        raise BadInputError(f"{self.where}: {key}: {self._leaves[key]!r} is Hydra's to resolve: write its value there")

    def is_set(self, key: str) -> bool:
        """Return whether a key has a value other than null, false, empty, or a reference with such a fallback."""
        value = self._leaves.get(key)
        if isinstance(value, str) and (found := _REFERENCE.fullmatch(value.strip())):
            value = self._leaves.get(found.group(1), _scalar(found.group(2)))
        return value not in (None, False, "", [], {})

    def note(self, key: str, fate: Fate, note: str) -> None:
        """Record how a key was converted, if the file contains it."""
        if key in self._leaves:
            self._entries[key] = Entry(key, self._leaves[key], fate, note)

    def map_value(self, key: str, target: str) -> Any:  # noqa: ANN401 - YAML
        """Return a key's value and record that it went to `target`; null is recorded as left to the default."""
        value = self.value(key)
        if value is None:
            self.note(key, "default", f"not set: {target} has its default")
        else:
            self.note(key, "mapped", target)
        return value

    def ignore(self, reasons: Sequence[tuple[str, str]]) -> None:
        """Record a reason for every remaining key, by the first matching prefix."""
        for key in self._leaves:
            if key in self._entries:
                continue
            reason = next((why for prefix, why in reasons if key == prefix or key.startswith(f"{prefix}.")), None)
            if reason is None:
                self.note(key, "unknown", "not a key that this command knows: see whether it matters to you")
            else:
                self.note(key, "ignored", reason)

    @property
    def entries(self) -> list[Entry]:
        """Every key of the file, in its order."""
        return [self._entries[key] for key in self._leaves if key in self._entries]

    @property
    def open_keys(self) -> list[str]:
        """Keys of the file of which nothing is recorded yet."""
        return [key for key in self._leaves if key not in self._entries]


def refusals(entries: Sequence[Entry], where: str) -> None:
    """Raise BadInputError if any key is refused; the message has a line for each."""
    refused = [f"{where}: {entry.key}: {entry.note}" for entry in entries if entry.fate == "refused"]
    if refused:
        raise BadInputError("\nevalrun: ".join(refused))


def account_text(entries: Sequence[Entry]) -> str:
    """Return the account for people: one line per key, first the keys that need the reader's attention."""
    lines = []
    for fate in ("refused", "unknown", "mapped", "default", "ignored"):
        found = [entry for entry in entries if entry.fate == fate]
        if found:
            lines.append(f"# {fate}: {len(found)}")
            lines += [f"#   {entry.key} = {_shown(entry.value)}: {entry.note}" for entry in found]
    return "\n".join(lines)


def _leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        key = f"{path}{name}"
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{key}.")
        else:
            yield key, value


def _scalar(text: str | None) -> Any:  # noqa: ANN401 - YAML
    """Return a reference's fallback as YAML would read it: a number, a truth value, null, or text."""
    if text is None or text.strip().lower() in ("", "null", "none"):
        return None
    text = text.strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _shown(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
