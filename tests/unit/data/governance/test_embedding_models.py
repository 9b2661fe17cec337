"""Embedding models: how their files are read, which vectors they give, and what is said of one that is broken."""

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.tiny_embedder import word_vectors, write_tiny_embedder
from onnx import TensorProto

from evalrun_data.governance.meaning.embedder_files import (
    DEFAULT_TOKENS,
    MAX_TOKENS,
    EmbedderConfig,
    find_embedder,
    parse_config,
)
from evalrun_data.governance.meaning.onnx_embedder import OnnxEmbedder
from evalrun_data.governance.meaning.vectors import UnusableOutputError, batches, nearest, pool_tokens, unit_vectors
from evalrun_runtime.exits import BadInputError

TRANSFORMER = {"type": "sentence_transformers.models.Transformer"}
POOLING = {"type": "sentence_transformers.models.Pooling"}
CLS = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, EmbedderConfig("mean", DEFAULT_TOKENS, "")),
        ({"1_Pooling/config.json": CLS}, EmbedderConfig("cls", DEFAULT_TOKENS, "")),
        ({"1_Pooling/config.json": {"pooling_mode": "cls"}}, EmbedderConfig("cls", DEFAULT_TOKENS, "")),
        ({"sentence_bert_config.json": {"max_seq_length": 256}}, EmbedderConfig("mean", 256, "")),
        ({"tokenizer_config.json": {"model_max_length": 128}}, EmbedderConfig("mean", 128, "")),
        ({"tokenizer_config.json": {"model_max_length": int(1e30)}}, EmbedderConfig("mean", DEFAULT_TOKENS, "")),
        ({"tokenizer_config.json": {"model_max_length": 8192}}, EmbedderConfig("mean", MAX_TOKENS, "")),
        (
            {"sentence_bert_config.json": {"max_seq_length": 64}, "tokenizer_config.json": {"model_max_length": 128}},
            EmbedderConfig("mean", 64, ""),
        ),
        (
            {"config_sentence_transformers.json": {"prompts": {"s": "query: "}, "default_prompt_name": "s"}},
            EmbedderConfig("mean", DEFAULT_TOKENS, "query: "),
        ),
        ({"modules.json": [TRANSFORMER, POOLING]}, EmbedderConfig("mean", DEFAULT_TOKENS, "")),
    ],
)
def test_parse_config_reads_pooling_length_and_query_prefix(files: dict[str, Any], expected: EmbedderConfig) -> None:
    assert parse_config(files) == expected


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"1_Pooling/config.json": {"pooling_mode_max_tokens": True}}, "asks for pooling_mode_max_tokens: only"),
        ({"1_Pooling/config.json": {"pooling_mode": "lasttoken"}}, "asks for lasttoken: only"),
        (
            {"1_Pooling/config.json": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}},
            "pooling_mode_cls_token and pooling_mode_mean_tokens",
        ),
        ({"modules.json": [TRANSFORMER, {"type": "sentence_transformers.models.Dense"}]}, "has the step Dense"),
    ],
)
def test_configuration_that_is_not_known_is_refused(files: dict[str, Any], what: str) -> None:
    with pytest.raises(BadInputError, match=what):
        parse_config(files)


def test_pooling_leaves_padding_out() -> None:
    output = np.array([[[2, 0], [4, 0], [100, 100]], [[0, 1], [0, 0], [0, 0]]], dtype=np.float32)
    mask = np.array([[1, 1, 0], [1, 0, 0]])
    assert pool_tokens(output, mask, "mean").tolist() == [[3, 0], [0, 1]]
    assert pool_tokens(output, mask, "cls").tolist() == [[2, 0], [0, 1]]
    assert pool_tokens(output[:, 0], mask, "mean").tolist() == [[2, 0], [0, 1]]


@pytest.mark.parametrize("shape", [(2,), (3, 4), (2, 4, 5), (2, 3, 1, 1)])
def test_output_of_another_shape_is_no_vector_per_text(shape: tuple[int, ...]) -> None:
    with pytest.raises(UnusableOutputError, match="gives an output of shape"):
        pool_tokens(np.zeros(shape, dtype=np.float32), np.ones((2, 3), dtype=np.int64), "mean")


@pytest.mark.parametrize("vector", [[np.nan, 1], [np.inf, 0], [0, 0]])
def test_vector_without_a_direction_is_refused(vector: list[float]) -> None:
    with pytest.raises(UnusableOutputError):
        unit_vectors(np.array([[1, 0], vector], dtype=np.float32))


def test_nearest_is_exact_over_blocks() -> None:
    rng = np.random.default_rng(7)
    rows = unit_vectors(rng.normal(size=(50, 8)).astype(np.float32))
    references = unit_vectors(rng.normal(size=(9000, 8)).astype(np.float32))
    best, cosines = nearest(rows, references)
    every = rows @ references.T
    assert best.tolist() == every.argmax(axis=1).tolist()
    assert np.allclose(cosines, every.max(axis=1))


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([], []),
        ([3, 1, 2], [[1, 2], [0]]),
        ([9, 9, 9], [[0], [1], [2]]),
        ([1, 1, 1, 1, 1], [[0, 1, 2, 3], [4]]),
        ([2, 5, 2], [[0, 2], [1]]),
        ([50], [[0]]),
    ],
)
def test_batches_hold_texts_of_like_length(lengths: list[int], expected: list[list[int]]) -> None:
    assert list(batches(lengths, 4, 8)) == expected


