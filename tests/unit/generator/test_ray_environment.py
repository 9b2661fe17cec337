"""The environment of a Ray that is started on one machine, and of a generator that joins one."""

import json
from pathlib import Path

from evalrun_generator.gpu_host.host import make_joining_environment
from evalrun_generator.gpu_host.ray_head import ray_environment
from evalrun_generator.gpu_host.session_directory import SessionDirectory

DIRECTORY = SessionDirectory(Path("/tmp/evalrun-ray-x"))
BASE = {
    "PATH": "/bin",
    "PYTHONPATH": "/somewhere",
    "CUDA_VISIBLE_DEVICES": "3",
    "RAY_ADDRESS": "10.0.0.1:6379",
    "RAY_AUTH_TOKEN": "of-another",
    "HF_HOME": "/models",
}


def test_ray_environment_names_the_gpus_and_a_token_of_its_own() -> None:
    found = ray_environment(BASE, Path("/opt/verl/bin/python"), DIRECTORY, ["0", "2"])
    assert found["CUDA_VISIBLE_DEVICES"] == "0,2"
    assert found["PATH"] == "/opt/verl/bin:/bin"
    assert found["PYTHONPATH"] == "/tmp/evalrun-ray-x/code"
    assert found["TMPDIR"] == "/tmp/evalrun-ray-x/tmp"
    assert found["HF_HOME"] == "/models"
    assert "RAY_ADDRESS" not in found
    assert found["RAY_AUTH_TOKEN"] not in (
        "of-another",
        ray_environment(BASE, Path("/p"), DIRECTORY, [])["RAY_AUTH_TOKEN"],
    )


def test_ray_environment_without_gpus_leaves_ray_free_to_pretend_some() -> None:
    assert "CUDA_VISIBLE_DEVICES" not in ray_environment(BASE, Path("/p"), DIRECTORY, [])


def test_joining_environment_passes_our_package_path_to_the_clusters_actors() -> None:
    found = make_joining_environment(BASE, DIRECTORY)
    job = json.loads(found["RAY_JOB_CONFIG_JSON_ENV_VAR"])
    assert job["runtime_env"]["env_vars"]["PYTHONPATH"] == found["PYTHONPATH"] == "/tmp/evalrun-ray-x/code"
    assert found["RAY_AUTH_TOKEN"] == "of-another"
