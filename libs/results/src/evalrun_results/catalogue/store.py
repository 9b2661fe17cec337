"""Writes and reads the catalogue: Parquet files in a directory or bucket, which several writers may add to at once.

Files are never changed. Results of an entry are written before the row that names their file, so a writer that dies
leaves at most a file that no row names. Compaction writes new files with newer rows and then deletes what it has read;
if two writers compact at once, the newest row of an entry decides which of their files counts.
"""

import hashlib
import io
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from evalrun_data.sources import read_rows
from evalrun_data.store_problems import name_read_errors
from evalrun_results.catalogue.entry import RESULT_COLUMNS, RESULT_SCHEMA, RUN_SCHEMA, SCHEMA_VERSION, run_row
from evalrun_results.catalogue.location import FOLDER
from evalrun_results.outputs.destination import SUMMARY, resolve_destination
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

COMPACT_AT: Final = 64
"""Small files from which on an update compacts them."""
SMALL_BYTES: Final = 64 << 20
"""Files of results below this size are merged."""
GARBAGE_SECONDS: Final = 3600.0
"""Age from which an unnamed file is deleted: a writer may be about to name a younger file."""
_BATCH: Final = 200
"""Runs that an update writes into a file."""
_KEYS: Final = ["schema", "place", "stamp", "indexed_at", "compacted_at", "removed", "results_file"]
"""Columns that decide which row of a run counts, and whether the run has changed since."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that an update found."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    skipped: Sequence[str] = ()
    """Runs that could not be read, with the reason."""


@dataclass(frozen=True, slots=True)
class CatalogueFiles:
    """Files that hold the catalogue now."""

    runs: Sequence[str]
    results: Sequence[str]


@dataclass
class _Pending:
    rows: list[dict[str, object]] = field(default_factory=list)
    results: list[pa.Table] = field(default_factory=list)


class Catalogue:
    """The catalogue of the runs below one directory or URL."""

    def __init__(
        self,
        place: str,
        *,
        now: Callable[[], float],
        new_name: Callable[[], str],
        signer_of: Callable[[str], str] = lambda place: "",
    ) -> None:
        """Open a catalogue; nothing is read or written yet.

        Args:
            place: the runs' directory or fsspec URL.
            now: Unix seconds.
            new_name: makes a name that no other writer makes.
            signer_of: key or identity that signed the run at a place; empty if none is known.

        Raises:
            BadInputError: the URL cannot be used.
        """
        self.place = place.rstrip("/") or place
        self._files, path = resolve_destination(place)
        self._root = path.rstrip("/")
        self._folder = f"{self._root}/{FOLDER}"
        self._now, self._new_name, self._signer_of = now, new_name, signer_of

    def update(self) -> Changes:
        """Add runs that are new or have changed, and mark those that are gone.

        Raises:
            BadInputError: the directory cannot be read.
            OSError: the catalogue cannot be written.
        """
        unread: list[str] = []
        with name_read_errors(self.place):
            found = dict(self._runs_below(unread))
        known = {str(row["place"]): row for row in self.live_rows(_KEYS)}
        results = {None, *self._list("results")}
        pending, skipped = _Pending(), [f"{place}: cannot be read" for place in unread]
        added = changed = 0
        for place, stamp in found.items():
            before = known.get(place)
            if before is not None and before["stamp"] == stamp and before["results_file"] in results:
                continue
            try:
                self._read(place, stamp, pending)
            except (BadInputError, OSError, pa.ArrowException) as error:
                skipped.append(f"{place}: {error}")
                continue
            added, changed = added + (before is None), changed + (before is not None)
            if len(pending.rows) >= _BATCH:
                self._write(pending)
                pending = _Pending()
        hidden = tuple(f"{place}/" for place in unread)
        gone = [place for place in known if place not in found and not f"{place}/".startswith(hidden)]
        pending.rows += [self._removal(place) for place in gone]
        self._write(pending)
        if len(self._list("runs")) >= COMPACT_AT:
            self.compact()
        unchanged = len(found) - added - changed - (len(skipped) - len(unread))
        return Changes(added, changed, len(gone), unchanged, skipped)

    def begin(self) -> None:
        """Write an empty catalogue if none exists, so that future runs add themselves. Raises OSError."""
        if not self._list("runs"):
            self._put("runs", f"{self._new_name()}.parquet", RUN_SCHEMA.empty_table())

    def add(self, place: str) -> None:
        """Add a run that has just ended, even if the catalogue has it: the newest row counts. No other run is read.

        Args:
            place: path of the run, relative to the directory of the runs.

        Raises:
            BadInputError: the run cannot be read.
            OSError: the catalogue cannot be written.
        """
        pending = _Pending()
        self._files.invalidate_cache()
        self._read(place, _stamp(self._files.info(f"{self._root}/{place}/{SUMMARY}")), pending)
        self._write(pending)

    def _runs_below(self, unread: list[str]) -> Iterator[tuple[str, str]]:
        """Yield path and stamp of each finished run outside hidden directories.

        Args:
            unread: receives the paths of local directories that cannot be read.
        """
        self._files.invalidate_cache()
        if isinstance(self._files, LocalFileSystem):
            directories: list[str] = []
            for directory, info in _summaries_below(self._root or "/", directories):
                yield self._to_place(directory), _stamp(info)
            unread += map(self._to_place, directories)
            return
        root = PurePosixPath(self._root)
        for path, info in sorted(self._files.find(self._root, detail=True).items()):
            place = PurePosixPath(path).relative_to(root)
            if place.name == SUMMARY and not any(part.startswith(".") for part in place.parts):
                yield str(place.parent), _stamp(info)

    def _to_place(self, directory: str) -> str:
        return directory.removeprefix(self._root).strip("/") or "."

    def to_path(self, place: str) -> str:
        """Return the directory or URL of a run of the catalogue."""
        return self.place if place == "." else f"{self.place}/{place}"

    def _read(self, place: str, stamp: str, pending: _Pending) -> None:
        """Read a run into the rows to write. Raises BadInputError."""
        where = self._root if place == "." else f"{self._root}/{place}"
        summary, run_info = self._document(f"{where}/{SUMMARY}"), self._document(f"{where}/run_info.json")
        row = run_row(place, summary, run_info, signed_by=self._signer_of(self.to_path(place)))
        entry = hashlib.sha256(f"{place}\0{stamp}\0{self._new_name()}".encode()).hexdigest()[:20]
        results = self._results(where, entry)
        row |= {"entry": entry, "stamp": stamp, "indexed_at": self._now(), "compacted_at": 0.0}
        row["results_source"] = "results.parquet" if self._files.exists(f"{where}/results.parquet") else None
        pending.rows.append(row)
        if results is not None:
            pending.results.append(results)

    def _document(self, path: str) -> Mapping[str, Any]:
        try:
            content = json.loads(self._files.cat_file(path))
        except FileNotFoundError as error:
            raise BadInputError(f"{PurePosixPath(path).name} is missing") from error
        except ValueError as error:
            raise BadInputError(f"{PurePosixPath(path).name} is not JSON") from error
        if not isinstance(content, dict):
            raise BadInputError(f"{PurePosixPath(path).name} is not a JSON object")
        return content

    def _results(self, where: str, entry: str) -> pa.Table | None:
        """Return the small columns of a run's results; None without results."""
        if self._files.exists(f"{where}/results.parquet"):
            with self._files.open(f"{where}/results.parquet", "rb") as file:
                parquet = pq.ParquetFile(file)
                columns = [name for name in RESULT_COLUMNS if name in parquet.schema_arrow.names]
                table = parquet.read(columns=columns)
        elif self._files.exists(f"{where}/results.jsonl"):
            url = where if isinstance(self._files, LocalFileSystem) else self._files.unstrip_protocol(where)
            rows = [
                {name: row.values.get(name) for name in RESULT_COLUMNS} for row in read_rows(f"{url}/results.jsonl")
            ]
            table = pa.Table.from_pylist(rows, schema=pa.schema([f for f in RESULT_SCHEMA if f.name != "entry"]))
        else:
            return None
        return _as_results(table, entry)

    def _removal(self, place: str) -> dict[str, object]:
        return {
            "schema": SCHEMA_VERSION,
            "entry": hashlib.sha256(f"{place}\0{self._new_name()}".encode()).hexdigest()[:20],
            "place": place,
            "indexed_at": self._now(),
            "compacted_at": 0.0,
            "removed": True,
        }

    def _write(self, pending: _Pending) -> None:
        if not pending.rows:
            return
        name = f"{self._new_name()}.parquet"
        if pending.results:
            self._put("results", name, pa.concat_tables(pending.results))
            held = {table.column("entry")[0].as_py() for table in pending.results if table.num_rows}
            for row in pending.rows:
                row["results_file"] = name if row["entry"] in held else None
        self._put("runs", name, pa.Table.from_pylist(pending.rows, schema=RUN_SCHEMA))

    def _put(self, kind: str, name: str, table: pa.Table) -> None:
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="zstd")
        self._put_bytes(kind, name, sink.getvalue())

    def _put_bytes(self, kind: str, name: str, content: bytes) -> None:
        """Write a file as a whole: by a rename on a disk, by one request in a bucket."""
        target = f"{self._folder}/{kind}/{name}"
        if isinstance(self._files, LocalFileSystem):
            self._files.makedirs(f"{self._folder}/{kind}", exist_ok=True)
            self._files.pipe_file(f"{target}.partial", content)
            self._files.mv(f"{target}.partial", target)
        else:
            self._files.pipe_file(target, content)

    def _list(self, kind: str) -> dict[str, Mapping[str, Any]]:
        """Return the files of a kind by name, with their metadata in the store."""
        self._files.invalidate_cache()
        try:
            found = self._files.ls(f"{self._folder}/{kind}", detail=True)
        except FileNotFoundError:
            return {}
        names = {info["name"].rpartition("/")[2]: info for info in found if info["type"] == "file"}
        return {name: info for name, info in sorted(names.items()) if name.endswith(".parquet")}

    def files(self) -> CatalogueFiles:
        """Return the files of the catalogue, as paths or URLs."""
        base = f"{self.place}/{FOLDER}"
        return CatalogueFiles(
            [f"{base}/runs/{name}" for name in self._list("runs")],
            [f"{base}/results/{name}" for name in self._list("results")],
        )

    def live_rows(self, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return the newest row of each run that is not gone. Rows of a newer evalrun are left alone.

        Args:
            columns: to read; they must include `_KEYS`. None reads all.
        """
        rows = [row for rows in self._rows(columns).values() for row in rows]
        return [row for row in _newest(rows).values() if not row["removed"]]

    def _rows(self, columns: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return the rows by the file that holds them."""
        rows = {}
        for name in self._list("runs"):
            try:
                content = self._files.cat_file(f"{self._folder}/runs/{name}")
            # Another writer has just compacted the file.
            except FileNotFoundError:
                continue
            rows[name] = _read_table(content, columns).to_pylist()
        return rows

    def compact(self) -> None:
        """Merge small files, and delete files that no row names any more. Raises OSError.

        What another writer adds meanwhile stays as it is, and so do files with rows of a newer evalrun and the results
        that they name. Does nothing if another writer has compacted the same files first.
        """
        result_files, listed = self._list("results"), self._list("runs")
        every = self._rows()
        if not listed.keys() <= every.keys():
            logger.info("catalogue %s: another writer compacts it", self.place)
            return
        by_file = {name: rows for name, rows in every.items() if all(row["schema"] <= SCHEMA_VERSION for row in rows)}
        live = _newest([row for rows in by_file.values() for row in rows])
        kept = [row for row in live.values() if not row["removed"]]
        small = {name for name, info in result_files.items() if info["size"] < SMALL_BYTES}
        merged = {str(row["entry"]): row for row in kept if row["results_file"] in small}
        sources: dict[str, list[str]] = {}
        for entry, row in sorted(merged.items()):
            sources.setdefault(str(row["results_file"]), []).append(entry)
        name, now = f"{self._new_name()}.parquet", self._now()
        if merged:
            try:
                self._merge_results(name, sources)
            except FileNotFoundError:
                logger.info("catalogue %s: another writer has compacted it", self.place)
                return
        for row in kept:
            row["compacted_at"] = now
            if row["entry"] in merged:
                row["results_file"] = name
        if kept:
            self._put("runs", name, pa.Table.from_pylist(kept, schema=RUN_SCHEMA))
        self._delete("runs", by_file)
        # Read again: another writer may have named files since.
        named = {str(row["results_file"]) for rows in self._rows(_KEYS).values() for row in rows}
        garbage = {each for each, info in result_files.items() if _is_old(info, now)}
        self._delete("results", (sources.keys() | garbage) - named)

    def _merge_results(self, name: str, sources: Mapping[str, Sequence[str]]) -> None:
        """Write the results of some entries into a single file, one source after the other.

        Args:
            name: of the new file.
            sources: the entries to take of each file. A file may also hold other entries, which two writers have both
                merged.
        """
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, RESULT_SCHEMA, compression="zstd") as writer:
            for source, entries in sorted(sources.items()):
                content = self._files.cat_file(f"{self._folder}/results/{source}")
                # An older file lacks columns.
                whole = [RESULT_SCHEMA.empty_table(), _read_table(content)]
                table = pa.concat_tables(whole, promote_options="permissive").select(RESULT_SCHEMA.names)
                table = table.cast(RESULT_SCHEMA)
                writer.write_table(table.filter(pc.is_in(table.column("entry"), value_set=pa.array(entries))))
        self._put_bytes("results", name, sink.getvalue())

    def _delete(self, kind: str, names: Iterable[str]) -> None:
        for name in names:
            try:
                self._files.rm_file(f"{self._folder}/{kind}/{name}")
            # Another writer was faster.
            except FileNotFoundError:
                continue


