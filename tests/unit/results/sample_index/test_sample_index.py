"""The index of a run's samples: what a reader gets back from its files."""

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders.results.samples import sample_result, with_changes
from builders.results.stored_runs import samples_of, write_run

from evalrun_results.sample_index import segment, stored_index
from evalrun_results.sample_index.columns import encode_columns
from evalrun_results.sample_index.segment import GROUP_BYTES, text_groups
from evalrun_results.sample_index.stored_index import build_index
from evalrun_results.sample_index.words import WordIndex
from evalrun_results.sample_rows.stored_batches import StoredBatches
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.exits import BadInputError


def rows_with(content: bytes, directory: list[int], word: str) -> list[int]:
    """Find a whole word as the page does: in the blocks that may hold it."""
    offset, length = directory
    found: Any = json.loads(gzip.decompress(content[offset : offset + length]))
    begin = 0
    for end in found["ends"]:
        head, _, gaps = gzip.decompress(content[begin:end]).partition(b"\n")
        begin, place = end, 0
        for each, count in zip(*json.loads(head), strict=True):
            if each == word:
                return list(np.cumsum(struct.unpack(f"<{count}H", gaps[place : place + 2 * count])))
            place += 2 * count
    return []


def test_word_index_words_are_found_in_their_rows_over_several_batches() -> None:
    index = WordIndex()
    index.add(pa.array(["import os\nos.getcwd()", "Import SYS", None, ""]))
    index.add(pa.array(["import_os is one word", "Größe größe", "x", "w" * 41, "os"]))
    content, directory = index.encode()

    wanted = {
        "import": [0, 1], "os": [0, 8], "sys": [1], "getcwd": [0], "import_os": [4], "größe": [5], "x": [],
        "w" * 41: [], "absent": [],
    }  # fmt: skip
    assert {word: rows_with(content, directory, word) for word in wanted} == wanted


def test_word_index_many_words_every_one_is_found() -> None:
    index = WordIndex()
    index.add(pa.array([f"common w{row} {'even' if row % 2 == 0 else 'odd'}" for row in range(20_000)]))
    content, directory = index.encode()

    assert rows_with(content, directory, "common") == list(range(20_000))
    assert rows_with(content, directory, "even") == list(range(0, 20_000, 2))
    assert rows_with(content, directory, "w19999") == [19_999]
    blocks = json.loads(gzip.decompress(content[directory[0] :]))
    assert len(blocks["ends"]) > 5
    assert blocks["first"] == sorted(blocks["first"])


def test_word_index_no_text_has_no_word() -> None:
    index = WordIndex()
    index.add(pa.array(["", None]))
    content, directory = index.encode()
    assert rows_with(content, directory, "os") == []


def test_word_index_more_rows_than_a_segment_is_refused() -> None:
    index = WordIndex()
    index.add(pa.array([""] * segment.SEGMENT_ROWS))
    with pytest.raises(ValueError, match="at most"):
        index.add(pa.array([""]))


