"""Opens a source (a path, `file://`, any fsspec URL) and yields its rows. Its content decides the format."""

import codecs
import gzip
import io
import json
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, BinaryIO, Final, Self, cast
from urllib.parse import unquote, urlsplit

from evalrun_data.inspect_logs import EVAL_MAGIC, read_eval_file
from evalrun_data.rows import Row, describe_kind
from evalrun_data.store_problems import store_problem
from evalrun_runtime.exits import BadInputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BUILTIN_SCHEME: Final = "builtin:"
VOLUMES_DIRECTORY: Final = Path("/mnt/claims")
"""Directory in which the pods of a cluster mount users' volumes, each under its claim's name."""
_GZIP_MAGIC = b"\x1f\x8b"
_PARQUET_MAGIC = b"PAR1"
_ARROW_MAGIC = b"\xff\xff\xff\xff"
"""Begins a stream of Arrow's, as `save_to_disk` writes it."""
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# Contest problems have megabytes of tests a row: few rows at a time keep a 13k-record file in a small memory.
_PARQUET_BATCH_ROWS = 8
_COPY_BYTES = 4 << 20
_READ_BYTES = 256 << 10
_PARQUET_BUFFER_BYTES = 1 << 20
"""Read a column in pieces: without it pyarrow holds a row group whole, which is gigabytes of tests in some files."""
MAX_LINE_BYTES: Final = 128 << 20
"""Maximum bytes of a JSONL row. Its text and its parsed form are in memory at once: more would not fit into 1 GB."""
MAX_BLANK_BYTES: Final = 1 << 20
MAX_BLANK_RATIO: Final = 100
"""Blank lines beyond these bytes that outweigh the rows by this factor are refused: gzip packs them 1000 to 1, and
600 MB of them took minutes to skip."""
_ARGUMENTS: Final = frozenset({"base_input", "plus_input"})
"""Fields with a function's arguments in Python's JSON, which has NaN and Infinity: MBPP+ publishes infinite ones."""
_PICKLE_NAMES: Final = (".pkl", ".pickle", ".pt", ".pth", ".joblib", ".npy", ".npz")


def local_path(source: str, base_dir: Path) -> Path | None:
    """Return a source's path on this machine, relative ones below `base_dir`, or None for a remote URL."""
    if "://" not in source:
        return base_dir / source
    parts = urlsplit(source)
    if parts.scheme != "file":
        return None
    if parts.netloc not in ("", "localhost"):
        raise BadInputError(f"{source}: a file URL has three slashes: file:///absolute/path")
    return Path(unquote(parts.path))


def check_inside_volume(path: Path, volumes: Path = VOLUMES_DIRECTORY) -> None:
    """Refuse a path that starts in a mounted volume and leads out of it, by `..` or by a symbolic link.

    Whoever may name a path on a volume, or write to one, would otherwise read the pod's own files: tokens, environment.

    Raises:
        BadInputError: it leads out of the volume. The message does not say where to.
    """
    if path.parts[: len(volumes.parts)] != volumes.parts:
        return
    claim = path.parts[len(volumes.parts) : len(volumes.parts) + 1]
    root = volumes.joinpath(*claim).resolve()
    if claim in ((), ("..",)) or not path.resolve().is_relative_to(root):
        raise BadInputError(f"{path}: leads out of its volume: name a file inside, without '..' or a link to outside")


Broken = Callable[[BadInputError], None]
"""Gets the mistake of a line."""


