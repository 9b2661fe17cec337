"""What is recorded of an engine and of the weights that it loaded."""

import hashlib
import os
from pathlib import Path, PosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from evalrun_generator.rollout.engine_facts import (
    READ_AHEAD_NICENESS,
    engine_facts,
    is_same_model,
    model_facts,
    sglang_facts,
    weights_digest,
)

COMMIT = "c" * 40


def model_in(directory: Path, weights: dict[str, bytes]) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    for name, content in weights.items():
        (directory / name).write_bytes(content)
    return directory


def test_the_digest_is_of_the_weights_and_their_names(tmp_path: Path) -> None:
    one = model_in(tmp_path / "one", {"a.safetensors": b"1", "b.safetensors": b"2"})
    same = model_in(tmp_path / "same", {"b.safetensors": b"2", "a.safetensors": b"1", "notes.md": b"x"})
    tuned = model_in(tmp_path / "tuned", {"a.safetensors": b"1", "b.safetensors": b"3"})
    lines = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in
                    (("a.safetensors", b"1"), ("b.safetensors", b"2")))  # fmt: skip
    assert model_facts(str(one), None) == {"weights_sha256": hashlib.sha256(lines.encode()).hexdigest()}
    assert weights_digest(same) == weights_digest(one)
    assert weights_digest(tuned) != weights_digest(one)


def test_the_next_checkpoint_is_read_with_less_priority_by_threads_of_its_own(tmp_path: Path) -> None:
    seen = list[int]()

    class Watched(PosixPath):
        def open(self, *arguments: Any, **options: Any) -> Any:
            seen.append(os.getpriority(os.PRIO_PROCESS, 0))
            return super().open(*arguments, **options)

    for name in ("model-1.safetensors", "model-2.safetensors"):
        (tmp_path / name).write_bytes(b"weights")
    own = os.getpriority(os.PRIO_PROCESS, 0)
    digest = weights_digest(Watched(tmp_path))
    assert seen == [own, own]
    assert weights_digest(Watched(tmp_path), aside=True) == digest
    assert seen[2:] == [max(own, READ_AHEAD_NICENESS)] * 2
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


def test_facts_of_a_hub_model_hold_its_commit_and_the_digest_of_its_blobs(tmp_path: Path) -> None:
    blob = tmp_path / "models--org--name" / "blobs" / hashlib.sha256(b"weights").hexdigest()
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"not read")
    snapshot = tmp_path / "models--org--name" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to(blob)
    plain = model_in(tmp_path / "plain", {"model.safetensors": b"weights"})
    found = model_facts(str(snapshot), None)
    assert found == {"model_revision": COMMIT, "weights_sha256": weights_digest(plain)}


def test_facts_of_a_missing_model_are_empty(tmp_path: Path) -> None:
    assert model_facts(str(tmp_path / "none"), None) == {}
    assert model_facts(str(model_in(tmp_path / "empty", {})), None) == {}


def test_vllm_config_gives_the_loaded_model_and_dtype() -> None:
    config = SimpleNamespace(model_config=SimpleNamespace(model="/m", dtype="torch.bfloat16", quantization=None))
    found = engine_facts("vllm", config)
    assert (found["engine"], found["model"], found["dtype"]) == ("vllm", "/m", "bfloat16")
    assert "quantization" not in found
    assert "model" not in engine_facts("sglang", None)


def test_sglang_record_gives_the_loaded_model_and_dtype() -> None:
    loaded = {"model_path": "/m", "load_format": "auto", "dtype": "bfloat16", "quantization": None}
    assert sglang_facts(loaded) == {"model": "/m", "dtype": "bfloat16"}
    assert sglang_facts({"dtype": "auto", "quantization": "fp8"}) == {"dtype": "auto", "quantization": "fp8"}


@pytest.mark.parametrize(
    ("asked", "loaded", "same"),
    [
        ("/models/a", "/models/a/", True),
        ("/models/a", "/models/b", False),
        ("org/name", "org/name", True),
        ("org/name", f"/hub/models--org--name/snapshots/{COMMIT}", True),
        ("org/name", f"/hub/models--org--other/snapshots/{COMMIT}", False),
        ("org/name", "other/name", False),
    ],
)
def test_is_same_model_compares_paths_and_hub_snapshots(asked: str, loaded: str, same: bool) -> None:
    assert is_same_model(asked, loaded) is same


@pytest.mark.parametrize(
    ("file", "content", "template"),
    [
        ("chat_template.jinja", "{{ a }}", "{{ a }}"),
        ("tokenizer_config.json", '{"chat_template": "{{ b }}"}', "{{ b }}"),
        (
            "tokenizer_config.json",
            '{"chat_template": [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]}',
            "d",
        ),
        ("tokenizer_config.json", "{", ""),
        ("tokenizer_config.json", "[]", ""),
        ("tokenizer_config.json", "{}", ""),
    ],
)
def test_the_template_is_the_default_one_of_the_tokenizer(
    file: str, content: str, template: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(content)
    facts = model_facts(str(tmp_path), None)
    assert facts.get("chat_template", "") == template
    assert ("chat_template_sha256" in facts) is bool(template)
