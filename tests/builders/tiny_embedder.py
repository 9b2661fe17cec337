"""A tiny embedding model in ONNX whose vectors are known: words of one meaning share a direction."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace

MEANINGS: Sequence[Sequence[str]] = (
    ("sum", "total", "summe"),
    ("list", "array", "liste"),
    ("numbers", "integers", "zahlen"),
    ("sorted", "ordered", "sortiert"),
    ("words", "strings", "texte"),
    ("longest", "maximal", "laengste"),
)
OTHERS = ("return", "the", "of", "a", "gib", "die", "der")
"""Words that mean nothing: they share the direction of every unknown word, at a hundredth of its length."""


def word_vectors() -> dict[str, list[float]]:
    size = len(MEANINGS) + 1
    vectors = {"[UNK]": [0.01 * (at == 0) for at in range(size)]}
    vectors |= dict.fromkeys(OTHERS, vectors["[UNK]"])
    for number, meaning in enumerate(MEANINGS, 1):
        vectors |= {word: [float(at == number) for at in range(size)] for word in meaning}
    return vectors


def write_tiny_embedder(
    directory: Path,
    *,
    inputs: Sequence[str] = ("input_ids", "attention_mask"),
    integers: int = TensorProto.INT64,
    table: NDArray[np.float32] | None = None,
    output: str = "last_hidden_state",
    graph: str = "model.onnx",
    configurations: Mapping[str, object] | None = None,
    sum_over: Sequence[int] = (),
) -> Path:
    """Write a model that looks its vectors up.

    Args:
        directory: where; made.
        inputs: of the graph; the first one is looked up.
        integers: type of the inputs.
        table: vectors by token, instead of those of `word_vectors`.
        output: its name.
        graph: path of the graph in the directory.
        configurations: further files, by their paths.
        sum_over: axes of the output that the graph adds up.
    """
    vectors = word_vectors()
    weights = np.array(list(vectors.values()), dtype=np.float32) if table is None else table
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(vectors)}, unk_token="[UNK]"))
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = Whitespace()
    # As sentence-transformers' own files do: the model must not keep to it.
    tokenizer.enable_padding(length=128)
    tokenizer.enable_truncation(2)
    (directory / graph).parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    nodes = [helper.make_node("Gather", ["table", inputs[0]], ["looked_up"], axis=0)]
    nodes += (
        [helper.make_node("ReduceSum", ["looked_up", "axes"], [output], keepdims=0)]
        if sum_over
        else [helper.make_node("Identity", ["looked_up"], [output])]
    )
    initializers = [numpy_helper.from_array(weights, "table")]
    if sum_over:
        initializers.append(numpy_helper.from_array(np.array(sum_over, dtype=np.int64), "axes"))
    made = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, integers, ["texts", "tokens"]) for name in inputs],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        initializers,
    )
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), directory / graph)
    for name, content in (configurations or {}).items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(json.dumps(content))
    return directory
