"""A row of a file with typed access to its fields. Every error names file, line and field."""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from evalrun_runtime.exits import BadInputError

MAX_COUNT = 1 << 53
"""Largest whole number that a float holds exactly, as JSON's numbers are in most languages."""

_KINDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}

_TEST_COLUMN = re.compile(r"(?:^|_)(?:tests?|asserts?|assertions?|inputs?|outputs?)(?:_|$)", re.IGNORECASE)
"""Names under which published datasets keep tests: `plus_input`, `test`, `assertion`, `generated_tests`, ..."""


def describe_kind(value: object) -> str:
    """Return the kind of a JSON value in words."""
    return "null" if value is None else _KINDS.get(type(value), type(value).__name__)


@dataclass(frozen=True, slots=True)
class Row:
    """An object read from a file; null counts as absent, as Parquet cannot tell them apart."""

    values: Mapping[str, object]
    source: str
    """The file as the user named it."""
    number: int
    """Line (JSONL) or row (Parquet), from 1."""
    unit: str = "line"
    path: str = ""
    """Dotted path of this object inside the row, with its last dot; empty for the row itself."""

    @property
    def where(self) -> str:
        """`FILE:LINE`, or `FILE row N` for Parquet."""
        return f"{self.source}:{self.number}" if self.unit == "line" else f"{self.source} {self.unit} {self.number}"

    def error(self, what: str) -> BadInputError:
        """Return an error about this row, to be raised."""
        return BadInputError(f"{self.where}: {what}")

    def wrong(self, field: str, wanted: str) -> BadInputError:
        """Return the error, to be raised, for a field that is missing or wrong."""
        value = self.values.get(field)
        if value is None:
            return self.error(f"field '{self.path}{field}' is missing (expected {wanted})")
        return self.error(f"field '{self.path}{field}' should be {wanted}, not {describe_kind(value)}")

    def has(self, field: str) -> bool:
        """Return whether the field is present and not null."""
        return self.values.get(field) is not None

    def text(self, field: str) -> str:
        """Return a required text; it may be empty."""
        value = self.values.get(field)
        if not isinstance(value, str):
            raise self.wrong(field, "text")
        return self.encodable(field, value)

    def name(self, field: str) -> str:
        """Return a required text that is not blank."""
        value = self.text(field)
        if not value.strip():
            raise self.error(f"field '{self.path}{field}' is empty")
        return value

    def text_or_number(self, field: str) -> str:
        """Return a required text that is not blank, or a whole number as text."""
        value = self.values.get(field)
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else self.name(field)

    def optional_text(self, field: str, default: str = "") -> str:
        """Return a text, or the default if absent."""
        return self.text(field) if self.has(field) else default

    def optional_number(
        self, field: str, *, minimum: float = 0.0, above: bool = False, maximum: float = sys.float_info.max
    ) -> float | None:
        """Return a number that is at least (or, with `above`, more than) the minimum, or None if absent."""
        if not self.has(field):
            return None
        value = self.values[field]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(field, "a number")
        if not (value > minimum if above else value >= minimum):
            raise self.error(
                f"field '{self.path}{field}' should be {'more than' if above else 'at least'} {minimum:g}, not {value}"
            )
        # The value is not shown, because it may have hundreds of digits.
        if value > maximum:
            raise self.error(f"field '{self.path}{field}' should be at most {maximum}")
        return float(value)

    def optional_count(self, field: str, *, minimum: int = 0) -> int | None:
        """Return a whole number that is at least the minimum, or None if absent."""
        value = self.optional_number(field, minimum=minimum, maximum=MAX_COUNT)
        if value is None:
            return None
        if not value.is_integer():
            raise self.error(f"field '{self.path}{field}' should be a whole number, not {value}")
        return int(value)

    def optional_flag(self, field: str) -> bool | None:
        """True or false, or None where absent."""
        value = self.values.get(field)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(field, "true or false")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a required list of texts; it may be empty."""
        value = self.values.get(field)
        if not isinstance(value, list):
            raise self.wrong(field, "a list of texts")
        for index, item in enumerate(value):
            if not isinstance(item, str):
                raise self.error(f"field '{self.path}{field}[{index}]' should be text, not {describe_kind(item)}")
            self.encodable(f"{field}[{index}]", item)
        return tuple(value)

    def inside(self, field: str) -> "Row":
        """Return the required object in this field."""
        value = self.values.get(field)
        if not isinstance(value, dict):
            raise self.wrong(field, "an object")
        return self.make_inner_row(field, value)

    def from_json(self, field: str) -> "Row":
        """Return the required object in this field, parsed from JSON text if necessary: a Parquet column has a
        single type."""
        value = self.values.get(field)
        if not isinstance(value, str):
            return self.inside(field)
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise self.error(f"field '{self.path}{field}' is neither an object nor JSON: {error}") from error
        if not isinstance(parsed, dict):
            raise self.error(f"field '{self.path}{field}' should hold a JSON object")
        return self.make_inner_row(field, parsed)

    def make_inner_row(self, field: str, values: Mapping[str, object]) -> "Row":
        """Return an object found in this field, for messages that give its path."""
        return Row(values, self.source, self.number, self.unit, f"{self.path}{field}.")

    def replace_fields(self, **values: object) -> "Row":
        """Return a copy of the row with some fields replaced."""
        return Row({**self.values, **values}, self.source, self.number, self.unit, self.path)

    def refuse_other_fields(self, *known: str) -> None:
        """Raise BadInputError if the object has other fields, so that typing errors do not pass."""
        for field in self.values:
            if field not in known and self.has(field):
                raise self.error(f"field '{self.path}{field}' is unknown (known: {', '.join(known)})")

    def refuse_unused_tests(self, reader: str, *known: str) -> None:
        """Raise BadInputError if a column holds tests that the reader ignores: a wrong program could pass without them.

        Args:
            reader: the format's name in the message.
            known: columns that the reader uses, and columns that add nothing to those.
        """
        unused = ", ".join(f"'{field}'" for field in self.values if field not in known and self._holds_tests(field))
        if unused:
            raise self.error(
                f"the reader of {reader} rows does not use the tests in {unused}, so wrong answers could pass: write "
                f"the row as a record with all of its tests (docs/data-formats.md), or remove {unused}"
            )

    def _holds_tests(self, field: str) -> bool:
        held = self.values[field]
        # A number such as n_tests is a count of tests.
        is_number = isinstance(held, int | float)
        return _TEST_COLUMN.search(field) is not None and not is_number and held not in (None, "", [], {})

    def encodable(self, field: str, value: str) -> str:
        r"""Return the text, or raise if it has a lone surrogate (`"\ud800"`), which no program can read and no wire
        carries."""
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise BadInputError(
                    f"{self.where}: field '{self.path}{field}' is not valid Unicode at character {error.start}"
                ) from error
        return value