class Source:
    """A file named by the user. It is opened, and a remote file downloaded, at the first read.

    Rows may be read any number of times, also by several readers at once, until the source is closed.

    Args:
        name: a path (relative to `base_dir`), `file://`, any fsspec URL, or `builtin:`.
        base_dir: where relative paths start.
    """

    def __init__(self, name: str, base_dir: Path = Path()) -> None:
        self.name = name
        self.base_dir = base_dir
        self._opened = ExitStack()
        self._stream: BinaryIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_builtin(self) -> bool:
        """Whether it comes with the package."""
        return self.name.startswith(BUILTIN_SCHEME)

    @property
    def path(self) -> Path | None:
        """Its path on this machine; None for a remote URL."""
        return local_path(self.name, self.base_dir)

    def make_sibling(self, name: str) -> "Source":
        """Return another source that is relative to the same directory."""
        return Source(name, self.base_dir)

    def exists(self) -> bool:
        """Return whether there is such a file. A remote store is asked."""
        if (path := self.path) is not None:
            return path.is_file()
        # Importing fsspec costs 0.2 s, and local files do without.
        import fsspec

        files, inside = fsspec.url_to_fs(self.name)
        return bool(files.exists(inside))

    def check_readable(self) -> None:
        """Raise BadInputError if it is on this machine and cannot be opened. A remote store is not asked."""
        if not self.is_builtin and self.path is not None:
            with open_source(self.name, self.base_dir):
                pass

    def content(self, max_bytes: int) -> bytes:
        """Return the same as `read_bytes`."""
        return read_bytes(self.name, self.base_dir, max_bytes=max_bytes)

    def rows(self, columns: tuple[str, ...] = (), broken: Broken | None = None) -> Iterator[Row]:
        """Yield the rows of a JSONL(.gz), JSON array or Parquet file.

        A log of Inspect (`.eval`) is one row, as the same log in JSON is.

        Args:
            columns: of Parquet, only these are read; empty: all.
            broken: receives the mistake of each line that is not a JSON object, and reading continues. None raises the
                mistake.

        Raises:
            BadInputError: missing, a directory, empty, broken gzip or Parquet, a line that is not one JSON object.
        """
        found = False
        refused: list[BadInputError] = []

        def record(error: BadInputError) -> None:
            if not refused:
                self._check_gzip()
            refused.append(error)
            if broken is not None:
                broken(error)

        try:
            with io.BufferedReader(_Reader(self._file()), _READ_BYTES) as stream:
                for row in _rows_by_content(cast("BinaryIO", stream), self.name, columns, record if broken else None):
                    found = True
                    yield row
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise BadInputError(f"{self.name}: broken gzip: {error}") from error
        except OSError as error:
            raise BadInputError(f"{self.name}: cannot be read: {_one_line(error)}") from error
        except BadInputError:
            self._check_gzip()
            raise
        if not found:
            raise BadInputError(f"{self.name}: the file is empty")

    def _check_gzip(self) -> None:
        """Raise BadInputError for broken gzip, which would otherwise cause misleading errors."""
        with io.BufferedReader(_Reader(self._file()), _READ_BYTES) as stream:
            if stream.peek(2)[:2] != _GZIP_MAGIC:
                return
            try:
                with gzip.GzipFile(fileobj=stream) as content:
                    while content.read(_READ_BYTES):
                        pass
            except (OSError, EOFError, zlib.error) as error:
                raise BadInputError(f"{self.name}: broken gzip: {error}") from error

    def close(self) -> None:
        """Close the file, and remove the local copy of a remote file."""
        self._stream = None
        self._opened.close()

    def _file(self) -> BinaryIO:
        if self._stream is None:
            self._stream = self._opened.enter_context(open_source(self.name, self.base_dir))
        return self._stream


