"""Decides whether a checkpoint's directory holds a model that can be served. Pure: uses names, sizes and a few files.

Layouts: Hugging Face directories, alone or where a trainer puts them (verl: `actor/huggingface`), LoRA adapters, which
are served on their base model, and verl's FSDP shards where they may be merged. For a model that cannot be served
(Megatron) the remedy is returned.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MODEL_DIRECTORIES = ("", "actor/huggingface", "huggingface", "actor", "actor/model/huggingface", "model/huggingface")
"""Directories, inside a checkpoint's directory, that may hold the model; the first that holds one counts."""
CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
ADAPTER_DIRECTORIES = ("lora_adapter", "actor/lora_adapter")
"""Directories in which trainers put an adapter beside other files; what lies beside it may be the base model."""
LORA_META = "lora_train_meta.json"
"""File beside the shards of verl's LoRA trainings."""
TRAINER_STATE = "trainer_state.json"
"""File beside the model in checkpoints of Transformers' trainer."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
SINGLE = ("model.safetensors", "pytorch_model.bin")
TOKENIZERS = (
    ("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"), ("vocab.txt",), ("tekken.json",),
)  # fmt: skip
"""Sets of files, each of which makes a tokenizer."""
FSDP_SHARD = re.compile(r"(?:^|.*/)model_world_size_(\d+)_rank_(\d+)\.pt$")
MEGATRON_DIRECTORIES = ("dist_ckpt/", "model/dist_ckpt/", "actor/dist_ckpt/", "actor/model/dist_ckpt/")
FSDP_CONFIG = "fsdp_config.json"
MERGER_FILES = re.compile(r"model_world_size_\d+_rank_\d+\.pt|fsdp_config\.json|lora_train_meta\.json|huggingface/.+")
"""Files that verl's merger reads, below the directory of the shards; the optimizer's state is three times as large."""
MERGE_ADVICE = (
    "holds FSDP shards and no Hugging Face weights: write spec.merge, or have the trainer write hf_model too "
    "(actor.checkpoint.save_contents)"
)
MEGATRON_ADVICE = (
    "holds a Megatron checkpoint and no Hugging Face weights: merge it where megatron-core is installed (python -m "
    "verl.model_merger merge --backend megatron), or have the trainer write hf_model too"
)
NO_BASE = "write template.model.base, the model that its adapter is served on, or merge the adapter into it"
NO_VLLM = "holds a LoRA adapter, which vLLM alone serves: write template.rollout.engine: vllm"


@dataclass(frozen=True)
class ServableModel:
    """A model that can be served."""

    directory: str
    """Path below the checkpoint's directory; empty: that directory itself."""


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter, which is served on its base model."""

    directory: str
    """Path below the checkpoint's directory; empty: that directory itself."""


@dataclass(frozen=True)
class Mergeable:
    """Shards that verl's merger makes a model of."""

    directory: str
    """Path below the checkpoint's directory; empty: that directory itself."""
    adapter: bool = False
    """Whether the shards belong to a LoRA training: the merger makes an adapter of them."""


@dataclass(frozen=True)
class Unservable:
    """A checkpoint that cannot be served, with the reason."""

    reason: str
    is_mergeable: bool = False
    """The shards are complete: verl's merger could make a servable model of them."""


def list_needed_files(files: Mapping[str, int]) -> list[str]:
    """Return the small files that `examine` needs to read.

    Args:
        files: sizes in bytes, by path below the checkpoint's directory.
    """
    adapter = _adapter_directory(files)
    if adapter is not None:
        return [_join(adapter, ADAPTER_CONFIG)]
    wanted = [TRAINER_STATE] if TRAINER_STATE in files else []
    directory = _model_folder(files)
    if directory is None:
        return wanted
    return [*wanted, *(path for name in (CONFIG, *INDEXES) if (path := _join(directory, name)) in files)]


def find_adapter(
    files: Mapping[str, int], contents: Mapping[str, bytes], base: str | None
) -> Adapter | Unservable | None:
    """Return the LoRA adapter in a directory, or why it cannot be served, or None.

    Args:
        files: sizes in bytes, by path below the checkpoint's directory.
        contents: of the files that `list_needed_files` names.
        base: the base model to serve the adapter on; None if no base model is named.
    """
    directory = _adapter_directory(files)
    if directory is None:
        return None
    config = _join(directory, ADAPTER_CONFIG)
    if not any(files.get(_join(directory, name)) for name in ADAPTER_WEIGHTS):
        return Unservable(f"is missing {_join(directory, ADAPTER_WEIGHTS[0])}")
    try:
        named = str(json.loads(contents.get(config, b"")).get("base_model_name_or_path") or "")
    except (ValueError, AttributeError):
        return Unservable(f"is missing a readable {config}")
    if base is None:
        return Unservable(f"holds a LoRA adapter{f' of {named}' if named else ''}: {NO_BASE}")
    # Anything else is a path of the trainer's machine, or a copy: only two hub ids are known to be two models.
    if HUB_ID.fullmatch(named) and HUB_ID.fullmatch(base) and named.lower() != base.lower():
        return Unservable(f"holds a LoRA adapter of {named}, but template.model.base is {base}: write base: {named}")
    return Adapter(directory)


def is_merged(name: str) -> bool:
    """Return whether verl's merger reads a file, by its path below the directory of the shards."""
    return MERGER_FILES.fullmatch(name) is not None


