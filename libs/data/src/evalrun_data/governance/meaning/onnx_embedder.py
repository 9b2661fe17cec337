"""An embedding model that ONNX Runtime runs on the CPU. Nothing is downloaded."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from evalrun_data.governance.meaning.embedder_files import find_embedder
from evalrun_data.governance.meaning.vectors import UnusableOutputError, Vectors, batches, pool_tokens, unit_vectors
from evalrun_runtime.distribution import describe_install
from evalrun_runtime.exits import BadInputError

MAX_BATCH_TEXTS: Final = 32
MAX_BATCH_TOKENS: Final = 8192
"""Maximum tokens of a batch, with padding."""
OUTPUTS: Final = ("sentence_embedding", "last_hidden_state", "token_embeddings")
"""Names of a graph's output, the best first; without any of them the first output is used."""
INTEGERS: Final[Mapping[str, str]] = {"tensor(int64)": "int64", "tensor(int32)": "int32"}


class Embedder(Protocol):
    """Makes vectors of texts."""

    @property
    def max_tokens(self) -> int:
        """Maximum tokens of a text; the rest is cut off."""
        ...

    @property
    def sha256(self) -> dict[str, str]:
        """Digests of the model's files, by their names."""
        ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each whole text."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return a unit vector for each text. Raises BadInputError if the model gives none."""
        ...


class OnnxEmbedder:
    """A model in a directory."""

    def __init__(self, directory: Path) -> None:
        """Load the model.

        Raises:
            BadInputError: the extra `embedder` is not installed, or the directory holds no model that can be run here.
        """
        runtime, tokenizer_class = _packages()
        files = find_embedder(directory)
        self._directory = directory
        self._files = files
        try:
            self._tokenizer = tokenizer_class.from_file(str(files.tokenizer))
        # The package raises bare Exceptions, also for a file that is not JSON.
        except Exception as error:
            raise self._unusable(f"tokenizer.json is no tokenizer: {error}") from error
        # A tokenizer.json may cut at other lengths, and pad to them: a batch is padded to its longest text instead.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        options = runtime.SessionOptions()
        # Threads that spin while they wait take the CPU from everything else on the machine.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = runtime.InferenceSession(
                str(files.graph), sess_options=options, providers=["CPUExecutionProvider"]
            )
        # The package's exceptions have no public base class.
        except Exception as error:
            raise self._unusable(f"{files.graph.name} is no ONNX model that can be run: {_line(error)}") from error
        self._inputs = self._check_inputs()
        names = [each.name for each in self._session.get_outputs()]
        self._output = next((name for name in OUTPUTS if name in names), names[0])
        self._dimensions = 0

    @property
    def max_tokens(self) -> int:
        """Maximum tokens of a text; the rest is cut off."""
        return self._files.config.max_tokens

    @property
    def sha256(self) -> dict[str, str]:
        """Digests of the model's files, by their names."""
        return dict(self._files.sha256)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each whole text."""
        return [len(encoding.ids) for encoding in self._encode(texts)]

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return a unit vector for each text. Raises BadInputError if the model gives none."""
        encoded = self._encode(texts)
        for encoding in encoded:
            encoding.truncate(self.max_tokens)
        made: list[Vectors] = []
        order: list[int] = []
        for batch in batches([len(each.ids) for each in encoded], MAX_BATCH_TEXTS, MAX_BATCH_TOKENS):
            made.append(self._embed_batch([encoded[position] for position in batch]))
            order += batch
        vectors = np.empty((len(texts), self._dimensions), dtype=np.float32)
        if made:
            vectors[order] = np.concatenate(made)
        return vectors

    def _encode(self, texts: Sequence[str]) -> list[Any]:
        # A lone surrogate, which JSON may hold, is no UTF-8.
        plain = [(self._files.config.prompt + text).encode(errors="replace").decode() for text in texts]
        encoded: list[Any] = self._tokenizer.encode_batch(plain)
        return encoded

    def _embed_batch(self, encoded: Sequence[Any]) -> Vectors:
        mask = _pad_rows([each.attention_mask for each in encoded])
        given = {
            "input_ids": _pad_rows([each.ids for each in encoded]),
            "attention_mask": mask,
            "token_type_ids": _pad_rows([each.type_ids for each in encoded]),
        }
        inputs = {name: given[name].astype(kind) for name, kind in self._inputs.items()}
        try:
            (output,) = self._session.run([self._output], inputs)
        # The package's exceptions have no public base class.
        except Exception as error:
            raise self._unusable(f"the model fails on a text of the data: {_line(error)}") from error
        try:
            vectors = unit_vectors(pool_tokens(np.asarray(output, dtype=np.float32), mask, self._files.config.pooling))
        except UnusableOutputError as error:
            raise self._unusable(f"the model {error}") from error
        self._dimensions = self._dimensions or vectors.shape[1]
        if vectors.shape[1] != self._dimensions:
            raise self._unusable(f"the model gives vectors of {self._dimensions} and of {vectors.shape[1]} dimensions")
        return vectors

    def _check_inputs(self) -> dict[str, str]:
        """Return the type of each input. Raises BadInputError for inputs that no tokenizer gives."""
        asked = {each.name: each.type for each in self._session.get_inputs()}
        unknown = asked.keys() - {"input_ids", "attention_mask", "token_type_ids"}
        if unknown or "input_ids" not in asked:
            raise self._unusable(
                f"the model asks for {', '.join(sorted(asked)) or 'nothing'}: known are input_ids, which it must have, "
                "attention_mask and token_type_ids; export it for feature extraction"
            )
        if wrong := [name for name, kind in asked.items() if kind not in INTEGERS]:
            raise self._unusable(f"the model takes {wrong[0]} as {asked[wrong[0]]}: known are {', '.join(INTEGERS)}")
        return {name: INTEGERS[kind] for name, kind in asked.items()}

    def _unusable(self, what: str) -> BadInputError:
        return BadInputError(f"--embedder {self._directory}: {what}")


def _packages() -> tuple[Any, Any]:
    try:
        import onnxruntime
        from tokenizers import Tokenizer
    except ImportError as error:
        raise BadInputError(
            f"--embedder: the package {error.name} is not installed: {describe_install('embedder')}"
        ) from error
    return onnxruntime, Tokenizer


def _pad_rows(rows: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Return the rows with zeros up to the longest: the mask hides them, whatever token a zero is."""
    filled = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    for number, row in enumerate(rows):
        filled[number, : len(row)] = row
    return filled


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
