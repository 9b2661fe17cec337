"""All of phase 0: four datasets at full size, from one plan and one file, to 120 QA records and the phase's figures.

HumanEval and MBPP are the published files. CodeContests is not: its 117, 165 and 40 rows are made here, in
Parquet files with the hub's columns and names.
"""

import json
import operator
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders.command_line import evalrun, results, summary
from builders.data import data_file
from builders.generator.model_server import Reply, completion, model_server
from builders.governance import json_lines, phase0_spec, write_plan

MODEL = "Qwen/Qwen2.5-Coder-7B-Instruct"
SIZES = {"humaneval": 164, "mbpp_reg": 200, "codecontests_valid": 117, "codecontests_test": 165}
QA_RECORDS = {"humaneval": 20, "mbpp_reg": 20, "codecontests_valid": 50, "codecontests_test": 30}
SHARDS = {
    "train-00000-of-00002-e991a271dbfa9925.parquet": range(20),
    "train-00001-of-00002-bc6ef8a8f4b9e5d9.parquet": range(20, 40),
    "valid-00000-of-00001-5e672c5751f060d3.parquet": range(117),
    "test-00000-of-00001-9c49eeff30aacaa8.parquet": range(165),
}
OPERATIONS: tuple[Callable[[int, int], int], ...] = (operator.add, operator.sub, operator.mul)
SUM = "```python\na, b = map(int, input().split())\nprint(a + b)\n```"


@pytest.fixture
def endpoint() -> Iterator[str]:
    """An OpenAI-compatible server that answers every problem with a sum: right for a third of the contest problems."""
    with model_server(completion(SUM), Reply(body={"object": "list", "data": [{"id": MODEL}]})) as server:
        yield f"{server.url}/v1"


def contest(split: str, number: int) -> dict[str, object]:
    """A row as the hub has it. Its statement shares no run of words with another's."""
    chance = random.Random(f"{split}{number}")
    words = " ".join("".join(chance.choices("bcdfglmnprstaeiou", k=7)) for _ in range(60))
    operation = OPERATIONS[number % 3]
    pairs = [(chance.randint(2, 99), chance.randint(2, 99)) for _ in range(3)]
    inputs, outputs = [f"{a} {b}\n" for a, b in pairs], [f"{operation(a, b)}\n" for a, b in pairs]
    return {
        "name": f"{number}_{split}", "description": words, "source": 2, "difficulty": 7 + number % 4,
        "public_tests": {"input": inputs[:1], "output": outputs[:1]},
        "private_tests": {"input": inputs[1:2], "output": outputs[1:2]},
        "generated_tests": {"input": inputs[2:], "output": outputs[2:]},
        "cf_tags": ["math", f"topic-{number % 5}"],
    }  # fmt: skip


def sources(directory: Path) -> Path:
    """Write what the plan names, and the plan."""
    for name, numbers in SHARDS.items():
        split = name.partition("-")[0]
        shard = directory / "code_contests" / split / name
        shard.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist([contest(split, number) for number in numbers]), shard)
    for name in ("humaneval/HumanEval.jsonl.gz", "mbpp/mbpp.jsonl.gz"):
        shutil.copy(data_file(name), directory)
    contests = [
        {"name": f"codecontests_{split}", "source": f"code_contests/{split}"} for split in ("train", "valid", "test")
    ]
    files = [{"name": "humaneval", "source": "HumanEval.jsonl.gz"}, {"name": "mbpp_reg", "source": "mbpp.jsonl.gz"}]
    return write_plan(directory, [*contests, *files])


def phase0_file(data: Path) -> Path:
    """Write phase 0's sample with its datasets as they stand; the volume is a directory, and a server answers."""
    sample = phase0_spec()
    spec = {
        **{field: sample[field] for field in ("model", "protocol", "cost")},
        "datasets": json.loads(json.dumps(sample["datasets"]).replace("pvc://eval-data/", "")),
        "endpoints": [{"url": "http://127.0.0.1:9/v1", "model": MODEL}],
    }
    run = {"apiVersion": "evalrun.dev/v1alpha1", "kind": "EvalRun", "metadata": {"name": "phase0"}, "spec": spec}
    (data / "phase0.yaml").write_text(json.dumps(run))
    return data / "phase0.yaml"


def test_phase_0_at_full_size_gives_its_figures_and_120_qa_records(tmp_path: Path, endpoint: str) -> None:
    data, out = tmp_path / "eval-data", tmp_path / "out"
    prepared = evalrun("data", "prepare", sources(tmp_path), "--output", data)
    assert prepared.returncode == 0, prepared.stderr
    report = (data / "data_manifests" / "audit_report.md").read_text()
    assert report.count("| passed |") >= 10  # every pair of datasets, and every dataset
    done = evalrun("run", phase0_file(data), "--local", "--endpoint", endpoint, "--output", out)
    assert done.returncode == 0, done.stdout + done.stderr
    datasets = summary(out)["datasets"]
    assert {name: found["counts"]["problems"] for name, found in datasets.items()} == SIZES
    assert {name: found["counts"]["not_judged"] for name, found in datasets.items()} == dict.fromkeys(SIZES, 0)
    accepted = {name: found["counts"]["accepted"] for name, found in datasets.items()}
    assert accepted == {"humaneval": 0, "mbpp_reg": 0, "codecontests_valid": 39, "codecontests_test": 55}
    assert {name: len(json_lines(out / "qa_logs" / f"{name}_qa.jsonl")) for name in QA_RECORDS} == QA_RECORDS
    assert sum(QA_RECORDS.values()) == 120
    assert list(datasets["codecontests_valid"]["by_difficulty"]) == ["A", "B", "C", "D"]
    assert datasets["codecontests_valid"]["by_tag"]["math"]["problems"] == 117
    tagged = Counter(row["dataset"] for row in results(out) if "math" in row["tags"])
    assert tagged == {"codecontests_valid": 117, "codecontests_test": 165}
    assert datasets["codecontests_valid"]["counts"]["tests"]["success"] >= 3 * 39
    warned = " ".join(summary(out)["warnings"])
    assert "88.4% is published" in warned  # the server is no such model, and the run says so
    assert "look at the chat template" in warned
