"""The fields by which samples are filtered, sorted and listed, in the terminal and on the page. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class FieldKind(StrEnum):
    """The comparison of a field's values."""

    TEXT = "text"
    NUMBER = "number"
    FLAG = "flag"
    TAGS = "tags"
    """Several texts: a condition holds if any of them meets it."""


@dataclass(frozen=True, slots=True)
class SampleField:
    """A field of a sample."""

    name: str
    """Name of the field as a user writes it."""
    column: str
    """Column of `results.parquet` (docs/outputs.md)."""
    kind: FieldKind
    says: str
    """Text for help and headings."""
    is_small: bool = True
    """Whether the page loads the column whole; False for texts, which are read row by row."""


FIELDS: Final = (
    SampleField("dataset", "dataset", FieldKind.TEXT, "dataset"),
    SampleField("problem", "problem_id", FieldKind.TEXT, "problem"),
    SampleField("sample", "sample", FieldKind.NUMBER, "sample"),
    SampleField("turn", "turn", FieldKind.NUMBER, "turn"),
    SampleField("repeat", "repeat", FieldKind.NUMBER, "noise-floor repeat"),
    SampleField("status", "final_status", FieldKind.TEXT, "status"),
    SampleField("pass_ratio", "pass_ratio", FieldKind.NUMBER, "tests passed"),
    SampleField("tokens", "output_tokens", FieldKind.NUMBER, "output tokens"),
    SampleField("gen_time", "gen_time", FieldKind.NUMBER, "generation seconds"),
    SampleField("judge_time", "total_judge_time", FieldKind.NUMBER, "judge CPU seconds"),
    SampleField("score", "score", FieldKind.NUMBER, "grader's score"),
    SampleField("difficulty", "difficulty", FieldKind.TEXT, "difficulty"),
    SampleField("tag", "tags", FieldKind.TAGS, "tags"),
    SampleField("language", "language", FieldKind.TEXT, "language"),
    SampleField("source", "data_source", FieldKind.TEXT, "data source"),
    SampleField("finish", "finish_reason", FieldKind.TEXT, "finish reason"),
    SampleField("extraction", "extraction", FieldKind.TEXT, "where the program was found"),
    SampleField("model", "model", FieldKind.TEXT, "model"),
    SampleField("reason", "not_judged_reason", FieldKind.TEXT, "why it was not judged"),
    SampleField("judged", "judged", FieldKind.FLAG, "judged"),
    SampleField("accepted", "accepted", FieldKind.FLAG, "accepted"),
    SampleField("forgeable", "forgeable", FieldKind.FLAG, "forgeable"),
    SampleField("cached", "cached", FieldKind.FLAG, "from the cache"),
    SampleField("answer", "response", FieldKind.TEXT, "answer", is_small=False),
    SampleField("code", "code", FieldKind.TEXT, "program", is_small=False),
)
"""Fields in the order of the page's columns."""

BY_NAME: Final = {field.name: field for field in FIELDS}
