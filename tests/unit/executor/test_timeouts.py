import pytest

from evalrun_executor.api import ProgramRun
from evalrun_executor.contained.limits import STOP_FACTOR, wall_limit
from evalrun_executor.timeouts import (
    MAX_SLOWNESS,
    STRETCHES,
    compute_allowed_seconds,
    decide_alone,
    find_cut,
    find_doubt,
    is_last_try,
    is_suspect,
    left_in_doubt,
    order_runs,
)

OK = ProgramRun("exited", 0, b"x", cpu_seconds=0.5)
SLOW = ProgramRun("exited", 0, b"x", cpu_seconds=1.1)
LATE = ProgramRun("timeout", cpu_seconds=1.2, wall_seconds=1.3)
STARVED = ProgramRun("timeout", cpu_seconds=0.8, wall_seconds=7.0)


@pytest.mark.parametrize(("run", "suspect"), [
    (OK, False), (SLOW, True), (LATE, False),
    (ProgramRun("exited", 1, cpu_seconds=1.05), True),
    (ProgramRun("memory_limit", cpu_seconds=1.05), True),
    (ProgramRun("exited", 0, cpu_seconds=1.0), False),
    (ProgramRun("not_run"), False),
    (STARVED, True),
    (ProgramRun("timeout", cpu_seconds=1.1, wall_seconds=7.0), True),
    (ProgramRun("timeout", cpu_seconds=1.2, wall_seconds=7.0), False),
    (ProgramRun("timeout", cpu_seconds=0.8, wall_seconds=6.9), False),  # not by the wall clock
    (ProgramRun("timeout", cpu_seconds=0.69, wall_seconds=7.0), False),  # it slept
    (ProgramRun("exited", 0, cpu_seconds=0.8, wall_seconds=7.0), False),
    (ProgramRun("exited", 0, cpu_seconds=0.1, wall_seconds=7.0), True),  # asleep, in a run that was given more time
    (ProgramRun("exited", 0, cpu_seconds=0.1, wall_seconds=6.9), False),
])  # fmt: skip
def test_is_suspect_names_runs_that_ended_past_the_limit_or_were_starved(run: ProgramRun, suspect: bool) -> None:
    assert is_suspect(run, 1.0) is suspect


@pytest.mark.parametrize(("alone", "end", "confirmed"), [
    (OK, "exited", True), (SLOW, "timeout", True), (LATE, "timeout", True), (None, "timeout", False),
    (STARVED, "timeout", False),
])  # fmt: skip
def test_decide_alone_takes_the_result_of_the_run_alone(alone: ProgramRun | None, end: str, confirmed: bool) -> None:
    decided = decide_alone(SLOW, alone, 1.0)
    assert (decided.end, decided.confirmed) == (end, confirmed)
    assert decided.exit_code == (0 if end == "exited" else None)


@pytest.mark.parametrize(("cpu", "allowed", "slowness", "suspect"), [
    (1.2, 1.0, 1.0, False), (1.2, 1.0, 1.2, False), (1.2, 1.0, 1.5, True),
    (1.8, 1.5, 1.7, False), (1.8, 1.5, 1.9, True),
    (2.4, 2.0, 1.0, False),
])  # fmt: skip
def test_a_time_out_that_a_slow_machine_explains_is_doubtful(
    cpu: float, allowed: float, slowness: float, suspect: bool
) -> None:
    assert is_suspect(ProgramRun("timeout", cpu_seconds=cpu), 1.0, allowed, slowness) is suspect


