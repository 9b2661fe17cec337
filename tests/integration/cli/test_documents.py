"""Files and commands as the project's founding documents write them, and what a user of these gets."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.command_line import PROJECT, Command, evalrun

from evalrun_api.v1alpha1 import API_VERSION, KIND

SAMPLES = PROJECT / "k8s" / "samples"
PHASE0_EVAL: dict[str, Any] = {
    "actor_rollout_ref": {
        "model": {"path": "Qwen/Qwen2.5-Coder-7B-Instruct", "trust_remote_code": False},
        "rollout": {
            "name": "vllm", "mode": "async", "tensor_model_parallel_size": 2, "do_sample": False, "temperature": 0.0,
            "n": 1, "dtype": "bfloat16", "gpu_memory_utilization": 0.8, "prompt_length": 4096,
            "response_length": 2048, "load_format": "auto",
        },
    },
    "data": {"eval_files": ["humaneval.jsonl", "mbpp_reg.jsonl", "codecontests_valid.jsonl"]},
    "sandbox": {"url": "http://localhost:8080/run_code", "timeout": 10, "memory_limit_mb": 1024},
    "trainer": {"logger": ["console", "wandb"], "project_name": "rlvr_coding_model",
                "experiment_name": "phase0_baseline"},
}  # fmt: skip
GENERATION: dict[str, Any] = {
    "trainer": {"nnodes": 1, "n_gpus_per_node": 8},
    "data": {"path": "test.parquet", "n_samples": 1},
    "model": {"path": "org/model"},
    "rollout": {"name": "vllm", "temperature": 0.0, "load_format": "dummy_dtensor"},
    "ray_kwargs": {"timeline_json_file": None}, "ray_init": {"num_cpus": None},
}  # fmt: skip
FETCHED: list[dict[str, Any]] = [
    {"dataset": "codecontests", "split": "valid", "problem_id": "1_A. Sum", "prompt": "Print the sum of two integers.",
     "sandbox_dataset": "code_contests", "sandbox_id": 7},
]  # fmt: skip
AUTO_EVAL: list[dict[str, Any]] = [
    {"id": "HumanEval/0", "content": "def double(x):\n", "test": "def check(f):\n    assert f(2) == 4\n",
     "canonical_solution": "    return 2 * x\n"},
    {"id": "7", "content": "Print the sum.",
     "test_cases": [{"input": {"stdin": "1 2\n"}, "output": {"stdout": "3\n"}}]},
]  # fmt: skip
ANSWERS: list[dict[str, Any]] = [
    {"problem_id": "HumanEval/0", "completion": "def double(x):\n    return 2 * x\n"},
    {"problem_id": "7", "completion": "print(sum(map(int, input().split())))"},
]
VERL_ROW: list[dict[str, Any]] = [
    {"data_source": "codecontests", "prompt": [{"role": "user", "content": "Print twice the number."}],
     "ability": "code", "agent_name": "tool_agent",
     "reward_model": {"style": "rule", "ground_truth": '{"inputs": ["2"], "outputs": ["4"]}'},
     "extra_info": {"index": 0, "split": "test", "interaction_kwargs": {"name": "evalrun", "query": "Twice."}},
     "responses": ["print(int(input()) * 2)"]},
]  # fmt: skip
AIME: list[dict[str, Any]] = [{"ID": "2024-I-1", "Problem": "How many?", "Solution": "Count.", "Answer": 204}]
EVAL_RECORDS: list[dict[str, Any]] = [
    {"data_source": "mbpp_reg", "problem_id": "MBPP/11", "difficulty": "", "prompt": "Write a function double(x).",
     "ground_truth": json.dumps({"test_list": ["assert double(2) == 4"], "test_setup_code": ""})},
    {"data_source": "humaneval", "problem_id": "HumanEval/0", "difficulty": "",
     "prompt": 'def double(x):\n    \"\"\"Double it.\"\"\"\n',
     "ground_truth": json.dumps({"test": "def check(f):\n    assert f(2) == 4\n", "entry_point": "double"})},
]  # fmt: skip
EVAL_ANSWERS: list[dict[str, Any]] = [
    {"problem_id": row["problem_id"], "response": "```python\ndef double(x):\n    return 2 * x\n```"}
    for row in EVAL_RECORDS
]
GSM8K: list[dict[str, Any]] = [
    {"data_source": "openai/gsm8k", "prompt": [{"role": "user", "content": "How much is 1 + 1?"}],
     "reward_model": {"style": "rule", "ground_truth": "2"}, "responses": ["#### 2"], "extra_info": {"index": 0}},
]  # fmt: skip
EVALUATION: dict[str, Any] = {
    "data": {"path": "gsm8k.jsonl", "prompt_key": "prompt", "response_key": "responses",
             "data_source_key": "data_source", "reward_model_key": "reward_model"},
}  # fmt: skip
PLAN: dict[str, Any] = {"datasets": [{"name": "codecontests_valid", "source": "codecontests_valid.jsonl"}]}
SAMPLING: dict[str, Any] = {
    "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "sampling"},
    "spec": {
        "model": {"path": "org/model"}, "endpoints": [{"url": "http://localhost:8000/v1"}], "output": {"retain": True},
        "datasets": [{"name": "codecontests", "source": "codecontests_valid.jsonl", "role": "train",
                      "purpose": "Sampling"}],
        "protocol": {"name": "EVAL@k", "temperature": "0.8", "samples": 8, "k": [1]},
    },
}  # fmt: skip
HDFS: dict[str, Any] = {**SAMPLING, "spec": {**SAMPLING["spec"], "model": {"path": "hdfs://namenode/models/qwen"}}}
SEEDS: dict[str, Any] = {
    **SAMPLING,
    "spec": {
        **SAMPLING["spec"],
        "protocol": {"name": "EVAL@1", "temperature": "0.0", "seeds": 2},
    },
}
TWO_SEEDS: dict[str, Any] = {
    **SAMPLING,
    "spec": {
        **SAMPLING["spec"],
        "protocol": {"name": "EVAL@k", "temperature": "0.8", "k": [1], "seeds": 2},
    },
}
SWE: list[dict[str, Any]] = [
    {"instance_id": "a__b-1", "repo": "a/b", "base_commit": "0" * 40, "problem_statement": "Fix it.",
     "test_patch": "", "patch": "", "FAIL_TO_PASS": "[]", "PASS_TO_PASS": "[]"},
]  # fmt: skip
KOTLIN: list[dict[str, Any]] = [
    {"dataset": "ours", "problem_id": "1", "prompt": "Echo.", "language": "kotlin",
     "ground_truth": {"inputs": ["1"], "outputs": ["1"]}},
]  # fmt: skip
MANY: list[dict[str, Any]] = [
    {"dataset": f"source-{number}", "problem_id": "1", "prompt": "Echo.",
     "ground_truth": {"inputs": ["1"], "outputs": ["1"]}}
    for number in range(17)
]  # fmt: skip
HOTPOT: list[dict[str, Any]] = [{"id": "5a8b", "question": "Who?", "golden_answers": ["Ada"]}]
FILES = {
    "hdfs.yaml": HDFS, "seeds.yaml": SEEDS, "two_seeds.yaml": TWO_SEEDS, "swe.jsonl": SWE, "kotlin.jsonl": KOTLIN,
    "hotpot.jsonl": HOTPOT, "verl.jsonl": VERL_ROW, "many.jsonl": MANY,
    "sampling.yaml": SAMPLING,
    "phase0_eval.yaml": PHASE0_EVAL, "generation.yaml": GENERATION, "codecontests_valid.jsonl": FETCHED,
    "eval_records.jsonl": EVAL_RECORDS, "eval_answers.jsonl": EVAL_ANSWERS, "gsm8k.jsonl": GSM8K,
    "evaluation.yaml": EVALUATION, "auto_eval.jsonl": AUTO_EVAL,
    "answers.jsonl": ANSWERS, "aime.jsonl": AIME, "plan.yaml": PLAN,
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A command of the documents."""

    command: str
    code: int
    shown: tuple[str, ...] = ()
    """Texts on stderr or stdout."""
    hidden: tuple[str, ...] = field(default=("Traceback",))
    files: tuple[str, ...] = ()
    """That it leaves, by the documents' names."""


