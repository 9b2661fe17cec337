"""A checkpoint's directory: every broken one is refused before a byte reaches an engine."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from evalrun_generator.weights.checkpoint_files import (
    INDEX,
    UnfitCheckpointError,
    compute_serving_digest,
    file_stamps,
    read_index,
)

TENSORS = {"a.weight": (2, 4), "b.weight": (3,)}


def write_weights(file: Path, tensors: Mapping[str, tuple[int, ...]], bytes_each: int = 4) -> None:
    header, data = {}, b""
    for number, (name, shape) in enumerate(tensors.items()):
        size = bytes_each
        for each in shape:
            size *= each
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + size]}
        data += bytes([number]) * size
    text = json.dumps(header | {"__metadata__": {"format": "pt"}}).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)


def checkpoint(directory: Path) -> Path:
    directory.mkdir()
    write_weights(directory / "model.safetensors", TENSORS)
    (directory / "config.json").write_text('{"hidden_size": 4, "transformers_version": "5"}')
    (directory / "tokenizer.json").write_text("{}")
    return directory


def change(file: Path, edit: Callable[[bytes], bytes]) -> None:
    file.write_bytes(edit(file.read_bytes()))


def test_every_tensor_is_found_where_its_bytes_lie(tmp_path: Path) -> None:
    found = read_index(checkpoint(tmp_path / "one"))
    assert {name: tensor.shape for name, tensor in found.items()} == TENSORS
    content = (tmp_path / "one" / "model.safetensors").read_bytes()
    for number, tensor in enumerate(found.values()):
        assert content[tensor.start : tensor.start + tensor.length] == bytes([number]) * tensor.length
    assert sum(tensor.length for tensor in found.values()) == 4 * (8 + 3)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda content: content[:-1], "though its header describes"),
        (lambda content: content + b"\0", "though its header describes"),
        (lambda content: content[:40], "no safetensors header"),
        (lambda content: b"", "no safetensors header"),
        (lambda content: b"\xff" * 8 + content[8:], "its header would be"),
        (lambda content: content.replace(b'"data_offsets"', b'"data_offsetz"'), "no safetensors header"),
        (lambda content: content.replace(b"[0, 32]", b"[1, 32]"), "do not follow"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(tmp_path: Path, edit: Callable[[bytes], bytes], said: str) -> None:
    place = checkpoint(tmp_path / "one")
    change(place / "model.safetensors", edit)
    with pytest.raises(UnfitCheckpointError, match=said):
        read_index(place)


def test_a_missing_shard_and_a_tensor_in_two_files_are_refused(tmp_path: Path) -> None:
    place = checkpoint(tmp_path / "one")
    (place / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys([*TENSORS, "c.weight"], "x")}))
    with pytest.raises(UnfitCheckpointError, match=r"c\.weight"):
        read_index(place)
    (place / INDEX).unlink()
    write_weights(place / "more.safetensors", {"a.weight": (1,)})
    with pytest.raises(UnfitCheckpointError, match="in another file too"):
        read_index(place)
    with pytest.raises(UnfitCheckpointError, match="holds no"):
        read_index(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "is_served_alike"),
    [
        ("config.json", '{"hidden_size": 4, "transformers_version": "6"}', True),
        ("config.json", '{"hidden_size": 8, "transformers_version": "5"}', False),
        ("tokenizer.json", '{"a": 1}', False),
        ("chat_template.jinja", "{{ messages }}", False),
        ("trainer_state.json", "{}", True),
        ("optimizer.pt", "", True),
    ],
)
def test_an_engine_serves_two_checkpoints_alike_where_only_the_weights_differ(
    tmp_path: Path, name: str, text: str, is_served_alike: bool
) -> None:
    first, second = checkpoint(tmp_path / "one"), checkpoint(tmp_path / "two")
    change(second / "model.safetensors", lambda content: content[:-1] + b"\7")
    assert compute_serving_digest(first) == compute_serving_digest(second)
    (second / name).write_text(text)
    assert (compute_serving_digest(first) == compute_serving_digest(second)) == is_served_alike


def test_rewritten_file_has_another_stamp(tmp_path: Path) -> None:
    place = checkpoint(tmp_path / "one")
    before = file_stamps(place)
    assert file_stamps(place) == before
    change(place / "model.safetensors", lambda content: content + b"\0")
    assert file_stamps(place) != before