@pytest.mark.parametrize(("alone", "allowed", "slowness", "end", "confirmed"), [
    (ProgramRun("exited", 0, cpu_seconds=0.9), 2.0, 2.0, "exited", True),
    (ProgramRun("exited", 0, cpu_seconds=1.1), 1.1, 1.1, "timeout", True),  # undisturbed
    (ProgramRun("exited", 0, cpu_seconds=1.1), 2.0, 2.0, "timeout", False),
    (ProgramRun("exited", 0, cpu_seconds=2.1), 2.0, 2.0, "timeout", True),  # slower than the machine explains
    (ProgramRun("timeout", cpu_seconds=2.4), 2.0, 2.0, "timeout", True),
    (ProgramRun("timeout", cpu_seconds=2.4), 2.0, 2.5, "timeout", False),  # the machine became slower meanwhile
    (ProgramRun("timeout", cpu_seconds=1.5, wall_seconds=9.0), 2.0, 2.0, "timeout", False),  # starved
    (ProgramRun("timeout", cpu_seconds=0.1, wall_seconds=9.0), 2.0, 2.0, "timeout", True),  # slept
    (ProgramRun("exited", 0, cpu_seconds=0.1, wall_seconds=8.0), 2.0, 2.0, "timeout", True),  # slept past 7 s
    (ProgramRun("exited", 0, cpu_seconds=0.1, wall_seconds=8.0), 2.0, 1.0, "timeout", True),
    (ProgramRun("exited", 0, cpu_seconds=0.1, wall_seconds=6.9), 2.0, 2.0, "exited", True),
    (ProgramRun("exited", 0, cpu_seconds=0.9, wall_seconds=8.0), 2.0, 2.0, "exited", True),  # it lacked a CPU
    (None, 1.0, 4.1, "timeout", False),
])  # fmt: skip
def test_decide_alone_confirms_unless_a_slow_machine_explains_the_result(
    alone: ProgramRun | None, allowed: float, slowness: float, end: str, confirmed: bool
) -> None:
    decided = decide_alone(SLOW, alone, 1.0, allowed, slowness)
    assert (decided.end, decided.confirmed, decided.slowness) == (end, confirmed, slowness)


@pytest.mark.parametrize("before", [1.0, 1.15, 1.16, 1.5, 2.0, 3.0, MAX_SLOWNESS])
@pytest.mark.parametrize("change", [0.25, 0.5, 1.0, 1.3, 2.0, 4.0])
@pytest.mark.parametrize("needs", [3.0, 1000.0])
def test_a_program_three_times_too_slow_fails_however_slow_the_machine_is(
    before: float, change: float, needs: float
) -> None:
    """Slowness between the looks before and after each run may rise or fall up to fourfold."""
    after = min(max(1.0, before * change), MAX_SLOWNESS)
    sure = []
    for stretch in STRETCHES:
        allowed = compute_allowed_seconds(1.0, before, stretch)
        cpu = needs * (before + after) / 2
        stopped = cpu >= STOP_FACTOR * allowed
        run = ProgramRun("timeout" if stopped else "exited", None if stopped else 0,
                         cpu_seconds=min(cpu, STOP_FACTOR * allowed))  # fmt: skip
        sure.append(decide_alone(SLOW, run, 1.0, allowed, max(before, after)))
    assert sure[-1].end == "timeout"
    assert sure[-1].confirmed


@pytest.mark.parametrize("slowness", [1.0, 1.3, 2.0, 4.0])
@pytest.mark.parametrize("needs", [0.1, 0.9, 1.0])
def test_a_program_within_its_limit_never_fails_by_the_machines_slowness(needs: float, slowness: float) -> None:
    allowed = compute_allowed_seconds(1.0, slowness)
    cpu = needs * slowness
    assert cpu < STOP_FACTOR * allowed
    run = ProgramRun("exited", 0, cpu_seconds=cpu)
    decided = decide_alone(SLOW, run, 1.0, allowed, slowness)
    assert decided.end == "exited" or not decided.confirmed


@pytest.mark.parametrize("limit", [0.5, 1.0, 2.0, 10.0, 60.0])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.1, 0.11, 0.14, 0.2, 0.36, 0.5, 0.9, 1.0])
def test_a_program_that_sleeps_part_of_the_time_without_end_is_a_timeout(share: float, limit: float) -> None:
    """Not judged, it would leave the denominator."""
    runs = []
    for stretch in (None, *STRETCHES):
        allowed = limit * (stretch or 1.0)
        cpu = min(share * wall_limit(allowed), STOP_FACTOR * allowed)
        wall = cpu / share if share else wall_limit(allowed)
        runs.append(ProgramRun("timeout", cpu_seconds=cpu, wall_seconds=min(wall, wall_limit(allowed))))
    first, *alone = runs
    if is_suspect(first, limit):
        decided = [
            decide_alone(first, run, limit, limit * stretch) for run, stretch in zip(alone, STRETCHES, strict=True)
        ]
        assert any(run.confirmed and run.end == "timeout" for run in decided)


