"""Test data in a gate: refused when the data is read, unless the gate names it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from builders.governance import contest_row, write_rows
from builders.operator.evalruns import evalrun_manifest

from evalrun_aggregator.start.datasets import load_datasets
from evalrun_aggregator.start.responses import read_responses
from evalrun_api.run_config import EvalRunSpec, RunConfig
from evalrun_runtime.exits import BadInputError


def spec_of(directory: Path, record_role: str | None, gate: dict[str, object], **dataset: object) -> EvalRunSpec:
    more: dict[str, Any] = {} if record_role is None else {"role": record_role}
    write_rows(directory / "rows.jsonl", [contest_row(n, dataset="contest", **more) for n in range(3)])
    manifest = evalrun_manifest(
        {
            "spec.datasets": [{"name": "contest", "source": str(directory / "rows.jsonl"), **dataset}],
            "spec.gates": [{"baseline": "s3://runs/before", "dataset": "contest", **gate}],
        }
    )
    return EvalRunSpec.model_validate(manifest["spec"])


def test_a_gate_on_records_of_role_test_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"spec.gates: 'contest' is test data.*allowTestRole: \[contest\]"):
        load_datasets(spec_of(tmp_path, "test", {}), tmp_path, {})


@pytest.mark.parametrize(
    ("record_role", "gate", "dataset"),
    [("dev", {}, {}), (None, {}, {}), ("test", {"allowTestRole": ["contest"]}, {}), ("test", {}, {"role": "dev"})],
)
def test_dev_data_and_named_test_data_may_be_gated(
    record_role: str | None, gate: dict[str, object], dataset: dict[str, object], tmp_path: Path
) -> None:
    (loaded,) = load_datasets(spec_of(tmp_path, record_role, gate, **dataset), tmp_path, {})
    assert len(loaded.problems) == 3


def test_only_the_problems_that_are_used_are_held_and_all_are_audited(tmp_path: Path) -> None:
    (loaded,) = load_datasets(spec_of(tmp_path, "dev", {}, maxProblems=2), tmp_path, {})
    assert [problem.problem_id for problem in loaded.problems] == ["p0", "p1"]


@pytest.mark.parametrize(
    ("dataset", "kept"),
    [
        ({"excludeProblems": ["p1"]}, ["p0", "p2"]),
        ({"excludeProblems": ["p0"], "maxProblems": 1}, ["p1"]),
        ({"excludeProblems": ["p2"], "maxProblems": 1}, ["p0"]),
    ],
)
def test_excluded_problems_are_left_out_before_they_are_counted(
    dataset: dict[str, object], kept: list[str], tmp_path: Path
) -> None:
    (loaded,) = load_datasets(spec_of(tmp_path, "dev", {}, **dataset), tmp_path, {})
    assert [problem.problem_id for problem in loaded.problems] == kept


@pytest.mark.parametrize(
    ("excluded", "says"),
    [
        (["p7", "p1"], r"spec.datasets\[0\].excludeProblems: .*rows.jsonl has no problem 'p7': correct the id"),
        (["p0", "p1", "p2"], r"spec.datasets\[0\].excludeProblems: all problems of contest are excluded"),
    ],
)
def test_exclusion_of_unknown_or_of_all_problems_is_refused(excluded: list[str], says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=says):
        load_datasets(spec_of(tmp_path, "dev", {}, excludeProblems=excluded), tmp_path, {})


def test_answers_to_excluded_problems_are_ignored(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "dev", {}, excludeProblems=["p1"])
    answers = [{"problem_id": f"p{n}", "response": "print(1)"} for n in range(2)]
    datasets = load_datasets(spec, tmp_path, {})

    def order(rows: list[dict[str, str]]) -> RunConfig:
        file = write_rows(tmp_path / "answers.jsonl", rows)
        return RunConfig(run="r", created=datetime.now(UTC), spec=spec, responses=[str(file)], output_dir=str(tmp_path))

    problems, given = read_responses(order(answers), datasets)
    assert [problems.items.get_key(index).problem_id for index in range(2)] == ["p0", "p2"]
    assert [completion.text for completion in given.completions] == ["print(1)"]
    with pytest.raises(BadInputError, match=r"no answer but to excluded problems in .*answers\.jsonl"):
        read_responses(order(answers[1:]), datasets)
    with pytest.raises(BadInputError, match="unknown problem 'p9'"):
        read_responses(order([{"problem_id": "p9", "response": ""}]), datasets)


def test_record_digest_ignores_the_role(tmp_path: Path) -> None:
    (plain,) = load_datasets(spec_of(tmp_path, None, {}), tmp_path, {})
    (labelled,) = load_datasets(spec_of(tmp_path, "dev", {}), tmp_path, {})
    assert plain.records_sha256 == labelled.records_sha256
