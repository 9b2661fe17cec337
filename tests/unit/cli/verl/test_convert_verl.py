"""verl's configurations as EvalRuns: every key has its fate, and what is written is valid."""

from copy import deepcopy
from typing import Any

import pytest

from evalrun_api.manifest import parse_evalrun
from evalrun_api.v1alpha1 import Grader
from evalrun_cli.verl_files.document import Document, account_text, refusals
from evalrun_cli.verl_files.evaluation import read_evaluation
from evalrun_cli.verl_files.generation import Converted, convert
from evalrun_cli.verl_files.overrides import apply_overrides
from evalrun_runtime.exits import BadInputError

GENERATION: dict[str, Any] = {
    "trainer": {"nnodes": 2, "n_gpus_per_node": 4, "device": "cuda"},
    "data": {"path": "problems.parquet", "prompt_key": "prompt", "n_samples": 8, "output_path": "/out/a.parquet"},
    "model": {"path": "org/Some-Model_7B", "external_lib": None},
    "rollout": {
        "_target_": "verl.workers.config.RolloutConfig", "name": "vllm", "temperature": 0.6, "top_k": -1, "top_p": 0.95,
        "prompt_length": 1000, "response_length": 300, "dtype": "bfloat16", "gpu_memory_utilization": 0.7,
        "tensor_model_parallel_size": 2, "load_format": "auto", "do_sample": True, "n": 1,
        "engine_kwargs": {"vllm": {}},
    },
    "actor": {"strategy": "fsdp"},
}  # fmt: skip
"""With the keys of 0.7.0's generation.yaml."""

TRAINER: dict[str, Any] = {
    "actor_rollout_ref": {
        "model": {"path": "org/m", "trust_remote_code": True, "lora_adapter_path": None},
        "actor": {"optim": {"lr": 1e-6}},
        "rollout": {
            "name": "???", "temperature": 1.0, "top_p": 1, "n": 16, "load_format": "dummy",
            "prompt_length": "${oc.select:data.max_prompt_length,512}",
            "response_length": "${data.max_response_length}", "full_determinism": True,
            "val_kwargs": {"temperature": 0, "n": 1, "do_sample": False, "top_p": 0.9, "top_k": -1},
        },
    },
    "data": {"train_files": "t.parquet", "val_files": ["a/v1.parquet", "b/v1.parquet"], "max_prompt_length": 700,
             "max_response_length": 900, "val_max_samples": 50},
    "algorithm": {"gamma": 1.0},
}  # fmt: skip


