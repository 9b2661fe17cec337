"""`evalrun validate` says what a gate needs to decide; `evalrun judge` keeps the order in which datasets were given."""

import gzip
import json
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner

from evalrun_cli.commands import evalrun
from evalrun_cli.local.runs import judge_spec, read_problems
from evalrun_runtime.exits import BadInputError

PROBLEM = {
    "task_id": "HumanEval/0", "prompt": "def f(x):\n", "entry_point": "f", "canonical_solution": "    return x\n",
    "test": "def check(candidate):\n    assert candidate(1) == 1\n",
}  # fmt: skip


def gated(directory: Path, *, problems: int | None, margin: str) -> Path:
    most = "" if problems is None else f"\n              maxProblems: {problems}"
    file = directory / "run.yaml"
    file.write_text(
        dedent(f"""\
        apiVersion: evalrun.dev/v1alpha1
        kind: EvalRun
        metadata: {{name: gated}}
        spec:
          model: {{path: some/model}}
          datasets:
            - name: humaneval
              source: HumanEval.jsonl.gz{most}
          endpoints:
            - url: http://127.0.0.1:8000/v1
          gates:
            - baseline: main
              dataset: humaneval
              metric: accepted_at_1
              maxRegression: "{margin}"
        """)
    )
    return file


def test_validate_names_the_mistakes_of_a_source(tmp_path: Path) -> None:
    file = gated(tmp_path, problems=None, margin="0.9")
    with gzip.open(tmp_path / "HumanEval.jsonl.gz", "wt") as problems_file:
        problems_file.writelines(json.dumps({**PROBLEM, "test": None, "task_id": str(n)}) + "\n" for n in range(2))
    found = CliRunner().invoke(evalrun, ["validate", "--local", str(file)])
    assert isinstance(found.exception, BadInputError)
    assert str(found.exception).startswith("2 mistakes:")


def test_validate_warns_of_a_source_that_is_not_there(tmp_path: Path) -> None:
    file = gated(tmp_path, problems=None, margin="0.9")
    found = CliRunner().invoke(evalrun, ["validate", "--local", str(file)])
    assert found.exit_code == 0
    assert f"{file}: warning: humaneval: source HumanEval.jsonl.gz: no such file" in found.output.splitlines()


@pytest.mark.parametrize(
    ("problems", "margin", "says"),
    [
        (164, "0.02", "with maxRegression 0.02, about 1,127 problems are needed to pass an equal run"),
        (164, "0.1", None),
        (None, "0.02", "with maxRegression 0.02, about 1,127 problems are needed to pass an equal run"),
    ],
)
def test_validate_says_how_many_problems_a_gate_needs(
    tmp_path: Path, problems: int | None, margin: str, says: str | None
) -> None:
    file = gated(tmp_path, problems=problems, margin=margin)
    with gzip.open(tmp_path / "HumanEval.jsonl.gz", "wt") as problems_file:
        problems_file.write(json.dumps(PROBLEM))
    found = CliRunner().invoke(evalrun, ["validate", "--local", str(file)])
    first, *warnings = found.output.splitlines()
    assert (found.exit_code, first) == (0, f"{file}: EvalRun gated is valid")
    if says is None:
        assert warnings == []
    else:
        (warning,) = warnings
        assert warning.startswith(f"{file}: warning: spec.gates")
        assert says in warning


def test_judge_keeps_the_order_of_files_and_of_the_datasets_in_them(tmp_path: Path) -> None:
    def record(dataset: str) -> str:
        truth = {"inputs": [""], "outputs": ["1\n"]}
        row = {"dataset": dataset, "problem_id": "p", "prompt": "Print 1.", "ground_truth": truth}
        return json.dumps(row) + "\n"

    first, second = tmp_path / "b.jsonl", tmp_path / "a.jsonl"
    first.write_text(record("zebra") + record("otter"))
    second.write_text(record("mole") + record("ape"))
    _, places = read_problems([str(first), str(second)])
    spec = judge_spec(places, "model", "RunCode", None, None)
    assert [dataset["name"] for dataset in spec["datasets"]] == ["zebra", "otter", "mole", "ape"]
