"""Pure: `files` and `fetch_files` of a /run_code request as the executor's, and back.

What the stock server does with them is kept, but for where a path leads: there `..` and absolute paths read and write
the host, and a link that the program left is followed.
"""

import base64
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evalrun_sandbox.contained.folder import DEPTH, FILES, TOTAL_MIB
from evalrun_sandbox.contained.frames import FILES_BYTES
from evalrun_sandbox.fusion.refusals import BadRequest
from evalrun_sandbox.fusion.wire import RunCodeRequest

IGNORED = "IGNORE_THIS_FILE"
"""In a path: the stock server places no such file."""
MOST_FILES, MOST_MIB = FILES * 9 // 10, TOTAL_MIB * 3 // 4
"""Of what the folder may hold: the rest is the compiler's and the program's own."""
_BLOCK = 4096
_LONGEST_NAME = 255
TOO_LARGE = f"\nstopped by the sandbox: more than {FILES_BYTES >> 20} MiB in the files that fetch_files names\n"


class Unplaceable(Exception):  # noqa: N818 - an answer, not a failure of ours
    """A file that cannot be placed: 200 with `SandboxError`, as the stock server answers."""


@dataclass(frozen=True)
class Files:
    """What a request wants done with files."""

    placed: Mapping[str, bytes] = field(default_factory=dict)
    """By normal path."""
    fetched: Mapping[str, str] = field(default_factory=dict)
    """By the path as the request spells it: the normal path."""

    @property
    def wanted(self) -> list[str]:
        """Normal paths, each once."""
        return sorted(set(self.fetched.values()))

    def given_back(self, found: Mapping[str, bytes]) -> dict[str, bytes]:
        """Give what is there, by the names that the request has for it."""
        return {asked: found[path] for asked, path in self.fetched.items() if path in found}


def files_of(request: RunCodeRequest) -> Files:
    """Read a request's files.

    Raises:
        BadRequest: a path leaves the private folder, or there is more than the folder may hold.
        Unplaceable: a path that cannot be a file's, or content that is not base64.
    """
    if not request.files and not request.fetch_files:
        return Files()
    given = {name: text for name, text in request.files.items() if text is not None and IGNORED not in name}
    if len(given) > MOST_FILES or len(request.fetch_files) > MOST_FILES:
        raise BadRequest(f"files, fetch_files: at most {MOST_FILES} each")
    placed = {_place("files", name): text for name, text in given.items()}
    folders = _folders(placed)
    contents = {path: _decoded(path, text) for path, text in placed.items()}
    _refuse_excess(contents, folders)
    fetched = {name: _normal("fetch_files", name) for name in request.fetch_files}
    return Files(contents, {name: path for name, path in fetched.items() if _can_be(path)})


def _normal(where: str, name: str) -> str:
    """Give a path without `.`, `..` and doubled slashes. Raises BadRequest where it leaves the folder."""
    path = posixpath.normpath(name)
    if path.startswith("/") or path.split("/")[0] == "..":
        raise BadRequest(
            f"{where}: {name[:200]!r} leaves the program's private folder; name a path relative to it, without '..'"
        )
    return path


def _can_be(path: str) -> bool:
    """Say whether a file could have this path."""
    return path != "." and "\0" not in path and all(len(part.encode()) <= _LONGEST_NAME for part in path.split("/"))


def _place(where: str, name: str) -> str:
    path = _normal(where, name)
    if path == "." or name.endswith("/"):
        raise Unplaceable(f"{where}: {name[:200]!r} is a folder")
    if not _can_be(path):
        raise Unplaceable(f"{where}: {name[:200]!r} cannot be a file's name")
    return path


def _folders(paths: Mapping[str, str]) -> set[str]:
    """Give the folders that the files lie in. Raises Unplaceable where a file would be one of them."""
    found = {"/".join(path.split("/")[:depth]) for path in paths for depth in range(1, path.count("/") + 1)}
    for path in sorted(found.intersection(paths)):
        raise Unplaceable(f"files: {path[:200]!r} is a file and a folder")
    return found


def _decoded(path: str, text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except ValueError as error:
        raise Unplaceable(f"files: {path[:200]!r} is not base64: {error}") from error


def _refuse_excess(contents: Mapping[str, bytes], folders: set[str]) -> None:
    """Refuse what would stop the program at once, see `contained.folder`. Raises BadRequest."""
    if len(contents) + len(folders) > MOST_FILES:
        raise BadRequest(f"files: at most {MOST_FILES} files and folders")
    if any(path.count("/") > DEPTH for path in contents):
        raise BadRequest(f"files: at most {DEPTH} folders deep")
    if _bytes_on_disk([len(content) for content in contents.values()]) > MOST_MIB << 20:
        raise BadRequest(f"files: at most {MOST_MIB} MiB in all")


def _bytes_on_disk(sizes: Sequence[int]) -> int:
    return sum(-(-size // _BLOCK) * _BLOCK for size in sizes)
