"""A temporary directory for the contents of a bundle."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make an empty folder of this user's alone."""
    with TemporaryDirectory(prefix="evalrun-verify-") as folder:
        yield Path(folder)
