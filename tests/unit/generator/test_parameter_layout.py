"""Where a checkpoint's tensors lie in an engine's parameters; whatever does not fit exactly is refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from evalrun_generator.weights.checkpoint_files import StoredTensor, UnfitCheckpointError
from evalrun_generator.weights.moves import Columns, Move, cut, make_move
from evalrun_generator.weights.parameter_layout import Parameter, Place, Rank, layout

FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
PARAMETERS = {
    "embed_tokens.weight": Parameter((64, 8), "bfloat16"),
    "layers.0.qkv_proj.weight": Parameter((16, 8), "bfloat16"),
    "layers.0.qkv_proj.bias": Parameter((16,), "bfloat16"),
    "layers.0.gate_up_proj.weight": Parameter((12, 8), "bfloat16"),
    "norm.weight": Parameter((8,), "bfloat16"),
}
STORED = {
    "embed_tokens.weight": (60, 8),
    "layers.0.q_proj.weight": (8, 8), "layers.0.k_proj.weight": (4, 8), "layers.0.v_proj.weight": (4, 8),
    "layers.0.q_proj.bias": (8,), "layers.0.k_proj.bias": (4,), "layers.0.v_proj.bias": (4,),
    "layers.0.gate_proj.weight": (6, 8), "layers.0.up_proj.weight": (6, 8),
    "norm.weight": (8,),
}  # fmt: skip


def stored(**changed: tuple[int, ...] | None) -> dict[str, StoredTensor]:
    """Return the checkpoint with some tensors changed or, for None, missing; `__` stands for a point."""
    shapes = STORED | {name.replace("__", "."): shape for name, shape in changed.items()}
    return {name: StoredTensor(Path("x"), "BF16", shape, 0, 0) for name, shape in shapes.items() if shape is not None}


def test_fused_parameters_are_filled_part_by_part_and_padding_is_left() -> None:
    found = layout(PARAMETERS, stored(), FUSED, tied=False, vocabulary=60)
    assert found["layers.0.q_proj.weight"] == Place("layers.0.qkv_proj.weight", 0, 8)
    assert found["layers.0.v_proj.bias"] == Place("layers.0.qkv_proj.bias", 12, 4)
    assert found["layers.0.up_proj.weight"] == Place("layers.0.gate_up_proj.weight", 6, 6)
    assert found["embed_tokens.weight"] == Place("embed_tokens.weight", 0, 60)
    assert found.keys() == STORED.keys()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"norm__weight": None}, "no tensor norm.weight"),
        ({"layers__0__k_proj__bias": None}, "no tensor layers.0.k_proj.bias"),
        ({"norm__weight": (9,)}, "norm.weight: the engine holds 8, the checkpoint 9"),
        ({"norm__weight": (7,)}, "norm.weight: the engine holds 8, the checkpoint 7"),
        ({"norm__weight": (8, 1)}, "has shape"),
        ({"norm__weight": ()}, "has shape"),
        ({"embed_tokens__weight": (65, 8)}, "for 60 tokens"),
        ({"embed_tokens__weight": (59, 8)}, "for 60 tokens"),
        ({"embed_tokens__weight": (60, 9)}, "has shape"),
        ({"layers__0__q_proj__weight": (8, 9)}, "the engine holds 8, the checkpoint 9"),
        ({"layers__0__v_proj__weight": (3, 8)}, "has 16 rows, the checkpoint 15"),
        ({"extra__weight": (1,)}, "no place for 1 tensors: extra.weight"),
        ({"lm_head__weight": (60, 8)}, "no place for 1 tensors: lm_head.weight"),
    ],
)
def test_whatever_does_not_fit_is_refused(changed: dict[str, tuple[int, ...] | None], said: str) -> None:
    with pytest.raises(UnfitCheckpointError, match=said):
        layout(PARAMETERS, stored(**changed), FUSED, tied=False, vocabulary=60)


def test_another_data_type_is_refused_and_a_tied_output_layer_is_not_read() -> None:
    with pytest.raises(UnfitCheckpointError, match=r"norm\.weight is BF16"):
        layout(PARAMETERS | {"norm.weight": Parameter((8,), "float32")}, stored(), FUSED, tied=False, vocabulary=60)
    found = layout(PARAMETERS, stored(lm_head__weight=(60, 8)), FUSED, tied=True, vocabulary=60)
    assert "lm_head.weight" not in found


Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]
HEADS, KEY_HEADS, SIZE, INNER, VOCABULARY = 8, 4, 2, 24, 60


def whole_model() -> dict[str, Numbers]:
    """Return a checkpoint's tensors, no two of whose numbers are equal."""
    width = HEADS * SIZE
    shapes = {
        "embed_tokens.weight": (VOCABULARY, width),
        "0.q_proj.weight": (width, width), "0.k_proj.weight": (KEY_HEADS * SIZE, width),
        "0.v_proj.weight": (KEY_HEADS * SIZE, width), "0.k_proj.bias": (KEY_HEADS * SIZE,),
        "0.q_proj.bias": (width,), "0.v_proj.bias": (KEY_HEADS * SIZE,), "0.o_proj.weight": (width, width),
        "0.gate_proj.weight": (INNER, width), "0.up_proj.weight": (INNER, width), "0.down_proj.weight": (width, INNER),
        "norm.weight": (width,), "lm_head.weight": (VOCABULARY, width),
    }  # fmt: skip
    found, first = {}, 0
    for name, shape in shapes.items():
        count = int(np.prod(shape))
        found[name] = np.arange(first, first + count).reshape(shape)
        first += count
    return found