class _Reader(io.RawIOBase):
    """Reads an open file from its beginning with its own position, so that several readers share the file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: os.fstat(self._file.fileno()).st_size}
        self._position = max(0, start[whence] + offset)
        return self._position

    def readinto(self, buffer: "WriteableBuffer") -> int:
        count = os.preadv(self._file.fileno(), [buffer], self._position)
        self._position += count
        return count


def read_rows(source: str, base_dir: Path = Path(), *, columns: tuple[str, ...] = ()) -> Iterator[Row]:
    """Yield the rows of a source that is read once, as `Source.rows` does."""
    with Source(source, base_dir) as opened:
        yield from opened.rows(columns)


def _rows_by_content(stream: BinaryIO, source: str, columns: tuple[str, ...], broken: Broken | None) -> Iterator[Row]:
    magic = stream.read(4)
    stream.seek(0)
    if not magic:
        raise BadInputError(f"{source}: the file is empty")
    if magic[:1] == b"\x80" or source.lower().endswith(_PICKLE_NAMES):
        raise BadInputError(
            f"{source}: looks like a pickle, which may run any code when it is loaded: none is ever loaded; "
            "write the rows as JSONL or Parquet"
        )
    if magic[:2] in _UTF16_MARKS:
        raise BadInputError(f"{source}: is UTF-16: save the file as UTF-8")
    if magic == _PARQUET_MAGIC:
        return _parquet_rows(stream, source, columns)
    if magic == _ARROW_MAGIC:
        return _arrow_rows(stream, source)
    if magic == EVAL_MAGIC:
        return iter([read_eval_file(stream, source)])
    if magic[:2] == _GZIP_MAGIC:
        return _json_rows(cast("BinaryIO", gzip.GzipFile(fileobj=stream)), source, broken)
    if source.endswith(".gz"):
        raise BadInputError(f"{source}: not gzip, although its name ends in .gz")
    if source.endswith(".parquet"):
        raise BadInputError(f"{source}: not Parquet, although its name ends in .parquet")
    return _json_rows(stream, source, broken)


def read_bytes(source: str, base_dir: Path = Path(), *, max_bytes: int) -> bytes:
    """Return the content of a small file. Raises BadInputError if it is missing or larger than `max_bytes`."""
    try:
        with open_source(source, base_dir) as stream:
            content = stream.read(max_bytes + 1)
    except OSError as error:
        raise BadInputError(f"{source}: cannot be read: {_one_line(error)}") from error
    if len(content) > max_bytes:
        raise BadInputError(f"{source}: is larger than {max_bytes >> 20} MiB")
    return content


def rows_of_bytes(content: bytes, source: str) -> Iterator[Row]:
    """Yield the rows of JSONL that is in memory. Raises BadInputError as `read_rows` does."""
    yield from _json_rows(io.BytesIO(content), source)


@contextmanager
def open_source(source: str, base_dir: Path) -> Iterator[BinaryIO]:
    """Open what a source names, a remote file as a copy on this machine. Raises BadInputError if it cannot be read."""
    path = local_path(source, base_dir)
    if path is None:
        with tempfile.TemporaryFile() as copy:
            _fetch(source, copy)
            yield cast("BinaryIO", copy)
        return
    check_inside_volume(path)
    try:
        kind = path.stat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            # It is read more than once, and opening it may wait for a writer that never comes.
            raise BadInputError(f"{source}: is a pipe or a device: write it to a file, and name that")
        stream = path.open("rb")
    except FileNotFoundError as error:
        raise BadInputError(f"{source}: no such file{_describe_path(source, path)}") from error
    except IsADirectoryError as error:
        raise BadInputError(f"{source}: is a directory; name the file in it") from error
    except OSError as error:
        raise BadInputError(f"{source}: cannot be read: {error.strerror}") from error
    with stream:
        yield stream


def _fetch(source: str, copy: IO[bytes]) -> None:
    """Copies a remote file: it is read whole anyway, and some stores cannot seek."""
    # Importing fsspec costs 0.2 s, and local files do without.
    import fsspec

    try:
        with fsspec.open(source, "rb") as remote:
            shutil.copyfileobj(remote, copy, _COPY_BYTES)
    except FileNotFoundError as error:
        raise BadInputError(f"{source}: {_why_missing(error)}") from error
    except (ImportError, ValueError) as error:
        # ImportError: the protocol's package is not installed; ValueError: an unknown protocol. Both name it.
        raise BadInputError(f"{source}: cannot be read: {_one_line(error)}") from error
    # Each store's client has its own classes, without a common base.
    except Exception as error:
        raise BadInputError(f"{source}: cannot be read: {store_problem(error).text}") from error
    copy.seek(0)


def _json_rows(stream: BinaryIO, source: str, broken: Broken | None = None) -> Iterator[Row]:
    begun = False
    blank_bytes = row_bytes = 0
    for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE_BYTES + 1), b""), 1):
        if line.isspace():
            blank_bytes += len(line)
            if blank_bytes > max(MAX_BLANK_BYTES, MAX_BLANK_RATIO * row_bytes):
                raise BadInputError(f"{source}:{number}: nearly all of it is blank lines: remove them")
            continue
        row_bytes += len(line)
        if not begun and line.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"[":
            yield from _array_rows(line, stream, source)
            return
        first, begun = not begun, True
        if len(line) > MAX_LINE_BYTES:
            raise BadInputError(
                f"{source}:{number}: the line is longer than {MAX_LINE_BYTES >> 20} MiB: write one JSON object a line, "
                "and large tests as Parquet"
            )
        hint = "; expected one JSON object a line" if number == 1 and line.lstrip()[:1] == b"{" else ""
        try:
            value = _parse_json(_decode_line(line, source, number), f"{source}:{number}", hint)
            if not isinstance(value, dict):
                raise BadInputError(f"{source}:{number}: expected one JSON object a line, not {describe_kind(value)}")
        except BadInputError as error:
            only = _one_object(line + stream.read(MAX_LINE_BYTES)) if first else None
            if only is not None:
                yield Row(only, source, number)
                return
            # The rest of the first line may be a part of a larger value. Each later line stands for itself.
            if first or broken is None:
                raise
            broken(error)
            continue
        yield Row(value, source, number)


def _one_object(content: bytes) -> dict[str, object] | None:
    """Return the object of a file that is a single JSON object over several lines, or None."""
    try:
        value = _parse_json(content.decode("utf-8-sig"), "")
    except (UnicodeDecodeError, BadInputError):
        return None
    return value if isinstance(value, dict) else None


def _array_rows(begin: bytes, stream: BinaryIO, source: str) -> Iterator[Row]:
    """Yield the objects of a file that is a single JSON array, limited to the size of a line, since memory holds all
    of it."""
    content = begin + stream.read(MAX_LINE_BYTES + 1 - len(begin))
    if len(content) > MAX_LINE_BYTES:
        raise BadInputError(
            f"{source}: is one JSON array of more than {MAX_LINE_BYTES >> 20} MiB: write one JSON object a line, or "
            "Parquet"
        )
    values = _parse_json(_decode_line(content, source, 1), source)
    if not isinstance(values, list):
        raise BadInputError(f"{source}: expected a JSON array of objects, not {describe_kind(values)}")
    for number, value in enumerate(values, 1):
        if not isinstance(value, dict):
            raise BadInputError(f"{source} item {number}: expected an object, not {describe_kind(value)}")
        yield Row(value, source, number, unit="item")


def _parse_json(text: str, where: str, hint: str = "") -> object:
    """Parse a JSON value. What JSON does not define is refused, except in `_ARGUMENTS`."""
    constants: list[str] = []

    def constant(name: str) -> float:
        constants.append(name)
        return float(name)

    try:
        value: object = json.loads(text, object_pairs_hook=_object, parse_constant=constant)
    except _DuplicateFieldError as error:
        raise BadInputError(f"{where}: field '{error}' is there twice") from error
    except json.JSONDecodeError as error:
        raise BadInputError(f"{where}: not JSON: {error.msg} at {_place(text, error)}{hint}") from error
    except RecursionError as error:
        raise BadInputError(f"{where}: nested too deeply") from error
    # Python limits the digits that it converts to a number.
    except ValueError as error:
        message = f"{where}: has a number of more than {sys.get_int_max_str_digits()} digits: write it as a text"
        raise BadInputError(message) from error
    if constants and not _finite_outside_arguments(value):
        raise BadInputError(f"{where}: {constants[0]} is not JSON: write null, or a number")
    return value


def _finite_outside_arguments(value: object) -> bool:
    rows = value if isinstance(value, list) else [value]
    others = [
        {name: field for name, field in row.items() if name not in _ARGUMENTS} if isinstance(row, dict) else row
        for row in rows
    ]
    try:
        json.dumps(others, allow_nan=False)
    except ValueError:
        return False
    return True


def _place(text: str, error: json.JSONDecodeError) -> str:
    return f"column {error.pos + 1}" if "\n" not in text.rstrip() else f"line {error.lineno}, column {error.colno}"


def _decode_line(line: bytes, source: str, number: int) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        message = f"{source}:{number}: not UTF-8: {error.reason} at byte {error.start}: save the file as UTF-8"
        raise BadInputError(message) from error


class _DuplicateFieldError(ValueError):
    """A JSON object contains a field twice, so its value is ambiguous."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        raise _DuplicateFieldError(next(name for name in names if names.count(name) > 1))
    return values


