"""A LoRA adapter on a real replica of verl and vLLM: its answers are the adapter's, not the base model's."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from builders.generator.rollout import make_tiny_model, ray_head, run_config, start_rollout
from builders.generator.work import ledger_server, work_item

from evalrun_generator.rollout.adapter import adapter_facts

pytestmark = [
    pytest.mark.timeout(1500),
    pytest.mark.skipif(os.environ.get("EVALRUN_TEST_ROLLOUT") != "all", reason="takes minutes: make test-rollout"),
]
"""Loading verl and vLLM takes five processes 20 s of CPU each."""

PROMPT, TOKENS = "def add(first, second):", 12
MAKES_AN_ADAPTER = """
import json, sys
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

path, directory, prompt, tokens = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
torch.manual_seed(1)
tokenizer = AutoTokenizer.from_pretrained(path)
model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
asked = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)

def answer():
    found = model.generate(**asked, max_new_tokens=tokens, do_sample=False)[0, asked["input_ids"].shape[1]:]
    return tokenizer.decode(found, skip_special_tokens=True)

answers = {"base": answer()}
targets = ["q_proj", "v_proj", "down_proj"]
model = get_peft_model(model, LoraConfig(r=4, lora_alpha=64, target_modules=targets, init_lora_weights=False))
answers["adapter"] = answer()
model.save_pretrained(directory)
print(json.dumps(answers))
"""


async def answers_of(python: Path, model: Path, adapter: Path) -> dict[str, str]:
    """Write a random adapter; gives what transformers and PEFT answer without and with it."""
    arguments = ["-c", MAKES_AN_ADAPTER, str(model), str(adapter), PROMPT, str(TOKENS)]
    process = await asyncio.create_subprocess_exec(str(python), *arguments, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    found: dict[str, str] = json.loads(output.splitlines()[-1])
    return found


async def test_a_run_of_an_adapter_gets_the_adapters_answers(gen_cpu: Path, tmp_path: Path) -> None:
    model, adapter = await make_tiny_model(gen_cpu, tmp_path / "model"), tmp_path / "adapter"
    answers = await answers_of(gen_cpu, model, adapter)
    assert answers["base"] != answers["adapter"]
    path = run_config(tmp_path, model, replicas=1, gpusPerNode=1)
    order = json.loads(path.read_text())
    order["spec"]["model"]["adapter"] = str(adapter)
    path.write_text(json.dumps(order))
    items = [work_item(prompt=PROMPT, chat=False, max_tokens=TOKENS)]
    async with ledger_server(items) as server, ray_head(gen_cpu, tmp_path, gpus=1) as head:
        rollout = await start_rollout(head, path, server.address, tmp_path / "rollout.log")
        async with asyncio.timeout(900):
            assert await rollout.process.wait() == 0, rollout.log[-3000:]
        (completion,) = server.fake.completions.values()
        assert completion.text == answers["adapter"]
        assert completion.model == str(adapter)
        facts = {name: fact for report in server.fake.reports for one in report for name, fact in one.engine.items()}
        assert facts["model"] == str(model)
        assert facts["adapter_sha256"] == adapter_facts(adapter)["adapter_sha256"]
