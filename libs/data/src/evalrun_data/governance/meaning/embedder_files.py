"""Reads the directory of an embedding model: where its ONNX graph and tokenizer are, and how its vectors are made.

The layout is that of sentence-transformers and optimum: `model.onnx` or `onnx/model.onnx`, `tokenizer.json`, and where
a model has them `modules.json`, `1_Pooling/config.json`, `sentence_bert_config.json` and `tokenizer_config.json`.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from evalrun_runtime.exits import BadInputError

Pooling = Literal["mean", "cls"]

GRAPHS: Final = ("model.onnx", "onnx/model.onnx")
WEIGHTS: Final = ("_data", ".data")
"""Ends of the name of a graph's external weights."""
CONFIGURATIONS: Final = (
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "tokenizer_config.json",
    "config_sentence_transformers.json",
)
MAX_CONFIGURATION_BYTES: Final = 64 << 20
MAX_TOKENS: Final = 1024
"""Maximum tokens of a text for a model that accepts more: the memory of attention grows with their square."""
DEFAULT_TOKENS: Final = 512
"""Maximum tokens of a text if no file of the model names a maximum."""
KNOWN_MODULES: Final = frozenset({"Transformer", "Pooling", "Normalize"})
POOLINGS: Final[Mapping[str, Pooling]] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}


@dataclass(frozen=True, slots=True)
class EmbedderConfig:
    """How a model makes a vector of a text."""

    pooling: Pooling
    max_tokens: int
    prompt: str
    """Text before every input; empty for most models."""


@dataclass(frozen=True, slots=True)
class EmbedderFiles:
    """The files of an embedding model."""

    graph: Path
    tokenizer: Path
    config: EmbedderConfig
    sha256: Mapping[str, str]
    """Digest of each file that decides the vectors, by its path in the directory."""


def find_embedder(directory: Path) -> EmbedderFiles:
    """Find the files of a model. Raises BadInputError if one is missing, or asks for what is not known here."""
    graph = next((directory / name for name in GRAPHS if (directory / name).is_file()), None)
    if graph is None:
        raise BadInputError(
            f"--embedder {directory}: has no {' or '.join(GRAPHS)}: name a directory that optimum-cli export onnx, or "
            "sentence-transformers with backend='onnx', wrote"
        )
    tokenizer = directory / "tokenizer.json"
    if not tokenizer.is_file():
        raise BadInputError(f"--embedder {directory}: has no tokenizer.json: save the model's fast tokenizer beside it")
    found = {name: _read_json(directory / name) for name in CONFIGURATIONS if (directory / name).is_file()}
    try:
        config = parse_config(found)
    except BadInputError as error:
        raise BadInputError(f"--embedder {directory}: {error}") from error
    weights = [path for end in WEIGHTS if (path := graph.with_name(graph.name + end)).is_file()]
    decisive = [graph, *weights, tokenizer, *(directory / name for name in found)]
    digests = {path.relative_to(directory).as_posix(): _hash_file(path) for path in decisive}
    return EmbedderFiles(graph, tokenizer, config, digests)


def parse_config(files: Mapping[str, Any]) -> EmbedderConfig:
    """Return what a model's configuration files say; mean pooling where none does.

    Args:
        files: the parsed files that exist, by their names in `CONFIGURATIONS`.

    Raises:
        BadInputError: the model has a step, or a kind of pooling, that is not known here.
    """
    modules = files.get("modules.json") or []
    kinds = [str(each.get("type", "")).rpartition(".")[2] for each in modules] if isinstance(modules, list) else []
    if unknown := [kind for kind in kinds if kind not in KNOWN_MODULES]:
        raise BadInputError(
            f"modules.json has the step {unknown[0]}, which is not in the ONNX graph: only "
            f"{', '.join(sorted(KNOWN_MODULES))} are known"
        )
    prompts = _fields(files, "config_sentence_transformers.json")
    named = prompts.get("prompts"), prompts.get("default_prompt_name")
    prompt = named[0].get(named[1]) if isinstance(named[0], dict) and isinstance(named[1], str) else None
    return EmbedderConfig(
        _parse_pooling(_fields(files, "1_Pooling/config.json")), min(MAX_TOKENS, _parse_max_tokens(files)), prompt or ""
    )


def _parse_pooling(fields: Mapping[str, Any]) -> Pooling:
    chosen = [name for name, value in fields.items() if name.startswith("pooling_mode_") and value is True]
    # Newer releases of sentence-transformers write this field.
    mode = fields.get("pooling_mode")
    if isinstance(mode, str) and not chosen:
        chosen = [name for name, pooling in POOLINGS.items() if pooling == mode] or [mode]
    if not chosen:
        return "mean"
    if len(chosen) > 1 or chosen[0] not in POOLINGS:
        raise BadInputError(
            f"1_Pooling/config.json asks for {' and '.join(chosen)}: only {' or '.join(POOLINGS)} is known"
        )
    return POOLINGS[chosen[0]]


def _parse_max_tokens(files: Mapping[str, Any]) -> int:
    places = (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length"))
    for file, name in places:
        value = _fields(files, file).get(name)
        # Where a tokenizer has no limit, transformers writes 1e30.
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31:
            return value
    return DEFAULT_TOKENS


def _fields(files: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = files.get(name)
    return found if isinstance(found, dict) else {}


def _read_json(file: Path) -> Any:  # noqa: ANN401 - whatever the file holds
    try:
        if file.stat().st_size > MAX_CONFIGURATION_BYTES:
            raise BadInputError(f"--embedder: {file}: is larger than {MAX_CONFIGURATION_BYTES >> 20} MiB")
        return json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise BadInputError(f"--embedder: {file}: cannot be read as JSON: {error}") from error


def _hash_file(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise BadInputError(f"--embedder: {file}: cannot be read: {error.strerror or error}") from error