COMMANDS = (
    Row("convert verl phase0_eval.yaml", 0, ("name: EVAL@1", "name: codecontests_valid", "project: rlvr_coding_model"),
        ("EVAL@k", "codecontests-valid", "# unknown")),
    Row("convert verl phase0_eval.yaml data.train_files=codecontests_train.parquet", 0, ("# ignored",)),
    Row("convert verl phase0_eval.yaml actor_rollout_ref.rollout.load_format=dummy", 2, ("answer noise",)),
    Row("convert verl generation.yaml", 2, ("dummy_dtensor reads no weights", "write auto")),
    Row("convert verl generation.yaml rollout.load_format=auto", 0, ("name: EVAL@1",), ("# unknown",)),
    Row("convert verl generation.yaml rollout.load_format=auto rollout.calculate_log_probs=true", 0,
        ("calculateLogProbs: true",), ("# ignored rollout.calculate_log_probs",)),
    Row("convert verl phase0_eval.yaml actor_rollout_ref.rollout.enforce_eager=true", 0, ("enforceEager: true",)),
    Row("validate --local sampling.yaml", 0, ("valid",)),
    Row(f"validate {SAMPLES}/evalrun-phase0.yaml", 0, ("valid",)),
    Row(f"validate {SAMPLES}/schedules/nightly.yaml", 0, ("valid",)),
    Row("convert verl phase0_eval.yaml actor_rollout_ref.model.trust_remote_code=true", 0, ("trustRemoteCode: true",)),
    Row("convert verl phase0_eval.yaml actor_rollout_ref.rollout.pipeline_model_parallel_size=2", 2,
        ("spec.rollout.pipelineParallel", "a larger tensorParallel")),
    Row("data prepare plan.yaml --output eval-data", 0, ("codecontests_valid: 1 records", "role dev, audit passed"),
        files=("eval-data/data_manifests/codecontests_valid.jsonl", "eval-data/data_manifests/duplicates_valid.jsonl",
               "eval-data/data_manifests/audit_report.md")),
    Row("judge --problems eval_records.jsonl --responses eval_answers.jsonl --output out", 0, ("100.0 %",)),
    Row("judge --verl-config evaluation.yaml --output out", 2, ("such rows need a grader",)),
    Row("judge --problems aime.jsonl --responses answers.jsonl --output out", 2, ("add --grader builtin:verl",)),
    Row("judge --problems auto_eval.jsonl --responses answers.jsonl --output out", 0, ("Succeeded",)),
    Row("judge --problems verl.jsonl --responses verl.jsonl --output out", 0, ("Succeeded",)),
    Row("judge --problems swe.jsonl --responses answers.jsonl --output out", 2, ("use SWE-bench's own harness",)),
    Row("judge --problems kotlin.jsonl --responses answers.jsonl --output out", 2, ("python, c, cpp",)),
    Row("judge --problems many.jsonl --responses answers.jsonl --output out", 2,
        ("17 datasets (source-0, source-1", "in several runs")),
    Row("judge --problems hotpot.jsonl --responses answers.jsonl --output out", 2, ("--grader",)),
    Row("validate hdfs.yaml", 2, ("spec.model.path",)),
    Row("validate --local seeds.yaml", 2, ("spec.protocol.seeds", "every seed gives the same answers")),
    Row("validate --local two_seeds.yaml", 0, ("valid",)),
    Row("run --endpoint builtin:demo --seeds 2 --temperature 0", 2, ("--seeds 2", "leave --temperature 0")),
    Row("run --endpoint builtin:demo --max-problems 2 --output out", 0, ("accepted",),
        files=("out/metrics.json", "out/summary.json", "out/run_info.json", "out/qa_logs/demo_qa.jsonl",
               "out/qa_logs/qa_summary.json")),
    Row("run --endpoint http://127.0.0.1:1 --model m --dataset codecontests_train", 2, ("humaneval",)),
    Row("export pairs nowhere --output pairs.parquet", 2, ("nowhere",)),
    Row("export sft nowhere --output sft.jsonl", 2, ("nowhere",)),
    Row("export verl nowhere --output responses.parquet --agent-name tool_agent", 2, ("nowhere",)),
    Row("prune nowhere --retain-completions-days 90", 2, ("no finished run here",)),
    Row("compare --phases nowhere there", 2, ("nowhere",)),
    Row("run --endpoint builtin:demo --model m --dataset demo --samples 8 --temperature 0", 2,
        ("8 samples would be equal",)),
    Row("run --endpoint http://127.0.0.1:1 --model m --dataset mbpp_train", 2, ("mbpp_reg, codecontests_valid",)),
    Row("run --endpoint builtin:demo --sandbox-fusion http://127.0.0.1:1/run_code", 2,
        ("--sandbox-fusion: http://127.0.0.1:1:", "write the address of a SandboxFusion server")),
)  # fmt: skip


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.command.replace(f"{PROJECT}/", ""))
def test_documents_command_gives_its_result(
    row: Row, evalrun_here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, values in FILES.items():
        text = yaml.safe_dump(values) if name.endswith(".yaml") else "".join(f"{json.dumps(v)}\n" for v in values)
        (tmp_path / name).write_text(text)
    words = row.command.split()
    # Services are forked from the command's process, which must not be the tests' own.
    done = evalrun(*words) if words[0] in ("judge", "run") else evalrun_here(*words)
    told = done.stdout + done.stderr
    assert done.returncode == row.code, told
    assert [text for text in row.shown if text not in told] == [], told
    assert [text for text in row.hidden if text in told] == []
    assert [name for name in row.files if not (tmp_path / name).is_file()] == []
