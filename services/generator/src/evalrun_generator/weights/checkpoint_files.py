"""Reads a checkpoint's directory, and refuses incomplete files."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

WEIGHTS: Final = "*.safetensors"
INDEX: Final = "model.safetensors.index.json"
SERVING_FILES: Final = ("*.json", "*.jinja", "*.model", "*.py", "*.txt")
"""Files beside the weights that an engine reads: configuration, tokenizer, chat template, code."""
NOT_SERVED: Final = frozenset({INDEX, "trainer_state.json", "all_results.json", "train_results.json"})
UNREAD_KEYS: Final = ("_name_or_path", "transformers_version")
"""Keys of config.json that name the origin of a checkpoint."""
LENGTH_BYTES: Final = 8
MAX_HEADER_BYTES: Final = 100_000_000
"""The same limit as in the safetensors package."""


class UnfitCheckpointError(Exception):
    """The running engine cannot load a checkpoint. A new engine may load it, or explain more."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Position of a tensor's bytes."""

    file: Path
    dtype: str
    """Data type in the notation of safetensors: BF16."""
    shape: tuple[int, ...]
    start: int
    """First byte of the tensor in the file."""
    length: int
    """Length in bytes."""


def read_index(directory: Path) -> dict[str, StoredTensor]:
    """Return every tensor of a checkpoint by name, in the order of its bytes. Reads no weights.

    Raises:
        UnfitCheckpointError: there are no safetensors files, one is cut off or has no readable header, or a tensor or
            file that the index names is missing.
    """
    files = sorted(directory.glob(WEIGHTS))
    if not files:
        raise UnfitCheckpointError(f"{directory} holds no {WEIGHTS}")
    found: dict[str, StoredTensor] = {}
    for file in files:
        held = _read_tensors(file)
        if twice := sorted(held.keys() & found.keys()):
            raise UnfitCheckpointError(f"{file}: {twice[0]} is in another file too")
        found |= held
    if (directory / INDEX).is_file():
        try:
            named = json.loads((directory / INDEX).read_bytes())["weight_map"].keys()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnfitCheckpointError(f"{directory / INDEX}: no weight_map can be read") from error
        if wrong := sorted(named ^ found.keys()):
            raise UnfitCheckpointError(f"{directory}: {INDEX} and the files differ in {len(wrong)} tensors: {wrong[0]}")
    return found


def _read_tensors(file: Path) -> dict[str, StoredTensor]:
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
            if length > MAX_HEADER_BYTES:
                raise UnfitCheckpointError(f"{file}: its header would be {length} bytes long")
            header = json.loads(stream.read(length))
            size = file.stat().st_size
        begin = LENGTH_BYTES + length
        held = {name: _tensor(file, begin, entry) for name, entry in header.items() if name != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnfitCheckpointError(f"{file}: no safetensors header can be read: {error}") from error
    ordered = dict(sorted(held.items(), key=lambda item: item[1].start))
    end = begin
    for name, tensor in ordered.items():
        if tensor.start != end or tensor.length < 0:
            raise UnfitCheckpointError(f"{file}: the bytes of {name} do not follow those of the tensor before")
        end = tensor.start + tensor.length
    if size != end:
        raise UnfitCheckpointError(f"{file}: {size} bytes, though its header describes {end}")
    return ordered


def _tensor(file: Path, begin: int, entry: Mapping[str, Any]) -> StoredTensor:
    first, last = entry["data_offsets"]
    shape = tuple(int(each) for each in entry["shape"])
    return StoredTensor(file, str(entry["dtype"]), shape, begin + int(first), int(last) - int(first))


def file_stamps(directory: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Return name, bytes, time of the last change and inode of each file of weights. A write changes them."""
    found = ((file.name, file.stat()) for file in sorted(directory.glob(WEIGHTS)))
    return tuple((name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in found)


def compute_serving_digest(directory: Path) -> str:
    """Return a SHA-256 over everything that an engine reads beside the weights.

    Two checkpoints with the same digest are served alike.

    Raises:
        UnfitCheckpointError: config.json is missing or no JSON object.
    """
    try:
        config = json.loads((directory / "config.json").read_bytes())
        content = {key: value for key, value in config.items() if key not in UNREAD_KEYS}
    except (OSError, ValueError, AttributeError) as error:
        raise UnfitCheckpointError(f"{directory / 'config.json'} cannot be read: {error}") from error
    whole = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    files = {file for kind in SERVING_FILES for file in directory.glob(kind) if file.is_file()}
    for file in sorted(files):
        if file.name != "config.json" and file.name not in NOT_SERVED:
            whole.update(f"\n{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}".encode())
    return whole.hexdigest()
