"""Runs to export, and a reader of what wandb wrote."""

import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2

from evalrun_api.run_config import RunConfig

BLOCK_BYTES = 32 * 1024
HEADER_BYTES = 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def run_config(exports: dict[str, Any], **changes: Any) -> RunConfig:
    spec = {
        "model": {"path": "some/model"},
        "datasets": [{"name": "humaneval", "source": "humaneval.jsonl"}],
        "endpoints": [{"url": "http://127.0.0.1:1/v1", "model": "m"}],
        "exports": exports,
    }
    created = datetime(2026, 1, 2, tzinfo=UTC)
    return RunConfig.model_validate(
        {"run": "nightly", "created": created, "spec": spec, "output_dir": "/out", "uid": "u-1", **changes}
    )


def wandb_records(path: Path) -> Iterator[Any]:
    """Read a .wandb file: LevelDB's log format after 7 bytes of its own, a protobuf `Record` each."""
    content = path.read_bytes()
    assert content[:4] == b":W&B"
    position, parts = HEADER_BYTES, b""
    while position + HEADER_BYTES <= len(content):
        left = BLOCK_BYTES - position % BLOCK_BYTES
        if left < HEADER_BYTES:
            position += left
            continue
        _checksum, length, kind = struct.unpack("<IHB", content[position : position + HEADER_BYTES])
        start = position + HEADER_BYTES
        parts += content[start : start + length]
        position = start + length
        if kind in (FULL, LAST):
            record = wandb_internal_pb2.Record()  # type: ignore[attr-defined]  # wandb chooses its stubs at run time
            record.ParseFromString(parts)
            yield record
            parts = b""
