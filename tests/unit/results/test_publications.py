"""What a run tells the public, read by the packages of those who collect it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders.results.stored_runs import samples_of, verdicts_of, write_run
from huggingface_hub import parse_eval_result_entries
from yaml import safe_load

from evalrun_results.publications.every_eval_ever import Evaluator, eee_file
from evalrun_results.publications.figures import UnpublishableError, read_publication
from evalrun_results.publications.hub_results import HubTask, hub_files, model_card_table
from evalrun_results.samples import SampleResult
from evalrun_results.stored_run import StoredRun

TASK = {"humaneval": HubTask("openai/openai_humaneval", "openai_humaneval")}
EVALUATOR = Evaluator("an evaluator", "third_party")


def stored(directory: Path, results: list[SampleResult], **changed: Any) -> StoredRun:
    protocol = {"temperature": "0.0", "topP": "1.0", "samples": 1, "maxNewTokens": 512, "seed": 0, "name": "EVAL@1"}
    spec = {"model": {"path": "org/model"}, "protocol": protocol} | changed.pop("spec", {})
    info: dict[str, Any] = {
        "run": "r",
        "spec": spec,
        "versions": {"evalrun": "0.1.0"},
        "ended_at": "2026-11-28T10:00:00+00:00",
        "containment_levels": ["full"],
        "datasets": {"humaneval": {"records_sha256": "ab"}},
        "replicas": [{"engine": {"engine": "vllm", "engine_version": "0.24.0"}}],
    }
    write_run(directory, results, **info | changed)
    return StoredRun.open(str(directory))


def test_hub_reads_the_value_and_how_it_was_measured(tmp_path: Path) -> None:
    publication = read_publication(stored(tmp_path, verdicts_of([True, False, True, True])))
    ((path, content),) = hub_files(publication, TASK).items()
    assert path == ".eval_results/humaneval.yaml"
    (entry,) = parse_eval_result_entries(safe_load(content))
    assert (entry.dataset_id, entry.task_id, entry.value) == ("openai/openai_humaneval", "openai_humaneval", 75.0)
    assert entry.date == "2026-11-28T10:00:00+00:00"
    assert entry.notes is not None
    assert entry.notes.startswith("pass@1, 95 % interval 30.06 to 95.44, 4 problems, greedy, 1 sample per problem")
    assert "| humaneval | pass@1 | 75.00 % | 30.06 to 95.44 | 4 |" in model_card_table(publication)


def test_each_k_has_one_result_with_pass_at_1_first(tmp_path: Path) -> None:
    run = stored(tmp_path, samples_of([(4, 1), (4, 4), (4, 0)]))
    publication = read_publication(run)
    ks = [figure.k for figure in publication.figures]
    assert len(ks) == len(set(ks))
    assert ks[0] == 1


def test_answers_made_elsewhere_are_marked_in_both_publications(tmp_path: Path) -> None:
    publication = read_publication(stored(tmp_path, verdicts_of([True]), spec={"protocol": None}))
    assert "answers made elsewhere" in hub_files(publication, TASK)[".eval_results/humaneval.yaml"]
    (result,) = json.loads(eee_file(publication, "org/model", EVALUATOR)[1])["evaluation_results"]
    assert result["generation_config"] == {"additional_details": {"answers": "made elsewhere"}}


def test_record_of_every_eval_ever_says_who_measured_what(tmp_path: Path) -> None:
    publication = read_publication(stored(tmp_path, verdicts_of([True, False, True, True])))
    path, content = eee_file(publication, "org/model", EVALUATOR)
    assert path.startswith("data/humaneval/org/model/")
    assert eee_file(publication, "org/model", EVALUATOR) == (path, content)
    record = json.loads(content)
    (result,) = record["evaluation_results"]
    assert result["score_details"]["score"] == 0.75
    assert result["metric_config"]["metric_parameters"] == {"k": 1}
    assert result["source_data"]["additional_details"] == {"records_sha256": "ab"}
    assert record["model_info"]["inference_engine"] == {"name": "vllm", "version": "0.24.0"}


def test_validator_of_every_eval_ever_accepts_the_record(tmp_path: Path) -> None:
    package = os.environ.get("EVALRUN_TEST_EVERY_EVAL_EVER")
    if package is None:
        pytest.skip("no Every Eval Ever: make test-peers installs it")
    for name, results in {"one": verdicts_of([True, False]), "several": samples_of([(4, 1), (4, 4)])}.items():
        path, content = eee_file(read_publication(stored(tmp_path / name, results)), "org/model", EVALUATOR)
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        command = [sys.executable, "-m", "every_eval_ever", "validate", str(file), "--format", "json"]
        environment = {**os.environ, "PYTHONPATH": package}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        file.write_text(content.replace('"lower_is_better"', '"lower"'))
        assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode != 0
        file.unlink()


@pytest.mark.parametrize(
    ("accepted", "changed", "said"),
    [
        ([True, None], {}, r"humaneval: 1 answers were not judged, so its figures are ranges|the run is Degraded"),
        ([True], {"partial": "checkpoint"}, "publish one that has succeeded"),
        ([True], {"spec": {"rollout": {"loadFormat": "dummy"}}}, "the weights are random"),
    ],
)
def test_misleading_run_is_refused(
    accepted: list[bool | None], changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UnpublishableError, match=said):
        read_publication(stored(tmp_path, verdicts_of(accepted), **changed))


def test_dataset_without_a_task_of_the_hub_is_named(tmp_path: Path) -> None:
    publication = read_publication(stored(tmp_path, verdicts_of([True])))
    with pytest.raises(UnpublishableError, match="humaneval: which benchmark of the hub is it"):
        hub_files(publication, {})
    with pytest.raises(UnpublishableError, match="--hub-dataset mbpp: the run has humaneval"):
        hub_files(publication, {**TASK, "mbpp": HubTask("a/b", "c")})