def test_decide_alone_of_a_starved_run_without_a_run_alone_is_unconfirmed() -> None:
    assert decide_alone(STARVED, None, 1.0).confirmed is False


@pytest.mark.parametrize(("late", "stop_after", "cut"), [
    ([], 3, None), ([0, 1], 3, None), ([4, 0, 2], 3, 4), ([4, 0, 2, 9], 3, 4), ([0, 1, 2], 0, None), ([5], 1, 5),
])  # fmt: skip
def test_find_cut_ends_at_the_last_allowed_timeout(late: list[int], stop_after: int, cut: int | None) -> None:
    assert find_cut(dict.fromkeys(late, LATE), stop_after) == cut


@pytest.mark.parametrize(("runs", "decided", "stop_after", "index"), [
    ({0: OK, 1: LATE}, [], 0, None),
    ({3: STARVED, 1: SLOW, 0: OK}, [], 0, 1),
    ({3: STARVED, 1: SLOW, 0: OK}, [1], 0, 3),
    ({3: STARVED, 1: SLOW, 0: OK}, [1, 3], 0, None),
    ({0: LATE, 1: SLOW}, [], 1, None),
    ({0: STARVED, 1: SLOW}, [], 1, 0),
])  # fmt: skip
def test_suspect_timeouts_are_decided_in_order(
    runs: dict[int, ProgramRun], decided: list[int], stop_after: int, index: int | None
) -> None:
    assert find_doubt(runs, decided, 1.0, stop_after) == index


def test_order_runs_stops_at_the_allowed_timeouts_in_test_order() -> None:
    """Two slots finish 0, 1, 2, 3 and 5 before they learn that 0 and 2 timed out; one slot would have stopped at 2."""
    runs = {5: OK, 0: LATE, 3: OK, 2: LATE, 1: OK}
    ends = [run.end for run in order_runs(runs, 7, stop_after=2)]
    assert ends == ["timeout", "exited", "timeout", "not_run", "not_run", "not_run", "not_run"]


@pytest.mark.parametrize(("made", "latest", "last"), [
    (1, SLOW, False), (1, LATE, False), (2, SLOW, True), (2, LATE, False), (3, SLOW, True), (3, LATE, True),
])  # fmt: skip
def test_is_last_try_needs_fewer_runs_of_a_program_that_ends(made: int, latest: ProgramRun, last: bool) -> None:
    assert is_last_try(made, latest) is last


@pytest.mark.parametrize(("runs", "slowness", "counts", "end"), [
    ([SLOW], 5.0, SLOW, "exited"),
    ([SLOW, ProgramRun("exited", 1, cpu_seconds=1.05)], 1.3, ProgramRun("exited", 1, cpu_seconds=1.05), "exited"),
    ([SLOW, STARVED], 1.3, SLOW, "exited"),
    ([STARVED, LATE], 1.3, LATE, "timeout"),
    ([STARVED, ProgramRun("memory_limit", cpu_seconds=1.1)], 1.3, ProgramRun("memory_limit", cpu_seconds=1.1),
     "memory_limit"),
    ([ProgramRun("exited", 0, cpu_seconds=2.4), STARVED], 1.0, STARVED, "timeout"),  # more than the machine explains
])  # fmt: skip
def test_left_in_doubt_prefers_the_result_of_a_run_that_ended_by_itself(
    runs: list[ProgramRun], slowness: float, counts: ProgramRun, end: str
) -> None:
    found = left_in_doubt(runs, 1.0, slowness)
    assert (found.end, found.confirmed, found.slowness) == (end, False, slowness)
    assert found.cpu_seconds == counts.cpu_seconds
    assert found.exit_code == (counts.exit_code if end == "exited" else None)
