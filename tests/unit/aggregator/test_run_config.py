"""The run configuration, and what a ledger is taken up for."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders.aggregator.process import write_run_config

from evalrun_aggregator.run_end import DecidedGate, Interval, RunEnd
from evalrun_aggregator.start.facts import end_facts, read_run_end
from evalrun_api.run_config import read_run_config
from evalrun_runtime.exits import BadInputError


def test_run_config_holds_the_spec_in_the_form_of_the_crd(tmp_path: Path) -> None:
    order = read_run_config(write_run_config(tmp_path, protocol={"maxNewTokens": 9}))
    assert (order.run, order.spec.protocol.max_new_tokens, order.spec.datasets[0].name) == ("test-run", 9, "first")
    assert order.created.utcoffset() is not None


def test_run_config_in_yaml_reads_like_json(tmp_path: Path) -> None:
    content = json.loads(write_run_config(tmp_path).read_text())
    lines = [f"{name}: {json.dumps(value)}" for name, value in content.items()]
    (tmp_path / "order.yaml").write_text("\n".join(lines))
    assert read_run_config(tmp_path / "order.yaml") == read_run_config(tmp_path / "work_order.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "schema 2 is of a newer evalrun"),
        ({"created": "2026-01-02T03:04:05"}, "created: Input should have timezone info"),
        ({"surprise": 1}, "surprise: Extra inputs are not permitted"),
        ({"protocol": {"samples": 0}}, "spec.protocol.samples: Input should be greater"),
        ({"run": ""}, "run: String should have at least 1"),
    ],
)
def test_unusable_run_config_names_the_field(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = write_run_config(tmp_path, **change)
    with pytest.raises(BadInputError, match=r"run configuration .*work_order\.json: ") as error:
        read_run_config(path)
    assert message in str(error.value)


@pytest.mark.parametrize("text", ["[1]", "{", "a: b: c"])
def test_other_document_as_run_config_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "order.json"
    path.write_text(text)
    with pytest.raises(BadInputError, match=r"order\.json") as error:
        read_run_config(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("gate", [None, DecidedGate("Regression", "humaneval accepted_at_1: -0.1")])
def test_end_of_a_run_is_stored_as_a_fact(gate: DecidedGate | None) -> None:
    figures = {"d": Interval(0.5, 0.25, 0.75)}
    ended = RunEnd(12.5, "s3://x", figures, gate, wandb_url="https://w/r", warnings=("export to mlflow failed: x",))
    assert read_run_end(end_facts(ended)) == ended
    assert read_run_end({}) is None


def test_single_gate_of_earlier_releases_is_read_into_gates(tmp_path: Path) -> None:
    content = json.loads(write_run_config(tmp_path).read_text())
    content["spec"]["gate"] = {"baseline": "outputs/main", "dataset": "first"}
    (tmp_path / "work_order.json").write_text(json.dumps(content))
    (gate,) = read_run_config(tmp_path / "work_order.json").spec.gates
    assert (gate.baseline, gate.dataset) == ("outputs/main", "first")
