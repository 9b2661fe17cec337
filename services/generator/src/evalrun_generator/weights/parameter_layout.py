"""Where the tensors of a checkpoint lie in an engine's parameters. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from evalrun_generator.weights.checkpoint_files import StoredTensor, UnfitCheckpointError

Shape: TypeAlias = tuple[int, ...]

PLAIN_MODELS: Final = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
"""vLLM's classes whose weights are used as they lie in the parameters.

Others derive further tensors from them after loading (e.g. those with latent attention), which would stay the old ones.
"""
PADDED: Final = ("embed_tokens.weight", "lm_head.weight")
"""Parameters with rows beyond the vocabulary, which no token selects."""
DTYPES: Final = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
"""torch's names of the data types."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """Shape and data type of an engine's parameter."""

    shape: Shape
    dtype: str
    """As torch names it: bfloat16."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a parameter: its first dimension from `first`, `count` of them."""

    parameter: str
    first: int
    count: int


def layout(
    parameters: Mapping[str, Parameter],
    stored: Mapping[str, StoredTensor],
    fused: Mapping[str, Sequence[str]],
    *,
    tied: bool,
) -> dict[str, Rows]:
    """Return where each stored tensor lies.

    Args:
        parameters: the engine's, by name.
        stored: the checkpoint's tensors, by name.
        fused: by the name of a fused module the modules whose rows follow each other in it; vLLM's
            `packed_modules_mapping`.
        tied: whether the embedding also is the output layer, so that a stored output layer is not read.

    Raises:
        UnfitCheckpointError: a tensor is missing, one is left over, or a shape or data type differs.
    """
    found: dict[str, Rows] = {}
    for name, parameter in parameters.items():
        first = 0
        parts = _parts(name, fused)
        for part in parts:
            tensor = stored.get(part)
            if tensor is None:
                raise UnfitCheckpointError(f"the checkpoint has no tensor {part}")
            if DTYPES.get(tensor.dtype) != parameter.dtype:
                raise UnfitCheckpointError(f"{part} is {tensor.dtype}, the engine's {name} {parameter.dtype}")
            if not tensor.shape or len(tensor.shape) != len(parameter.shape) or tensor.shape[1:] != parameter.shape[1:]:
                raise UnfitCheckpointError(f"{part} has shape {tensor.shape}, the engine's {name} {parameter.shape}")
            found[part] = Rows(name, first, tensor.shape[0])
            first += tensor.shape[0]
        is_padded = len(parts) == 1 and name.endswith(PADDED) and first <= parameter.shape[0]
        if first != parameter.shape[0] and not is_padded:
            raise UnfitCheckpointError(f"{name} has {parameter.shape[0]} rows, the checkpoint {first} for it")
    left_over = sorted(name for name in stored.keys() - found.keys() if not (tied and name == "lm_head.weight"))
    if left_over:
        raise UnfitCheckpointError(f"the engine has no place for {len(left_over)} tensors: {left_over[0]}")
    return found


def _parts(name: str, fused: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the stored tensors of a parameter: `a.qkv_proj.bias` is made of `a.q_proj.bias` and two more."""
    module, _, kind = name.rpartition(".")
    parent, _, last = module.rpartition(".")
    if last not in fused:
        return [name]
    return [f"{parent}.{part}.{kind}" for part in fused[last]]