def changed(base: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    copy = deepcopy(base)
    *directories, name = path.split(".")
    place = copy
    for directory in directories:
        place = place.setdefault(directory, {})
    place[name] = value
    return copy


def fates(converted: Converted) -> dict[str, str]:
    return {entry.key: entry.fate for entry in converted.entries}


@pytest.mark.parametrize("values", [GENERATION, TRAINER])
def test_convert_accounts_for_every_key_and_gives_a_valid_evalrun(values: dict[str, Any]) -> None:
    converted = convert(values, "f.yaml")
    assert [entry.key for entry in converted.entries] == Document(values, "f.yaml").open_keys
    assert set(fates(converted).values()) <= {"mapped", "default", "ignored"}
    parse_evalrun(dict(converted.manifest), where="f.yaml", place="machine")
    assert all(entry.key in account_text(converted.entries) for entry in converted.entries)


def test_convert_generation_file_gives_protocol_rollout_and_datasets() -> None:
    spec = convert(GENERATION, "f.yaml").manifest["spec"]
    assert spec["protocol"] == {
        "name": "EVAL@k", "temperature": "0.6", "samples": 8, "k": [1, 8], "topP": "0.95", "maxNewTokens": 300,
    }  # fmt: skip
    rollout = spec["rollout"]
    assert (rollout["replicas"], rollout["gpusPerNode"], rollout["tensorParallel"]) == (4, 4, 2)
    assert (rollout["promptLength"], rollout["gpuMemoryUtilization"]) == (1000, "0.7")
    assert spec["datasets"] == [{"name": "problems", "source": "problems.parquet"}]


def test_convert_trainer_file_gives_its_validation_settings() -> None:
    converted = convert(TRAINER, "f.yaml")
    spec = converted.manifest["spec"]
    assert spec["protocol"] == {"name": "EVAL@1", "maxNewTokens": 900, "deterministic": True}
    assert spec["model"] == {"path": "org/m", "trustRemoteCode": True}
    assert [(d["name"], d["source"], d["maxProblems"]) for d in spec["datasets"]] == [
        ("v1", "a/v1.parquet", 50), ("v1-1", "b/v1.parquet", 50),
    ]  # fmt: skip
    assert spec["rollout"]["promptLength"] == 700
    assert spec["rollout"]["loadFormat"] == "auto"
    assert fates(converted)["actor_rollout_ref.rollout.load_format"] == "ignored"
    assert fates(converted)["actor_rollout_ref.rollout.val_kwargs.top_p"] == "ignored"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("rollout.load_format", "dummy", "dummy reads no weights, .* noise: write auto"),
        ("rollout.load_format", "dummy_dtensor", "dummy_dtensor reads no weights, .* noise: write auto"),
        ("rollout.engine_kwargs", {"vllm": {"swap_space": 4}}, "or leave it out with ~rollout.engine_kwargs.vllm"),
        ("rollout.quantization", "fp8", "name a model that is quantized already"),
        ("data.apply_chat_template_kwargs", {"enable_thinking": False, "style": "short"}, "the server renders"),
        ("custom_reward_function.path", "/me/score.py", r"spec.datasets\[\].grader, or leave it out"),
        ("rollout.name", "hf", "no engine 'hf' here"),
        ("rollout.do_sample", False, "at temperature 0 every sample is the same"),
    ],
)
def test_setting_that_would_give_wrong_metrics_is_refused(path: str, value: object, message: str) -> None:
    entries = convert(changed(GENERATION, path, value), "f.yaml").entries
    with pytest.raises(BadInputError, match=message):
        refusals(entries, "f.yaml")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("rollout.brand_new", 1),
        ("somewhere.else", 1),
    ],
)
def test_convert_unknown_key_is_shown_as_unknown(path: str, value: object) -> None:
    found = fates(convert(changed(GENERATION, path, value), "f.yaml"))
    assert [key for key, fate in found.items() if fate == "unknown"][-1].startswith(path)


def test_values_that_only_hydra_resolves_are_requested() -> None:
    with pytest.raises(BadInputError, match=r"rollout\.prompt_length: .* write its value there"):
        convert(changed(GENERATION, "rollout.prompt_length", "${some.resolver:1,${other}}"), "f.yaml")
    with pytest.raises(BadInputError, match="no configuration of verl's"):
        convert({"a": 1}, "f.yaml")


STANDALONE: dict[str, Any] = {
    "actor_rollout_ref": {
        "model": {"path": "Qwen/Qwen2.5-Coder-7B-Instruct", "trust_remote_code": True, "lora_rank": 0},
        "rollout": {
            "name": "vllm", "mode": "async", "tensor_model_parallel_size": 2, "data_parallel_size": 1,
            "pipeline_model_parallel_size": 1, "do_sample": False, "temperature": 0.0, "top_p": 1.0, "top_k": -1,
            "n": 1, "dtype": "bfloat16", "gpu_memory_utilization": 0.8, "enforce_eager": True,
            "enable_prefix_caching": True, "enable_chunked_prefill": True, "max_num_seqs": 256,
            "max_num_batched_tokens": 8192, "prompt_length": 4096, "response_length": 2048, "load_format": "auto",
        },
    },
    "data": {"eval_files": ["data/humaneval.parquet", "data/codecontests_valid.parquet"]},
    "sandbox": {"url": "http://localhost:8080/run_code", "timeout": 10, "memory_limit_mb": 512},
    "ray_init": {"num_cpus": None, "timeline_json_file": "timeline.json"},
    "trainer": {"n_gpus_per_node": 8, "nnodes": 1, "logger": ["console", "wandb"],
                "project_name": "rlvr_coding_model", "experiment_name": "phase0_baseline"},
}  # fmt: skip
"""A standalone evaluation's configuration: the trainer's layout without a section for validation."""


