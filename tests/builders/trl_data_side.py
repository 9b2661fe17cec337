"""Runs inside an environment with the published TRL: its trainers read files that `evalrun export` wrote.

Reads one JSON object on stdin, writes one on stdout. Never imported by the tests' own interpreter.
"""

import json
import sys
import tempfile
from typing import Any


def read_with_trainers(asked: dict[str, Any]) -> dict[str, Any]:
    """Build an SFTTrainer and a DPOTrainer, which check and tokenize their data, and return what they made of it."""
    from datasets import Dataset, load_dataset
    from transformers import AutoTokenizer
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    tokenizer = AutoTokenizer.from_pretrained(asked["model"])

    def dataset(path: str) -> Dataset:
        kind = "parquet" if path.endswith(".parquet") else "json"
        return load_dataset(kind, data_files=path, split="train")

    with tempfile.TemporaryDirectory() as directory:
        common = {"output_dir": directory, "use_cpu": True, "report_to": [], "bf16": False, "max_length": 4096}
        sft = SFTTrainer(
            model=asked["model"],
            args=SFTConfig(**common),
            train_dataset=dataset(asked["sft"]),
            processing_class=tokenizer,
        )
        dpo = DPOTrainer(
            model=asked["model"],
            args=DPOConfig(**common),
            train_dataset=dataset(asked["pairs"]),
            processing_class=tokenizer,
        )
        batches = {name: next(iter(trainer.get_train_dataloader())) for name, trainer in (("sft", sft), ("dpo", dpo))}
        losses = {
            "sft": float(sft.compute_loss(sft.model, dict(batches["sft"])).detach()),
            "dpo": float(dpo.compute_loss(dpo.model, dict(batches["dpo"])).detach()),
        }
    rows = {"sft": sft.train_dataset, "dpo": dpo.train_dataset}
    return {
        "rows": {name: len(found) for name, found in rows.items()},
        "columns": {name: sorted(found.column_names) for name, found in rows.items()},
        "losses": losses,
    }


if __name__ == "__main__":
    print("ANSWER" + json.dumps(read_with_trainers(json.load(sys.stdin))))
