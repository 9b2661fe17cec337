"""Copies sources byte for byte, and records size and digest."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evalrun_data.sources import open_source
from evalrun_runtime.atomic_files import atomic_file

_COPY_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A raw file that was copied."""

    name: str
    source: str
    bytes: int
    sha256: str


def copy_source(source: str, base_dir: Path, target: Path, progress: Callable[[int], None]) -> CopiedFile:
    """Copy a source byte for byte, and return its size and digest. Raises BadInputError like reading does."""
    digest, size = hashlib.sha256(), 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_source(source, base_dir) as stream, atomic_file(target) as copy:
        while chunk := stream.read(_COPY_BYTES):
            digest.update(chunk)
            copy.write(chunk)
            size += len(chunk)
            progress(size)
    return CopiedFile(target.name, source, size, digest.hexdigest())
