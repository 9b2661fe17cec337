"""SandboxFusion's datasets, through its published client against a server that answers as its own does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.fusion.datasets import Prompts, dataset_server
from builders.governance import json_lines, write_plan

from evalrun_data.governance.__main__ import main
from evalrun_data.governance.fusion_source import fetch_fusion_rows
from evalrun_data.readers import load_problems
from evalrun_data.records import ServerTests
from evalrun_runtime.exits import BadInputError

PROMPTS: Prompts = {
    "humaneval_python": [
        {"id": 0, "prompt": "def f():\n", "labels": {"task_id": "HumanEval/0"}},
        {"id": 1, "prompt": "def g(x):\n", "labels": {"task_id": "HumanEval/1"}},
    ],
    "empty": [],
    "mbpp": [{"id": number, "prompt": f"Task {number} is a task of its own.", "labels": {"task_id": number}}
             for number in (1, 11, 210, 600)],
    "code_contests": [],
    "code_contests/valid": [{"id": 7, "prompt": "Print seven.", "labels": {}}],
    "unsplit": [{"id": 1, "prompt": "One list for every split.", "labels": {}}],
    "labelled": [{"id": number, "prompt": f"{split} {number}", "labels": {"split": split}}
                 for number, split in enumerate(("train", "valid", "test"))],
}  # fmt: skip


@pytest.fixture
def server() -> Iterator[str]:
    with dataset_server(PROMPTS) as url:
        yield url


def plan_of(directory: Path, name: str) -> str:
    return str(write_plan(directory, [{"name": name, "source": f"sandboxfusion:{name}", "role": "test"}]))


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
def test_server_without_the_dataset_is_reported_and_nothing_is_written(
    name: str, says: str, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["prepare", plan_of(tmp_path, name), "--output", str(out), "--sandbox-fusion", server]) == 2
    assert says in capsys.readouterr().err
    assert not out.exists()


def test_prepare_sandbox_fusion_split_language_and_locale_are_sent(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []
    out = tmp_path / "out"
    with dataset_server(PROMPTS, asked) as url:
        plan = plan_of(tmp_path, "codecontests_valid")
        assert main(["prepare", plan, "--output", str(out), "--sandbox-fusion", f"{url}/get_prompts"]) == 0
    config = asked[0]["config"]
    assert (config["language"], config["locale"], config["is_fewshot"]) == ("python", "en", False)
    assert config["extra"] == {"split": "valid"}
    (problem,) = load_problems(str(out / "codecontests_valid.parquet"), "codecontests_valid")
    assert (problem.split, problem.sandbox_dataset, problem.sandbox_id) == ("valid", "code_contests", "7")


def test_prepare_sandbox_fusion_regression_part_has_its_ids(server: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["prepare", plan_of(tmp_path, "mbpp_reg"), "--output", str(out), "--sandbox-fusion", server]) == 0
    problems = load_problems(str(out / "mbpp_reg.parquet"), "mbpp_reg")
    assert [(p.problem_id, p.sandbox_id) for p in problems] == [("MBPP/11", "11"), ("MBPP/210", "210")]


def test_fetch_fusion_rows_server_without_splits_is_refused(server: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="gives the same prompts for every split of 'unsplit'"):
        fetch_fusion_rows("sandboxfusion:unsplit?split=valid", tmp_path / "rows.jsonl", server)
    fetch_fusion_rows("sandboxfusion:labelled?split=valid", tmp_path / "rows.jsonl", server)
    assert [row["sandbox_id"] for row in json_lines(tmp_path / "rows.jsonl")] == ["1"]
    with pytest.raises(BadInputError, match="unknown setting 'lang': write split, language, locale"):
        fetch_fusion_rows("sandboxfusion:unsplit?lang=cpp", tmp_path / "rows.jsonl", server)
