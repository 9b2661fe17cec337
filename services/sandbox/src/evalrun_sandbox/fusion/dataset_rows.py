"""Finds dataset rows in the request itself (`config.provided_data`) or in a directory of `<dataset>.jsonl` files."""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evalrun_runtime.exits import BadInputError
from evalrun_sandbox.fusion.refusals import BadRequest, NotHere
from evalrun_sandbox.fusion.registry import REGISTERED
from evalrun_sandbox.fusion.schemas import DatasetRequest, GetPromptsRequest, Row

logger = logging.getLogger(__name__)

_ID_FIELDS = ("id", "task_id", "name")
_TABLE_PREFIX = "code_eval_"
"""Prefix of the dataset's name in the stock server's sample files."""

Place = tuple[int | str, int]
"""A row's id, and the offset of its line in the file."""


class RowDirectory:
    """Rows of each `<dataset>.jsonl` in a directory. Ids are indexed at start, rows are read on demand."""

    def __init__(self, files: Mapping[str, tuple[Path, Sequence[Place]]]) -> None:
        self._files = files

    @classmethod
    def open(cls, directory: Path) -> "RowDirectory":
        """Index a directory. Raises BadInputError naming file and line."""
        if not directory.is_dir():
            raise BadInputError(f"--fusion-datasets {directory}: no such directory; it may be empty")
        files = {}
        for path in sorted(directory.glob("*.jsonl")):
            files[path.stem.removeprefix(_TABLE_PREFIX)] = (path, _index(path))
        unknown = sorted(name for name in files if name not in REGISTERED)
        if unknown:
            logger.info("datasets whose name implies no family, so requests need config.dataset_type: %s", unknown)
        return cls(files)

    @property
    def names(self) -> list[str]:
        """Datasets in the directory that need no `dataset_type`."""
        return sorted(name for name in self._files if name in REGISTERED)

    async def read_rows(self, request: GetPromptsRequest) -> list[Row]:
        """Return the requested rows by id. Raises BadRequest or NotHere."""
        provided = request.config.provided_data
        if provided:
            if not isinstance(provided, list):
                raise BadRequest("request.config.provided_data should be a list of str -> str | int")
            # The stock server returns all provided rows, whatever offset and limit are.
            return provided
        if request.offset < 0 or request.limit < 0:
            raise BadRequest("offset and limit must be 0 or more")
        path, places = self._find(request.dataset)
        return await asyncio.to_thread(_read, path, places[request.offset : request.offset + request.limit])

    async def read_row(self, request: DatasetRequest, wanted: int | str) -> Row:
        """Return the row that a request names or contains. Raises BadRequest or NotHere."""
        provided = request.config.provided_data
        if provided:
            if not isinstance(provided, dict):
                raise BadRequest("request.config.provided_data should be a dict with str -> str | int")
            return provided
        path, places = self._find(request.dataset)
        found = [place for place in places if str(place[0]) == str(wanted)]
        if not found:
            raise NotHere(f"dataset {request.dataset} has no row {str(wanted)[:200]!r}")
        return (await asyncio.to_thread(_read, path, found[:1]))[0]

    def _find(self, dataset: str) -> tuple[Path, Sequence[Place]]:
        if dataset not in self._files:
            raise NotHere(
                f"no rows of dataset {dataset[:200]} are here (there are: {', '.join(sorted(self._files)) or 'none'}): "
                f"put {dataset[:200]}.jsonl into --fusion-datasets, or send rows as config.provided_data"
            )
        return self._files[dataset]


def _index(path: Path) -> list[Place]:
    places: list[Place] = []
    with path.open("rb") as file:
        offset = 0
        for number, line in enumerate(file, 1):
            if line.strip():
                places.append((_read_id(line, f"{path}:{number}"), offset))
            offset += len(line)
    return sorted(places, key=lambda place: (isinstance(place[0], str), place[0]))


def _read_id(line: bytes, where: str) -> int | str:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise BadInputError(f"{where}: not JSON: {error}") from error
    if isinstance(row, dict):
        for name in _ID_FIELDS:
            if isinstance(row.get(name), int | str):
                return row[name]  # type: ignore[no-any-return]  # checked the line before
    raise BadInputError(f"{where}: a row must be an object with one of the fields {', '.join(_ID_FIELDS)}")


def _read(path: Path, places: Sequence[Place]) -> list[Row]:
    rows = []
    with path.open("rb") as file:
        for _, offset in places:
            file.seek(offset)
            rows.append(json.loads(file.readline()))
    return rows
