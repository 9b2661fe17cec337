"""Reads the directory of a training's checkpoints through fsspec. I/O only, no decision.

Each checkpoint's digest covers every file of the model: its path, its size, and its ETag, or the SHA-256 of its first
and last MiB if the store has no ETags. Times are not part of it: a copy of a checkpoint is the same checkpoint.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

MIB = 1024 * 1024
MAX_SMALL_BYTES = 64 * MIB
"""Maximum bytes of a small file. A larger index of shards is not read; the largest published index has some MiB."""


class StoreError(Exception):
    """The directory cannot be read. The message is the store's."""


@dataclass(frozen=True)
class FileFact:
    """Metadata of a file in a store."""

    size: int
    etag: str | None
    modified: datetime | None


class CheckpointStore:
    """A directory of checkpoints.

    Args:
        url: a path or fsspec URL.

    Raises:
        StoreError: there is no such kind of store.
    """

    def __init__(self, url: str) -> None:
        # Importing fsspec costs 0.2 s.
        import fsspec

        try:
            self._store, root = fsspec.core.url_to_fs(url.rstrip("/"))
        except (ValueError, ImportError, OSError) as error:
            raise StoreError(f"{url}: {_line(error)}") from error
        self._root = str(root).rstrip("/")
        self._url = url

    def folders(self) -> list[str] | None:
        """Return the names of the directories; None if the directory itself is not there. Raises StoreError."""
        try:
            found = self._store.ls(self._root, detail=True)
        except FileNotFoundError:
            return None
        except Exception as error:
            raise StoreError(f"{self._url}: {_line(error)}") from error
        names = {str(item["name"]).rstrip("/").rpartition("/")[2] for item in found if item.get("type") == "directory"}
        return sorted(names)

    def tracker(self, name: str) -> bytes | None:
        """Return a small file of the directory; None if it is not there. Raises StoreError."""
        try:
            return bytes(self._store.cat_file(f"{self._root}/{name}"))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise StoreError(f"{self._url}/{name}: {_line(error)}") from error

    def files(self, directory: str) -> dict[str, FileFact]:
        """Return the files of a checkpoint, by path below its directory; empty if the checkpoint is gone. Raises
        StoreError."""
        root = f"{self._root}/{directory}"
        try:
            found: Mapping[str, Any] = self._store.find(root, detail=True)
        except FileNotFoundError:
            return {}
        except Exception as error:
            raise StoreError(f"{self._url}/{directory}: {_line(error)}") from error
        return {_relative(name, root): make_file_fact(info) for name, info in found.items()}

    def read(self, directory: str, name: str, size: int) -> bytes:
        """Return a small file of a checkpoint; empty if it is gone or too large. Raises StoreError."""
        if size > MAX_SMALL_BYTES:
            return b""
        return self._bytes(f"{directory}/{name}", 0, size)

    def digest(self, directory: str, files: Mapping[str, FileFact]) -> str:
        """Return the digest of some files of a checkpoint, 64 hexadecimal digits. Raises StoreError."""
        whole = hashlib.sha256()
        for name, fact in sorted(files.items()):
            stamp = fact.etag or self._ends(f"{directory}/{name}", fact.size)
            whole.update(f"{name}\0{fact.size}\0{stamp}\n".encode())
        return whole.hexdigest()

    def _ends(self, name: str, size: int) -> str:
        content = hashlib.sha256(self._bytes(name, 0, min(size, MIB)))
        if size > MIB:
            content.update(self._bytes(name, max(MIB, size - MIB), size))
        return content.hexdigest()

    def _bytes(self, name: str, start: int, end: int) -> bytes:
        if end <= start:
            return b""
        try:
            return bytes(self._store.cat_file(f"{self._root}/{name}", start=start, end=end))
        except FileNotFoundError:
            # The file was deleted meanwhile, so the checkpoint has another digest.
            return b""
        except Exception as error:
            raise StoreError(f"{self._url}/{name}: {_line(error)}") from error


def make_file_fact(info: Mapping[str, Any]) -> FileFact:
    """Return a store's information about a file. The forms of local, s3fs, gcsfs and memory are known."""
    etag = info.get("ETag") or info.get("etag")
    for key in ("LastModified", "mtime", "updated", "modified", "created"):
        if info.get(key):
            return FileFact(int(info.get("size") or 0), str(etag) if etag else None, _time(info[key]))
    return FileFact(int(info.get("size") or 0), str(etag) if etag else None, None)


def _time(value: object) -> datetime | None:
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    return None


def _relative(name: str, root: str) -> str:
    return name.removeprefix(root).lstrip("/")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__
