"""`evalrun run --local --ray-address`: somebody else's Ray goes on, and nothing of a run is left in it."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from builders.command_line import DEMO, evalrun, evalrun_started, verdicts
from builders.generator.rollout import (
    ENGINE_ENVIRONMENT,
    NAMES_OF_REPLICAS,
    RayHead,
    descendants,
    make_tiny_model,
    ray_head,
    title,
)

pytestmark = [
    pytest.mark.timeout(2400),
    pytest.mark.skipif(os.environ.get("EVALRUN_TEST_ROLLOUT") != "all", reason="takes minutes: make test-rollout"),
]

LOAD_SECONDS = 900.0
LEFT = """
import sys
import ray
from ray.util.placement_group import placement_group_table
from ray.util.state import list_actors

ray.init(address=sys.argv[1], namespace="evalrun", log_to_driver=False)
groups = [each["name"] for each in placement_group_table().values() if each["state"] != "REMOVED"]
named = [each["name"] for each in ray.util.list_named_actors(all_namespaces=True)]
print("left", groups, named, ray.available_resources().get("GPU"))
"""


def write_run(directory: Path, model: Path) -> Path:
    manifest = yaml.safe_load(DEMO.read_text())
    spec = manifest["spec"]
    spec.pop("endpoints", None)
    spec["model"] = {"path": str(model)}
    spec["protocol"] = {"name": "EVAL@1", "maxNewTokens": 16}
    spec["rollout"] = {
        "tensorParallel": 1, "gpusPerNode": 1, "dtype": "float32", "maxNumSeqs": 4, "promptLength": 2048,
        "enforceEager": True,
        "env": [dict(zip(("name", "value"), each.split("="), strict=True)) for each in ENGINE_ENVIRONMENT],
    }  # fmt: skip
    file = directory / "run.yaml"
    file.write_text(yaml.safe_dump(manifest))
    return file


def until(condition: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.2)


async def left_in(head: RayHead) -> str:
    """Return what a driver of the cluster's owner sees of placement groups, named actors and free GPUs."""
    process = await asyncio.create_subprocess_exec(
        str(head.python), "-c", LEFT, head.address, stdout=asyncio.subprocess.PIPE, env=head.environment
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, "the cluster does not answer any more"
    return output.decode().splitlines()[-1]


async def test_joined_ray_keeps_running_and_holds_nothing_after_kill_interrupt_and_success(
    gen_cpu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, output = await make_tiny_model(gen_cpu, tmp_path / "model"), tmp_path / "out"
    file = write_run(tmp_path, model)
    async with ray_head(gen_cpu, tmp_path, gpus=1) as head:
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
            monkeypatch.setenv(name, head.environment[name])
        assert head._process is not None
        raylets = [pid for pid in descendants(head._process.pid) if "raylet/raylet" in title(pid)]

        def replicas() -> list[int]:
            below = [] if head._process is None else descendants(head._process.pid)
            return [pid for pid in below if title(pid).startswith(NAMES_OF_REPLICAS)]

        begin = ("run", file, "--local", "--ray-address", head.address, "--gpu-python", gen_cpu, "--output", output)
        with evalrun_started(*begin) as killed:
            await asyncio.to_thread(until, lambda: len(replicas()) >= 2 or killed.poll() is not None, LOAD_SECONDS)
            assert killed.poll() is None, killed.communicate()
            for pid in [killed.pid, *descendants(killed.pid)]:
                os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(until, lambda: not replicas(), 300)
        assert await left_in(head) == "left [] [] 1.0"

        with evalrun_started("resume", output) as interrupted:
            await asyncio.to_thread(until, lambda: len(replicas()) >= 2 or interrupted.poll() is not None, LOAD_SECONDS)
            assert interrupted.poll() is None, interrupted.communicate()
            interrupted.send_signal(signal.SIGINT)
            printed, _ = await asyncio.to_thread(interrupted.communicate, timeout=300)
        assert interrupted.returncode == 130, printed
        await asyncio.to_thread(until, lambda: not replicas(), 60)
        assert await left_in(head) == "left [] [] 1.0"

        done = await asyncio.to_thread(evalrun, "resume", output, timeout=2 * LOAD_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(verdicts(output)) == 32
        await asyncio.to_thread(until, lambda: not replicas(), 60)
        assert await left_in(head) == "left [] [] 1.0"
        assert [pid for pid in descendants(head._process.pid) if "raylet/raylet" in title(pid)] == raylets
