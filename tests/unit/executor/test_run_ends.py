"""How a run ended, from what the kernel said."""

import signal

import pytest

from evalrun_executor.contained.frames import NOT_STOPPED, STOPPED_OTHER, STOPPED_OUTPUT, STOPPED_TIME
from evalrun_executor.zygotes.run_ends import UnexplainedKill, classify_end

MIB = 1024


def end(status: int, *, stopped: int = NOT_STOPPED, cpu: float = 0.1, peak: int = 10 * MIB, stderr: bytes = b"",
        own_kill: bool = False) -> tuple[str, int | None]:  # fmt: skip
    return classify_end(
        status=status, stopped=stopped, cpu_seconds=cpu, time_limit=1.0, peak_kib=peak, memory_mib=100,
        resident_mib=112, stderr=stderr, own_kill_possible=own_kill,
    )  # fmt: skip


@pytest.mark.parametrize(("arguments", "expected"), [
    ({"status": 0}, ("exited", 0)),
    ({"status": 3 << 8}, ("exited", 3)),
    ({"status": signal.SIGSEGV}, ("exited", -11)),
    ({"status": signal.SIGKILL, "stopped": STOPPED_OUTPUT}, ("output_limit", None)),
    ({"status": 0, "stopped": STOPPED_OUTPUT}, ("output_limit", None)),
    ({"status": signal.SIGKILL, "stopped": STOPPED_TIME}, ("timeout", None)),
    ({"status": signal.SIGXCPU, "cpu": 1.25}, ("timeout", None)),
    ({"status": 0, "cpu": 1.21}, ("timeout", None)),
    ({"status": 0, "cpu": 1.1}, ("exited", 0)),
    ({"status": signal.SIGKILL, "stopped": STOPPED_OTHER}, ("exited", -9)),
    ({"status": 1 << 8, "stderr": b"Traceback ...\nMemoryError\n"}, ("memory_limit", None)),
    ({"status": 1 << 8, "stderr": b"MemoryError: cannot\n"}, ("memory_limit", None)),
    ({"status": 1 << 8, "stderr": b"MemoryError\nValueError: x\n"}, ("exited", 1)),
    ({"status": 0, "stderr": b"MemoryError\n"}, ("exited", 0)),
    ({"status": signal.SIGABRT, "stderr": b"what():  std::bad_alloc\n"}, ("memory_limit", None)),
    ({"status": signal.SIGABRT, "stderr": b"assertion failed\n"}, ("exited", -6)),
    ({"status": signal.SIGSEGV, "peak": 85 * MIB}, ("memory_limit", None)),
    ({"status": signal.SIGSEGV, "peak": 75 * MIB}, ("exited", -11)),
    ({"status": signal.SIGKILL, "own_kill": True}, ("exited", -9)),
    ({"status": 0, "peak": 112 * MIB}, ("exited", 0)),
    ({"status": 0, "peak": 112 * MIB + 1}, ("memory_limit", None)),
    ({"status": 1 << 8, "peak": 120 * MIB}, ("memory_limit", None)),
    ({"status": signal.SIGKILL, "peak": 120 * MIB}, ("memory_limit", None)),
    ({"status": 0, "peak": 120 * MIB, "cpu": 1.21}, ("timeout", None)),
])  # fmt: skip
def test_end_follows_from_exit_status_stop_reason_and_usage(
    arguments: dict[str, object], expected: tuple[str, int | None]
) -> None:
    assert end(**arguments) == expected  # type: ignore[arg-type]  # a table


def test_unexplained_kill_is_no_verdict() -> None:
    with pytest.raises(UnexplainedKill):
        end(signal.SIGKILL)