def test_convert_standalone_configuration_maps_every_key() -> None:
    converted = convert(STANDALONE, "phase0_eval.yaml")
    spec = converted.manifest["spec"]
    assert spec["protocol"] == {"name": "EVAL@1", "maxNewTokens": 2048}
    limits = {"timeSeconds": 10, "memoryMiB": 512}
    assert spec["datasets"] == [
        {"name": "humaneval", "source": "data/humaneval.parquet", "limits": limits},
        {"name": "codecontests_valid", "source": "data/codecontests_valid.parquet", "limits": limits},
    ]
    assert spec["exports"] == {"wandb": {"project": "rlvr_coding_model", "name": "phase0_baseline"}}
    assert (spec["rollout"]["replicas"], spec["rollout"]["enforceEager"]) == (4, True)
    found = fates(converted)
    assert set(found.values()) <= {"mapped", "default", "ignored"}
    ignored = {"sandbox.url", "ray_init.num_cpus", "ray_init.timeline_json_file"}
    assert {found[key] for key in ignored} == {"ignored"}
    parse_evalrun(dict(converted.manifest), where="phase0_eval.yaml", place="machine")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"name": "EVAL@1", "maxNewTokens": 2048}),
        ({"do_sample": None}, {"name": "EVAL@1", "maxNewTokens": 2048}),
        ({"do_sample": True}, {"name": "EVAL@1", "maxNewTokens": 2048}),
        (
            {"do_sample": True, "temperature": 0.8, "n": 4, "top_k": 20},
            {"name": "EVAL@k", "temperature": "0.8", "samples": 4, "k": [1, 4], "topK": 20, "maxNewTokens": 2048},
        ),
        (
            {"val_kwargs": {"temperature": 0.6, "n": 2, "do_sample": True}},
            {"name": "EVAL@k", "temperature": "0.6", "samples": 2, "k": [1, 2], "maxNewTokens": 2048},
        ),
        ({"temperature": 1.0, "n": 8, "val_kwargs": {"n": 1}}, {"name": "EVAL@1", "maxNewTokens": 2048}),
        (
            {"temperature": 0.0, "calculate_log_probs": True},
            {"name": "EVAL@1", "maxNewTokens": 2048, "calculateLogProbs": True},
        ),
        ({"calculate_log_probs": True, "val_kwargs": {"n": 1}}, {"name": "EVAL@1", "maxNewTokens": 2048}),
    ],
)
def test_convert_sampling_comes_from_validation_else_from_the_rollout(
    changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    rollout = STANDALONE["actor_rollout_ref"]["rollout"] | changes
    values = changed(STANDALONE, "actor_rollout_ref.rollout", rollout)
    assert convert(values, "f.yaml").manifest["spec"]["protocol"] == expected


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({"eval_files": "a/mbpp_reg.jsonl", "val_files": "v.parquet", "train_files": "t.parquet"}, ["mbpp_reg"]),
        ({"val_files": "v.parquet", "train_files": "t.parquet"}, ["v"]),
        ({"train_files": "data/codecontests_valid.parquet", "prompt_key": "prompt"}, ["codecontests_valid"]),
        ({"eval_files": {"humaneval": "x/1.parquet", "mbpp_reg": "x/2.parquet"}}, ["humaneval", "mbpp_reg"]),
    ],
)
def test_convert_datasets_come_from_the_files_for_evaluation(files: dict[str, Any], names: list[str]) -> None:
    converted = convert(changed(STANDALONE, "data", files), "f.yaml")
    assert [dataset["name"] for dataset in converted.manifest["spec"]["datasets"]] == names
    assert set(fates(converted).values()) <= {"mapped", "default", "ignored"}


