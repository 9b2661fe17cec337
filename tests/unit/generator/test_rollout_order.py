import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from builders.generator.rollout_order import rollout_order

from evalrun_api.v1alpha1 import EvalRunSpec
from evalrun_generator.rollout.engine import engine_plan, idle_gpu_warnings, slots
from evalrun_generator.rollout.order import RolloutOrder, read_rollout_order
from evalrun_generator.rollout.settings import RolloutSettings
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.settings import load_settings


def order(**rollout: object) -> RolloutOrder:
    return rollout_order(rollout)


def written(directory: Path, spec: dict[str, object]) -> Path:
    path = directory / "work-order.json"
    created = "2026-11-21T12:00:00+00:00"
    path.write_text(json.dumps({"schema": 1, "run": "r", "created": created, "output_dir": "o", "spec": spec}))
    return path


def test_run_configuration_of_the_operator_is_read(tmp_path: Path) -> None:
    spec = EvalRunSpec.model_validate(
        {
            "model": {"path": "org/name"},
            "datasets": [{"name": "d", "source": "builtin:demo"}],
            "rollout": {"tensorParallel": 4, "gpuMemoryUtilization": "0.85", "enforceEager": True, "maxNumSeqs": 128},
            "output": {"url": "s3://b/x"},
        }
    )
    found = read_rollout_order(written(tmp_path, spec.to_wire()))
    rollout = found.rollout
    assert (rollout.tensor_parallel, rollout.gpu_memory_utilization_value, rollout.enforce_eager) == (4, 0.85, True)
    assert (rollout.max_num_seqs, rollout.replicas, found.spec.model.revision) == (128, None, None)
    assert found.order.created == datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_the_specs_environment_reaches_the_engine() -> None:
    own = [{"name": "NCCL_DEBUG", "value": "INFO"}]
    plan = engine_plan(order(env=own), {"NCCL_DEBUG": "WARN", "A": "1"})
    assert (plan.environment["NCCL_DEBUG"], plan.environment["A"]) == ("INFO", "1")


def test_identity_of_a_run_depends_on_its_creation_time() -> None:
    first = order()
    assert first.identity == order().identity
    later = first.order.model_copy(update={"created": first.order.created + timedelta(seconds=1)})
    assert first.identity != RolloutOrder.from_run_config(later).identity


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"model": {"path": "m"}, "datasets": []}, "spec.rollout is missing"),
        ({"model": {"path": "m"}, "datasets": [], "rollout": {"replicas": 0}}, "spec.rollout.replicas"),
        ({"datasets": [], "rollout": {}}, "spec.model"),
    ],
)
def test_an_order_that_cannot_be_used_is_named(tmp_path: Path, spec: dict[str, object], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        read_rollout_order(written(tmp_path, spec))


def test_missing_run_configuration_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"run configuration .*none\.json"):
        read_rollout_order(tmp_path / "none.json")


class TestPlan:
    def test_unsuitable_defaults_of_verl_are_all_overridden(self) -> None:
        config = engine_plan(order(promptLength=1000), {}).rollout_config
        assert config["load_format"] == "auto"
        assert (config["enable_sleep_mode"], config["disable_log_stats"]) == (False, False)
        assert (config["response_length"], config["max_model_len"]) == (2048, 3048)
        assert config["engine_kwargs"] == {"vllm": {"served_model_name": "m"}}
        assert config["enforce_eager"] is False

    def test_dummy_weights_require_allow_dummy_weights(self) -> None:
        with pytest.raises(BadInputError, match=r"loadFormat: dummy .* allowDummyWeights"):
            engine_plan(order(loadFormat="dummy"), {})
        plan = engine_plan(order(loadFormat="dummy", allowDummyWeights=True), {})
        assert plan.rollout_config["load_format"] == "dummy"

    def test_pipelines_are_refused_with_every_engine(self) -> None:
        with pytest.raises(BadInputError, match="pipelineParallel"):
            engine_plan(order(engine="sglang", pipelineParallel=2), {})

    def test_a_revision_reaches_weights_and_tokenizer(self) -> None:
        found = rollout_order({}, model={"path": "m", "revision": "abc"})
        kwargs = engine_plan(found, {}).rollout_config["engine_kwargs"]
        assert kwargs == {"vllm": {"served_model_name": "m", "revision": "abc", "tokenizer_revision": "abc"}}

    def test_plan_digest_changes_only_with_settings_that_change_answers(self) -> None:
        plan = engine_plan(order(), {})
        assert plan.digest == engine_plan(order(replicas=7), {"A": "b"}).digest
        assert plan.digest != engine_plan(order(dtype="float16"), {}).digest


