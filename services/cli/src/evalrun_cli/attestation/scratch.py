"""A temporary directory for the contents of a bundle."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty directory that only this user can read. It is removed at the end of the context."""
    with TemporaryDirectory(prefix="evalrun-verify-") as folder:
        yield Path(folder)
