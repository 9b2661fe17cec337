"""`hf://` sources through the published client, against a double of the hub: the hub itself is never asked."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders.governance import contest_row, json_lines, write_plan
from builders.hub import TOKEN, Hub, hub

REPO = "some-team/contests"
FILE = "data/valid-00000-of-00001.parquet"


def shard(*numbers: int) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([contest_row(number) for number in numbers]), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def prepare(
    directory: Path, source: str, asked: Hub, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    plan = write_plan(directory, [{"name": "contest", "source": source, "role": "dev"}])
    command = [
        sys.executable,
        "-m",
        "evalrun_data.governance",
        "prepare",
        str(plan),
        "--output",
        str(directory / "out"),
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment = {**kept, "HF_HOME": str(directory / "home"), **asked.environment, **(more or {})}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=150)


def test_a_parquet_file_of_the_hub_is_prepared(tmp_path: Path) -> None:
    with hub({REPO: {FILE: shard(1, 2, 3)}}) as asked:
        done = prepare(tmp_path, f"hf://datasets/{REPO}/{FILE}", asked)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/contest" / Path(FILE).name).read_bytes() == shard(1, 2, 3)
    assert len(json_lines(tmp_path / "out/data_manifests/contest.jsonl")) == 3
    assert f"GET /datasets/{REPO}/resolve/main/{FILE}" in asked.asked


def test_the_shards_of_a_split_are_found_and_prepared(tmp_path: Path) -> None:
    shards = {f"data/valid-{n:05d}-of-00002.parquet": shard(*numbers) for n, numbers in enumerate(((1, 2), (3,)))}
    with hub({REPO: {**shards, "data/train-00000-of-00001.parquet": shard(9), "README.md": b"x"}}) as asked:
        done = prepare(tmp_path, f"hf://datasets/{REPO}/data/valid", asked)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "out/contest").iterdir()} == {
        "SOURCES.json", "valid-00000-of-00002.parquet", "valid-00001-of-00002.parquet"
    }  # fmt: skip
    lines = json_lines(tmp_path / "out/data_manifests/contest.jsonl")
    assert [line["problem_id"] for line in lines] == ["p1", "p2", "p3"]
    assert {line["version"] for line in lines} == {"0" * 40}
    assert "0" * 40 in (tmp_path / "out/data_manifests/audit_report.md").read_text()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (f"hf://datasets/{REPO}/data/missing.parquet", "no such file"),
        (
            "hf://datasets/some-team/another/rows.parquet",
            "the server answered 401: there is no such file, or it needs a token (HF_TOKEN",
        ),
    ],
)
def test_source_missing_on_hub_is_bad_input(source: str, says: str, tmp_path: Path) -> None:
    with hub({REPO: {FILE: shard(1)}}) as asked:
        done = prepare(tmp_path, source, asked)
    assert done.returncode == 2
    assert done.stderr.startswith(f"evalrun: {source}: ")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_gated_dataset_needs_a_token_which_appears_in_no_output(tmp_path: Path) -> None:
    source = f"hf://datasets/{REPO}/{FILE}"
    with hub({REPO: {FILE: shard(1)}}, gated=frozenset({REPO})) as asked:
        refused = prepare(tmp_path, source, asked, {"HF_TOKEN": "hf_a_wrong_token"})
        done = prepare(tmp_path, source, asked, {"HF_TOKEN": TOKEN})
    assert refused.returncode == 2
    assert "hf_a_wrong_token" not in refused.stdout + refused.stderr
    assert done.returncode == 0, done.stderr
    assert not any(TOKEN.encode() in file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file())
