"""The benchmark of embedding models: its labels, and how it counts, with a model whose vectors are known."""

import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from builders.data import data_file
from builders.tiny_embedder import write_tiny_embedder
from embedder import (
    NEAR_MISS,
    PROBLEMS,
    REWRITINGS,
    UNRELATED,
    LabelledMix,
    LabelledRow,
    found_by_text,
    measure,
    own_mix,
    published_mix,
)

from evalrun_data.governance.meaning.onnx_embedder import OnnxEmbedder


def test_every_problem_has_each_rewriting_and_a_near_miss_without_duplicates() -> None:
    problems = tomllib.loads(PROBLEMS.read_text(encoding="utf-8"))["problem"]
    assert all(set(problem) == {"statement", *REWRITINGS, NEAR_MISS} for problem in problems)
    texts = [text for problem in problems for text in problem.values()]
    assert len(texts) == len(set(texts)) == 6 * len(problems)


def test_own_mix_has_five_rows_per_problem_of_the_file() -> None:
    mix = own_mix()
    assert len(mix.rows) == 5 * len(mix.references)
    assert {row.kind for row in mix.rows if row.original is None} == {NEAR_MISS}


def test_published_mix_has_an_original_for_every_rephrasing() -> None:
    mix = published_mix(data_file("README.md").parent)
    assert len(mix.references) == 364
    assert {row.kind for row in mix.rows if row.original is None} == {UNRELATED}
    assert sum(row.original is not None for row in mix.rows) > 200


def test_text_alone_finds_no_rewriting_of_the_file() -> None:
    assert found_by_text(own_mix()) == 0


def mix_of(rows: Sequence[tuple[str, int | None, str]]) -> LabelledMix:
    return LabelledMix(["sum list", "sorted words", "longest"], [LabelledRow(*row) for row in rows])


@pytest.mark.parametrize(
    ("rows", "right", "wrong", "found", "flagged"),
    [
        ([("german", 0, "summe liste")], 1, 0, {"german": 1}, {}),
        ([("german", 1, "summe liste")], 0, 1, {"german": 0}, {}),
        ([("german", 0, "summe sorted texte")], 0, 0, {}, {}),
        ([("unlike", None, "ordered strings")], 0, 1, {"unlike": 0}, {"unlike": 1}),
        ([("paraphrase", 2, "maximal"), ("unlike", None, "numbers")], 1, 0, {"paraphrase": 1}, {}),
    ],
)
def test_row_counts_as_found_where_its_nearest_reference_is_its_original(
    tmp_path: Path,
    rows: Sequence[tuple[str, int | None, str]],
    right: int,
    wrong: int,
    found: dict[str, int],
    flagged: dict[str, int],
) -> None:
    (measured,) = measure(mix_of(rows), OnnxEmbedder(write_tiny_embedder(tmp_path)), [0.9])
    assert (measured.right, measured.wrong) == (right, wrong)
    assert (measured.found, measured.flagged) == (found, flagged)