@pytest.mark.parametrize(
    ("lengths", "rows"),
    [
        ([], []),
        ([10], [1]),
        ([GROUP_BYTES, 1], [1, 2]),
        ([GROUP_BYTES + 1, 1, 1], [1, 3]),
        ([1] * 2500, [1000, 2000, 2500]),
        ([GROUP_BYTES // 2] * 5, [2, 4, 5]),
    ],
)
def test_text_groups_hold_bounded_rows_and_bytes(lengths: list[int], rows: list[int]) -> None:
    found, ends = text_groups(lengths)
    assert found == rows
    assert ends == [sum(lengths[:row]) for row in rows]


def test_encode_columns_values_come_back(tmp_path: Path) -> None:
    tagged = with_changes(sample_result("Q", 0, None, output_tokens=None), tags=("dp", "two\nlines", "x" * 300))
    run = write_run(tmp_path, [*samples_of([(2, 1)]), tagged])
    (batch,) = StoredBatches(StoredRun.open(str(run))).read()
    content, places = encode_columns(batch)

    def part(name: str, of: str = "values") -> bytes:
        place: Any = places[name]
        offset, length = place[of]
        return gzip.decompress(content[offset : offset + length])

    assert struct.unpack("<3f", part("sample")) == (0, 1, 0)
    tokens = struct.unpack("<3f", part("tokens"))
    assert tokens[:2] == (100, 100)
    assert np.isnan(tokens[2])
    assert list(part("accepted")) == [1, 0, 2]
    texts = json.loads(part("status", "texts"))
    assert [texts[code] for code in part("status")] == ["success", "wrong_answer", "api_error"]
    tags = json.loads(part("tag", "texts"))
    assert [tags[code] for code in part("tag")] == ["", "", f"dp\ntwo lines\n{'x' * 200}"]


def texts_of(run: Path, entry: Any) -> list[Any]:
    texts = entry["texts"]
    directory = run if texts["file"] == "results.jsonl" else run / "index"
    content = (directory / texts["file"]).read_bytes()[texts["start"] : texts["start"] + texts["ends"][-1]]
    return [json.loads(line) for line in content.splitlines()]


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of few rows has several segments."""
    monkeypatch.setattr(stored_index, "SEGMENT_ROWS", 100)


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("missing", ["", "results.jsonl", "results.parquet"])
def test_build_index_rows_and_texts_are_those_of_the_results(tmp_path: Path, missing: str) -> None:
    run = write_run(tmp_path / "run", samples_of([(250, 100)]))
    if missing:
        (run / missing).unlink()
    state = build_index(StoredRun.open(str(run)), run / "index")

    assert state.is_complete
    assert [entry["rows"] for entry in state.segments] == [100, 100, 50]
    rows = [row for entry in state.segments for row in texts_of(run, entry)]
    assert [row["sample"] for row in rows] == list(range(250))
    assert (run / "index" / "texts.jsonl").exists() == (missing == "results.jsonl")


@pytest.mark.usefixtures("small_segments")
def test_build_index_interrupted_goes_on_and_changed_results_start_again(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", samples_of([(250, 100)]))
    stored, directory = StoredRun.open(str(run)), run / "index"

    def interrupt(state: stored_index.IndexState) -> None:
        if len(state.segments) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index(stored, directory, interrupt)
    written = (directory / "00000.columns").stat().st_mtime_ns
    state = build_index(stored, directory)
    assert [entry["rows"] for entry in state.segments] == [100, 100, 50]
    assert (directory / "00000.columns").stat().st_mtime_ns == written

    run = write_run(run, samples_of([(30, 1)]))
    assert [entry["rows"] for entry in build_index(StoredRun.open(str(run)), directory).segments] == [30]

    reported: list[stored_index.IndexState] = []
    build_index(StoredRun.open(str(run)), directory, reported.append)
    assert [state.is_complete for state in reported] == [True], "one that is there is told too"

    (directory / "00000.words").unlink()
    assert build_index(StoredRun.open(str(run)), directory).is_complete
    assert (directory / "00000.words").exists()


def test_build_index_lines_that_lack_rows_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", samples_of([(3, 1)]))
    lines = (run / "results.jsonl").read_text().splitlines(keepends=True)
    (run / "results.jsonl").write_text("".join(lines[:2]))
    with pytest.raises(BadInputError, match=r"has fewer rows than results\.parquet"):
        build_index(StoredRun.open(str(run)), run / "index")


def test_build_index_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", samples_of([(3, 1)]))
    (run / "index").write_text("a file")
    with pytest.raises(BadInputError, match="index: cannot be written"):
        build_index(StoredRun.open(str(run)), run / "index")


def test_searched_texts_hold_the_answer_and_the_output_of_its_tests(tmp_path: Path) -> None:
    result = with_changes(sample_result(statuses=["success", "wrong_answer"]), response="The answer")
    without = sample_result("Q", 0, None)
    run = write_run(tmp_path, [result, without])
    (batch,) = StoredBatches(StoredRun.open(str(run))).read()
    first, second = segment.join_searched_texts(batch).to_pylist()
    assert "The answer" in first
    assert "other" in first
    assert "print" in second
