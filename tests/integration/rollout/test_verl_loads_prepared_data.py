"""A training split as `evalrun data prepare` writes it, in verl's own dataset class and under its own code reward."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders.fusion.clients import sandbox
from builders.governance import contest_row, prepared, write_plan, write_rows

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.timeout(300)
"""Importing verl takes 20 s of CPU."""

LOADS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from omegaconf import OmegaConf
from random_model import make_tokenizer
from torch.utils.data import DataLoader
from transformers import AutoTokenizer
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.utils.reward_score import default_compute_score

directory, file, answers, sandbox = sys.argv[2], sys.argv[3], json.loads(sys.argv[4]), sys.argv[5] + "/run_code"
make_tokenizer(directory, 512)
config = OmegaConf.create({"cache_dir": directory, "max_prompt_length": 2048, "filter_overlong_prompts": True})
dataset = RLHFDataset([file], AutoTokenizer.from_pretrained(directory), config)
(batch,) = DataLoader(dataset, batch_size=len(dataset), collate_fn=collate_fn)
rows = []
for place in range(len(dataset)):
    row = {name: batch[name][place] for name in ("raw_prompt", "data_source", "reward_model", "extra_info", "index")}
    truth = row["reward_model"]["ground_truth"]
    scores = [
        default_compute_score(row["data_source"], answer, truth, row["extra_info"], sandbox_fusion_url=sandbox)
        for answer in answers.get(row["extra_info"]["problem_id"], [])
    ]
    rows.append({**row, "raw_prompt": list(row["raw_prompt"]), "scores": [float(score) for score in scores]})
print("ROWS", json.dumps(rows, default=str))
"""


def loaded(python: Path, file: Path, answers: dict[str, list[str]], directory: Path) -> list[dict[str, Any]]:
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(directory / "home"), "CUDA_VISIBLE_DEVICES": ""}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "RAY_"))}
    arguments = [str(ROOT / "benchmarks"), str(directory), str(file), json.dumps(answers)]
    with sandbox() as address:
        done = subprocess.run(
            [str(python), "-c", LOADS, *arguments, address],
            env={**kept, **offline}, cwd=directory, capture_output=True, text=True, check=False, timeout=280,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("ROWS ")]
    rows: list[dict[str, Any]] = json.loads(line.removeprefix("ROWS "))
    return rows


def test_verls_dataset_class_loads_the_audited_training_split(gen_cpu: Path, tmp_path: Path) -> None:
    rows = [contest_row(number, dataset="train") for number in range(5)]
    rows[0] |= {"prompt": "Print the sum of two numbers.", "ground_truth": {"inputs": ["1 2"], "outputs": ["3"]}}
    halves = {"test_list": ["assert half(4) == 2", "assert half(9) == 4.5"], "entry_point": "half"}
    rows[1] |= {"prompt": "Write half(x).", "ground_truth": halves}
    write_rows(tmp_path / "train.jsonl", rows)
    write_rows(tmp_path / "test.jsonl", [contest_row(90, dataset="test")])
    plan = [{"name": "train", "source": "train.jsonl", "role": "train", "split": "train"}]
    plan += [{"name": "test", "source": "test.jsonl", "role": "test"}]
    assert prepared(write_plan(tmp_path, plan), tmp_path / "out").state == "passed"
    answers = {
        "p0": ["```python\nprint(sum(map(int, input().split())))\n```", "```python\nprint(4)\n```"],
        "p1": ["```python\ndef half(x):\n    return x / 2\n```", "```python\ndef half(x):\n    return x // 2\n```"],
    }
    found = loaded(gen_cpu, tmp_path / "out/train.parquet", answers, tmp_path)
    assert [row["extra_info"]["problem_id"] for row in found] == [row["problem_id"] for row in rows]
    assert [row["index"] for row in found] == list(range(5))
    assert all(row["raw_prompt"][-1]["role"] == "user" for row in found)
    assert all(str(row["prompt"]) in shown["raw_prompt"][-1]["content"] for row, shown in zip(rows, found, strict=True))
    assert {row["extra_info"]["role"] for row in found} == {"train"}
    assert json.loads(found[2]["reward_model"]["ground_truth"]) == rows[2]["ground_truth"]
    assert found[0]["scores"] == [1.0, 0.0]
    assert found[1]["scores"] == [1.0, 0.5]
