"""Keeps fetched models on a volume that pods share, so that each is fetched once and not once per pod.

    cache/0f3a...       a whole model; its name is a digest of what the store lists
    cache/0f3a....part  one that is being fetched
    cache/0f3a....gone  one that is being deleted
    cache/0f3a....lock  locked (flock) by whoever fetches, links or deletes it; its time is that of the last use

The kernel releases a lock when its process ends, so what a killed pod left is fetched again by the next one. When the
volume is full, models that nobody has used for a day are deleted, the least recently used first.
"""

import errno
import fcntl
import logging
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

MIN_UNUSED_SECONDS = 24 * 3600.0
"""A model that was used since then stays: a replica that is started again reads it once more."""
GIB = 1024**3
DIGEST = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class CachedModel:
    """A model of the cache."""

    digest: str
    used_at: float
    size_bytes: int


def removable(models: Collection[CachedModel], missing_bytes: int, now: float) -> list[str]:
    """Return the models to delete for that much space, the least recently used first. Pure."""
    found = []
    for model in sorted(models, key=lambda one: one.used_at):
        if missing_bytes <= 0 or now - model.used_at < MIN_UNUSED_SECONDS:
            break
        found.append(model.digest)
        missing_bytes -= model.size_bytes
    return found


def _free_bytes(directory: Path) -> int:
    return shutil.disk_usage(directory).free


class ModelCache:
    """A directory of models on a shared volume.

    Args:
        directory: on the volume; created if it is missing.
        now: the time, as files have it.
        free_bytes: returns the free space of a directory's volume.
    """

    def __init__(
        self, directory: Path, now: Callable[[], float] = time.time, free_bytes: Callable[[Path], int] = _free_bytes
    ) -> None:
        self._folder = directory
        self._now = now
        self._free_bytes = free_bytes

    def model(self, digest: str, sizes: Mapping[str, int], fetch: Callable[[Path], object]) -> tuple[Path, bool]:
        """Return the directory of a model and whether it was fetched by this call.

        Args:
            digest: of the model, 32 hexadecimal digits.
            sizes: of the model's files, by path; a directory with other files or sizes is damaged and fetched again.
            fetch: brings the files to a directory.

        Raises:
            OSError: the volume is full, or knows no locks.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        whole, part = self._folder / digest, self._folder / f"{digest}.part"
        with self._hold_lock(digest):
            if _sizes(whole) == sizes:
                return whole, False
            self._delete(digest)
            self._make_room(sum(sizes.values()))
            try:
                fetch(part)
            except Exception:
                shutil.rmtree(part, ignore_errors=True)
                raise
            part.rename(whole)
        return whole, True

    def _make_room(self, needed: int) -> None:
        """Delete remains of killed pods, then models, until there is room. Raises OSError."""
        for leftover in (*self._folder.glob("*.part"), *self._folder.glob("*.gone")):
            with self._hold_lock(leftover.stem, wait=False) as locked:
                if locked:
                    shutil.rmtree(leftover, ignore_errors=True)
        missing = needed - self._free_bytes(self._folder)
        models = [
            CachedModel(path.name, self._read_last_use(path.name), sum(_sizes(path).values()))
            for path in self._folder.iterdir()
            if DIGEST.fullmatch(path.name)
        ]
        for digest in removable(models, missing, self._now()):
            with self._hold_lock(digest, wait=False) as locked:
                if locked and self._now() - self._read_last_use(digest) >= MIN_UNUSED_SECONDS:
                    logger.info("deleting model %s, unused for a day", digest)
                    self._delete(digest)
        free = self._free_bytes(self._folder)
        if free < needed:
            raise OSError(
                errno.ENOSPC,
                f"the model needs {needed / GIB:.1f} GiB and the claim of the model cache has {free / GIB:.1f}, though "
                "models unused for a day were deleted: enlarge the claim (runDefaults.modelCacheClaim), or delete "
                "files from it",
            )

    def _delete(self, digest: str) -> None:
        """Delete a model whose lock is held; it is never seen in part."""
        whole, gone = self._folder / digest, self._folder / f"{digest}.gone"
        shutil.rmtree(gone, ignore_errors=True)
        if whole.exists():
            whole.rename(gone)
            shutil.rmtree(gone)
        shutil.rmtree(self._folder / f"{digest}.part", ignore_errors=True)

    def _read_last_use(self, digest: str) -> float:
        try:
            return (self._folder / f"{digest}.lock").stat().st_mtime
        except FileNotFoundError:
            return 0.0

    @contextmanager
    def _hold_lock(self, digest: str, *, wait: bool = True) -> Iterator[bool]:
        """Hold a model's lock, which counts as use. Without `wait`, yield False if another process holds the lock."""
        path = self._folder / f"{digest}.lock"
        with path.open("a+", encoding="utf-8") as lock:
            held = _lock(lock.fileno(), blocking=False)
            if not held and wait:
                lock.seek(0)
                logger.info("waiting until %s has fetched the model", lock.read(253) or "another pod")
                held = _lock(lock.fileno(), blocking=True)
            if wait:
                lock.truncate(0)
                lock.write(socket.gethostname())
                lock.flush()
                os.utime(path, (self._now(), self._now()))
            yield held


def _lock(file: int, *, blocking: bool) -> bool:
    """Lock an open file. Return False if another process holds the lock. Raises OSError if the volume has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        text = (
            f"the volume of the model cache cannot lock files ({error.strerror}): name a claim that can in "
            "runDefaults.modelCacheClaim (NFS 4, CephFS, Lustre mounted with flock), or none"
        )
        raise OSError(error.errno, text) from error
    return True


def _sizes(directory: Path) -> dict[str, int]:
    return {str(path.relative_to(directory)): path.stat().st_size for path in directory.rglob("*") if path.is_file()}