def mergeable(files: Mapping[str, int]) -> Mergeable | Unservable | None:
    """Return the shards in a directory without a complete model, or the reason why they cannot be merged. None without
    shards."""
    shards = [name for name in files if FSDP_SHARD.match(name)]
    if not shards:
        return None
    lacks = _trainers_shards(files)
    if lacks is not None and not lacks.is_mergeable:
        return lacks
    directory = shards[0].rpartition("/")[0]
    hub = _join(directory, "huggingface")
    missing = [name for name in (_join(directory, FSDP_CONFIG), _join(hub, CONFIG)) if not files.get(name)]
    missing += sorted(name for name in shards if not files[name])
    if not any(all(_join(hub, name) in files for name in names) for names in TOKENIZERS):
        missing.append(f"a tokenizer in {hub}")
    return (
        Unservable(f"is missing {_render_names(missing)}, which the merger needs")
        if missing
        else Mergeable(directory, _join(directory, LORA_META) in files)
    )


def examine(files: Mapping[str, int], contents: Mapping[str, bytes]) -> ServableModel | Unservable:
    """Return the model in a directory, or why it cannot be served.

    Args:
        files: sizes in bytes, by path below the checkpoint's directory.
        contents: of the files that `list_needed_files` names.
    """
    directory = _model_folder(files)
    if directory is None:
        return _explain_missing_model(files)
    below = {
        name.removeprefix(_join(directory, "")): size for name, size in files.items() if _is_below(name, directory)
    }
    read = {name.rpartition("/")[2]: text for name, text in contents.items()}
    missing = _find_missing_weights(below, read)
    if missing and (other := _trainers_shards(files)) is not None:
        return other
    if not any(all(name in below for name in names) for names in TOKENIZERS):
        missing = [*missing, "a tokenizer (tokenizer.json, tokenizer.model, or vocab.json with merges.txt)"]
    empty = [name for name in (CONFIG, *SINGLE) if below.get(name) == 0]
    if CONFIG not in empty and not _is_object(read.get(CONFIG, b"")):
        missing = [f"a readable {CONFIG}", *missing]
    if missing or empty:
        where = f" in {directory}" if directory else ""
        parts = [f"is missing {_render_names(missing)}"] if missing else []
        parts += [f"has an empty {_render_names(empty)}"] if empty else []
        return Unservable(f"{' and '.join(parts)}{where}")
    return ServableModel(directory)


def _explain_missing_model(files: Mapping[str, int]) -> Unservable:
    if not files:
        return Unservable("is empty")
    return _trainers_shards(files) or Unservable(f"is missing {CONFIG}")


def _trainers_shards(files: Mapping[str, int]) -> Unservable | None:
    """Describe a trainer's own shards; None without shards."""
    shards = {name: match for name in files if (match := FSDP_SHARD.match(name)) is not None}
    if shards:
        world = max(int(match[1]) for match in shards.values())
        there = {int(match[2]) for match in shards.values() if int(match[1]) == world}
        first = next(iter(sorted(shards)))
        absent = [
            f"{first.rpartition('model_world_size_')[0]}model_world_size_{world}_rank_{rank}.pt"
            for rank in range(world)
            if rank not in there
        ]
        return (
            Unservable(f"is missing {_render_names(absent)}") if absent else Unservable(MERGE_ADVICE, is_mergeable=True)
        )
    if any(name.startswith(MEGATRON_DIRECTORIES) for name in files):
        return Unservable(MEGATRON_ADVICE)
    return None


def _is_object(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content), dict)
    except (ValueError, RecursionError):
        return False


def parse_trained_step(contents: Mapping[str, bytes]) -> int | None:
    """Return the step that the training says it had reached; None if it does not say. `contents`: as `examine` has."""
    try:
        step = json.loads(contents.get(TRAINER_STATE, b""))["global_step"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return step if isinstance(step, int) and not isinstance(step, bool) else None


def _find_missing_weights(below: Mapping[str, int], contents: Mapping[str, bytes]) -> list[str]:
    for index in INDEXES:
        if index in below:
            shards = parse_shards(contents.get(index, b""))
            if shards is None:
                return [f"a readable {index}"]
            return [shard for shard in shards if not below.get(shard)]
    if any(name in below for name in SINGLE):
        return []
    if any(re.fullmatch(r"(model|pytorch_model)-\d+-of-\d+\.(safetensors|bin)", name) for name in below):
        return ["the index of its shards (model.safetensors.index.json)"]
    return ["weights (model.safetensors, or an index with its shards)"]


def parse_shards(index: bytes) -> list[str] | None:
    """Return the files that an index of shards names, sorted; None if it cannot be read."""
    try:
        weights = json.loads(index)["weight_map"]
        return sorted({str(shard) for shard in weights.values()}) or None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _model_folder(files: Mapping[str, int]) -> str | None:
    return next((directory for directory in MODEL_DIRECTORIES if _join(directory, CONFIG) in files), None)


def _adapter_directory(files: Mapping[str, int]) -> str | None:
    if ADAPTER_CONFIG in files and CONFIG not in files:
        return ""
    return next((directory for directory in ADAPTER_DIRECTORIES if _join(directory, ADAPTER_CONFIG) in files), None)


def _is_below(name: str, directory: str) -> bool:
    return name.startswith(_join(directory, ""))


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def _render_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
