"""Checkpointed records: a dataset is written in parts, each committed as a whole, so that a killed run goes on.

A part's `.json` file is written last and commits it. Whatever lies beside it without one is written again.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow.parquet as pq

from evalrun_data.governance.compared_texts import ProblemText
from evalrun_data.governance.manifest import ManifestLine
from evalrun_data.governance.record_tables import Columns, choose_schema, make_table
from evalrun_runtime.atomic_files import atomic_file, write_text

PART_BYTES: Final = 64 << 20
"""Bytes of text that a part holds before it is committed: the maximum loss of a kill, and what is held in memory."""
PART_ROWS: Final = 2000
ROW_GROUP_BYTES: Final = 16 << 20
COMPRESSION: Final = "zstd"


@dataclass(slots=True)
class DataPart:
    """The part being filled."""

    rows: list[Columns] = field(default_factory=list)
    manifest: list[ManifestLine] = field(default_factory=list)
    texts: list[ProblemText] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    bytes: int = 0

    @property
    def full(self) -> bool:
        """Whether it is time to commit."""
        return self.bytes >= PART_BYTES or len(self.rows) >= PART_ROWS


class PartDirectory:
    """The committed parts of a dataset."""

    def __init__(self, directory: Path, role: str) -> None:
        """Open the directory, or create it."""
        self._folder = directory
        self._role = role
        directory.mkdir(parents=True, exist_ok=True)
        self._committed: list[dict[str, Any]] = []
        while (commit := self._file(len(self._committed), "json")).exists():
            self._committed.append(json.loads(commit.read_text(encoding="utf-8")))

    @property
    def consumed(self) -> int:
        """Number of source problems in the committed parts, including duplicates."""
        return int(self._committed[-1]["consumed"]) if self._committed else 0

    def read_committed(self) -> Iterator[tuple[str, str]]:
        """Yield problem id and prompt hash of every committed problem, duplicates included."""
        for number in range(len(self._committed)):
            for suffix in ("manifest", "duplicates"):
                with self._file(number, suffix).open(encoding="utf-8") as stream:
                    for line in stream:
                        entry = json.loads(line)
                        yield entry["problem_id"], entry["prompt_sha256"]

    def commit(self, part: DataPart, consumed: int) -> None:
        """Write a part; it counts from when its last file has its name."""
        number = len(self._committed)
        with atomic_file(self._file(number, "parquet")) as stream:
            group = max(1, len(part.rows) * ROW_GROUP_BYTES // max(part.bytes, 1))
            pq.write_table(make_table(part.rows, self._role), stream, compression=COMPRESSION, row_group_size=group)
        write_text(self._file(number, "manifest"), "".join(line.json_line for line in part.manifest))
        write_text(self._file(number, "texts"), "".join(text.json_line for text in part.texts))
        write_text(self._file(number, "duplicates"), "".join(part.duplicates))
        commit = {"consumed": consumed, "kept": len(part.rows), "removed": len(part.duplicates)}
        write_text(self._file(number, "json"), json.dumps(commit))
        self._committed.append(commit)

    def merge(self, records: Path, manifest: Path, texts: Path, duplicates: Path) -> tuple[int, int]:
        """Write all parts into a file each. Return the numbers of kept and removed records."""
        for target in (records, manifest, texts, duplicates):
            target.parent.mkdir(parents=True, exist_ok=True)
        with (
            atomic_file(records) as stream,
            pq.ParquetWriter(stream, choose_schema(self._role), compression=COMPRESSION) as writer,
        ):
            for number in range(len(self._committed)):
                with pq.ParquetFile(self._file(number, "parquet")) as part:
                    for group in range(part.num_row_groups):
                        writer.write_table(part.read_row_group(group))
        for suffix, target in (("manifest", manifest), ("texts", texts), ("duplicates", duplicates)):
            with atomic_file(target) as stream:
                for number in range(len(self._committed)):
                    _append(stream, self._file(number, suffix))
        return sum(part["kept"] for part in self._committed), sum(part["removed"] for part in self._committed)

    def _file(self, number: int, suffix: str) -> Path:
        return self._folder / f"{number:05d}.{suffix}"


def _append(stream: BinaryIO, file: Path) -> None:
    with file.open("rb") as part:
        shutil.copyfileobj(part, stream)
