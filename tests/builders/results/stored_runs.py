"""Writes runs as `evalrun` leaves them: what comparisons, gates and reports are tested with."""

import gzip
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from builders.results.samples import sample_result, with_changes

from evalrun_api.v1alpha1 import Gate
from evalrun_results.comparisons.comparison import RunFacts
from evalrun_results.metrics.accumulator import MetricOptions, MetricsAccumulator
from evalrun_results.metrics.problem_totals import DatasetTotals
from evalrun_results.outputs.qa_logs import QaOptions
from evalrun_results.outputs.writer import OutputPlan, write_outputs
from evalrun_results.samples import SampleResult

RECORDED = Path(os.environ.get("EVALRUN_TEST_DATA", "../shared/data")) / "completions"

QWEN = "humaneval_ollama-qwen2.5-coder_7b.jsonl.gz"
GPT_4 = "humaneval_gpt-4_simple_a.jsonl.gz"
CODELLAMA = "humaneval_ollama-codellama_7b.jsonl.gz"


def verdicts_of(accepted: Iterable[bool | None], *, dataset: str = "humaneval") -> list[SampleResult]:
    """Make one sample a problem: accepted, rejected, or (None) not judged."""
    statuses = {True: ["success"], False: ["wrong_answer"], None: None}
    return [sample_result(place, 0, statuses[each], dataset=dataset) for place, each in enumerate(accepted)]


def samples_of(counts: Iterable[tuple[int, int]], *, dataset: str = "humaneval") -> list[SampleResult]:
    """Make n samples a problem, of which c are accepted, from (n, c)."""
    return [
        sample_result(place, sample, ["success"] if sample < accepted else ["wrong_answer"], dataset=dataset)
        for place, (samples, accepted) in enumerate(counts)
        for sample in range(samples)
    ]


def totals_of(results: Iterable[SampleResult]) -> Mapping[str, DatasetTotals]:
    accumulator = MetricsAccumulator()
    for result in results:
        accumulator.add(result)
    return accumulator.datasets


def facts_of(results: Iterable[SampleResult], *, place: str = "run", **run_info: object) -> RunFacts:
    """Make what a comparison needs of a run, with the summary that its outputs would have."""
    accumulator = MetricsAccumulator()
    for result in results:
        accumulator.add(result)
    metrics = accumulator.finish(MetricOptions())
    summary = {"state": "Succeeded", "datasets": {name: each.summary() for name, each in metrics.items()}}
    return RunFacts(place, summary, run_info, accumulator.datasets)


def a_gate(**fields: object) -> Gate:
    """Make a gate on humaneval's pass@1; a field that is None is left out."""
    written = {"baseline": "outputs/main", "dataset": "humaneval"} | fields
    return Gate.model_validate({name: value for name, value in written.items() if value is not None})


def write_run(directory: Path | str, results: Iterable[SampleResult], **run_info: object) -> Path:
    write_outputs(results, str(directory), OutputPlan(run_info, MetricOptions(), QaOptions(0.0, 2048)))
    return Path(directory)


def recorded_verdicts(file: str) -> list[SampleResult]:
    """Return a recorded model's HumanEval answers with the verdicts recorded with them; skips where they are absent."""
    path = RECORDED / file
    if not path.exists():
        pytest.skip(f"no recorded completions: {path} (set EVALRUN_TEST_DATA)")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        with_changes(
            sample_result(str(row["task_id"]), 0, ["success"] if row["recorded"] else ["wrong_answer"]),
            response=row["completion"],
            mode=row["mode"],
        )
        for row in rows
    ]
