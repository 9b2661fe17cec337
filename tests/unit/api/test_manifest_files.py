"""Manifests as files: what is read, and what a person is told about what cannot be."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.operator.evalruns import BAD_METADATA, GOOD_METADATA, Refused, change, evalrun_manifest

from evalrun_api.manifest import find_problems, load_manifest, load_manifests
from evalrun_api.manifest_yaml import read_documents
from evalrun_runtime.exits import BadInputError

SAMPLES = sorted((Path(__file__).parents[3] / "k8s" / "samples").glob("*.yaml"))


def refusal(path: Path) -> str:
    with pytest.raises(BadInputError) as caught:
        load_manifest(path, place="cluster")
    return str(caught.value)


def written(directory: Path, text: str) -> Path:
    file = directory / "run.yaml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_sample_is_valid_in_a_cluster_and_on_one_machine(sample: Path) -> None:
    in_cluster = load_manifest(sample, place="cluster")
    assert load_manifest(sample, place="machine") == in_cluster


def test_samples_include_each_documented_file() -> None:
    assert {sample.name for sample in SAMPLES} >= {
        "evalrun-phase0.yaml", "simple-mode.yaml", "demo.yaml", "one-gpu-host.yaml", "pass-at-k.yaml", "gate.yaml",
    }  # fmt: skip


def test_phase_0_sample_matches_the_protocol() -> None:
    spec = load_manifest(next(sample for sample in SAMPLES if "phase0" in sample.name), place="cluster").spec
    assert spec.model.path == "Qwen/Qwen2.5-Coder-7B-Instruct"
    assert [dataset.name for dataset in spec.datasets] == [
        "humaneval", "mbpp_reg", "codecontests_valid", "codecontests_test",
    ]  # fmt: skip
    protocol = spec.protocol
    assert (protocol.name, protocol.greedy, protocol.samples, protocol.max_new_tokens) == ("EVAL@1", True, 1, 2048)
    assert spec.rollout is not None
    assert (spec.rollout.gpus_per_replica, spec.rollout.initial_replicas, spec.rollout.worker_pods(4)) == (2, 4, 1)


def test_defaults_are_applied(tmp_path: Path) -> None:
    run = load_manifest(written(tmp_path, yaml.safe_dump(evalrun_manifest())), place="cluster")
    assert run.metadata.name == "run"
    assert run.spec.protocol.temperature_value == 0.0
    assert run.spec.datasets[0].tests == ["public", "private", "generated"]
    assert run.spec.datasets[0].stop_after_timeouts == 3
    assert run.spec.own_judge is not None
    assert run.spec.own_judge.sandbox.backend == "Evalrun"


def test_each_problem_is_one_line_with_file_and_field(tmp_path: Path) -> None:
    file = written(tmp_path, yaml.safe_dump(evalrun_manifest({"spec.protocol.samples": 4, "spec.output": {}})))
    output, samples = refusal(file).splitlines()
    assert output.startswith(f"{file}: spec.output: the results would be lost: write output.url (s3://..., gs://...")
    assert samples.startswith(f"{file}: spec.protocol.samples: EVAL@1 is one greedy answer: write samples: 1, or name")


def test_other_objects_of_the_file_are_ignored(tmp_path: Path) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}}
    file = written(tmp_path, yaml.safe_dump_all([secret, None, evalrun_manifest()]))
    assert load_manifest(file, place="cluster").metadata.name == "run"


def test_status_in_the_file_is_ignored(tmp_path: Path) -> None:
    file = written(tmp_path, yaml.safe_dump({**evalrun_manifest(), "status": {"whatever": 1}}))
    assert load_manifest(file, place="cluster").status is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no EvalRun: write kind: EvalRun"),
        ("kind: Secret\nmetadata: {name: key}", "holds no EvalRun, but Secret key"),
        ("- 1", "a document is not an object"),
        (
            "kind: EvalRun\napiVersion: evalrun.dev/v9",
            "apiVersion: 'evalrun.dev/v9' is not known: write evalrun.dev/v1",
        ),
        ("a: 1\nb: [1", ":3: did not find"),
        ("a: 1\nb: 2\na: 3", ":3: the key 'a' is written twice"),
        ("a: &a [*a]", "holds what JSON cannot: Circular reference"),
        ("a: .nan", "holds what JSON cannot"),
        ("a: !!binary aGk=", "holds what JSON cannot"),
        ("[" * 5000 + "]" * 5000, "holds what JSON cannot"),
        ("spec:\n  y: 1", ":2: the key True is not text: write it in quotes"),
    ],
)
def test_file_without_an_evalrun_is_refused_with_the_reason(tmp_path: Path, text: str, says: str) -> None:
    file = written(tmp_path, text)
    told = refusal(file)
    assert told.startswith(str(file))
    assert says in told
    assert "\n" not in told


def test_several_runs_in_a_file_are_named(tmp_path: Path) -> None:
    second = evalrun_manifest({"metadata.name": "other"})
    file = written(tmp_path, yaml.safe_dump_all([evalrun_manifest(), second]))
    assert refusal(file) == f"{file}: holds several EvalRuns (EvalRun run, EvalRun other): keep one a file"


def test_each_run_of_a_file_is_checked_as_kubectl_would_apply_each(tmp_path: Path) -> None:
    second = evalrun_manifest({"metadata.name": "other"})
    file = written(tmp_path, yaml.safe_dump_all([evalrun_manifest(), second]))
    assert [run.metadata.name for run in load_manifests(file, place="cluster")] == ["run", "other"]
    change(second, "spec.output", {})
    file = written(tmp_path, yaml.safe_dump_all([evalrun_manifest(), second]))
    with pytest.raises(BadInputError) as refused:
        load_manifests(file, place="cluster")
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"{file}: EvalRun other: spec.output: the results would be lost")


@pytest.mark.parametrize("case", BAD_METADATA, ids=lambda case: case.name)
def test_labels_and_annotations_that_kubernetes_refuses_are_refused_with_their_path(
    tmp_path: Path, case: Refused
) -> None:
    file = written(tmp_path, yaml.safe_dump(case.manifest))
    told = refusal(file)
    assert told.startswith(f"{file}: {case.path}: "), told
    assert case.says in told
    assert "\n" not in told


@pytest.mark.parametrize("metadata", GOOD_METADATA)
def test_labels_and_annotations_that_kubernetes_accepts_are_accepted(metadata: dict[str, dict[str, str]]) -> None:
    manifest = evalrun_manifest({f"metadata.{field}": notes for field, notes in metadata.items()})
    assert find_problems(manifest, place="cluster") == []


def test_unreadable_file_is_refused_with_the_cause(tmp_path: Path) -> None:
    assert refusal(tmp_path / "absent.yaml") == f"{tmp_path / 'absent.yaml'}: No such file or directory"
    assert refusal(tmp_path).startswith(f"{tmp_path}: Is a directory")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"a: \xff")
    assert refusal(binary) == f"{binary}: byte 3 is not UTF-8: save the file as UTF-8"


def test_a_name_is_needed(tmp_path: Path) -> None:
    file = written(tmp_path, yaml.safe_dump(evalrun_manifest({"metadata": {"labels": {"team": "a"}}})))
    assert refusal(file) == f"{file}: metadata.name: is missing: write what the run is to be called"


def test_label_that_is_a_number_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, yaml.safe_dump(evalrun_manifest({"metadata.labels": {"step": 12}})))
    assert refusal(file).startswith(f"{file}: metadata.labels.step: ")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),  # PyYAML alone: text
        ("1.5", 1.5),
        ("2026-01-31", "2026-01-31"),  # PyYAML alone: a date
        ("1:30", "1:30"),  # PyYAML alone: 90
        ("0x10", 16),
        ("010", 8),
        ("on", True),
        ("y", True),
        ("null", None),
        ("~", None),
        ("", None),
        ("v1.2.3", "v1.2.3"),
        ('"0.8"', "0.8"),
    ],
)
def test_scalars_are_read_as_kubectl_reads_them(text: str, value: object) -> None:
    assert read_documents(f"key: {text}") == [{"key": value}]


def test_reading_a_manifest_starts_fast() -> None:
    """Half a second of imports that nobody needs is what a person would wait for at each `evalrun validate`."""
    program = (
        "import sys; from evalrun_api.manifest import load_manifest\n"
        "load_manifest(sys.argv[1], place='machine'); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, SAMPLES[0]], check=True, capture_output=True, text=True)
    slow = {"typer", "prompt_toolkit", "rich", "jsonschema", "kopf", "grpc", "numpy", "pyarrow", "aiohttp"}
    assert not slow & set(done.stdout.split())


def with_numbers() -> dict[str, Any]:
    manifest = evalrun_manifest()
    manifest["spec"]["protocol"] = {"name": "EVAL@k", "temperature": 0.8, "topP": 1, "samples": 2, "k": [1, 2]}
    return manifest


def test_unquoted_numbers_are_accepted_on_one_machine_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = with_numbers()
    manifest["spec"]["datasets"][0]["comparator"] = {"name": "tokens", "abs": 1e-6}
    file = written(tmp_path, yaml.safe_dump(manifest))
    spec = load_manifest(file, place="machine").spec
    assert (spec.protocol.temperature, spec.protocol.top_p, spec.protocol.samples) == ("0.8", "1", 2)
    assert spec.datasets[0].comparator is not None
    assert spec.datasets[0].comparator.abs == "0.000001"
    said = [record.getMessage() for record in caplog.records]
    assert f'{file}: spec.protocol.temperature: 0.8 is taken as "0.8": kubectl takes it in quotes only' in said
    assert len(said) == 3


def test_unquoted_numbers_are_refused_for_a_cluster(tmp_path: Path) -> None:
    said = refusal(written(tmp_path, yaml.safe_dump(with_numbers())))
    assert 'spec.protocol.temperature: 0.8 is not text: write it in quotes, "0.8"' in said


def test_a_tab_that_indents_is_named(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    for text in ("a:\n\tb: 1\n", "\ta: 1\n"):
        file.write_text(text)
        with pytest.raises(BadInputError, match=r"run\.yaml:\d: indent with blanks, not with a tab"):
            load_manifests(file, place="cluster")
