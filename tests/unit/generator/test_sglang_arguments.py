"""What SGLang's server is told beside what verl tells it."""

import json
from pathlib import Path

import pytest
from builders.generator.rollout_order import rollout_order

from evalrun_generator.rollout.engine import EnginePlan, add_key, engine_plan
from evalrun_generator.rollout.sglang_arguments import KEY_VARIABLE, TUNING_VARIABLE
from evalrun_runtime.exits import BadInputError


def plan_of(rollout: dict[str, object], **spec: object) -> EnginePlan:
    return engine_plan(rollout_order({"engine": "sglang", **rollout}, **spec), {})


def arguments_of(rollout: dict[str, object], **spec: object) -> dict[str, object]:
    kwargs = plan_of(rollout, **spec).rollout_config["engine_kwargs"]
    assert isinstance(kwargs, dict)
    assert list(kwargs) == ["sglang"]
    return dict(kwargs["sglang"])


def with_tuning(text: str) -> dict[str, object]:
    return {"env": [{"name": TUNING_VARIABLE, "value": text}]}


def test_arguments_that_verl_omits_are_passed_to_the_server() -> None:
    told = arguments_of({"promptLength": 1000, "maxNumBatchedTokens": 4096}, protocol={"seed": 5})
    assert told == {
        "served_model_name": "m",
        "context_length": 3048,
        "chunked_prefill_size": 4096,
        "disable_radix_cache": False,
        "enable_deterministic_inference": False,
        "enable_memory_saver": False,
        "enable_metrics": True,
        "log_level": "info",
        "random_seed": 5,
        "skip_tokenizer_init": False,
    }


def test_disabled_prefix_caching_and_chunked_prefill_reach_the_server() -> None:
    told = arguments_of({"enablePrefixCaching": False, "enableChunkedPrefill": False})
    assert (told["disable_radix_cache"], told["chunked_prefill_size"]) == (True, -1)


def test_a_deterministic_run_asks_for_deterministic_inference() -> None:
    assert arguments_of({}, protocol={"deterministic": True})["enable_deterministic_inference"] is True


def test_a_revision_is_that_of_weights_and_tokenizer_alike() -> None:
    told = arguments_of({}, model={"path": "m", "revision": "abc"})
    assert told["revision"] == "abc"
    assert "tokenizer_revision" not in told  # SGLang's server knows no such argument


def test_data_parallelism_is_refused_with_the_replacement() -> None:
    with pytest.raises(BadInputError, match=r"dataParallel: 2 .* replicas: 2"):
        plan_of({"dataParallel": 2})


def test_tuning_of_the_runs_environment_reaches_the_server_and_the_digest() -> None:
    tuning = with_tuning(json.dumps({"attention_backend": "triton", "log_level": "warning"}))
    told = arguments_of(tuning)
    assert (told["attention_backend"], told["log_level"]) == ("triton", "warning")
    assert plan_of(tuning).digest != plan_of({}).digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("attention_backend=triton", "is no JSON object"),
        ('["triton"]', "is no JSON object"),
        ('{"load_format": "dummy"}', "load_format: write only"),
        ('{"api_key": "k", "attention_backend": "triton", "model_path": "/m"}', "api_key, model_path: write only"),
    ],
)
def test_tuning_that_is_unreadable_or_changes_the_served_model_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        plan_of(with_tuning(text))


@pytest.mark.parametrize(
    ("engine", "variable", "other"),
    [("vllm", "VLLM_API_KEY", KEY_VARIABLE), ("sglang", KEY_VARIABLE, "VLLM_API_KEY")],
)
def test_each_engine_gets_the_key_where_it_reads_it(engine: str, variable: str, other: str) -> None:
    variables = add_key(engine_plan(rollout_order({"engine": engine}), {"A": "1"}), "secret").environment
    assert (variables[variable], variables["A"]) == ("secret", "1")
    assert other not in variables


def test_health_generates_no_token_unless_the_run_asks_for_it() -> None:
    name = "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"
    assert plan_of({}).environment[name] == "false"
    assert plan_of({"env": [{"name": name, "value": "true"}]}).environment[name] == "true"
    assert name not in engine_plan(rollout_order({}), {}).environment


def test_replicas_with_sglang_are_not_kept(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="engine: vllm"):
        engine_plan(rollout_order({"engine": "sglang"}), {}, str(tmp_path), kept=True)
