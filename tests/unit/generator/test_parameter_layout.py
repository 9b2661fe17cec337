"""Where a checkpoint's tensors lie in an engine's parameters; whatever does not fit exactly is refused."""

from pathlib import Path

import pytest

from evalrun_generator.weights.checkpoint_files import StoredTensor, UnfitCheckpointError
from evalrun_generator.weights.parameter_layout import Parameter, Rows, layout

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
    found = layout(PARAMETERS, stored(), FUSED, tied=False)
    assert found["layers.0.q_proj.weight"] == Rows("layers.0.qkv_proj.weight", 0, 8)
    assert found["layers.0.v_proj.bias"] == Rows("layers.0.qkv_proj.bias", 12, 4)
    assert found["layers.0.up_proj.weight"] == Rows("layers.0.gate_up_proj.weight", 6, 6)
    assert found["embed_tokens.weight"] == Rows("embed_tokens.weight", 0, 60)
    assert found.keys() == STORED.keys()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"norm__weight": None}, "no tensor norm.weight"),
        ({"layers__0__k_proj__bias": None}, "no tensor layers.0.k_proj.bias"),
        ({"norm__weight": (9,)}, "norm.weight has 8 rows, the checkpoint 9"),
        ({"norm__weight": (7,)}, "norm.weight has 8 rows, the checkpoint 7"),
        ({"norm__weight": (8, 1)}, "has shape"),
        ({"norm__weight": ()}, "has shape"),
        ({"embed_tokens__weight": (65, 8)}, "has 64 rows, the checkpoint 65"),
        ({"embed_tokens__weight": (60, 9)}, "has shape"),
        ({"layers__0__v_proj__weight": (3, 8)}, "has 16 rows, the checkpoint 15"),
        ({"extra__weight": (1,)}, "no place for 1 tensors: extra.weight"),
        ({"lm_head__weight": (60, 8)}, "no place for 1 tensors: lm_head.weight"),
    ],
)
def test_whatever_does_not_fit_is_refused(changed: dict[str, tuple[int, ...] | None], said: str) -> None:
    with pytest.raises(UnfitCheckpointError, match=said):
        layout(PARAMETERS, stored(**changed), FUSED, tied=False)


def test_another_data_type_is_refused_and_a_tied_output_layer_is_not_read() -> None:
    with pytest.raises(UnfitCheckpointError, match=r"norm\.weight is BF16"):
        layout(PARAMETERS | {"norm.weight": Parameter((8,), "float32")}, stored(), FUSED, tied=False)
    found = layout(PARAMETERS, stored(lm_head__weight=(60, 8)), FUSED, tied=True)
    assert "lm_head.weight" not in found
