"""An EvalRun from flags alone: what the flags mean, and what is missing."""

from pathlib import Path

import pytest
import yaml

from evalrun_api.manifest import load_manifest, parse_evalrun
from evalrun_cli.local.quick_run import QuickRun, file_text, make_manifest
from evalrun_runtime.exits import BadInputError

URL = "http://127.0.0.1:8000/v1"
SUMS = [("sums", "/data/sums.jsonl")]


@pytest.mark.parametrize(
    ("samples", "temperature", "protocol"),
    [
        (1, None, {"name": "EVAL@1"}),
        (1, 0.0, {"name": "EVAL@1"}),
        (1, 0.2, {"name": "EVAL@k", "temperature": "0.2", "samples": 1, "k": [1]}),
        (10, None, {"name": "EVAL@k", "temperature": "0.8", "samples": 10, "k": [1, 10]}),
        (10, 1.0, {"name": "EVAL@k", "temperature": "1", "samples": 10, "k": [1, 10]}),
    ],
)
def test_flags_become_a_valid_protocol(samples: int, temperature: float | None, protocol: dict[str, object]) -> None:
    asked = QuickRun([URL], "org/A.Model_7B", ["sums.jsonl"], samples, temperature).fill_defaults()
    document = make_manifest(asked, SUMS)
    assert document["spec"]["protocol"] == protocol
    run = parse_evalrun(document, where="flags", place="machine")
    assert (run.metadata.name, run.spec.model.path) == ("a-model-7b", "org/A.Model_7B")
    assert [(dataset.name, dataset.source) for dataset in run.spec.datasets] == SUMS


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (QuickRun([URL], "m", ["s"], 4, 0.0), "--temperature 0: 4 samples would be equal"),
        (QuickRun([URL], "m", ["s"], 4, k=[1, 10]), "--k 10: needs as many samples: add --samples 10"),
        (QuickRun([URL], "m", ["s"], 4, protocol="EVAL@1"), "--protocol EVAL@1: has one sample"),
        (QuickRun([URL], "m", ["s"], protocol="EVAL@turns", k=[1]), "--k: EVAL@turns reports figures by turn"),
        (QuickRun(["builtin:demo"], None, [], protocol="EVAL@turns"), "EVAL@turns: builtin:demo has no second answers"),
    ],
)
def test_flags_that_exclude_each_other_name_themselves(asked: QuickRun, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        asked.fill_defaults()


def test_flags_set_the_same_fields_as_a_file() -> None:
    asked = QuickRun(
        [URL], "m", ["s"], 10, name="nightly", k=[10, 1], max_problems=20, step=300, labels={"team": "code"}
    ).fill_defaults()
    run = parse_evalrun(make_manifest(asked, SUMS), where="flags", place="machine")
    assert (run.metadata.name, run.metadata.labels) == ("nightly", {"team": "code"})
    assert run.spec.datasets[0].max_problems == 20
    assert (run.spec.protocol.k, run.spec.protocol.samples) == ([1, 10], 10)
    assert run.spec.lineage is not None
    assert run.spec.lineage.step == 300
    turns = QuickRun([URL], "m", ["s"], protocol="EVAL@turns").fill_defaults()
    found = parse_evalrun(make_manifest(turns, SUMS), where="flags", place="machine").spec.protocol.turns
    assert found is not None
    assert found.limit == 4


@pytest.mark.parametrize(
    ("asked", "missing"),
    [
        (QuickRun([]), "name a FILE, or a server with --endpoint URL --model NAME --dataset FILE"),
        (QuickRun([URL], datasets=["sums.jsonl"]), "--model is missing"),
        (QuickRun([URL], "m"), "--dataset is missing: name a file of problems, or one of demo, humaneval, mbpp"),
    ],
)
def test_missing_flag_is_named(asked: QuickRun, missing: str) -> None:
    with pytest.raises(BadInputError) as caught:
        asked.fill_defaults()
    assert str(caught.value).startswith(missing)


def test_demo_endpoint_fills_model_and_dataset() -> None:
    asked = QuickRun(["builtin:demo"]).fill_defaults()
    assert (asked.model, asked.datasets) == ("evalrun/recorded-demo", ["demo"])


def test_written_file_reads_back_as_the_same_run(tmp_path: Path) -> None:
    asked = QuickRun([URL], "org/model", ["sums.jsonl"], 4).fill_defaults()
    document = make_manifest(asked, SUMS)
    text = file_text(document, asked)
    assert text.startswith(f"# Again: evalrun run evalrun.yaml --local --endpoint {URL}\n")
    assert yaml.safe_load(text) == document
    (tmp_path / "evalrun.yaml").write_text(text)
    again = load_manifest(tmp_path / "evalrun.yaml", place="machine")
    assert again == parse_evalrun(document, where="flags", place="machine")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct-FP8", "deepseek-coder-v2-lite-instruc"),
        ("org/70B.chat", "run-70b-chat"),
        ("/models/---", "run"),
    ],
)
def test_any_model_name_gives_a_run_name_valid_in_a_cluster(model: str, name: str) -> None:
    document = make_manifest(
        QuickRun(["http://vllm:8000/v1"], model, ["demo"]).fill_defaults(), [("demo", "builtin:demo")]
    )
    if model.startswith("/"):
        document["spec"]["model"]["path"] = "org/m"  # a path means nothing in a cluster
    assert parse_evalrun(document, where="flags", place="cluster").metadata.name == name


def test_manifest_of_wandb_project_becomes_an_export() -> None:
    document = make_manifest(QuickRun([URL], "m", ["sums.jsonl"], wandb="coder").fill_defaults(), SUMS)
    exports = parse_evalrun(document, where="--wandb", place="machine").spec.exports
    assert exports.wandb is not None
    assert (exports.wandb.project, exports.wandb.mode) == ("coder", "online")
