"""docs/samples.md lists the fields that conditions know."""

import re
from pathlib import Path

from evalrun_results.outputs.result_table import RESULT_SCHEMA
from evalrun_results.sample_rows.fields import FIELDS

PAGE = Path(__file__).parents[4] / "docs" / "samples.md"


def test_samples_page_lists_every_field_with_its_column() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if re.fullmatch(r"\| `\w+` \| `\w+` \| \w+ \|", line)]
    assert rows == [f"| `{field.name}` | `{field.column}` | {field.kind} |" for field in FIELDS]


def test_fields_are_columns_of_the_results() -> None:
    assert {field.column for field in FIELDS} <= set(RESULT_SCHEMA.names)
