"""`evalrun export`: what a run's answers become for a trainer, read back by verl's own code and by the judge."""

import json
import math
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from builders.command_line import Command, evalrun, judge_rows, results
from builders.generator.rollout import make_tiny_model
from builders.governance import json_lines
from builders.other_interpreter import ask_script

TRAINERS = "EVALRUN_TEST_TRAINERS_PYTHON"
RIGHT = "```python\nprint(int(input()) * 2)\n```"
SAME = "The same again:\n```python\nprint(int(input()) * 2)\n\n```"
OTHER = "```python\nx = int(input())\nprint(x + x)\n```"
WRONG = "```python\nprint(0)\n```"
PROBLEM = {
    "dataset": "sums",
    "prompt": "Print twice the number.",
    "ground_truth": {"inputs": ["2\n"], "outputs": ["4\n"]},
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two problems: one with right and wrong answers, one with wrong ones alone."""
    directory = tmp_path_factory.mktemp("export")
    problems = [{**PROBLEM, "problem_id": name} for name in ("mixed", "hard")]
    answers = [("mixed", text) for text in (WRONG, RIGHT, SAME, OTHER)] + [("hard", WRONG)] * 4
    done = judge_rows(directory, problems, [{"problem_id": name, "response": text} for name, text in answers])
    assert done.returncode == 0, done.stderr
    return directory / "run"


def exported(command: Command, run: Path, output: Path, *arguments: str) -> list[dict[str, Any]]:
    kind, *flags = arguments
    done = command("export", kind, run, "--output", output, *flags)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(output).to_pylist() if output.suffix == ".parquet" else []
    return rows or json_lines(output)


def test_export_sft_has_each_accepted_program_once(evalrun_here: Command, judged: Path, tmp_path: Path) -> None:
    rows = exported(evalrun_here, judged, tmp_path / "sft.jsonl", "sft")
    assert [row["completion"] for row in rows] == [[{"role": "assistant", "content": text}] for text in (RIGHT, OTHER)]
    assert rows[0]["prompt"][-1]["role"] == "user"
    assert "Print twice the number." in rows[0]["prompt"][-1]["content"]
    assert {(row["dataset"], row["problem_id"]) for row in rows} == {("sums", "mixed")}
    assert len(exported(evalrun_here, judged, tmp_path / "one.parquet", "sft", "--per-problem", "1")) == 1


def test_export_pairs_has_an_accepted_and_a_rejected_answer(
    evalrun_here: Command, judged: Path, tmp_path: Path
) -> None:
    (row,) = exported(evalrun_here, judged, tmp_path / "pairs.jsonl", "pairs")
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == (RIGHT, WRONG)
    assert (row["sample"], row["rejected_sample"], row["rejected_status"]) == (1, 0, "wrong_answer")


def test_export_verl_is_judged_again_alike(evalrun_here: Command, judged: Path, tmp_path: Path) -> None:
    file = tmp_path / "responses.parquet"
    rows = exported(evalrun_here, judged, file, "verl", "--agent-name", "tool_agent", "--interaction", "evalrun")
    assert [len(row["responses"]) for row in rows] == [4, 4]
    assert {row["agent_name"] for row in rows} == {"tool_agent"}
    assert rows[0]["extra_info"]["interaction_kwargs"]["name"] == "evalrun"
    done = evalrun("judge", "--problems", file, "--responses", file, "--output", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    found = sorted((row["problem_id"], row["sample"], row["accepted"]) for row in results(tmp_path / "again"))
    assert found == sorted((row["problem_id"], row["sample"], row["accepted"]) for row in results(judged))


@pytest.mark.parametrize(
    ("output", "role", "message"),
    [
        ("x.csv", "train", "write a name that ends in"),
        ("x.jsonl", "test", "is test data, which figures"),
    ],
)
def test_export_refuses_other_files_and_evaluation_data(
    evalrun_here: Command, tmp_path: Path, output: str, role: str, message: str
) -> None:
    problem = {**PROBLEM, "problem_id": "a", "role": role}
    done = judge_rows(tmp_path, [problem], [{"problem_id": "a", "response": RIGHT}])
    assert done.returncode == 0, done.stderr
    refused = evalrun_here("export", "sft", tmp_path / "run", "--output", tmp_path / output)
    assert (refused.returncode, message in refused.stderr) == (2, True), refused.stderr


def test_export_pruned_run_is_refused(evalrun_here: Command, judged: Path, tmp_path: Path) -> None:
    shutil.copytree(judged, tmp_path / "run")
    pruned = evalrun_here("prune", tmp_path, "--retain-completions-days", "0")
    assert pruned.returncode == 0, pruned.stderr
    refused = evalrun_here("export", "sft", tmp_path / "run", "--output", tmp_path / "x.jsonl")
    assert (refused.returncode, "its answers are gone" in refused.stderr) == (2, True), refused.stderr


MAIN_EVAL = """
import json, sys
import pandas as pd
from omegaconf import OmegaConf
from verl.trainer.main_eval import process_item

rows = pd.read_parquet(sys.argv[1])
config = OmegaConf.create({"reward": {"custom_reward_function": {"path": sys.argv[2], "name": "compute_score"}}})
scored = [
    process_item._function(config, rows["data_source"][i], rows["responses"][i], rows["reward_model"][i])
    for i in range(len(rows))
]
print("SCORES", json.dumps([(source, float(score)) for source, score in scored]))
"""
SCORER = """
import json

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert json.loads(ground_truth)["outputs"] == ["4\\n"]
    return float("* 2" in solution_str or "x + x" in solution_str)
"""


@pytest.mark.timeout(300)
def test_export_verl_is_read_by_verls_main_eval(
    gen_cpu: Path, evalrun_here: Command, judged: Path, tmp_path: Path
) -> None:
    file = tmp_path / "responses.parquet"
    exported(evalrun_here, judged, file, "verl")
    (tmp_path / "scorer.py").write_text(SCORER)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "RAY_"))}
    done = subprocess.run(
        [str(gen_cpu), "-c", MAIN_EVAL, str(file), str(tmp_path / "scorer.py")],
        env={**kept, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}, cwd=tmp_path, capture_output=True, text=True,
        check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("SCORES ")]
    assert json.loads(line.removeprefix("SCORES ")) == [["codecontests", 0.75], ["codecontests", 0.0]]


@pytest.mark.timeout(3000)  # importing TRL took nine minutes on two cores with a load of 22
async def test_trls_trainers_read_exported_rows_and_pairs(gen_cpu: Path, judged: Path, tmp_path: Path) -> None:
    python = os.environ.get(TRAINERS)
    if not python:
        pytest.skip(f"{TRAINERS} names no interpreter with trl (docs/testing.md)")
    sft, pairs = tmp_path / "sft.jsonl", tmp_path / "pairs.parquet"
    count = len(exported(evalrun, judged, sft, "sft"))
    pair_count = len(exported(evalrun, judged, pairs, "pairs"))
    model = await make_tiny_model(gen_cpu, tmp_path / "model")
    asked = {"sft": str(sft), "pairs": str(pairs), "model": str(model)}
    cache = str(tmp_path / "hf")
    made = await ask_script(python, "trl_data_side.py", asked, HF_HUB_OFFLINE="1", HF_DATASETS_CACHE=cache)
    assert made["rows"] == {"sft": count, "dpo": pair_count}
    assert all(math.isfinite(loss) for loss in made["losses"].values())