class TestWarnings:
    def test_default_settings_give_no_idle_gpu_warning(self) -> None:
        assert idle_gpu_warnings(order(), slots(order())) == []
        assert slots(order()) == 288

    @pytest.mark.parametrize(
        ("rollout", "in_flight", "field"),
        [
            ({"enforceEager": True}, 256, "rollout.enforceEager"),
            ({"maxNumSeqs": 8}, 8, "rollout.maxNumSeqs: 8"),
            ({}, 64, "concurrency: 64"),
            ({"enablePrefixCaching": False}, 256, "rollout.enablePrefixCaching"),
            ({"loadFormat": "dummy", "allowDummyWeights": True}, 256, "rollout.loadFormat: dummy"),
        ],
    )
    def test_idle_gpu_warning_names_the_field(self, rollout: dict[str, object], in_flight: int, field: str) -> None:
        (line,) = idle_gpu_warnings(order(**rollout), in_flight)
        assert line.startswith(field)


class TestSettings:
    def test_rollout_settings_accept_the_flags_of_the_operators_entrypoint(self) -> None:
        flags = ["--work-order=/etc/o.json", "--ledger=dns:///a:1", "--worker-id=run", "--log-format=json"]
        found = load_settings(RolloutSettings, flags, program="evalrun-rollout")
        assert (found.ray_address, found.concurrency, found.environment) == ("auto", None, {})

    def test_engine_env_flags_become_variables(self) -> None:
        flags = ["--work-order=o", "--ledger=l", "--engine-env=A=1,B=x=y", "--engine-env=C="]
        found = load_settings(RolloutSettings, flags, program="evalrun-rollout")
        assert found.environment == {"A": "1", "B": "x=y", "C": ""}
        with pytest.raises(BadInputError, match="write NAME=VALUE"):
            load_settings(RolloutSettings, [*flags, "--engine-env=nothing"], program="evalrun-rollout")


@pytest.mark.parametrize(
    ("field", "value", "verls"),
    [
        ("tensorParallel", 4, "tensor_model_parallel_size"), ("dataParallel", 2, "data_parallel_size"),
        ("dtype", "float16", "dtype"), ("gpuMemoryUtilization", "0.7", "gpu_memory_utilization"),
        ("enforceEager", True, "enforce_eager"), ("enablePrefixCaching", False, "enable_prefix_caching"),
        ("enableChunkedPrefill", False, "enable_chunked_prefill"), ("maxNumSeqs", 32, "max_num_seqs"),
        ("maxNumBatchedTokens", 1024, "max_num_batched_tokens"), ("promptLength", 100, "prompt_length"),
        ("loadFormat", "safetensors", "load_format"),
    ],
)  # fmt: skip
def test_each_field_reaches_the_engine_under_verls_name(field: str, value: object, verls: str) -> None:
    before = engine_plan(order(), {})
    plan = engine_plan(order(**{field: value}), {})
    reached = float(str(value)) if field == "gpuMemoryUtilization" else value
    assert plan.rollout_config[verls] == reached
    assert before.rollout_config[verls] != reached
    assert plan.digest != before.digest  # replicas of other settings are not taken over


def test_seed_and_determinism_reach_the_engine() -> None:
    plan = engine_plan(rollout_order({}, protocol={"seed": 7, "deterministic": True}), {})
    assert (plan.rollout_config["seed"], plan.rollout_config["full_determinism"]) == (7, True)
    assert engine_plan(order(), {}).rollout_config["full_determinism"] is False


def test_a_deterministic_vllm_times_no_kernels_against_each_other() -> None:
    plan = engine_plan(rollout_order({}, protocol={"deterministic": True}), {})
    kwargs = plan.rollout_config["engine_kwargs"]
    compiled = {"combo_kernels": False, "benchmark_combo_kernel": False}
    assert kwargs == {"vllm": {"served_model_name": "m", "compilation_config": {"inductor_compile_config": compiled}}}


def test_a_fetched_model_is_read_from_its_directory_and_served_by_its_name() -> None:
    plan = engine_plan(order(), {}, "/scratch/checkpoint")
    assert plan.model_config["path"] == "/scratch/checkpoint"
    assert plan.served_model == "m"
    assert plan.rollout_config["engine_kwargs"] == {"vllm": {"served_model_name": "m"}}