def _read_table(content: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a Parquet file's table.

    It is read in this thread. Other threads release the Python file when they are done; if that is after the
    interpreter's end, the process aborts, as one of seven did that ended right after `pq.read_table` (pyarrow 26.0.1).
    """
    return pq.ParquetFile(io.BytesIO(content)).read(columns=columns, use_threads=False)


def _summaries_below(root: str, unread: list[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each directory with a summary, and the summary's size and date. Raises OSError: the root cannot be read.

    What is deleted meanwhile is left out.

    Args:
        root: directory to search.
        unread: gets the directories below it that cannot be read.
    """

    def note(error: OSError) -> None:
        if error.filename == root:
            raise error
        if not isinstance(error, FileNotFoundError):
            unread.append(str(error.filename))

    for directory, below, names in os.walk(root, onerror=note):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if SUMMARY in names:
            try:
                found = Path(directory, SUMMARY).stat()
            except FileNotFoundError:
                continue
            except OSError:
                unread.append(directory)
                below.clear()
                continue
            yield directory, {"size": found.st_size, "mtime": found.st_mtime}


def _stamp(info: Mapping[str, Any]) -> str:
    """Return a text that changes whenever a file does, from the store's information about it."""
    changed = info.get("ETag") or info.get("mtime") or info.get("LastModified") or info.get("updated")
    return f"{info.get('size')}-{changed}"


def _newest(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the newest row of each run, among rows whose version is known here."""
    known = (row for row in rows if row["schema"] <= SCHEMA_VERSION)
    return {row["place"]: {**row} for row in sorted(known, key=_age)}


def _is_old(info: Mapping[str, Any], now: float) -> bool:
    written = info.get("mtime") or info.get("created")
    return isinstance(written, int | float) and now - written > GARBAGE_SECONDS


def _age(row: Mapping[str, Any]) -> tuple[float, float, str]:
    """Order the rows of a run by the time of reading, then by the time of compaction."""
    return row["indexed_at"], row["compacted_at"], str(row["results_file"])


def _as_results(table: pa.Table, entry: str) -> pa.Table:
    """Return rows in the catalogue's columns; a column that an older run lacks is null."""
    columns = [pa.array([entry] * table.num_rows, pa.string())]
    for wanted in list(RESULT_SCHEMA)[1:]:
        if wanted.name in table.column_names:
            columns.append(table.column(wanted.name).cast(wanted.type))
        else:
            columns.append(pa.nulls(table.num_rows, wanted.type))
    return pa.Table.from_arrays(columns, schema=RESULT_SCHEMA)
