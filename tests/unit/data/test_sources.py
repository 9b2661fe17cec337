"""A source that is read several times."""

import gzip
import json
from pathlib import Path

import pytest

from evalrun_data.sources import Source


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_source_rows_two_readers_at_once_each_yield_all_rows(tmp_path: Path, name: str) -> None:
    numbers = range(20_000)  # more than a reader takes at once
    content = "".join(json.dumps({"number": number}) + "\n" for number in numbers).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with Source(name, tmp_path) as source:
        pairs = list(zip(source.rows(), source.rows(), strict=True))
    assert [(one.values["number"], two.values["number"]) for one, two in pairs] == [(n, n) for n in numbers]


def test_source_rows_file_replaced_during_reading_yields_the_opened_file(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"version": 1}\n')
    with Source("rows.jsonl", tmp_path) as source:
        assert [row.values for row in source.rows()] == [{"version": 1}]
        (tmp_path / "new.jsonl").write_text('{"version": 2}\n')
        (tmp_path / "new.jsonl").replace(tmp_path / "rows.jsonl")
        assert [row.values for row in source.rows()] == [{"version": 1}]
    assert [row.values for row in source.rows()] == [{"version": 2}]
    source.close()
