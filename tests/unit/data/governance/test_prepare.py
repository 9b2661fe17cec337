"""What a preparation writes, and that it goes on after it was stopped."""

import gzip
import hashlib
import json
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders.governance import contest_row, json_lines, no_report, prepared, tree, write_plan, write_rows

from evalrun_data.governance.manifest import mismatches, read_manifest
from evalrun_data.governance.prepare import PrepareProgress
from evalrun_data.readers import load_problems
from evalrun_runtime.exits import BadInputError

HUMANEVAL_ROW = {
    "task_id": "HumanEval/0",
    "prompt": 'def double(x):\n    """Twice x."""\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}
MBPP_ROWS = [
    {"task_id": 10, "text": "Not ours.", "code": "def f(): return 1", "test_list": ["assert f() == 1"]},
    {"task_id": 11, "text": "Write a half.", "code": "def half(x): return x / 2", "test_list": ["assert half(4) == 2"]},
]


def phase0_folder(directory: Path) -> Path:
    with gzip.open(directory / "HumanEval.jsonl.gz", "wt") as stream:
        stream.write(json.dumps(HUMANEVAL_ROW) + "\n")
    write_rows(directory / "mbpp.jsonl", MBPP_ROWS)
    write_rows(directory / "valid.jsonl", [contest_row(n, dataset="codecontests_valid") for n in range(4)])
    write_rows(directory / "test.jsonl", [contest_row(n, dataset="codecontests_test") for n in range(10, 13)])
    write_rows(directory / "train.jsonl", [contest_row(n, dataset="codecontests_train") for n in range(20, 26)])
    names = ("humaneval", "mbpp_reg", "codecontests_valid", "codecontests_test", "codecontests_train")
    files = ("HumanEval.jsonl.gz", "mbpp.jsonl", "valid.jsonl", "test.jsonl", "train.jsonl")
    return write_plan(directory, [{"name": name, "source": file} for name, file in zip(names, files, strict=True)])


def test_the_files_that_the_phase_0_sample_mounts_are_there_and_read(tmp_path: Path) -> None:
    output = tmp_path / "eval-data"
    result = prepared(phase0_folder(tmp_path), output)
    assert result.state == "passed"
    sources = {
        "humaneval": "humaneval/HumanEval.jsonl.gz",
        "mbpp_reg": "mbpp_reg.parquet",
        "codecontests_valid": "codecontests_valid.parquet",
        "codecontests_test": "codecontests_test.parquet",
    }
    for name, source in sources.items():
        problems = load_problems(str(output / source), name)
        manifest = read_manifest(str(output / f"data_manifests/{name}.jsonl"))
        assert mismatches(manifest, problems, name) == []
        assert manifest.sha256 == next(d.manifest_sha256 for d in result.datasets if d.dataset.name == name)
    assert not (output / ".preparing").exists()


def test_a_manifest_line_has_the_published_fields(tmp_path: Path) -> None:
    prepared(phase0_folder(tmp_path), tmp_path / "out")
    line = json_lines(tmp_path / "out/data_manifests/mbpp_reg.jsonl")[0]
    assert line == {
        "dataset": "mbpp_reg",
        "split": "test",
        "problem_id": "MBPP/11",
        "prompt_sha256": hashlib.sha256(b"Write a half.").hexdigest(),
        "prompt_length": 13,
        "num_test_cases": 1,
        "version": "",
        "source_url": "https://huggingface.co/datasets/google-research-datasets/mbpp",
        "role": "dev",
        "licence": "CC-BY-4.0",
    }


def test_licence_of_a_row_is_in_its_manifest_and_counted_by_the_audit(tmp_path: Path) -> None:
    rows = [contest_row(1, licence="CC0-1.0"), contest_row(2, license="CC0-1.0", tags=["graphs"]), contest_row(3)]
    write_rows(tmp_path / "own.jsonl", rows)
    plan = write_plan(tmp_path, [{"name": "contest", "source": "own.jsonl", "role": "dev", "licence": "MIT"}])
    prepared(plan, tmp_path / "out")
    manifests = tmp_path / "out/data_manifests"
    assert [line["licence"] for line in json_lines(manifests / "contest.jsonl")] == ["CC0-1.0", "CC0-1.0", "MIT"]
    audit = json.loads((manifests / "audit.json").read_text())
    assert audit["datasets"]["contest"]["licences"] == {"CC0-1.0": 2, "MIT": 1}
    assert "CC0-1.0 (2), MIT (1)" in (manifests / "audit_report.md").read_text()
    problems = load_problems(str(tmp_path / "out/contest.parquet"))
    assert [(problem.licence, problem.tags) for problem in problems] == [
        ("CC0-1.0", ()),
        ("CC0-1.0", ("graphs",)),
        ("", ()),
    ]


def test_raw_copies_are_the_sources_byte_for_byte_with_digest_and_licence(tmp_path: Path) -> None:
    prepared(phase0_folder(tmp_path), tmp_path / "out")
    raw = tmp_path / "out/humaneval/HumanEval.jsonl.gz"
    assert raw.read_bytes() == (tmp_path / "HumanEval.jsonl.gz").read_bytes()
    note = json.loads((tmp_path / "out/humaneval/SOURCES.json").read_text())
    assert note["licence"] == "MIT"
    assert note["sources"][0]["sha256"] == hashlib.sha256(raw.read_bytes()).hexdigest()


def test_duplicates_inside_a_split_are_taken_out_and_kept_apart(tmp_path: Path) -> None:
    rows = [contest_row(1), contest_row(2), contest_row(3)]
    rows[2] |= {"prompt": f"  {str(rows[0]['prompt']).replace(' ', '   ')}\r\n"}
    write_rows(tmp_path / "rows.jsonl", rows)
    plan = write_plan(tmp_path, [{"name": "contest", "source": "rows.jsonl", "role": "dev", "split": "valid"}])
    result = prepared(plan, tmp_path / "out")
    assert [line["problem_id"] for line in json_lines(tmp_path / "out/data_manifests/contest.jsonl")] == ["p1", "p2"]
    (removed,) = json_lines(tmp_path / "out/data_manifests/duplicates_valid.jsonl")
    assert (removed["problem_id"], removed["duplicate_of"]) == ("p3", "p1")
    assert (result.datasets[0].dataset.kept, result.datasets[0].dataset.removed) == (2, 1)


def test_a_training_split_is_written_in_verls_layout_and_reads_back_the_same(tmp_path: Path) -> None:
    prepared(phase0_folder(tmp_path), tmp_path / "out")
    file = tmp_path / "out/codecontests_train.parquet"
    row = pq.read_table(file).to_pylist()[0]
    assert row["data_source"] == "codecontests"
    assert row["prompt"][0]["role"] == "user"
    assert row["reward_model"]["style"] == "rule"
    assert json.loads(row["reward_model"]["ground_truth"]) == contest_row(20)["ground_truth"]
    assert row["extra_info"]["index"] == 0
    original = load_problems(str(tmp_path / "train.jsonl"), "codecontests_train")
    read = load_problems(str(file), "codecontests_train")
    assert [(p.problem_id, p.prompt, p.ground_truth) for p in read] == [
        (p.problem_id, p.prompt, p.ground_truth) for p in original
    ]
    assert {p.role for p in read} == {"train"}


def test_verl_parquet_of_others_can_be_prepared(tmp_path: Path) -> None:
    row = {
        "data_source": "codecontests",
        "prompt": [{"role": "user", "content": "Print the sum."}],
        "reward_model": {"style": "rule", "ground_truth": json.dumps({"inputs": ["1 2"], "outputs": ["3"]})},
        "extra_info": {"index": 7, "split": "test"},
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "verl.parquet")
    plan = write_plan(tmp_path, [{"name": "team", "source": "verl.parquet", "role": "dev"}])
    prepared(plan, tmp_path / "out")
    (problem,) = load_problems(str(tmp_path / "out/team.parquet"), "team")
    assert (problem.problem_id, problem.prompt, problem.role) == ("7", "Print the sum.", "dev")


def test_any_fsspec_url_is_a_source(tmp_path: Path) -> None:
    with fsspec.open("memory://governance/rows.jsonl", "wb") as stream:
        stream.write(json.dumps(contest_row(1)).encode())
    plan = write_plan(tmp_path, [{"name": "contest", "source": "memory://governance/rows.jsonl", "role": "dev"}])
    prepared(plan, tmp_path / "out")
    assert (tmp_path / "out/contest/rows.jsonl").read_bytes() == json.dumps(contest_row(1)).encode()


class StoppedError(Exception):
    """The process ends here."""


def many_rows_plan(directory: Path) -> Path:
    write_rows(directory / "many.jsonl", (contest_row(n, 1) for n in range(4500)))
    return write_plan(directory, [{"name": "contest", "source": "many.jsonl", "role": "dev"}])


@pytest.mark.timeout(300)
def test_stopped_preparation_resumes_and_gives_the_same_files(tmp_path: Path) -> None:
    plan = many_rows_plan(tmp_path)

    def stop(progress: PrepareProgress) -> None:
        if progress.step == "reading" and progress.done == 3000:
            raise StoppedError

    with pytest.raises(StoppedError):
        prepared(plan, tmp_path / "stopped", stop)
    assert not (tmp_path / "stopped/contest.parquet").exists()
    read: list[int] = []
    prepared(plan, tmp_path / "stopped", lambda progress: read.append(progress.done))
    assert read[0] == 2001, "the first part of 2,000 problems was committed"
    prepared(plan, tmp_path / "whole")
    assert tree(tmp_path / "stopped") == tree(tmp_path / "whole")


def test_second_preparation_only_audits(tmp_path: Path) -> None:
    plan = phase0_folder(tmp_path)
    prepared(plan, tmp_path / "out")
    before = tree(tmp_path / "out")

    def never(progress: PrepareProgress) -> None:
        raise AssertionError(progress)

    prepared(plan, tmp_path / "out", never)
    assert tree(tmp_path / "out") == before


def test_another_plan_never_writes_over_a_prepared_directory(tmp_path: Path) -> None:
    prepared(phase0_folder(tmp_path), tmp_path / "out")
    write_rows(tmp_path / "rows.jsonl", [contest_row(1)])
    other = write_plan(tmp_path, [{"name": "contest", "source": "rows.jsonl", "role": "dev"}])
    with pytest.raises(BadInputError, match="holds other datasets already: prepare these into another directory"):
        prepared(other, tmp_path / "out", no_report)


def test_existing_files_of_the_user_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/humaneval.parquet").write_text("mine")
    with pytest.raises(BadInputError, match=r"humaneval.parquet: is there already: prepare into an empty directory"):
        prepared(phase0_folder(tmp_path), tmp_path / "out")
    assert (tmp_path / "out/humaneval.parquet").read_text() == "mine"
