"""SandboxFusion's datasets, through its published client against a server that answers as its own does."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.fusion.datasets import Prompts, dataset_server
from builders.governance import json_lines, write_plan

from evalrun_data.governance.__main__ import main
from evalrun_data.readers import load_problems
from evalrun_data.records import ServerTests

PROMPTS: Prompts = {
    "humaneval_python": [
        {"id": 0, "prompt": "def f():\n", "labels": {"task_id": "HumanEval/0"}},
        {"id": 1, "prompt": "def g(x):\n", "labels": {"task_id": "HumanEval/1"}},
    ],
    "empty": [],
}


@pytest.fixture
def server() -> Iterator[str]:
    with dataset_server(PROMPTS) as url:
        yield url


def plan_of(folder: Path, name: str) -> str:
    return str(write_plan(folder, [{"name": name, "source": f"sandboxfusion:{name}", "role": "test"}]))


def test_the_servers_prompts_become_records_whose_tests_stay_there(server: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["prepare", plan_of(tmp_path, "humaneval"), "--output", str(out), "--sandbox-fusion", server]) == 0
    problems = load_problems(str(out / "humaneval.parquet"), "humaneval")
    assert [(p.problem_id, p.sandbox_dataset, p.sandbox_id) for p in problems] == [
        ("HumanEval/0", "humaneval_python", "0"),
        ("HumanEval/1", "humaneval_python", "1"),
    ]
    assert all(isinstance(problem.ground_truth, ServerTests) for problem in problems)
    assert [line["num_test_cases"] for line in json_lines(out / "data_manifests/humaneval.jsonl")] == [0, 0]


@pytest.mark.parametrize(
    ("name", "says"),
    [("unknown_set", "does not serve it: Faas api responded with code 500"), ("empty", "has no prompt in its dataset")],
)
def test_a_server_without_the_dataset(
    name: str, says: str, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["prepare", plan_of(tmp_path, name), "--output", str(out), "--sandbox-fusion", server]) == 2
    assert says in capsys.readouterr().err
    assert not out.exists()
