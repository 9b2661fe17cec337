"""What is read of a LoRA adapter before an engine serves it, and how it gets there."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders.generator.rollout_order import rollout_order

from evalrun_generator.rollout.adapter import adapter_facts, adapter_rank
from evalrun_generator.rollout.engine import engine_plan
from evalrun_runtime.exits import BadInputError

CONFIG = {"peft_type": "LORA", "r": 8, "lora_alpha": 16}


def adapter(directory: Path, weights: str | None = "adapter_model.safetensors", **config: Any) -> Path:
    (directory / "adapter_config.json").write_text(json.dumps(CONFIG | config))
    if weights is not None:
        (directory / weights).write_bytes(b"w")
    return directory


def test_the_rank_is_the_highest_of_all_matrices(tmp_path: Path) -> None:
    assert adapter_rank(adapter(tmp_path)) == 8
    assert adapter_rank(adapter(tmp_path, rank_pattern={"q_proj": 32, "v_proj": 4})) == 32


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"peft_type": "IA3"}, "describes no LoRA adapter"),
        ({"r": None}, "has no rank"),
        ({"r": 0}, "has no rank"),
        ({"weights": None}, "holds no adapter_model.safetensors"),
        ({"lora_alpha": 0}, "its answers would be the base model's"),
    ],
)
def test_unusable_adapter_is_refused_with_the_reason(tmp_path: Path, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        adapter_rank(adapter(tmp_path, **fields))


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_directory_without_a_configuration_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "adapter_config.json").write_text(content)
    with pytest.raises(BadInputError, match=r"model\.adapter: .*adapter_config\.json"):
        adapter_rank(tmp_path)


def test_the_digest_is_of_weights_and_scale(tmp_path: Path) -> None:
    first = adapter_facts(adapter(tmp_path))
    assert adapter_facts(adapter(tmp_path)) == first
    assert adapter_facts(adapter(tmp_path, lora_alpha=32)) != first
    (adapter(tmp_path) / "adapter_model.safetensors").write_bytes(b"x")
    assert adapter_facts(tmp_path) != first


def test_requests_name_the_adapter_and_other_adapters_have_other_replicas() -> None:
    model = {"path": "org/base", "adapter": "s3://t/step_7"}
    plan = engine_plan(rollout_order({}, model=model), {}, None, "/scratch/adapter")
    kwargs: Any = plan.rollout_config["engine_kwargs"]
    assert kwargs["vllm"]["served_model_name"] == "org/base"
    assert [json.loads(one) for one in kwargs["vllm"]["lora_modules"]] == [
        {"name": "s3://t/step_7", "path": "/scratch/adapter"}
    ]
    assert (plan.served_model, plan.adapter, plan.model_config["path"]) == (
        "s3://t/step_7", "/scratch/adapter", "org/base",
    )  # fmt: skip
    other = engine_plan(rollout_order({}, model=model | {"adapter": "s3://t/step_8"}), {}, None, "/scratch/adapter")
    assert plan.digest != other.digest
