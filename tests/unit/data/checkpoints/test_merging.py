"""Shards on their way to the merger, and merged models in a bounded cache."""

from pathlib import Path

import pytest

from evalrun_data.checkpoints.merging import find_outdated, main, store_model
from evalrun_runtime.exits import BadInputError, ExitCode

MODEL = {"config.json": "{}", "tokenizer.json": "{}", "model.safetensors": "w"}
ADAPTER = {"lora_adapter/adapter_config.json": '{"r": 4}', "lora_adapter/adapter_model.safetensors": "a"}


def write(directory: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


def name(step: int) -> str:
    return f"step-{step}-{step:010x}"


def test_fetch_copies_only_the_files_that_the_merger_reads(tmp_path: Path) -> None:
    files = {"model_world_size_1_rank_0.pt": "w", "fsdp_config.json": "{}", "huggingface/config.json": "{}"}
    write(tmp_path / "actor", files | {"optim_world_size_1_rank_0.pt": "large", "extra_state_world_size_1.pt": "x"})
    for _ in range(2):  # a container that is restarted
        assert main(["fetch", str(tmp_path / "actor"), str(tmp_path / "there")]) == 0
    there = {str(path.relative_to(tmp_path / "there")) for path in (tmp_path / "there").rglob("*") if path.is_file()}
    assert there == set(files)


def test_the_cache_keeps_the_newest_models_and_those_that_are_in_use(tmp_path: Path) -> None:
    cache, merged = tmp_path / "cache" / "nightly", write(tmp_path / "merged", MODEL)
    write(cache / "notes", {"a.txt": "not ours"})
    for step in (10, 9, 100, 20):
        assert store_model(merged, str(cache), name(step), 4, []) == []
    assert store_model(merged, str(cache), name(30), 3, [f"{10:010x}"]) == [name(9)]
    assert {path.name for path in cache.iterdir()} == {"notes", *map(name, (10, 20, 30, 100))}
    assert {path.name for path in (cache / name(30)).iterdir()} == set(MODEL)


def test_remains_of_an_attempt_are_replaced(tmp_path: Path) -> None:
    left = write(tmp_path / "cache" / name(5), {"config.json": "old", "model-00001-of-00002.safetensors": "half"})
    assert store_model(write(tmp_path / "merged", MODEL), str(tmp_path / "cache"), name(5), 1, []) == []
    assert {path.name: path.read_text() for path in left.iterdir()} == MODEL


def test_find_outdated_keeps_the_newest_and_the_models_in_use() -> None:
    there = [*map(name, range(1, 8)), "step-3", "other"]
    assert find_outdated(there, name(9), 3, {f"{2:010x}"}) == [name(step) for step in (1, 3, 4, 5)]
    assert find_outdated([name(9)], name(9), 1, set()) == []


def test_merged_adapter_is_cached_without_its_base(tmp_path: Path) -> None:
    merged, cache = write(tmp_path / "merged", MODEL | ADAPTER), tmp_path / "cache"
    assert main(["store", str(merged), str(cache), name(5), "--keep=3", "--adapter"]) == 0
    assert {path.name for path in (cache / name(5)).iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}


def test_store_of_a_model_where_an_adapter_is_expected_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="wrote no LoRA adapter"):
        store_model(write(tmp_path / "merged", MODEL), str(tmp_path / "cache"), name(5), 3, [], adapter=True)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (MODEL | ADAPTER, "of a LoRA training"),  # the base model beside it is another model
        (ADAPTER, "of a LoRA training"),
        ({"config.json": "{}", "tokenizer.json": "{}"}, "is missing weights"),
        ({}, "is empty"),
    ],
)
def test_files_other_than_the_checkpoints_model_never_reach_the_cache(
    tmp_path: Path, files: dict[str, str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    merged, cache = write(tmp_path / "merged", files), tmp_path / "cache"
    merged.mkdir(exist_ok=True)
    with pytest.raises(BadInputError, match=says):
        store_model(merged, str(cache), name(5), 3, [])
    assert main(["store", str(merged), str(cache), name(5), "--keep=3"]) == ExitCode.BAD_INPUT
    assert says in capsys.readouterr().err.splitlines()[-1]
    assert not cache.exists()