def cosine(model: OnnxEmbedder, one: str, other: str) -> float:
    first, second = model.embed([one, other])
    return float(first @ second)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"graph": "onnx/model.onnx"},
        {"inputs": ("input_ids",)},
        {"inputs": ("input_ids", "attention_mask", "token_type_ids"), "integers": TensorProto.INT32},
        {"output": "token_embeddings"},
        {"output": "sentence_embedding", "sum_over": [1]},
    ],
    ids=["plain", "in onnx", "ids alone", "token types", "sentence-transformers", "pooled by the graph"],
)
def test_model_finds_the_same_meaning_in_other_words(tmp_path: Path, options: dict[str, Any]) -> None:
    model = OnnxEmbedder(write_tiny_embedder(tmp_path / "m", **options))
    assert cosine(model, "Return the sum of a list of numbers", "gib die Summe der Liste Zahlen") > 0.99
    assert cosine(model, "sum list numbers", "longest sorted words") < 0.01


def test_vector_of_a_text_does_not_depend_on_its_batch(tmp_path: Path) -> None:
    model = OnnxEmbedder(write_tiny_embedder(tmp_path / "m"))
    texts = ["sum " * number + "list" for number in range(1, 90, 7)]
    together = model.embed(texts)
    alone = np.concatenate([model.embed([text]) for text in texts])
    assert np.allclose(together, alone, atol=1e-6)
    assert model.embed([]).shape == (0, together.shape[1])


def test_long_text_is_cut_at_the_models_length_and_counted_whole(tmp_path: Path) -> None:
    length = {"sentence_bert_config.json": {"max_seq_length": 4}}
    model = OnnxEmbedder(write_tiny_embedder(tmp_path / "m", configurations=length))
    assert model.count_tokens(["sum sum sum sum list list list", "sum"]) == [7, 1]
    assert cosine(model, "sum sum sum sum list list list", "sum") > 0.999


def test_lone_surrogate_is_embedded(tmp_path: Path) -> None:
    assert np.isfinite(OnnxEmbedder(write_tiny_embedder(tmp_path / "m")).embed(["sum \ud800 list"])).all()


def test_digests_are_of_every_file_that_decides(tmp_path: Path) -> None:
    directory = write_tiny_embedder(tmp_path / "m", configurations={"1_Pooling/config.json": CLS})
    (directory / "README.md").write_text("decides nothing")
    found = find_embedder(directory).sha256
    assert set(found) == {"model.onnx", "tokenizer.json", "1_Pooling/config.json"}
    assert found["model.onnx"] == hashlib.sha256((directory / "model.onnx").read_bytes()).hexdigest()


def embed_once(directory: Path) -> None:
    OnnxEmbedder(directory).embed(["sum list"])


def refusal(directory: Path) -> str:
    with pytest.raises(BadInputError) as caught:
        embed_once(directory)
    assert str(directory) in str(caught.value)
    return str(caught.value)


def test_directory_that_lacks_a_file_is_refused(tmp_path: Path) -> None:
    assert "has no model.onnx or onnx/model.onnx" in refusal(tmp_path)
    directory = write_tiny_embedder(tmp_path / "m")
    (directory / "tokenizer.json").unlink()
    assert "has no tokenizer.json" in refusal(directory)


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("tokenizer.json", "is no tokenizer"),
        ("model.onnx", "is no ONNX model that can be run"),
        ("modules.json", "cannot be read as JSON"),
    ],
)
def test_damaged_file_is_refused(tmp_path: Path, file: str, what: str) -> None:
    directory = write_tiny_embedder(tmp_path / "m")
    (directory / file).write_bytes(b"{ no such thing")
    assert what in refusal(directory)


SIZE = (len(word_vectors()), 7)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"inputs": ("input_ids", "position_ids")}, "asks for input_ids, position_ids: known are"),
        ({"inputs": ("pixel_values",)}, "asks for pixel_values: known are"),
        ({"table": np.full(SIZE, np.nan, dtype=np.float32)}, "hold NaN or infinity"),
        ({"table": np.zeros(SIZE, dtype=np.float32)}, "a vector of zeros"),
        ({"table": np.ones((1, 7), dtype=np.float32)}, "fails on a text of the data"),
        ({"table": np.ones((SIZE[0], 2, 2), dtype=np.float32)}, "an output of shape"),
        ({"sum_over": [0]}, "an output of shape"),
    ],
    ids=["inputs", "pictures", "NaN", "zeros", "small vocabulary", "four dimensions", "no texts"],
)
def test_broken_model_is_refused(tmp_path: Path, options: dict[str, Any], what: str) -> None:
    assert what in refusal(write_tiny_embedder(tmp_path / "m", **options))


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers"])
def test_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BadInputError, match=rf"{package} is not installed: .*pip install '\.\[embedder\]'"):
        OnnxEmbedder(write_tiny_embedder(tmp_path / "m"))