def _parquet_rows(stream: BinaryIO, source: str, columns: tuple[str, ...]) -> Iterator[Row]:
    # Importing pyarrow costs 0.3 s, and JSONL does without.
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(stream, buffer_size=_PARQUET_BUFFER_BYTES) as parquet:
            for batch in parquet.iter_batches(batch_size=_PARQUET_BATCH_ROWS, columns=list(columns) or None):
                for values in batch.to_pylist():
                    number += 1
                    yield Row(values, source, number, unit="row")
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{source}: broken Parquet after row {number}: {_one_line(error)}") from error


def _arrow_rows(stream: BinaryIO, source: str) -> Iterator[Row]:
    # Importing pyarrow costs 0.3 s, and JSONL does without.
    import pyarrow
    import pyarrow.ipc

    number = 0
    try:
        with pyarrow.ipc.open_stream(stream) as batches:
            for batch in batches:
                for start in range(0, batch.num_rows, _PARQUET_BATCH_ROWS):
                    for values in batch.slice(start, _PARQUET_BATCH_ROWS).to_pylist():
                        number += 1
                        yield Row(values, source, number, unit="row")
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{source}: broken Arrow after row {number}: {_one_line(error)}") from error


def _describe_path(source: str, path: Path) -> str:
    return "" if str(path) == source else f" (looked for {path})"


def _why_missing(error: BaseException) -> str:
    """Return why a remote file is missing. fsspec also reports unreachable servers as missing files."""
    while error.__cause__ is not None:
        error = error.__cause__
    status = getattr(getattr(error, "response", None), "status_code", None)
    # The Hugging Face hub returns these codes also for a missing repository.
    if status in {401, 403}:
        return f"the server answered {status}: there is no such file, or it needs a token (HF_TOKEN for hf://)"
    return "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {_one_line(error)}"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
