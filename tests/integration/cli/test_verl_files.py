"""`evalrun judge --verl-config` and `evalrun convert verl`, with the published files of verl 0.9.1 where it is."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import yaml
from builders.command_line import Command, evalrun, results
from builders.governance import write_rows

from evalrun_cli.verl_files.commands import convert_file
from evalrun_cli.verl_files.evaluation import read_evaluation, rename_columns
from evalrun_runtime.exits import BadInputError

ROWS = [
    {
        "prompt": [{"role": "user", "content": f"Print {number} times what you read."}],
        "data_source": "codecontests",
        "reward_model": {"style": "rule", "ground_truth": json.dumps({"inputs": ["1\n"], "outputs": [f"{number}\n"]})},
        "responses": [f"```python\nprint(int(input()) * {number})\n```", "```python\nprint('no')\n```"],
    }
    for number in (2, 3)
]


def config(directory: Path, rows: list[dict[str, Any]], *, reward: bool, **keys: str) -> Path:
    path = directory / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    function = {"custom_reward_function": {"path": None, "name": "compute_score"}}
    values = {"data": {"path": str(path), **keys}, **({"reward": function} if reward else function)}
    file = directory / "evaluation.yaml"
    file.write_text(yaml.safe_dump(values))
    return file


@pytest.mark.parametrize("reward", [False, True])
def test_an_evaluation_file_is_judged_with_every_response(tmp_path: Path, *, reward: bool) -> None:
    rows, keys = ROWS, {"response_key": "responses"}
    if reward:  # and columns by other names
        rows = [{("answers" if name == "responses" else name): value for name, value in row.items()} for row in ROWS]
        keys = {"response_key": "answers"}
    file = config(tmp_path, rows, reward=reward, **keys)
    done = evalrun("judge", "--verl-config", file, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    found = [(row["problem_id"], row["sample"], row["accepted"]) for row in results(tmp_path / "out")]
    assert sorted(found) == [("1", 0, True), ("1", 1, False), ("2", 0, True), ("2", 1, False)]


def test_rename_columns_for_the_current_directory_writes_beside_that_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{("answers" if name == "responses" else name): value for name, value in row.items()} for row in ROWS]
    evaluation = read_evaluation(
        yaml.safe_load(config(tmp_path, rows, reward=False, response_key="answers").read_text()), "e.yaml"
    )
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    assert rename_columns(evaluation, Path(), tmp_path) == str(tmp_path / "out_rows.parquet")


def test_a_column_of_several_types_is_named(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [{"answers": ["x"], "prompt": "a"}, {"answers": ["x"], "prompt": 1}])
    evaluation = read_evaluation({"data": {"path": str(file), "response_key": "answers"}}, "e.yaml")
    with pytest.raises(BadInputError, match=r"rows.jsonl: cannot be written with a run's columns: .*: rename them in"):
        rename_columns(evaluation, tmp_path / "out", tmp_path)


def test_a_date_that_no_calendar_has_is_named(tmp_path: Path) -> None:
    file = tmp_path / "generation.yaml"
    file.write_text("since: 2024-02-30\n")
    with pytest.raises(BadInputError, match=r"generation.yaml: not readable as YAML: day is out of range for month"):
        convert_file(file, None)


def test_judge_with_both_or_neither_of_files_and_verl_config_is_refused(evalrun_here: Command, tmp_path: Path) -> None:
    file = config(tmp_path, ROWS, reward=False)
    both = evalrun_here("judge", "--verl-config", file, "--problems", "p.jsonl", "--output", tmp_path / "out")
    assert (both.returncode, "names the file already" in both.stderr) == (2, True)
    none = evalrun_here("judge", "--output", tmp_path / "out")
    assert (none.returncode, "--verl-config" in none.stderr) == (2, True)


def test_published_verl_files_are_read_and_converted_to_a_valid_run(
    evalrun_here: Command, gen_cpu: Path, tmp_path: Path
) -> None:
    (directory,) = (gen_cpu.parents[1] / "lib").glob("python3*/site-packages/verl/trainer/config")
    evaluation = read_evaluation(yaml.safe_load((directory / "evaluation.yaml").read_text()), "evaluation.yaml")
    assert {entry.fate for entry in evaluation.entries} <= {"mapped", "default", "ignored"}
    assert evaluation.renamed == {}

    done = evalrun_here("convert", "verl", directory / "_generated_ppo_trainer.yaml", "--output", tmp_path / "run.yaml")
    assert done.returncode == 0, done.stderr
    assert "# unknown" not in done.stderr
    valid = evalrun_here("validate", "--local", tmp_path / "run.yaml")
    assert valid.returncode == 0, valid.stderr


def test_convert_with_a_refused_key_writes_nothing(evalrun_here: Command, tmp_path: Path) -> None:
    values = {"model": {"path": "m"}, "data": {"path": "p"}, "rollout": {"load_format": "dummy", "temperature": 0}}
    file = tmp_path / "generation.yaml"
    file.write_text(yaml.safe_dump(values))
    done = evalrun_here("convert", "verl", file, "--output", tmp_path / "run.yaml")
    assert done.returncode == 2
    assert "rollout.load_format: dummy reads no weights" in done.stderr
    assert not (tmp_path / "run.yaml").exists()


def test_convert_overrides_change_the_file_and_a_refused_key_can_be_left_out(
    evalrun_here: Command, tmp_path: Path
) -> None:
    values = {"model": {"path": "m"}, "data": {"path": "p"}, "rollout": {"temperature": 0, "quantization": "fp8"}}
    file = tmp_path / "generation.yaml"
    file.write_text(yaml.safe_dump(values))
    done = evalrun_here("convert", "verl", file, "data.path=hard_set.parquet", "~rollout.quantization")
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["spec"]["datasets"] == [{"name": "hard_set", "source": "hard_set.parquet"}]
    refused = evalrun_here("convert", "verl", file)
    assert (refused.returncode, "leave it out with ~rollout.quantization" in refused.stderr) == (2, True)
    alone = evalrun_here("convert", "verl", "model.path=org/m", "data.path=x.parquet", "+rollout.temperature=0.0")
    assert yaml.safe_load(alone.stdout)["spec"]["protocol"] == {"name": "EVAL@1"}
