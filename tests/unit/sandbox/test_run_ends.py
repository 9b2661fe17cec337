"""How a run ended, from what the kernel said."""

import signal

import pytest

from evalrun_sandbox.contained import ends
from evalrun_sandbox.contained.ends import EXITED, MEMORY_LIMIT, OUTPUT_LIMIT, TIMEOUT, Stop, UnexplainedKillError

MIB = 1024


def end(status: int, *, stopped: str | None = None, cpu: float = 0.1, peak: int = 10 * MIB, stderr: bytes = b"",
        own_kill: bool = False) -> tuple[int, int | None]:  # fmt: skip
    return ends.end_of(
        status=status, stopped=stopped, cpu_seconds=cpu, time_limit=1.0, peak_kib=peak, memory_mib=100, stderr=stderr,
        own_kill_possible=own_kill,
    )  # fmt: skip


@pytest.mark.parametrize(("arguments", "expected"), [
    ({"status": 0}, (EXITED, 0)),
    ({"status": 3 << 8}, (EXITED, 3)),
    ({"status": signal.SIGSEGV}, (EXITED, -11)),
    ({"status": signal.SIGKILL, "stopped": Stop.OUTPUT}, (OUTPUT_LIMIT, None)),
    ({"status": 0, "stopped": Stop.OUTPUT}, (OUTPUT_LIMIT, None)),
    ({"status": signal.SIGKILL, "stopped": Stop.TIME}, (TIMEOUT, None)),
    ({"status": signal.SIGXCPU, "cpu": 1.25}, (TIMEOUT, None)),
    ({"status": 0, "cpu": 1.21}, (TIMEOUT, None)),
    ({"status": 0, "cpu": 1.1}, (EXITED, 0)),
    ({"status": signal.SIGKILL, "stopped": "more than 256 threads"}, (EXITED, -9)),
    ({"status": 1 << 8, "stderr": b"Traceback ...\nMemoryError\n"}, (MEMORY_LIMIT, None)),
    ({"status": 1 << 8, "stderr": b"MemoryError: cannot\n"}, (MEMORY_LIMIT, None)),
    ({"status": 1 << 8, "stderr": b"MemoryError\nValueError: x\n"}, (EXITED, 1)),
    ({"status": 0, "stderr": b"MemoryError\n"}, (EXITED, 0)),
    ({"status": signal.SIGABRT, "stderr": b"what():  std::bad_alloc\n"}, (MEMORY_LIMIT, None)),
    ({"status": signal.SIGABRT, "stderr": b"assertion failed\n"}, (EXITED, -6)),
    ({"status": signal.SIGSEGV, "peak": 85 * MIB}, (MEMORY_LIMIT, None)),
    ({"status": signal.SIGSEGV, "peak": 75 * MIB}, (EXITED, -11)),
    ({"status": signal.SIGKILL, "own_kill": True}, (EXITED, -9)),
])  # fmt: skip
def test_end(arguments: dict[str, object], expected: tuple[int, int | None]) -> None:
    assert end(**arguments) == expected  # type: ignore[arg-type]  # a table


def test_a_kill_that_nobody_explains_is_no_verdict() -> None:
    with pytest.raises(UnexplainedKillError):
        end(signal.SIGKILL)
