"""Files that a request places into the private directory before its run, and files that it collects afterwards.

The runner handles them, under the program's own Landlock ruleset and user, so nothing comes back that the program could
not have printed. Still no link is followed, and only regular files are read: a named pipe would block the runner, and
on a machine without containment a link could name any file.
"""

# ruff: noqa: PTH123, SIM105
# Why: pathlib and contextlib would make the zygote larger, and each fork dearer.
from __future__ import annotations

import os
import stat

from evalrun_executor.contained import frames

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Exchange:
    """Places files into a directory for a job, and collects files from it."""

    def __init__(self, directory: str, job: frames.Job, blob: int, offset: int) -> None:
        """Serve `directory`. The files' contents are in `blob` from `offset` on, one after another."""
        self._folder = directory
        self._placed = job.placed
        self._wanted = job.wanted
        self._blob = blob
        self._offset = offset
        self._texts: list[tuple[str, bytes]] = []
        self.largest = max((size for _, size in job.placed), default=0)
        """Bytes of the largest file."""

    @property
    def names(self) -> list[str]:
        """Names of the files and directories at the top level of the directory."""
        return sorted({os.fsdecode(name.split(b"/")[0]) for name, _ in self._placed})

    def find_free_name(self, name: str) -> str:
        """Return a name for the program's text that no file of the request has and that programs rarely use."""
        name = f"tmp_{name}"
        while name in self.names:
            name = f"_{name}"
        return name

    def add(self, name: str, text: bytes) -> str:
        """Add `text` to the files to place, under a name like `name`. Return the name."""
        name = self.find_free_name(name)
        self._texts.append((name, text))
        return name

    def place_files(self) -> None:
        """Write the files into the directory, which is empty. Raises OSError."""
        offset = self._offset
        for name, size in self._placed:
            parent, last = _open_parent(self._folder, name, make=True)
            try:
                fd = os.open(last, _NEW, 0o644, dir_fd=parent)
            finally:
                os.close(parent)
            try:
                frames.copy(fd, self._blob, offset, size)
            finally:
                os.close(fd)
            offset += size
        for script, text in self._texts:
            with open(f"{self._folder}/{script}", "xb") as file:
                file.write(text)

    def gather_files(self) -> tuple[int, bytes] | None:
        """Return a memory file of the wanted contents and the payload of a FILES frame, or None if no file is wanted.

        A file that is missing, not regular or not readable has the size `frames.ABSENT`.
        """
        if not self._wanted:
            return None
        sizes = []
        left = frames.FILES_BYTES
        together = os.memfd_create("files")
        try:
            for name in self._wanted:
                size = self._append_file(together, name, left)
                sizes.append(size)
                # Nothing is sent of a set that is too large, because the service would hold it in memory.
                if size == frames.TOO_LARGE:
                    os.ftruncate(together, 0)
                    break
                left -= 0 if size == frames.ABSENT else size
        except BaseException:
            os.close(together)
            raise
        return together, b"".join(frames.INDEX.pack(size) for size in sizes)

    def _append_file(self, together: int, name: bytes, max_bytes: int) -> int:
        try:
            parent, last = _open_parent(self._folder, name, make=False)
        except OSError:
            return frames.ABSENT
        try:
            # `O_NONBLOCK` keeps the open of a named pipe from waiting for a writer.
            fd = os.open(last, _OLD, dir_fd=parent)
        except OSError:
            return frames.ABSENT
        finally:
            os.close(parent)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return frames.ABSENT
            if found.st_size > max_bytes:
                return frames.TOO_LARGE
            try:
                frames.copy(together, fd, 0, found.st_size)
            except EOFError:
                # The file became shorter while it was read. Only a process that outlived its program does that, on
                # machines where programs may fork.
                return frames.ABSENT
            return found.st_size
        finally:
            os.close(fd)


def _open_parent(directory: str, name: bytes, *, make: bool) -> tuple[int, bytes]:
    """Return a descriptor of the directory that contains a path, and the path's last part. Raises OSError."""
    *above, last = name.split(b"/")
    fd = os.open(directory, _FOLDER)
    for part in above:
        try:
            if make:
                try:
                    os.mkdir(part, 0o755, dir_fd=fd)
                except FileExistsError:
                    pass
            deeper = os.open(part, _FOLDER, dir_fd=fd)
        finally:
            os.close(fd)
        fd = deeper
    return fd, last
