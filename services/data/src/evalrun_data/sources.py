"""Opens what a user names (a path, `file://`, any fsspec URL) and yields its rows, gzip and Parquet told by content."""

import gzip
import json
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, Final, cast
from urllib.parse import unquote, urlsplit

from evalrun_data.rows import Row, kind_of
from evalrun_runtime.exits import BadInputError

BUILTIN_SCHEME: Final = "builtin:"
_GZIP_MAGIC = b"\x1f\x8b"
_PARQUET_MAGIC = b"PAR1"
# Contest problems have megabytes of tests a row: few rows at a time keep a 13k-record file in a small memory.
_PARQUET_BATCH_ROWS = 32
_COPY_BYTES = 4 << 20


def local_path(source: str, base_dir: Path) -> Path | None:
    """Where a source lies on this machine, relative ones below `base_dir`; None for a remote URL."""
    if "://" not in source:
        return base_dir / source
    parts = urlsplit(source)
    if parts.scheme != "file":
        return None
    if parts.netloc not in ("", "localhost"):
        raise BadInputError(f"{source}: a file URL has three slashes: file:///absolute/path")
    return Path(unquote(parts.path))


def read_rows(source: str, base_dir: Path = Path(), *, columns: tuple[str, ...] = ()) -> Iterator[Row]:
    """The rows of a JSONL(.gz) or Parquet file; of Parquet, only these columns where some are named.

    Raises BadInputError: missing, a folder, empty, broken gzip or Parquet, a line that is not one JSON object.
    """
    found = False
    try:
        with _opened(source, base_dir) as stream:
            magic = stream.read(4)
            stream.seek(0)
            if not magic:
                raise BadInputError(f"{source}: the file is empty")
            if magic == _PARQUET_MAGIC:
                rows = _parquet_rows(stream, source, columns)
            elif magic[:2] == _GZIP_MAGIC:
                rows = _json_rows(cast("BinaryIO", gzip.GzipFile(fileobj=stream)), source)
            elif source.endswith(".gz"):
                raise BadInputError(f"{source}: not gzip, although its name ends in .gz")
            elif source.endswith(".parquet"):
                raise BadInputError(f"{source}: not Parquet, although its name ends in .parquet")
            else:
                rows = _json_rows(stream, source)
            for row in rows:
                found = True
                yield row
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadInputError(f"{source}: broken gzip: {error}") from error
    except OSError as error:
        raise BadInputError(f"{source}: cannot be read: {_one_line(error)}") from error
    if not found:
        raise BadInputError(f"{source}: the file is empty")


@contextmanager
def _opened(source: str, base_dir: Path) -> Iterator[BinaryIO]:
    path = local_path(source, base_dir)
    if path is None:
        with tempfile.TemporaryFile() as copy:
            _fetch(source, copy)
            yield cast("BinaryIO", copy)
        return
    try:
        stream = path.open("rb")
    except FileNotFoundError as error:
        raise BadInputError(f"{source}: no such file{_looked_in(source, path)}") from error
    except IsADirectoryError as error:
        raise BadInputError(f"{source}: is a folder; name the file in it") from error
    except OSError as error:
        raise BadInputError(f"{source}: cannot be read: {error.strerror}") from error
    with stream:
        yield stream


def _fetch(source: str, copy: IO[bytes]) -> None:
    """Copies a remote file: it is read whole anyway, and some stores cannot seek."""
    import fsspec  # costs 0.2 s to import; local files do without

    try:
        with fsspec.open(source, "rb") as remote:
            shutil.copyfileobj(remote, copy, _COPY_BYTES)
    except FileNotFoundError as error:
        raise BadInputError(f"{source}: {_why_missing(error)}") from error
    except (OSError, ImportError, ValueError) as error:
        # ImportError: the protocol's package is not installed; ValueError: an unknown protocol. Both name it.
        raise BadInputError(f"{source}: cannot be read: {_one_line(error)}") from error
    copy.seek(0)


def _json_rows(stream: BinaryIO, source: str) -> Iterator[Row]:
    for number, line in enumerate(stream, 1):
        if line.isspace():
            continue
        try:
            value = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"), object_pairs_hook=_object)
        except _DuplicateFieldError as error:
            raise BadInputError(f"{source}:{number}: field '{error}' is there twice") from error
        except json.JSONDecodeError as error:
            hint = "; expected one JSON object a line" if number == 1 and line.lstrip()[:1] in b"[{" else ""
            raise BadInputError(f"{source}:{number}: not JSON: {error.msg} at column {error.pos + 1}{hint}") from error
        except UnicodeDecodeError as error:
            raise BadInputError(f"{source}:{number}: not UTF-8: {error.reason} at byte {error.start}") from error
        except RecursionError as error:
            raise BadInputError(f"{source}:{number}: nested too deeply") from error
        if not isinstance(value, dict):
            raise BadInputError(f"{source}:{number}: expected one JSON object a line, not {kind_of(value)}")
        yield Row(value, source, number)


class _DuplicateFieldError(ValueError):
    """A JSON object names a field twice; which one would win is nobody's guess."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        raise _DuplicateFieldError(next(name for name in names if names.count(name) > 1))
    return values


def _parquet_rows(stream: BinaryIO, source: str, columns: tuple[str, ...]) -> Iterator[Row]:
    import pyarrow  # costs 0.3 s to import; JSONL does without
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(stream) as parquet:
            for batch in parquet.iter_batches(batch_size=_PARQUET_BATCH_ROWS, columns=list(columns) or None):
                for values in batch.to_pylist():
                    number += 1
                    yield Row(values, source, number, unit="row")
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{source}: broken Parquet after row {number}: {_one_line(error)}") from error


def _looked_in(source: str, path: Path) -> str:
    return "" if str(path) == source else f" (looked for {path})"


def _why_missing(error: BaseException) -> str:
    """Say why a remote file is not there: fsspec calls it so too where its server could not be reached."""
    while error.__cause__ is not None:
        error = error.__cause__
    return "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {_one_line(error)}"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