def held_by(rank: Rank, whole: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """Return the parameters of a worker, cut as vLLM's layers cut them; -1 is padding."""

    def rows(name: str, parts: int) -> Numbers:
        pieces: list[Numbers] = np.split(whole[name], parts)
        return pieces[rank.number * parts // rank.count]

    def tokens(name: str) -> Numbers:
        padded = np.full((64, HEADS * SIZE), -1)
        padded[:VOCABULARY] = whole[name]
        pieces: list[Numbers] = np.split(padded, rank.count)
        return pieces[rank.number]

    def fused(kind: str) -> Numbers:
        keys = min(KEY_HEADS, rank.count)
        return np.concatenate(
            [rows(f"0.q_proj.{kind}", rank.count), rows(f"0.k_proj.{kind}", keys), rows(f"0.v_proj.{kind}", keys)]
        )

    def columns(name: str) -> Numbers:
        pieces: list[Numbers] = np.split(whole[name], rank.count, axis=1)
        return pieces[rank.number]

    return {
        "embed_tokens.weight": tokens("embed_tokens.weight"),
        "0.qkv_proj.weight": fused("weight"),
        "0.qkv_proj.bias": fused("bias"),
        "0.o_proj.weight": columns("0.o_proj.weight"),
        "0.gate_up_proj.weight": np.concatenate(
            [rows("0.gate_proj.weight", rank.count), rows("0.up_proj.weight", rank.count)]
        ),
        "0.down_proj.weight": columns("0.down_proj.weight"),
        "norm.weight": whole["norm.weight"],
        "lm_head.weight": tokens("lm_head.weight"),
    }


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("most", [1 << 20, 256])
def test_each_rank_gets_the_bytes_of_its_vllm_partition(ranks: int, most: int, tmp_path: Path) -> None:
    whole, file = whole_model(), tmp_path / "model.safetensors"
    stored, start = {}, 5
    content = b"\xff" * start
    for name, tensor in whole.items():
        stored[name] = StoredTensor(file, "F32", tensor.shape, start, tensor.nbytes)
        start += tensor.nbytes
        content += tensor.tobytes()
    for number in range(ranks):
        rank = Rank(number, ranks)
        wanted = held_by(rank, whole)
        parameters = {name: Parameter(tensor.shape, "float32") for name, tensor in wanted.items()}
        filled = {name: np.full_like(tensor, -1) for name, tensor in wanted.items()}
        places = layout(parameters, stored, FUSED, tied=False, vocabulary=VOCABULARY, rank=rank)
        for name, place in places.items():
            target = filled[place.parameter][place.first : place.first + place.count].reshape(-1).view(np.uint8)
            for piece in cut(make_move(stored[name], place, _Flat(target)), most):
                assert piece.read <= most
                read = np.frombuffer(content[piece.start : piece.start + piece.read], np.uint8)
                if columns := piece.move.columns:
                    read = read.reshape(-1, columns.row)[:, columns.first : columns.first + columns.width].reshape(-1)
                target[piece.offset : piece.offset + piece.length] = read
        for name, tensor in wanted.items():
            assert np.array_equal(filled[name], tensor), (name, rank)


class _Flat:
    """Counts as torch's tensors do."""

    def __init__(self, content: Numbers) -> None:
        self._content = content

    def numel(self) -> int:
        return self._content.size


@pytest.mark.parametrize(
    ("ranks", "held", "shape", "said"),
    [
        (2, (8,), (12,), "norm.weight: the engine holds 8 on each of 2 GPUs, the checkpoint 12"),
        (3, (8,), (12,), "norm.weight: the engine holds 8 on each of 3 GPUs, the checkpoint 12"),
        (2, (8, 8), (8, 24), "norm.weight: the engine holds 8 on each of 2 GPUs, the checkpoint 24"),
    ],
)
def test_tensor_that_cannot_be_split_evenly_is_refused(
    ranks: int, held: tuple[int, ...], shape: tuple[int, ...], said: str
) -> None:
    tensors = {"norm.weight": StoredTensor(Path("x"), "BF16", shape, 0, 0)}
    parameters = {"norm.weight": Parameter(held, "bfloat16")}
    with pytest.raises(UnfitCheckpointError, match=said):
        layout(parameters, tensors, FUSED, tied=False, vocabulary=60, rank=Rank(0, ranks))


def test_a_row_longer_than_the_buffer_is_refused() -> None:
    target = _Flat(np.zeros(64, np.uint8))
    with pytest.raises(UnfitCheckpointError, match="a row of 32 bytes is longer than 16"):
        cut(Move(Path("x"), 0, target, Columns(32, 0, 16)), 16)
