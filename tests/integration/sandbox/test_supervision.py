"""What the supervisor of one slot makes of a child that ends while it looks."""

import os
import socket
import time
from pathlib import Path

from evalrun_executor.contained.directory import TOTAL_MIB
from evalrun_executor.contained.frames import NOT_STOPPED
from evalrun_executor.contained.supervision import ChildSupervisor


def test_ended_child_is_not_stopped_for_disk_space_that_others_take(tmp_path: Path) -> None:
    """Its descriptors cannot be seen any more, and the room that somebody else takes meanwhile is not its doing."""
    work, neighbour = tmp_path / "work", tmp_path / "neighbour"
    work.mkdir()
    holds, goes_on = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(goes_on)
        os.read(holds, 1)
        os._exit(1)

    def end_the_child_and_fill_the_disk() -> tuple[float, float]:
        os.close(goes_on)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        with neighbour.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, (TOTAL_MIB + 64) << 20)
        return 10.0, 10.0

    ours, service = socket.socketpair()
    supervisor = ChildSupervisor(ours.fileno(), str(work), 1 << 20, 1, may_fork=False)
    with ours, service, (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        files = out.fileno(), err.fileno()
        found = supervisor.watch_filed_child(child, files, time.monotonic(), end_the_child_and_fill_the_disk)
    assert (found.stopped, os.waitstatus_to_exitcode(found.status)) == (NOT_STOPPED, 1)
    assert (tmp_path / "err").read_bytes() == b""
