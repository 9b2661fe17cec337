"""Where a ledger may lie."""

from pathlib import Path

import pytest

from evalrun_aggregator.ledger.place import (
    LedgerLock,
    check_file_system,
    file_system_type,
    is_network_file_system,
    is_owned,
)
from evalrun_runtime.exits import BadInputError

MOUNTS = r"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:30 / /data rw shared:2 - nfs4 server:/export rw
31 30 0:31 / /data/fast rw - xfs /dev/vdb rw
32 22 0:32 / /with\040space rw - fuse.sshfs host: rw
33 22 0:33 / /twice rw - nfs old rw
34 22 0:34 / /twice rw - tmpfs new rw
malformed
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/x/l.db", "ext4"), ("/data/l.db", "nfs4"), ("/data/fast/run/l.db", "xfs"), ("/database/l.db", "ext4"),
        ("/with space/l.db", "fuse.sshfs"), ("/twice/l.db", "tmpfs"),
    ],
)  # fmt: skip
def test_the_innermost_and_latest_mount_holds_a_path(path: str, kind: str) -> None:
    assert file_system_type(Path(path), MOUNTS) == kind


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "fuse.sshfs", "fuse.s3fs", "fuse", "lustre"]
)
def test_network_file_systems_are_refused(kind: str) -> None:
    assert is_network_file_system(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk", "fuse.fuse-overlayfs"])
def test_local_file_systems_are_accepted(kind: str) -> None:
    assert not is_network_file_system(kind)


def test_network_file_system_refusal_names_type_and_remedy() -> None:
    with pytest.raises(BadInputError, match=r"/data/l\.db: nfs4 is a network file system.*block storage"):
        check_file_system(Path("/data/l.db"), MOUNTS)
    check_file_system(Path("/data/fast/l.db"), MOUNTS)


def test_a_ledger_is_owned_while_its_lock_is_held(tmp_path: Path) -> None:
    ledger, locks = tmp_path / "ledger.sqlite3", Path("/proc/locks")
    assert not is_owned(ledger, locks.read_text())
    with LedgerLock(ledger):
        assert is_owned(ledger, locks.read_text())
    assert not is_owned(ledger, locks.read_text())
