"""verl's own merger on real FSDP shards of a tiny model: found, brought, merged as the Job does it, and cached.

Whole models come from a bucket and go to one (a real S3 server), adapters are in directories.
"""

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import pytest
from builders.generator.fsdp_checkpoint import run_offline, write_checkpoint
from builders.operator.schedule_world import evalschedule
from builders.operator.world import operator_settings
from builders.s3_server import S3Server, find_program

from evalrun_api.checkpoint_listing import ListingRequest
from evalrun_api.v1alpha1 import EvalScheduleStatus, PendingMerge
from evalrun_data.checkpoints.choice import list_checkpoints
from evalrun_data.checkpoints.merging import main
from evalrun_data.checkpoints.store import CheckpointStore
from evalrun_generator.rollout.adapter import adapter_rank
from evalrun_operator.schedules.objects import make_merge_job

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.environ.get("EVALRUN_TEST_ROLLOUT") != "all", reason="takes minutes: make test-rollout"),
]
"""Importing torch and verl takes 20 s of CPU, six times over."""

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
COMPARES = """
import sys, torch
from transformers import AutoModelForCausalLM
first, second = (AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).state_dict() for path in sys.argv[1:])
assert first.keys() == second.keys(), first.keys() ^ second.keys()
assert all(torch.equal(first[name].bfloat16(), second[name].bfloat16()) for name in first)
print("THE SAME", len(first))
"""


def written(python: Path, directory: Path, step: int, kind: Literal["full", "lora"]) -> Path:
    """Write a tiny model, and a checkpoint of it as verl leaves it; returns the model's directory."""
    model = directory / f"model-{kind}"
    run_offline(python, directory, str(BENCHMARKS / "random_model.py"), "--tiny", str(model))
    write_checkpoint(python, model, directory / "grpo" / f"global_step_{step}", kind)
    return model


def merged(python: Path, directory: Path, base: str | None = None, *, bucket: bool = False) -> tuple[PendingMerge, int]:
    """Find the checkpoint and do what its Job's containers do; returns it, and how the last one ended.

    Args:
        python: with verl.
        directory: of the checkpoints, the cache and the Job's scratch volume.
        base: of LoRA adapters.
        bucket: checkpoints and cache are at the URLs that the Job names, and not in the directory.
    """
    url = "s3://training/grpo" if bucket else str(directory / "grpo")
    request = ListingRequest(url=url, pattern="global_step_*", merge=True, base=base)
    later = datetime.now(UTC) + timedelta(hours=1)
    (found,) = list_checkpoints(request, CheckpointStore(request.url), later).ready
    assert found.merge
    one = PendingMerge(path=found.path, step=found.step, digest=found.digest, start=later, adapter=found.adapter)
    schedule = evalschedule({"spec.merge": {"cache": "s3://models"}})
    job = make_merge_job(schedule, one, EvalScheduleStatus(merges=[one]), [], operator_settings())
    pod = job["spec"]["template"]["spec"]
    places = {"/scratch": str(directory / "s")}
    if not bucket:
        places |= {"s3://training/grpo": str(directory / "grpo"), "s3://models": str(directory / "cache")}

    def here(text: str) -> str:
        for there, place in places.items():
            text = text.replace(there, place)
        return text

    fetch, merge = pod["initContainers"]
    (store,) = pod["containers"]
    assert main([*fetch["command"][3:], *map(here, fetch["args"])]) == 0
    run_offline(python, directory, *merge["command"][1:], *map(here, merge["args"]))
    return one, main([*store["command"][3:], *map(here, store["args"])])


async def test_shards_in_a_bucket_become_the_model_that_was_sharded(
    gen_cpu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = written(gen_cpu, tmp_path, 120, "full")
    server = S3Server(find_program(), tmp_path / "buckets", tmp_path / "s3.log")
    for bucket in ("training", "models"):
        (server.directory / bucket).mkdir(parents=True)
    (tmp_path / "grpo").rename(server.directory / "training" / "grpo")
    await server.start()
    for name, value in server.environment().items():  # as `envFrom` gives them to the Job's first and last container
        monkeypatch.setenv(name, value)
    try:
        one, code = merged(gen_cpu, tmp_path, bucket=True)
        assert code == 0
        (cached,) = (server.directory / "models" / "nightly-5c4ed").iterdir()
        assert cached.name == f"step-120-{one.digest[:10]}"
        check_listed("s3://models/nightly-5c4ed", cached.name)
    finally:
        await server.stop()
    assert "THE SAME" in run_offline(gen_cpu, tmp_path, "-c", COMPARES, str(model), str(cached))


def check_listed(url: str, name: str) -> None:
    """Assert that what is in the cache is whole by the same rules as any other checkpoint."""
    request = ListingRequest(url=url, pattern="step-120-*", quiet_seconds=0)
    answer = list_checkpoints(request, CheckpointStore(request.url), datetime.now(UTC) + timedelta(hours=1))
    assert ([one.path for one in answer.ready], answer.troubles) == ([name], [])


@pytest.fixture(scope="module")
def lora_checkpoint(gen_cpu: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints of a LoRA training, written once for both tests of it."""
    directory = tmp_path_factory.mktemp("lora")
    written(gen_cpu, directory, 7, "lora")
    return directory / "grpo"


def test_the_base_that_the_merger_leaves_beside_an_adapter_is_never_evaluated(
    gen_cpu: Path, lora_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(lora_checkpoint, tmp_path / "grpo")
    _, code = merged(gen_cpu, tmp_path)
    assert (tmp_path / "s" / "merged" / "lora_adapter" / "adapter_config.json").exists()
    assert (tmp_path / "s" / "merged" / "model.safetensors").exists()  # the base alone
    assert code != 0
    assert "of a LoRA training" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()


def test_lora_merge_stores_only_the_adapter(gen_cpu: Path, lora_checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(lora_checkpoint, tmp_path / "grpo")
    meta = {"r": 4, "lora_alpha": 8, "task_type": "CAUSAL_LM"}  # as verl writes it beside the shards
    (tmp_path / "grpo" / "global_step_7" / "actor" / "lora_train_meta.json").write_text(json.dumps(meta))
    _, code = merged(gen_cpu, tmp_path, base="org/base")
    assert code == 0
    (cached,) = (tmp_path / "cache" / "nightly-5c4ed").iterdir()
    assert {path.name for path in cached.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    assert adapter_rank(cached) == 4
    assert json.loads((cached / "adapter_config.json").read_text())["lora_alpha"] == 8
