"""Checks a ledger's location: a local file system, owned by one process.

SQLite's WAL keeps its index in shared memory mapped from a file, which network file systems do not keep coherent:
databases were corrupted that way (https://sqlite.org/wal.html, "all processes must be on the same host computer").
"""

import fcntl
import os
import re
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from evalrun_runtime.exits import BadInputError

NETWORK_TYPES = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"),
        *("ocfs2", "orangefs", "smb3", "smbfs", "vboxsf"),
    }
)
LOCAL_FUSE = frozenset({"fuseblk", "fuse.fuse-overlayfs"})
LOCK_TABLE: Final = Path("/proc/locks")


def file_system_type(path: Path, mount_table: str) -> str | None:
    """Return the type of the file system that holds `path` (absolute, links resolved).

    Args:
        path: a path that need not exist.
        mount_table: text of `/proc/self/mountinfo` (proc(5)); among mounts on the same place the last counts.
    """
    best, found = -1, None
    for line in mount_table.splitlines():
        before, _, after = line.partition(" - ")
        fields, type_and_source = before.split(" "), after.split(" ")
        if len(fields) < 5:
            continue
        mount_point = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal.group(1), 8)), fields[4]))
        if path.is_relative_to(mount_point) and len(mount_point.parts) >= best:
            best, found = len(mount_point.parts), type_and_source[0]
    return found


def is_network_file_system(kind: str) -> bool:
    """Return whether SQLite's WAL is at risk on this type. FUSE counts, except for the two local kinds."""
    return kind in NETWORK_TYPES or (kind.startswith("fuse") and kind not in LOCAL_FUSE)


def check_file_system(path: Path, mount_table: str) -> None:
    """Refuse a ledger on a network file system.

    Raises:
        BadInputError: the message names the type and a remedy.
    """
    kind = file_system_type(path, mount_table)
    if kind is not None and is_network_file_system(kind):
        raise BadInputError(
            f"ledger {path}: {kind} is a network file system, which corrupts SQLite's WAL: "
            "put the ledger on a local disk or block storage (aggregator.storage)"
        )


def is_in_use(ledger: Path) -> bool:
    """Return whether a process of this machine owns a ledger; True if the kernel does not show it.

    No lock is taken, because a run that starts at the same moment would then fail.
    """
    try:
        return is_owned(ledger, LOCK_TABLE.read_text())
    except OSError:
        return True


def is_owned(ledger: Path, lock_table: str) -> bool:
    """Return whether a process owns a ledger.

    Args:
        ledger: its path; it need not exist.
        lock_table: text of `/proc/locks` (proc(5)).
    """
    try:
        inode = lock_path(ledger).stat().st_ino
    except FileNotFoundError:
        return False
    # The device is left out, because an overlay's device in this table differs from that of stat.
    return any(
        fields[1] == "FLOCK" and fields[5].endswith(f":{inode}")
        for fields in map(str.split, lock_table.splitlines())
        if len(fields) > 5
    )


def lock_path(ledger: Path) -> Path:
    """Return the file whose lock gives ownership of a ledger."""
    return ledger.with_name(ledger.name + ".lock")


class LedgerLock:
    """The lock with which a process owns a ledger. The kernel releases it when the process ends."""

    def __init__(self, ledger: Path) -> None:
        self.path = lock_path(ledger)
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            BadInputError: another process holds it.
        """
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise BadInputError(
                f"ledger {self.path.with_suffix('')}: process {holder} is using it: stop that run first, "
                "or use another output directory"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release the lock. The file stays, because removing it would let two processes lock two files of the same
        name."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
