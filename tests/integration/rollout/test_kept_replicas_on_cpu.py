"""Two checkpoints on one replica of real verl and vLLM: the second one's answers are its own, without another start."""

import asyncio
import json
import os
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
from builders.generator.rollout import RayHead, engine_of, make_tiny_model, ray_head, run_config, start_rollout
from builders.generator.work import LedgerServer, ledger_server, work_item

from evalrun_generator.rollout.engine_facts import weights_digest

pytestmark = pytest.mark.timeout(1500)
"""Loading verl and vLLM takes five processes 20 s of CPU each."""

PROMPTS, TOKENS = ("def add(first, second):", "print(1)", "for number in range(3):"), 12
CUT = "\ufffd"
"""For the bytes of a character that was not finished, which vLLM leaves away."""
ANSWERS = """
import json, sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

path, tokens, prompts = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
tokenizer = AutoTokenizer.from_pretrained(path)
model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
found = {}
for prompt in prompts:
    asked = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
    answer = model.generate(**asked, max_new_tokens=tokens, do_sample=False)[0, asked["input_ids"].shape[1]:]
    found[prompt] = tokenizer.decode(answer, skip_special_tokens=True)
print(json.dumps(found))
"""
PLAIN_WEIGHTS = """
def register():
    from vllm import _custom_ops

    _custom_ops._supports_onednn = False
"""
"""A plugin of vLLM: its CPU build else computes with packed copies of the weights, which no copy in place reaches."""


class Checkpoint(NamedTuple):
    """A tiny model, and what transformers answers with it."""

    model: Path
    answers: dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def checkpoints(gen_cpu: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkpoint, Checkpoint]:
    """Two checkpoints that answer each prompt differently."""
    directory = tmp_path_factory.mktemp("checkpoints")
    models = [await make_tiny_model(gen_cpu, directory / f"step-{seed}", seed) for seed in (1, 2)]
    first, second = [Checkpoint(model, await answers_of(gen_cpu, model)) for model in models]
    assert first.answers.keys() == second.answers.keys()
    assert all(first.answers[prompt] != second.answers[prompt] for prompt in PROMPTS)
    return first, second


def install_plugin(directory: Path) -> Path:
    """Make a directory for PYTHONPATH with a plugin that vLLM finds."""
    (directory / "plain_weights-1.dist-info").mkdir(parents=True)
    (directory / "plain_weights.py").write_text(PLAIN_WEIGHTS)
    (directory / "plain_weights-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: plain-weights\n")
    entry = "[vllm.general_plugins]\nplain_weights = plain_weights:register\n"
    (directory / "plain_weights-1.dist-info" / "entry_points.txt").write_text(entry)
    return directory


async def answers_of(python: Path, model: Path) -> dict[str, str]:
    """Return what transformers answers with a model, greedily."""
    arguments = ["-c", ANSWERS, str(model), str(TOKENS), *PROMPTS]
    process = await asyncio.create_subprocess_exec(str(python), *arguments, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    found: dict[str, str] = json.loads(output.splitlines()[-1])
    return found


def order_of(directory: Path, model: Path, gpus: int) -> Path:
    """Write the run configuration of a run with this model."""
    directory.mkdir()
    path = run_config(directory, model, replicas=1, gpusPerNode=gpus, tensorParallel=gpus)
    order = json.loads(path.read_text())
    path.write_text(json.dumps(order | {"run": directory.name}))
    return path


async def run_on_kept_replica(
    head: RayHead, directory: Path, checkpoint: Checkpoint, gpus: int, *flags: str
) -> list[str]:
    """Run a checkpoint, check its answers, and return the facts of its replica that tell how it got the weights."""
    model, answers = checkpoint
    items = [
        work_item(problem=str(number), prompt=prompt, chat=False, max_tokens=TOKENS)
        for number, prompt in enumerate(PROMPTS)
    ]
    order = order_of(directory, model, gpus)
    async with ledger_server(items) as server:
        kept = ("--keep-replicas=test", f"--model-folder={model}", *flags)
        rollout = await start_rollout(head, order, server.address, directory / "rollout.log", *kept)
        async with asyncio.timeout(900):
            assert await rollout.process.wait() == 0, rollout.log[-3000:]
        given = {key[1]: each.text.rstrip(CUT) for key, each in server.fake.completions.items()}
        assert given == {str(number): answers[prompt].rstrip(CUT) for number, prompt in enumerate(PROMPTS)}
        assert {each.model for each in server.fake.completions.values()} == {str(model)}
        facts = facts_of(server)
        assert facts["model"] == str(model)
        assert facts["weights_sha256"] == weights_digest(model)
        return sorted(name for name in facts if name.startswith("weights_") and name.endswith("_seconds"))


def facts_of(server: LedgerServer) -> dict[str, str]:
    return {name: fact for report in server.fake.reports for one in report for name, fact in one.engine.items()}


ONE_GPU = pytest.param(
    1,
    marks=pytest.mark.skipif(
        os.environ.get("EVALRUN_TEST_ROLLOUT") != "all", reason="two GPUs, and one for two generators, say as much"
    ),
)


@pytest.mark.parametrize("gpus", [ONE_GPU, 2])
async def test_next_checkpoint_is_loaded_into_the_running_engine(
    gpus: int, gen_cpu: Path, checkpoints: tuple[Checkpoint, Checkpoint], tmp_path: Path
) -> None:
    first, second = checkpoints
    head = RayHead(gen_cpu, tmp_path)
    head.environment["PYTHONPATH"] += f":{install_plugin(tmp_path / 'plugin')}"
    async with ray_head(gen_cpu, tmp_path, gpus=gpus, head=head):
        steps = await run_on_kept_replica(head, tmp_path / "one", first, gpus)
        assert "weights_compare_seconds" in steps
        assert "weights_copy_seconds" not in steps
        (server,) = head.servers()
        engine = engine_of(server)
        assert engine

        steps = await run_on_kept_replica(head, tmp_path / "two", second, gpus)
        assert {"weights_copy_seconds", "weights_compare_seconds"} <= set(steps)
        steps = await run_on_kept_replica(head, tmp_path / "three", first, gpus)
        assert "weights_copy_seconds" in steps
        assert engine_of(server) == engine, "another engine was started"


async def test_generators_on_separate_nodes_leave_the_replica_running(
    gen_cpu: Path, checkpoints: tuple[Checkpoint, Checkpoint], tmp_path: Path
) -> None:
    """As in a cluster, where each run's generator is a pod that joins the schedule's RayCluster, and goes."""
    head = RayHead(gen_cpu, tmp_path)
    head.environment["PYTHONPATH"] += f":{install_plugin(tmp_path / 'plugin')}"
    async with ray_head(gen_cpu, tmp_path, gpus=1, head=head):
        engines = []
        for number, checkpoint in enumerate(checkpoints, start=3):
            node = (f"--ray-join={head.address}", f"--ray-node-ip=127.0.0.{number}", "--end-replicas")
            steps = await run_on_kept_replica(head, tmp_path / f"run-{number}", checkpoint, 1, *node)
            assert ("weights_copy_seconds" in steps) == (number == 4)
            (server,) = head.servers()
            engines.append(engine_of(server))
        assert engines[0]
        assert engines[0] == engines[1], "another engine was started"
