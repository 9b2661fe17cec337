"""Translates `files` and `fetch_files` of a request for the executor, and back. Pure.

Behaves like the stock server except for paths: there `..` and absolute paths read and write the host, and links created
by the program are followed.
"""

import base64
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evalrun_executor.contained.directory import DEPTH, FILES, TOTAL_MIB
from evalrun_executor.contained.frames import FILES_BYTES
from evalrun_sandbox.fusion.refusals import BadRequest
from evalrun_sandbox.fusion.schemas import RequestWithFiles

IGNORED = "IGNORE_THIS_FILE"
"""Part of the names of files that the stock server does not place."""
MAX_FILES, MAX_MIB = FILES * 9 // 10, TOTAL_MIB * 3 // 4
"""Part of the directory's capacity; the rest is for the compiler and the program."""
_BLOCK = 4096
_MAX_NAME_BYTES = 255
TOO_LARGE = f"\nstopped by the sandbox: more than {FILES_BYTES >> 20} MiB in the files that fetch_files names\n"


class Unplaceable(Exception):  # noqa: N818 - an answer, not a failure of ours
    """A file cannot be placed. The reply is 200 with `SandboxError`, as in the stock server."""


@dataclass(frozen=True)
class Files:
    """The files of a request: those to place and those to fetch."""

    placed: Mapping[str, bytes] = field(default_factory=dict)
    """Contents by normalised path."""
    fetched: Mapping[str, str] = field(default_factory=dict)
    """Normalised path by the path as the request spells it."""

    @property
    def wanted(self) -> list[str]:
        """Normalised paths of the files to fetch, each once."""
        return sorted(set(self.fetched.values()))

    def select_fetched(self, found: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the files found, by the names used in the request."""
        return {asked: found[path] for asked, path in self.fetched.items() if path in found}


def parse_files(request: RequestWithFiles) -> Files:
    """Parse a request's files.

    Raises:
        BadRequest: a path leaves the private directory, or there is more than the directory may hold.
        Unplaceable: a path that cannot be a file's, or content that is not base64.
    """
    if not request.files and not request.fetch_files:
        return Files()
    given = {name: text for name, text in request.files.items() if text is not None and IGNORED not in name}
    if len(given) > MAX_FILES or len(request.fetch_files) > MAX_FILES:
        raise BadRequest(f"files, fetch_files: at most {MAX_FILES} each")
    placed = {_parse_placed_path("files", name): text for name, text in given.items()}
    directories = _find_directories(placed)
    contents = {path: _decode(path, text) for path, text in placed.items()}
    _refuse_excess(contents, directories)
    fetched = {name: _normalize("fetch_files", name) for name in request.fetch_files}
    return Files(contents, {name: path for name, path in fetched.items() if _is_file_path(path)})


def _normalize(where: str, name: str) -> str:
    """Return a path without `.`, `..` and doubled slashes. Raises BadRequest if it leaves the directory."""
    path = posixpath.normpath(name)
    if path.startswith("/") or path.split("/")[0] == "..":
        raise BadRequest(
            f"{where}: {name[:200]!r} leaves the program's private directory; name a path relative to it, without '..'"
        )
    return path


def _is_file_path(path: str) -> bool:
    return path != "." and "\0" not in path and all(len(part.encode()) <= _MAX_NAME_BYTES for part in path.split("/"))


def _parse_placed_path(where: str, name: str) -> str:
    path = _normalize(where, name)
    if path == "." or name.endswith("/"):
        raise Unplaceable(f"{where}: {name[:200]!r} is a directory")
    if not _is_file_path(path):
        raise Unplaceable(f"{where}: {name[:200]!r} cannot be a file's name")
    return path


def _find_directories(paths: Mapping[str, str]) -> set[str]:
    """Return the directories of the files. Raises Unplaceable if a file has the path of a directory."""
    found = {"/".join(path.split("/")[:depth]) for path in paths for depth in range(1, path.count("/") + 1)}
    for path in sorted(found.intersection(paths)):
        raise Unplaceable(f"files: {path[:200]!r} is a file and a directory")
    return found


def _decode(path: str, text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except ValueError as error:
        raise Unplaceable(f"files: {path[:200]!r} is not base64: {error}") from error


def _refuse_excess(contents: Mapping[str, bytes], directories: set[str]) -> None:
    """Raise BadRequest for files that would stop the program at once; see `contained.directory`."""
    if len(contents) + len(directories) > MAX_FILES:
        raise BadRequest(f"files: at most {MAX_FILES} files and folders")
    if any(path.count("/") > DEPTH for path in contents):
        raise BadRequest(f"files: at most {DEPTH} directories deep")
    if _sum_disk_bytes([len(content) for content in contents.values()]) > MAX_MIB << 20:
        raise BadRequest(f"files: at most {MAX_MIB} MiB in all")


def _sum_disk_bytes(sizes: Sequence[int]) -> int:
    return sum(-(-size // _BLOCK) * _BLOCK for size in sizes)
