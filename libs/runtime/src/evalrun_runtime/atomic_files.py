"""Writes files that are either complete or absent."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a file that is durable and gets its name when the block succeeds; if the block fails, nothing of it remains.

    Args:
        path: of the file.
        mode: its permissions before the process's umask.

    Raises:
        OSError: it cannot be written, e.g. ENOSPC; `filename` is `path`.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        # A file that a killed process left would keep its own permissions.
        partial.unlink(missing_ok=True)
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        # An error that names another file comes from inside the block.
        if error.filename in {None, str(partial)}:
            raise add_path(error, path) from error
        raise
    finally:
        partial.unlink(missing_ok=True)


def add_path(error: OSError, path: Path) -> OSError:
    """Return the error with its file's name, which errors of writes lack."""
    return OSError(error.errno or errno.EIO, error.strerror or str(error), str(path))


def write_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a small file as a whole; `mode` and OSError as with `atomic_file`."""
    with atomic_file(path, mode) as file:
        file.write(content)


def write_text(path: Path, content: str) -> None:
    """Write a small text file as a whole, in UTF-8, with its directories. Raises OSError as `atomic_file` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.encode())


def sync_directory(directory: Path) -> None:
    """Write a directory's names to disk (fsync)."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
