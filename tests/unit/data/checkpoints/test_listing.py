"""Which checkpoints are found: complete, whole and new ones, over real directories of tiny files."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from evalrun_api.checkpoint_listing import (
    MAX_ANSWER_BYTES,
    ListingAnswer,
    ListingRequest,
    ReadyCheckpoint,
    Trouble,
    UnreadableAnswerError,
    decode_answer,
    encode_answer,
)
from evalrun_data.checkpoints.__main__ import main
from evalrun_data.checkpoints.choice import list_checkpoints
from evalrun_data.checkpoints.readiness import TRACKER, parse_step
from evalrun_data.checkpoints.store import CheckpointStore, StoreError, make_file_fact

NOW = datetime(2026, 5, 1, 3, 0, tzinfo=UTC)
HOUR_AGO = (NOW - timedelta(hours=1)).timestamp()
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def write(directory: Path, files: dict[str, str], at: float = HOUR_AGO) -> None:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (at, at))


def model(weights: str = "w") -> dict[str, str]:
    return {"config.json": "{}", "tokenizer.json": "{}", "model.safetensors": weights}


def sharded() -> dict[str, str]:
    index = json.dumps({"weight_map": {"a": SHARDS[0], "b": SHARDS[1]}})
    return {
        "config.json": "{}",
        "tokenizer.json": "{}",
        "model.safetensors.index.json": index,
        **dict.fromkeys(SHARDS, "w"),
    }


def listed(root: Path, **fields: Any) -> ListingAnswer:
    request = ListingRequest.model_validate({"url": str(root), "pattern": "global_step_*", **fields})
    return list_checkpoints(request, CheckpointStore(str(root)), NOW)


def without(files: dict[str, str], *names: str) -> dict[str, str]:
    return {name: text for name, text in files.items() if name not in names}


@pytest.mark.parametrize(
    ("files", "path"),
    [
        (model(), "global_step_5"),
        (sharded(), "global_step_5"),
        (without(model(), "tokenizer.json") | {"vocab.json": "{}", "merges.txt": ""}, "global_step_5"),
        ({f"actor/huggingface/{name}": text for name, text in model().items()}, "global_step_5/actor/huggingface"),
    ],
)
def test_a_whole_model_is_ready_wherever_the_trainer_puts_it(tmp_path: Path, files: dict[str, str], path: str) -> None:
    write(tmp_path / "global_step_5", files)
    answer = listed(tmp_path)
    assert [(one.path, one.step) for one in answer.ready] == [(path, 5)]
    assert answer.troubles == []


FSDP = {f"actor/model_world_size_2_rank_{rank}.pt": "w" for rank in (0, 1)} | {
    f"actor/huggingface/{name}": "{}" for name in ("config.json", "tokenizer.json")
}


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (without(sharded(), SHARDS[1]), f"is missing {SHARDS[1]}"),
        (sharded() | {SHARDS[0]: ""}, f"is missing {SHARDS[0]}"),
        (sharded() | {"model.safetensors.index.json": "{"}, "a readable model.safetensors.index.json"),
        (without(sharded(), "model.safetensors.index.json"), "the index of its shards"),
        (without(model(), "config.json"), "is missing config.json"),
        (without(model(), "model.safetensors"), "weights (model.safetensors"),
        (without(model(), "tokenizer.json"), "a tokenizer"),
        (model(weights=""), "has an empty model.safetensors"),
        (model() | {"config.json": ""}, "has an empty config.json"),
        (model() | {"config.json": '{"hidden_size": 12'}, "is missing a readable config.json"),
        (model() | {"config.json": "[]"}, "is missing a readable config.json"),
        (
            model() | {"trainer_state.json": '{"global_step": 4}'},
            "named step 5, but its trainer_state.json says step 4",
        ),
        ({"adapter_config.json": "{}", "adapter_model.safetensors": "w"}, "write template.model.base"),
        (FSDP, "write spec.merge, or have the trainer write hf_model too"),
        (without(FSDP, "actor/model_world_size_2_rank_1.pt"), "actor/model_world_size_2_rank_1.pt"),
        ({"actor/dist_ckpt/x": "w", "actor/huggingface/config.json": "{}"}, "where megatron-core is installed"),
        ({"actor/model/dist_ckpt/x": "w", "actor/model/huggingface/config.json": "{}"}, "--backend megatron"),
    ],
)
def test_broken_checkpoint_is_reported_with_the_missing_part(tmp_path: Path, files: dict[str, str], says: str) -> None:
    write(tmp_path / "global_step_5", files)
    answer = listed(tmp_path)
    (trouble,) = answer.troubles
    assert (answer.ready, trouble.name, trouble.broken) == ([], "global_step_5", True)
    assert says in trouble.reason


SHARDED = FSDP | {"actor/fsdp_config.json": '{"world_size": 2}', "actor/optim_world_size_2_rank_0.pt": "o"}


def test_shards_are_ready_if_merged_and_optimizer_state_does_not_change_their_digest(tmp_path: Path) -> None:
    write(tmp_path / "global_step_5", SHARDED)
    (first,) = listed(tmp_path, merge=True).ready
    assert (first.path, first.step, first.merge) == ("global_step_5/actor", 5, True)
    write(tmp_path / "global_step_5", {"actor/optim_world_size_2_rank_0.pt": "another"})
    assert listed(tmp_path, merge=True).ready == [first]
    write(tmp_path / "global_step_5", {"actor/model_world_size_2_rank_1.pt": "another"})
    assert listed(tmp_path, merge=True).ready[0].digest != first.digest


BASE = "Qwen/Qwen2.5-Coder-7B"


def adapter(base: str = BASE) -> dict[str, str]:
    config = json.dumps({"peft_type": "LORA", "r": 8, "base_model_name_or_path": base})
    return {"adapter_config.json": config, "adapter_model.safetensors": "w", "tokenizer.json": "{}"}


@pytest.mark.parametrize(
    ("files", "path"),
    [
        (adapter(), "global_step_5"),
        (adapter("/scratch/models/coder"), "global_step_5"),  # of the trainer's machine: nothing to compare
        (FSDP | {f"actor/lora_adapter/{name}": text for name, text in adapter().items()},
         "global_step_5/actor/lora_adapter"),
    ],
)  # fmt: skip
def test_a_lora_adapter_is_ready_where_its_base_is_named(tmp_path: Path, files: dict[str, str], path: str) -> None:
    write(tmp_path / "global_step_5", files)
    answer = listed(tmp_path, base=BASE)
    assert [(one.path, one.adapter, one.merge) for one in answer.ready] == [(path, True, False)]
    write(tmp_path / "global_step_5", {name: "another" for name in files if name.endswith("adapter_model.safetensors")})
    assert listed(tmp_path, base=BASE).ready[0].digest != answer.ready[0].digest


@pytest.mark.parametrize(
    ("files", "fields", "says"),
    [
        (adapter(), {}, f"holds a LoRA adapter of {BASE}: write template.model.base"),
        (adapter(), {"base": "Qwen/Qwen2.5-7B"}, f"but template.model.base is Qwen/Qwen2.5-7B: write base: {BASE}"),
        (adapter(), {"base": BASE, "serves_adapters": False}, "template.rollout.engine: vllm"),
        (without(adapter(), "adapter_model.safetensors"), {"base": BASE}, "is missing adapter_model.safetensors"),
        (adapter() | {"adapter_model.safetensors": ""}, {"base": BASE}, "is missing adapter_model.safetensors"),
        (adapter() | {"adapter_config.json": "["}, {"base": BASE}, "a readable adapter_config.json"),
        (
            SHARDED | {"actor/lora_train_meta.json": "{}"},
            {"merge": True},
            "is of a LoRA training: write template.model",
        ),
    ],
)
def test_adapter_that_cannot_be_served_is_reported_with_the_remedy(
    tmp_path: Path, files: dict[str, str], fields: dict[str, Any], says: str
) -> None:
    write(tmp_path / "global_step_5", files)
    answer = listed(tmp_path, **fields)
    assert answer.ready == []
    assert says in answer.troubles[0].reason


def test_lora_shards_are_merged_into_an_adapter_and_a_whole_model_is_used_unmerged(tmp_path: Path) -> None:
    write(tmp_path / "global_step_5", SHARDED | {"actor/lora_train_meta.json": "{}"})
    write(tmp_path / "global_step_6", model() | adapter())  # merged into the base by the trainer
    first, second = listed(tmp_path, merge=True, base=BASE, policy="EveryNew").ready
    assert (first.path, first.merge, first.adapter) == ("global_step_5/actor", True, True)
    assert (second.path, second.merge, second.adapter) == ("global_step_6", False, False)


def test_a_checkpoint_that_has_its_weights_is_not_merged(tmp_path: Path) -> None:
    hub = {f"actor/huggingface/{name}": text for name, text in model().items()}
    write(tmp_path / "global_step_5", SHARDED | hub)
    (found,) = listed(tmp_path, merge=True).ready
    assert (found.path, found.merge) == ("global_step_5/actor/huggingface", False)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (without(SHARDED, "actor/model_world_size_2_rank_1.pt"), "is missing actor/model_world_size_2_rank_1.pt"),
        (SHARDED | {"actor/model_world_size_2_rank_1.pt": ""}, "actor/model_world_size_2_rank_1.pt, which the merger"),
        (without(SHARDED, "actor/fsdp_config.json"), "is missing actor/fsdp_config.json"),
        (without(SHARDED, "actor/huggingface/config.json"), "is missing actor/huggingface/config.json"),
        (without(SHARDED, "actor/huggingface/tokenizer.json"), "a tokenizer in actor/huggingface"),
    ],
)
def test_shards_that_cannot_be_merged_are_reported_with_the_missing_file(
    tmp_path: Path, files: dict[str, str], says: str
) -> None:
    write(tmp_path / "global_step_5", files)
    answer = listed(tmp_path, merge=True)
    assert answer.ready == []
    assert says in answer.troubles[0].reason


def test_directory_without_marker_and_tracker_is_ready_after_the_quiet_period(tmp_path: Path) -> None:
    write(tmp_path / "global_step_5", model(), NOW.timestamp() - 299)
    (trouble,) = listed(tmp_path, quiet_seconds=300).troubles
    assert (trouble.broken, trouble.reason) == (False, "was written to 299 s ago: 300 s without a write are waited for")
    assert listed(tmp_path, quiet_seconds=299).ready[0].step == 5


def test_incomplete_checkpoint_in_progress_is_no_fault(tmp_path: Path) -> None:
    write(tmp_path / "global_step_5", without(sharded(), SHARDS[1]), NOW.timestamp() - 1)
    assert [trouble.broken for trouble in listed(tmp_path).troubles] == [False]


def test_ready_marker_alone_decides_whether_a_checkpoint_is_ready(tmp_path: Path) -> None:
    write(tmp_path / "global_step_5", model(), NOW.timestamp())
    (trouble,) = listed(tmp_path, ready_marker="DONE").troubles
    assert (trouble.broken, trouble.reason) == (False, "has no DONE yet")
    write(tmp_path / "global_step_5", {"DONE": ""}, NOW.timestamp())
    marked = listed(tmp_path, ready_marker="DONE").ready[0]
    assert marked.digest == listed(tmp_path, quiet_seconds=0, ready_marker="DONE").ready[0].digest


def test_steps_up_to_the_trackers_are_complete(tmp_path: Path) -> None:
    for step in (10, 20):
        write(tmp_path / f"global_step_{step}", model(), NOW.timestamp())
    write(tmp_path, {TRACKER: "10\n"})
    answer = listed(tmp_path, policy="EveryNew")
    assert [one.step for one in answer.ready] == [10]
    assert [(one.name, one.broken) for one in answer.troubles] == [("global_step_20", False)]


def test_latest_selects_the_newest_sound_checkpoint_and_reports_newer_broken_ones(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        write(tmp_path / f"global_step_{step}", model(str(step)))
    write(tmp_path / "global_step_110", without(model(), "config.json"))
    answer = listed(tmp_path)
    assert [one.step for one in answer.ready] == [100]
    assert [one.name for one in answer.troubles] == ["global_step_110"]


def test_every_new_lists_checkpoints_by_step_up_to_the_limit(tmp_path: Path) -> None:
    for step in (100, 9, 20, 10):
        write(tmp_path / f"global_step_{step}", model(str(step)))
    answer = listed(tmp_path, policy="EveryNew", limit=3)
    assert ([one.step for one in answer.ready], answer.more) == ([9, 10, 20], True)
    known = [one.digest[:10] for one in answer.ready]
    answer = listed(tmp_path, policy="EveryNew", limit=3, known=known)
    assert ([one.step for one in answer.ready], answer.more) == ([100], False)
    assert [one.step for one in listed(tmp_path, policy="EveryNew", from_step=20).ready] == [20, 100]


def test_rewritten_checkpoint_has_a_new_digest_and_a_copy_has_the_same(tmp_path: Path) -> None:
    for place in ("a", "b"):
        write(tmp_path / place / "global_step_5", model("first"))
    first = listed(tmp_path / "a").ready[0].digest
    assert listed(tmp_path / "b").ready[0].digest == first
    write(tmp_path / "a" / "global_step_5", model("other"))  # as long as the first
    assert listed(tmp_path / "a", known=[first[:10]]).ready[0].digest != first
    assert listed(tmp_path / "b", known=[first[:10]]).ready == []


@pytest.mark.parametrize("policy", ["Latest", "EveryNew"])
def test_a_checkpoint_with_the_content_of_an_earlier_step_is_named_and_has_no_run(tmp_path: Path, policy: str) -> None:
    """A trainer that stopped learning, or copied a directory, had its later steps left out without a word."""
    for step in (5, 10):
        write(tmp_path / f"global_step_{step}", model())
    fields: dict[str, Any] = {"policy": policy, "quiet_seconds": 0}
    first = listed(tmp_path, **fields | {"pattern": "global_step_5"})
    known = [one.digest[:10] for one in first.ready]
    again = listed(tmp_path, **fields, known=known, known_steps=[5])
    assert again.ready == []
    assert again.note == "The same content has one run: global_step_10 that of step 5."
    assert listed(tmp_path, **fields | {"pattern": "global_step_5"}, known=known, known_steps=[5]).note == ""


def test_copies_within_one_listing_get_one_run(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        write(tmp_path / f"global_step_{step}", model("w" if step < 15 else "other"))
    found = listed(tmp_path, policy="EveryNew", quiet_seconds=0)
    assert [one.step for one in found.ready] == [5, 15]
    assert found.note == "The same content has one run: global_step_10 that of step 5."


def test_the_digest_sees_both_ends_of_a_large_file(tmp_path: Path) -> None:
    size = 3 * 1024 * 1024
    digests = set()
    for number, weights in enumerate(("a" * size, "a" * (size - 1) + "b", "b" + "a" * (size - 1))):
        write(tmp_path / str(number) / "global_step_5", model(weights))
        digests.add(listed(tmp_path / str(number)).ready[0].digest)
    assert len(digests) == 3


def test_directory_name_without_a_step_is_reported_and_other_directories_are_ignored(tmp_path: Path) -> None:
    write(tmp_path / "global_step_final", model())
    write(tmp_path / "tensorboard_1", {"x": ""})
    answer = listed(tmp_path)
    assert (answer.folders, answer.ready) == (1, [])
    assert "no number in its name" in answer.troubles[0].reason
    assert "none of which matches" in listed(tmp_path, pattern="checkpoint-*").note


def test_a_directory_that_is_not_there_yet_is_no_error(tmp_path: Path) -> None:
    assert "nothing yet" in listed(tmp_path / "later").note


def test_a_store_that_refuses_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nostore"):
        CheckpointStore("nostore://bucket/x")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        listed(tmp_path / "file" / "below")


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("global_step_12", 12),
        ("checkpoint-500", 500),
        ("v2-ep3", 3),
        ("final", None),
        ("s-20261125120000", 20261125120000),
        ("s-" + "0" * 20 + "7", 7),
        ("s-" + "1" * 16, None),
    ],
)
def test_the_step_is_the_last_number(name: str, step: int | None) -> None:
    assert parse_step(name) == step


def test_make_file_fact_reads_etag_and_time_of_each_store() -> None:
    s3 = make_file_fact({"size": 3, "ETag": '"e"', "LastModified": NOW})
    gcs = make_file_fact({"size": 3, "etag": "e", "updated": "2026-05-01T03:00:00Z"})
    local = make_file_fact({"size": 3, "mtime": NOW.timestamp()})
    assert {fact.modified for fact in (s3, gcs, local)} == {NOW}
    assert (s3.etag, gcs.etag, local.etag) == ('"e"', "e", None)
    assert make_file_fact({"size": 3}).modified is None


def test_the_job_answers_into_its_termination_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "global_step_5", model())
    request = ListingRequest(url=str(tmp_path), quiet_seconds=0, pattern="*").model_dump_json()
    assert main([request, "--answer", str(tmp_path / "answer")]) == 0
    assert decode_answer((tmp_path / "answer").read_text()).ready[0].step == 5
    assert main([ListingRequest(url="nostore://b/x").model_dump_json()]) == 1
    assert capsys.readouterr().err.startswith("evalrun: nostore://b/x: ")
    assert main(["{}"]) == 2


def test_long_answer_is_cut_to_fit_a_termination_message_and_marked_incomplete() -> None:
    ready = [ReadyCheckpoint(path=f"{'x' * 300}_{step}", step=step, digest="a" * 32) for step in range(16)]
    troubles = [Trouble(name="y" * 200, broken=True, reason="z" * 300) for _ in range(20)]
    text = encode_answer(ListingAnswer(folders=1000, ready=ready, troubles=troubles))
    assert len(text.encode()) <= MAX_ANSWER_BYTES
    answer = decode_answer(text)
    assert answer.more
    assert answer.ready == ready[: len(answer.ready)] != []
    with pytest.raises(UnreadableAnswerError, match="cannot be read"):
        decode_answer(text[:-5])


def test_too_long_and_missing_numbers_in_names_are_reported_differently(tmp_path: Path) -> None:
    write(tmp_path / f"global_step_{'9' * 20}", model())
    write(tmp_path / "global_step_last", model())
    reasons = [trouble.reason for trouble in listed(tmp_path).troubles]
    assert reasons == [
        "has no step: its last number has 20 digits, and a step at most 15",
        "has no step: no number in its name",
    ]


@pytest.mark.parametrize("policy", ["Latest", "EveryNew"])
def test_copy_of_an_evaluated_checkpoint_does_not_hide_a_new_checkpoint(policy: str, tmp_path: Path) -> None:
    write(tmp_path / "global_step_100", model("old"))
    digest = listed(tmp_path).ready[0].digest[:10]
    write(tmp_path / "global_step_900", model("old"))
    write(tmp_path / "global_step_140", model("new"))
    answer = listed(tmp_path, policy=policy, from_step=100, known=[digest], known_steps=[100])
    assert [one.step for one in answer.ready] == [140]
    assert answer.note == "The same content has one run: global_step_900 that of step 100."


def test_higher_number_that_was_written_earlier_is_asked_about(tmp_path: Path) -> None:
    """A copy was evaluated under its number: what the training writes since lies below and would never be looked at."""
    write(tmp_path / "global_step_900", model("copied"), HOUR_AGO - 7200)
    digest = listed(tmp_path).ready[0].digest[:10]
    write(tmp_path / "global_step_140", model("new"))
    seen = {"from_step": 900, "known": [digest], "known_steps": [900]}
    answer = listed(tmp_path, **seen)
    assert (answer.ready, answer.troubles) == ([], [])
    assert answer.question.startswith("global_step_140 was written after global_step_900, which has the higher number")
    write(tmp_path / "global_step_140", model("new"), HOUR_AGO - 9000)
    assert listed(tmp_path, **seen).question == ""
