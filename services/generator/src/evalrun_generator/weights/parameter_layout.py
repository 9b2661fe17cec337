"""Maps the tensors of a checkpoint to an engine's parameters. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from evalrun_generator.weights.checkpoint_files import StoredTensor, UnfitCheckpointError

Shape: TypeAlias = tuple[int, ...]

PLAIN_MODELS: Final = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
"""vLLM's classes whose parameters hold the weights as they are. Other classes derive further tensors after loading
(e.g. those with latent attention), which would keep the old weights."""
OF_THE_VOCABULARY: Final = ("embed_tokens.weight", "lm_head.weight")
"""Parameters with a row per token, and rows beyond the vocabulary, which no token selects."""
DTYPES: Final = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
"""torch's names of the data types."""
MOST_DIMENSIONS: Final = 2


@dataclass(frozen=True, slots=True)
class Parameter:
    """Shape and data type of an engine's parameter."""

    shape: Shape
    dtype: str
    """Data type in torch's notation: bfloat16."""


@dataclass(frozen=True, slots=True)
class Place:
    """The rows of a parameter that a stored tensor fills, and the part of that tensor which belongs there."""

    parameter: str
    first: int
    """First row of the parameter."""
    count: int
    """Number of rows; 0 if a rank holds nothing of the tensor."""
    stored_first: int = 0
    """First row of the stored tensor."""
    stored_columns: tuple[int, int] | None = None
    """Columns of the stored tensor, from and up to; None: whole rows."""


@dataclass(frozen=True, slots=True)
class Rank:
    """The part of a model that an engine's worker holds, under tensor parallelism."""

    number: int
    count: int

    def __str__(self) -> str:
        """Return how much of a parameter a worker holds, for messages."""
        return "" if self.count == 1 else f" on each of {self.count} GPUs"


ALONE: Final = Rank(0, 1)


def layout(
    parameters: Mapping[str, Parameter],
    stored: Mapping[str, StoredTensor],
    fused: Mapping[str, Sequence[str]],
    *,
    tied: bool,
    vocabulary: int,
    rank: Rank = ALONE,
) -> dict[str, Place]:
    """Return the place of each stored tensor.

    Which part a rank holds follows from the shapes: a dimension that is shorter than the checkpoint's is cut into as
    many equal parts, in the order of the ranks, as vLLM cuts it.

    Args:
        parameters: parameters of the engine's worker, by name.
        stored: the checkpoint's tensors, by name.
        fused: the modules whose rows follow each other in a fused module, by the fused module's name; vLLM's
            `packed_modules_mapping`.
        tied: whether the embedding also is the output layer, so that a stored output layer is not read.
        vocabulary: number of the model's tokens in its configuration.
        rank: rank of the worker.

    Raises:
        UnfitCheckpointError: a tensor is missing, one is left over, or a shape or data type differs.
    """
    found: dict[str, Place] = {}
    for name, parameter in parameters.items():
        parts = _parts(name, fused)
        for part in parts:
            _check_part(part, name, parameter, stored)
        if name.endswith(OF_THE_VOCABULARY):
            found[name] = _tokens(name, parameter, stored[name].shape, vocabulary, rank)
            continue
        sizes = [stored[part].shape[0] for part in parts]
        first = 0
        for part, count in zip(parts, _held_rows(name, parameter.shape[0], sizes, rank), strict=True):
            begin = _first(name, count, stored[part].shape[0], rank)
            found[part] = Place(name, first, count, begin, _columns(name, parameter, stored[part].shape, rank))
            first += count
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


def _check_part(part: str, name: str, parameter: Parameter, stored: Mapping[str, StoredTensor]) -> None:
    tensor = stored.get(part)
    if tensor is None:
        raise UnfitCheckpointError(f"the checkpoint has no tensor {part}")
    if DTYPES.get(tensor.dtype) != parameter.dtype:
        raise UnfitCheckpointError(f"{part} is {tensor.dtype}, the engine's {name} {parameter.dtype}")
    if not tensor.shape or len(tensor.shape) != len(parameter.shape) or len(tensor.shape) > MOST_DIMENSIONS:
        raise UnfitCheckpointError(f"{part} has shape {tensor.shape}, the engine's {name} {parameter.shape}")


def _tokens(name: str, parameter: Parameter, stored: Shape, vocabulary: int, rank: Rank) -> Place:
    """Return a rank's tokens. vLLM pads the vocabulary, then cuts it: the last rank may hold fewer tokens than rows."""
    held = parameter.shape[0]
    if stored != (vocabulary, *parameter.shape[1:]) or held * rank.count < vocabulary:
        raise UnfitCheckpointError(
            f"{name} has shape {stored}, the engine's {parameter.shape}{rank}, for {vocabulary} tokens"
        )
    first = min(rank.number * held, vocabulary)
    return Place(name, 0, min(held, vocabulary - first), first)


def _held_rows(name: str, held: int, stored: Sequence[int], rank: Rank) -> list[int]:
    """Return how many of a parameter's rows belong to each of its stored tensors."""
    if len(stored) == 1:
        return [held]
    even = [size // rank.count for size in stored]
    if sum(even) == held:
        return even
    # With fewer heads of keys and values than ranks, each rank holds a whole head; its queries are cut all the same.
    others, rest = divmod(held - even[0], len(stored) - 1)
    if rank.count == 1 or rest or others <= 0:
        raise UnfitCheckpointError(f"{name} has {held} rows{rank}, the checkpoint {sum(stored)}")
    return [even[0], *[others] * (len(stored) - 1)]


def _columns(name: str, parameter: Parameter, stored: Shape, rank: Rank) -> tuple[int, int] | None:
    if len(stored) == 1 or stored[1] == parameter.shape[1]:
        return None
    first = _first(name, parameter.shape[1], stored[1], rank)
    return first, first + parameter.shape[1]


def _first(name: str, held: int, stored: int, rank: Rank) -> int:
    """Return the start of a rank's part of a dimension. Ranks that hold the same part follow each other."""
    copies, rest = divmod(held * rank.count, stored)
    if rest or not copies or rank.count % copies:
        raise UnfitCheckpointError(f"{name}: the engine holds {held}{rank}, the checkpoint {stored}")
    return rank.number // copies * held
