"""The base of every family's record of tests."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self

from evalrun_data.rows import Row


@dataclass(frozen=True, slots=True)
class PromptParts:
    """The parts of a problem from which a family writes its prompt."""

    published: str
    """The published text, byte for byte."""
    language_name: str
    """Name for people, e.g. `Python 3`."""
    language: str
    """Tag of code blocks, e.g. `python`."""

    @property
    def text(self) -> str:
        """The published text without line breaks at its ends."""
        return self.published.strip("\n")


@dataclass(frozen=True, slots=True)
class GroundTruth(ABC):
    """The tests of a problem. A family adds fields; empty default fields are omitted from records."""

    family: ClassVar[str]
    """The family's name."""
    form: ClassVar[str] = ""
    """The field of `JudgeRequest.tests` (judge.proto) that carries the tests; empty: the judge gets none."""
    told_by: ClassVar[tuple[str, ...]] = ()
    """Fields that identify a record of this family; empty: no record is read as this family."""
    reading_order: ClassVar[int] = 2
    """Order among families that the same record may belong to: the lowest reads it."""
    wanted: ClassVar[str] = ""
    """The fields of a record in words, for the message that a record has no tests."""

    @classmethod
    def parse(cls, truth: Row) -> Self:
        """Read the tests from the `ground_truth` of a record. Raises BadInputError."""
        raise truth.error(f"field '{truth.path.rstrip('.')}' cannot hold tests of the family {cls.family}")

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of tests."""

    @abstractmethod
    def write_chat(self, parts: PromptParts) -> str:
        """Return the message that asks a chat model for a program."""

    def write_completion(self, parts: PromptParts) -> str:
        """Return the text that a model without a chat continues."""
        return parts.published

    def explain_refusal(self, language: str) -> str:
        """Return why these tests cannot judge programs in a language; empty if they can, as far as is known."""
        return ""

    def template_words(self) -> Mapping[str, str]:
        """Return the texts for `{asserts}` and `{entry_point}` in a user's own prompt template, where there are any."""
        return {}

    def to_record(self) -> dict[str, Any]:
        """Return the `ground_truth` of a record, ready for JSON; `parse` restores the tests."""
        values = {field: getattr(self, field.name) for field in fields(self)}
        return {
            field.name: list(value) if isinstance(value, tuple) else value
            for field, value in values.items()
            if value or field.default is MISSING or field.default
        }

    def to_message(self) -> dict[str, Any]:
        """Return the fields of the message of `form`; here: the record's own."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
