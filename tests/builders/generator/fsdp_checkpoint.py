"""Checkpoints as verl's trainer leaves them: FSDP shards of a model, written by the gen-cpu environment's torch."""

import os
import subprocess
from pathlib import Path
from typing import Literal

from builders.ports import free_ports

WRITES_SHARDS = """
import json, os, sys
from pathlib import Path
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from transformers import AutoModelForCausalLM, AutoTokenizer

def save(rank, model_folder, actor, world, lora):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[5], RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    if lora:
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj"]))
    else:
        fully_shard(model, mesh=init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",)))
    torch.save(model.state_dict(), f"{actor}/model_world_size_{world}_rank_{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    model_folder, actor, world, lora = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "lora"
    Path(actor, "huggingface").mkdir(parents=True)
    processes.spawn(save, (model_folder, actor, world, lora), nprocs=world)
    Path(actor, "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": world}))
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    model.config.save_pretrained(f"{actor}/huggingface")
    AutoTokenizer.from_pretrained(model_folder).save_pretrained(f"{actor}/huggingface")
"""


def run_offline(python: Path, directory: Path, *arguments: str) -> str:
    """Run a program of the gen-cpu environment in a directory, without a network or credentials; give what it
    printed."""
    dropped = ("AWS_", "PYTHON", "PYTEST", "RAY_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    environment = {**kept, "HF_HUB_OFFLINE": "1", "HF_HOME": str(directory / "home"), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [str(python), *arguments],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def write_checkpoint(python: Path, model: Path, checkpoint: Path, kind: Literal["full", "lora"] = "full") -> Path:
    """Write a checkpoint of a model: two shards, or the one of a LoRA training.

    Args:
        python: with torch and transformers.
        model: the model's directory.
        checkpoint: the directory that verl calls `global_step_N`.
        kind: of the training.
    """
    checkpoint.mkdir(parents=True)
    script = checkpoint.parent / "writes_shards.py"  # a file: its processes import it
    script.write_text(WRITES_SHARDS)
    (port,) = free_ports(1)
    world = "1" if kind == "lora" else "2"
    run_offline(
        python, checkpoint.parent, str(script), str(model), str(checkpoint / "actor"), world, kind, str(port)
    )  # fmt: skip
    script.unlink()
    return checkpoint
