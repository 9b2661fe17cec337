"""Reads a LoRA adapter's directory on the engine's machine: its rank, and its digest for run_info.json."""

import json
from pathlib import Path
from typing import Final

from evalrun_generator.rollout.engine_facts import combine_digests, file_digest
from evalrun_runtime.exits import BadInputError

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = ("adapter_model.safetensors", "adapter_model.bin")


def adapter_rank(directory: Path) -> int:
    """Return the highest rank of an adapter's matrices.

    Raises:
        BadInputError: the directory has no LoRA adapter, or an adapter that changes nothing: the base model would be
            evaluated.
    """
    try:
        config = json.loads((directory / CONFIG).read_bytes())
    except (OSError, ValueError) as error:
        raise BadInputError(f"model.adapter: {directory / CONFIG} cannot be read: {error}") from error
    if not isinstance(config, dict) or config.get("peft_type", "LORA") != "LORA":
        raise BadInputError(f"model.adapter: {directory / CONFIG} describes no LoRA adapter: only those are served")
    if not any((directory / name).is_file() for name in WEIGHTS):
        raise BadInputError(f"model.adapter: {directory} holds no {WEIGHTS[0]}")
    patterns = config.get("rank_pattern") or {}
    ranks = [config.get("r"), *(patterns.values() if isinstance(patterns, dict) else ())]
    if any(type(rank) is not int or rank < 1 for rank in ranks):
        raise BadInputError(f"model.adapter: {directory / CONFIG} has no rank: r is {config.get('r')!r}")
    # verl's merger writes 0 if it does not know the value.
    if not config.get("lora_alpha"):
        raise BadInputError(
            f"model.adapter: {directory / CONFIG} has lora_alpha {config.get('lora_alpha')!r}, which scales the "
            f"adapter "
            "away: its answers would be the base model's. Write the lora_alpha of the training"
        )
    return int(max(ranks))


def adapter_facts(directory: Path) -> dict[str, str]:
    """Return the digest of an adapter's configuration and weights."""
    files = [directory / CONFIG, *(directory / name for name in WEIGHTS)]
    return {"adapter_sha256": combine_digests((file.name, file_digest(file)) for file in files if file.is_file())}