def test_convert_dummy_weights_without_a_trainer_are_refused() -> None:
    converted = convert(changed(STANDALONE, "actor_rollout_ref.rollout.load_format", "dummy"), "f.yaml")
    assert fates(converted)["actor_rollout_ref.rollout.load_format"] == "refused"


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("a.b=1", "a.b", 1), ("+a.new=x", "a.new", "x"), ("++a.b=null", "a.b", None), ("a.b=[x,2]", "a.b", ["x", 2]),
        ("a.b='1,2'", "a.b", "1,2"), ("a.b=${a.c}", "a.b", "${a.c}"), ("new.deep=True", "new.deep", True),
        ("a.b=", "a.b", None), ("a.b.c=1e-6", "a.b.c", "1e-6"), ("a.b=s3://x/y?z=1", "a.b", "s3://x/y?z=1"),
    ],
)  # fmt: skip
def test_apply_overrides_sets_one_key(override: str, path: str, value: object) -> None:
    values = {"a": {"b": 0, "c": 2}}
    found: Any = apply_overrides(values, [override])
    for name in path.split("."):
        found = found[name]
    assert found == value
    assert values == {"a": {"b": 0, "c": 2}}


def test_apply_overrides_removes_a_key() -> None:
    assert apply_overrides({"a": {"b": 0, "c": 2}}, ["~a.b", "~nothing.there"]) == {"a": {"c": 2}, "nothing": {}}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("a.b=1,2", "sweep over several runs"), ("a.b={x:1}", "one override per key"), ("a.b", "write key=value"),
        ("a b=1", "write key=value"), ("a=[1", "put it in quotes"),
    ],
)  # fmt: skip
def test_apply_overrides_refuses_syntax_that_only_hydra_resolves(override: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        apply_overrides({}, [override])


EVALUATION: dict[str, Any] = {
    "data": {"path": "rows.parquet", "prompt_key": "prompt", "response_key": "answers"},
    "ray_kwargs": {"ray_init": {"num_cpus": None}},
}


@pytest.mark.parametrize("layout", ["custom_reward_function", "reward.custom_reward_function"])
def test_read_evaluation_accepts_both_layouts_of_the_reward_function(layout: str) -> None:
    values = changed(EVALUATION, layout, {"path": None, "name": "compute_score"})
    evaluation = read_evaluation(values, "e.yaml")
    assert (evaluation.file, evaluation.renamed) == ("rows.parquet", {"answers": "responses"})
    assert "unknown" not in {entry.fate for entry in evaluation.entries}
    ours = changed(values, f"{layout}.path", "pkg://evalrun_trainers.verl_reward")
    assert read_evaluation(ours, "e.yaml").file == "rows.parquet"
    assert read_evaluation(ours, "e.yaml").grader is None


@pytest.mark.parametrize("layout", ["custom_reward_function", "reward.custom_reward_function"])
def test_a_reward_function_becomes_the_grader(layout: str) -> None:
    values = changed(EVALUATION, layout, {"path": "/me/score.py", "name": "mine", "reward_kwargs": {"a": None}})
    evaluation = read_evaluation(values, "e.yaml")
    assert evaluation.grader == Grader(path="/me/score.py", name="mine")
    fates = {entry.key: entry.fate for entry in evaluation.entries}
    assert (fates[f"{layout}.path"], fates[f"{layout}.name"]) == ("mapped", "mapped")
    with pytest.raises(BadInputError, match=r"reward_kwargs\.a: a grader gets no arguments of yours"):
        read_evaluation(changed(values, f"{layout}.reward_kwargs", {"a": 1}), "e.yaml")
    with pytest.raises(BadInputError, match=r"name: '1x' is not a function's name"):
        read_evaluation(changed(values, f"{layout}.name", "1x"), "e.yaml")


@pytest.mark.parametrize(
    ("path", "fate"),
    [("/me/score.py", "refused"), ("pkg://evalrun_trainers.verl_reward", "ignored"), (None, "ignored")],
)
def test_a_trainers_reward_function_is_accounted_for(path: str | None, fate: str) -> None:
    converted = convert(changed(GENERATION, "custom_reward_function", {"path": path}), "g.yaml")
    assert {entry.fate for entry in converted.entries if entry.key == "custom_reward_function.path"} == {fate}


def test_an_evaluation_file_names_its_rows() -> None:
    with pytest.raises(BadInputError, match=r"data\.path"):
        read_evaluation({"data": {}}, "e.yaml")
