"""Plans, sources and prepared directories for tests of data governance."""

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from evalrun_data.governance.audit_result import AuditResult
from evalrun_data.governance.plan import read_plan
from evalrun_data.governance.prepare import Preparation, PrepareProgress, Report

WORDS = (
    "alder",
    "birch",
    "cedar",
    "elm",
    "fir",
    "gum",
    "hazel",
    "ivy",
    "kapok",
    "larch",
    "maple",
    "oak",
    "pine",
    "rowan",
)


PHASE0 = Path(__file__).parents[2] / "k8s" / "samples" / "evalrun-phase0.yaml"
PHASE0_DATASETS = ("humaneval", "mbpp_reg", "codecontests_valid", "codecontests_test")
HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": "def f():\n",
    "entry_point": "f",
    "test": "def check(c):\n  assert c()",
}
MBPP = {"task_id": 11, "text": "Half a number.", "code": "def h(x): return x / 2", "test_list": ["assert h(4) == 2"]}


def phase0_spec() -> dict[str, Any]:
    """The spec of phase 0's sample, as it stands."""
    spec: dict[str, Any] = yaml.safe_load(PHASE0.read_text(encoding="utf-8"))["spec"]
    return spec


def phase0_sources(directory: Path, leaked: Mapping[str, object] | None = None) -> dict[str, Path]:
    """Write stand-ins for the sources of phase 0's datasets and its training split: six problems to evaluate.

    Args:
        directory: where.
        leaked: a further row of the training split.
    """
    (directory / "HumanEval.jsonl.gz").write_bytes(gzip.compress(json.dumps(HUMANEVAL).encode()))
    train = [contest_row(number, dataset="codecontests_train") for number in (20, 21)]
    return {
        "humaneval": directory / "HumanEval.jsonl.gz",
        "mbpp_reg": write_rows(directory / "mbpp.jsonl", [MBPP]),
        "codecontests_valid": write_rows(
            directory / "valid.jsonl", [contest_row(number, dataset="codecontests_valid") for number in range(2)]
        ),
        "codecontests_test": write_rows(
            directory / "test.jsonl", [contest_row(number, dataset="codecontests_test") for number in (7, 8)]
        ),
        "codecontests_train": write_rows(directory / "train.jsonl", [*train, leaked] if leaked else train),
    }


def leaked_row() -> dict[str, object]:
    """A row of the training split with the prompt of a problem of codecontests_valid."""
    return {**contest_row(30, dataset="codecontests_train"), "prompt": contest_row(0)["prompt"]}


def contest_row(number: int, tests: int = 2, *, dataset: str = "contest", **fields: object) -> dict[str, object]:
    """A record whose statement shares no run of words with that of another number."""
    names = [WORDS[(number * 7 + step * (number % 5 + 1)) % len(WORDS)] for step in range(12)]
    prompt = " ".join(f"{name}{number * 31 + step}" for step, name in enumerate(names))
    inputs = [f"{number} {index}\n" for index in range(tests)]
    truth = {"inputs": inputs, "outputs": [str(number) for _ in inputs]}
    return {"dataset": dataset, "problem_id": f"p{number}", "prompt": prompt, "ground_truth": truth, **fields}


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_plan(directory: Path, datasets: Sequence[Mapping[str, object]], **top: object) -> Path:
    """Write a plan; JSON is YAML."""
    path = directory / "plan.yaml"
    path.write_text(json.dumps({"datasets": datasets, **top}), encoding="utf-8")
    return path


def no_report(progress: PrepareProgress) -> None:
    """Tell nobody how far the preparation is."""


def no_server(source: str, target: Path) -> None:
    """Stand for a SandboxFusion server that no plan of the test names."""
    raise AssertionError(f"nobody asked for {source} ({target})")


def prepared(plan: Path, output: Path, report: Report = no_report) -> AuditResult:
    return Preparation(read_plan(plan), output, report, no_server).run()


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(directory)): file.read_bytes() for file in sorted(directory.rglob("*")) if file.is_file()
    }


def json_lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
