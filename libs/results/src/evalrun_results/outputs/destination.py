"""The destination of outputs, and the names of the files that readers look for. For these it imports little."""

from pathlib import Path
from typing import Final

import fsspec

from evalrun_data.sources import check_inside_volume
from evalrun_runtime.exits import BadInputError

SUMMARY: Final = "summary.json"
REPORT: Final = "report.html"
SUMMARY_SCHEMA_VERSION: Final = 1


def resolve_destination(destination: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return a destination's file system and the path in it, without writing.

    Raises:
        BadInputError: the scheme is unknown, its package is not installed, or the path leads out of its volume.
    """
    if "://" not in destination:
        check_inside_volume(Path(destination))
    try:
        files, path = fsspec.core.url_to_fs(destination)
    except (ValueError, ImportError) as error:
        raise BadInputError(f"output {destination}: {' '.join(str(error).split())}") from error
    return files, path
