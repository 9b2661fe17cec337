"""The files that a run's datasets name are opened once each, whatever is read from them."""

from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pyarrow
import pyarrow.parquet
import pytest
from builders.governance import contest_row, prepared, write_plan, write_rows
from builders.operator.evalruns import evalrun_manifest
from fsspec.implementations.memory import MemoryFileSystem

from evalrun_aggregator.start.datasets import load_datasets
from evalrun_api.run_config import EvalRunSpec


# fsspec has no types.
class CountingStore(MemoryFileSystem):  # type: ignore[misc]
    """A store in memory that counts how often each of its files is opened for reading."""

    protocol = "counting"
    opens: ClassVar[Counter[str]] = Counter()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("counting:/")))

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode == "rb":
            self.opens[path.rpartition("/")[2]] += 1
        return super()._open(path, mode, **options)

    def stored(self, directory: Path, name: str) -> str:
        for file in directory.rglob("*"):
            if file.is_file():
                self.pipe_file(f"/{name}/{file.relative_to(directory)}", file.read_bytes())
        self.opens.clear()
        return f"counting://{name}"


@pytest.fixture
def store() -> CountingStore:
    fsspec.register_implementation("counting", CountingStore, clobber=True)
    found: CountingStore = fsspec.filesystem("counting")
    return found


def spec_of(**dataset: object) -> EvalRunSpec:
    manifest = evalrun_manifest({"spec.datasets": [dataset], "spec.gates": None})
    return EvalRunSpec.model_validate({key: value for key, value in manifest["spec"].items() if value is not None})


def test_load_datasets_audited_source_opens_each_file_once(store: CountingStore, tmp_path: Path) -> None:
    write_rows(tmp_path / "contest.jsonl", [contest_row(n) for n in range(3)])
    plan = write_plan(tmp_path, [{"name": "contest", "source": "contest.jsonl", "role": "dev"}])
    prepared(plan, tmp_path / "data")
    (tmp_path / "data/prompt.txt").write_text("Solve: {prompt}")
    (tmp_path / "data/grader.py").write_text("def compute_score(solution_str, **_):\n    return 1.0\n")
    url = store.stored(tmp_path / "data", "audited")
    spec = spec_of(
        name="contest",
        source=f"{url}/contest.parquet",
        manifest=f"{url}/data_manifests/contest.jsonl",
        promptTemplate=f"{url}/prompt.txt",
        grader={"path": f"{url}/grader.py"},
    )
    (loaded,) = load_datasets(spec, tmp_path, {})
    assert loaded.audit is not None
    assert (loaded.audit.state, len(loaded.audit.files), len(loaded.problems)) == ("passed", 3, 3)
    files = ["audit.json", "audit_report.md", "contest.jsonl", "contest.parquet", "grader.py", "prompt.txt"]
    assert store.opens == dict.fromkeys(files, 1)


@pytest.mark.parametrize(("name", "expected"), [("mine", 4), ("apps", 2)])
def test_load_datasets_verl_shards_opens_each_shard_once(
    store: CountingStore, tmp_path: Path, name: str, expected: int
) -> None:
    """The rows' data sources tell whether they name the dataset: every shard is read twice."""
    truth = {"inputs": ["1\n"], "outputs": ["1"]}
    for shard in range(2):
        rows = [
            {
                "data_source": source,
                "prompt": [{"role": "user", "content": f"{source} {shard}"}],
                "reward_model": {"style": "rule", "ground_truth": truth},
                "extra_info": {"index": f"{source} {shard}"},
            }
            for source in ("codecontests", "apps")
        ]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / f"test-{shard:05d}-of-00002.parquet")
    url = store.stored(tmp_path, f"verl-{name}")
    (loaded,) = load_datasets(spec_of(name=name, source=f"{url}/test"), tmp_path, {})
    assert len(loaded.problems) == expected
    assert store.opens == {f"test-{shard:05d}-of-00002.parquet": 1 for shard in range(2)}
