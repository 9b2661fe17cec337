"""Which idle sessions end, and what a session is counted with."""

from pathlib import Path

import pytest

from evalrun_sandbox.sessions.footprint import footprint
from evalrun_sandbox.sessions.policy import MAX_IDLE_THREADS, Budget, Idle, to_end

MIB = 1 << 20
NOW = 1000.0
BUDGET = Budget(60.0, 10 * MIB)


@pytest.mark.parametrize(
    ("idle", "endings"),
    [
        ([], []),
        ([Idle("a", 990.0, 4 * MIB), Idle("b", 990.0, 6 * MIB)], []),
        ([Idle("a", 940.0, 1), Idle("b", 941.0, 1)], [("a", "expired")]),
        ([Idle("a", 990.0, 4 * MIB), Idle("b", 990.0, 7 * MIB)], [("b", "memory")]),
        ([Idle("a", 990.0, 6 * MIB), Idle("b", 980.0, 6 * MIB)], [("b", "memory")]),
        ([Idle(name, 990.0, 6 * MIB) for name in "abc"], [("a", "memory"), ("b", "memory")]),
        ([Idle("a", 900.0, 9 * MIB), Idle("b", 990.0, 7 * MIB)], [("a", "expired")]),
        (
            [Idle("a", 990.0, 1, MAX_IDLE_THREADS - 1), Idle("b", 980.0, 1, 1), Idle("c", 980.0, 1, 2)],
            [("a", "threads")],
        ),
    ],
)
def test_the_expired_end_and_over_a_budget_the_largest(idle: list[Idle], endings: list[tuple[str, str]]) -> None:
    assert [(ending.session, ending.cause) for ending in to_end(idle, BUDGET, NOW)] == endings


def test_ending_session_has_its_reason() -> None:
    (ending,) = to_end([Idle("a", 990.0, 30 * MIB)], BUDGET, NOW)
    assert ending.reason == "idle sessions held more than 10 MiB together, and this one held most: 30 MiB"


MAPS = "55d0-55d1 r--p 00000000 fe:00 1 /usr/bin/python3\n7f00-7f01 rw-p 00000000 00:00 0 \n"


@pytest.mark.parametrize(
    ("line", "removed"),
    [
        ("", False),
        ("7f02-7f03 r--p 00000000 fe:00 9 /place/slot-1/work/x\n", False),
        ("7f02-7f03 r--p 00000000 fe:00 9 /place/slot-1/work/x (deleted)\n", True),
        ("7f02-7f03 r--p 00000000 fe:00 9 /usr/lib/libx.so (deleted)\n", False),
    ],
)
def test_a_footprint_counts_pages_swap_and_mappings(tmp_path: Path, line: str, *, removed: bool) -> None:
    process = tmp_path / "7"
    process.mkdir()
    (process / "smaps_rollup").write_text("0-1 ---p 0 00:00 0 [rollup]\nRss: 900 kB\nPss: 100 kB\nSwapPss: 20 kB\n")
    (process / "maps").write_text(MAPS + line)
    found = footprint(7, "/place", tmp_path)
    assert found is not None
    assert found.memory_bytes == 120 * 1024 + 256 * (MAPS + line).count("\n")
    assert found.maps_removed_file is removed


def test_footprint_without_kernel_figures_is_none(tmp_path: Path) -> None:
    assert footprint(7, "/place", tmp_path) is None
