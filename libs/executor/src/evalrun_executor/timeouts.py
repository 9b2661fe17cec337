"""Decides which results stand, given the time limit and the number of timeouts that a problem may have. Pure."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from evalrun_executor.api import QUIET_SLOWNESS, ProgramRun
from evalrun_executor.contained.limits import STOP_FACTOR, wall_limit

NOT_RUN = ProgramRun("not_run")

STARVED_SHARE = 0.1
"""Share of a CPU. A program stopped at its wall limit with a smaller share slept or waited, and another run would show
nothing new. A program with a larger share may have lacked the rest because of its neighbours: a limit of 10 s is 25 s
of wall time, within which a program of 9 s needs 0.36 of a CPU."""


MAX_SLOWNESS = 4.0
"""On a machine that is slower than this, a run shows nothing about a program."""
STRETCHES = (1.0, 2.0, 6.0)
"""Factors by which each run alone may exceed what the machine's slowness allows. A machine that changes its speed, or a
CPU shared by many, leaves the first run in doubt. The last factor identifies with certainty a program that is three
times too slow, and a program that sleeps most of the time: `STARVED_SHARE` of its wall limit, 2 x 6 x the limit + 5 s,
is more CPU than `QUIET_SLOWNESS` explains. A program must not be able to choose to stay undecided."""


ENOUGH_ALONE = 2
"""Number of runs alone after which a program that ends by itself is not repeated: with the first run they take less
than four times its limit."""
_CONFIRM_SECONDS = 60.0


def compute_allowed_seconds(time_seconds: float, slowness: float, stretch: float = 1.0) -> float:
    """Return the time limit of a run on a slow machine, long enough to tell a slow program from a slow machine."""
    return time_seconds * (min(slowness, MAX_SLOWNESS) if slowness > QUIET_SLOWNESS else 1.0) * stretch


def confirm_seconds(time_seconds: float, inputs: int) -> float:
    """Return the wall seconds after which no doubtful run of a request is repeated alone."""
    return wall_limit(time_seconds) * inputs + _CONFIRM_SECONDS


def max_reply_seconds(time_seconds: float, inputs: int) -> float:
    """Return the wall seconds that a request may take once it has a slot, its runs alone included."""
    most = compute_allowed_seconds(time_seconds, MAX_SLOWNESS)
    last = wall_limit(compute_allowed_seconds(time_seconds, MAX_SLOWNESS, STRETCHES[-1]))
    return wall_limit(most) * inputs + confirm_seconds(time_seconds, inputs) + last


def is_suspect(run: ProgramRun, time_seconds: float, allowed: float | None = None, slowness: float = 1.0) -> bool:
    """Return whether a run alone has to decide about a run.

    That is so if the program ended by itself past its limit of CPU time, or slept past its limit of wall time, or if
    the program may have been stopped because of the machine. A program that was stopped past 1.2 x its limit, and past
    what the machine's slowness explains, is too slow.

    Args:
        run: the first run.
        time_seconds: the program's limit.
        allowed: the limit of the run; None means `time_seconds`.
        slowness: slowness of the machine at the time of the run.
    """
    allowed = time_seconds if allowed is None else allowed
    if run.end != "timeout":
        return run.end != "not_run" and (run.cpu_seconds > time_seconds or _has_overslept(run, time_seconds))
    if run.cpu_seconds >= max(STOP_FACTOR, slowness) * time_seconds:
        return False
    return run.cpu_seconds >= STOP_FACTOR * allowed or _is_starved(run, allowed)


def _is_starved(run: ProgramRun, allowed: float) -> bool:
    """Return whether the wall clock stopped the run although the program did not wait by itself."""
    by_wall = run.wall_seconds >= wall_limit(allowed) and run.cpu_seconds < STOP_FACTOR * allowed
    return by_wall and run.cpu_seconds >= STARVED_SHARE * run.wall_seconds


def _has_overslept(run: ProgramRun, time_seconds: float) -> bool:
    """Return whether a program that ended by itself slept past its wall limit, in the longer run of a slow machine."""
    by_itself = run.end not in ("timeout", "not_run") and run.wall_seconds >= wall_limit(time_seconds)
    return by_itself and run.cpu_seconds < STARVED_SHARE * run.wall_seconds


def decide_alone(
    first: ProgramRun,
    alone: ProgramRun | None,
    time_seconds: float,
    allowed: float | None = None,
    slowness: float = 1.0,
) -> ProgramRun:
    """Return the run that counts: the run alone or, without a run alone, the first run, marked unconfirmed.

    A run is also unconfirmed if the machine may have caused its end: it passed the limit by no more than the machine's
    slowness, or other work on the machine took its CPU time.

    Args:
        first: the doubtful run.
        alone: the run with all other slots empty; None if the machine was too slow for such a run.
        time_seconds: the limit.
        allowed: the limit of the run `alone`; None means `time_seconds`.
        slowness: slowness of the machine at the time of `alone`.
    """
    run = first if alone is None else alone
    overslept = _has_overslept(run, time_seconds)
    late = run.cpu_seconds > time_seconds or overslept
    if alone is None:
        sure = False
    elif run.end != "timeout" and not late:
        sure = True
    elif slowness <= QUIET_SLOWNESS:
        starved = run.end == "timeout" and _is_starved(run, time_seconds if allowed is None else allowed)
        sure = not starved or run.cpu_seconds > QUIET_SLOWNESS * time_seconds
    else:
        too_slow = run.cpu_seconds > slowness * time_seconds
        slept = run.end == "timeout" and run.cpu_seconds < STARVED_SHARE * run.wall_seconds
        sure = too_slow or slept or overslept
    if run.end != "timeout" and late:
        run = msgspec.structs.replace(run, end="timeout", exit_code=None)
    return msgspec.structs.replace(run, confirmed=sure, slowness=slowness)


def is_last_try(made: int, latest: ProgramRun) -> bool:
    """Return whether no further run alone is worth its time, after `made` of them.

    Args:
        made: number of runs alone so far.
        latest: the last run of the program.
    """
    return made >= len(STRETCHES) or (made >= ENOUGH_ALONE and latest.end != "timeout")


def left_in_doubt(runs: Sequence[ProgramRun], time_seconds: float, slowness: float) -> ProgramRun:
    """Return the run that counts if no run was sure: the quickest run that ended by itself, as it ended.

    That run took no more than the machine's slowness explains, and a busy machine fails no program. An undecided run
    would leave the denominator, and a wrong program could cause that by its time. Without such a run the last run is an
    unconfirmed timeout.

    Args:
        runs: the first run, and the runs alone.
        time_seconds: the limit.
        slowness: slowness of the machine at the time of the last run.
    """
    explained = max(STOP_FACTOR, slowness) * time_seconds
    ended = [run for run in runs if run.end != "timeout" and run.cpu_seconds <= explained]
    if ended:
        quickest = min(ended, key=lambda run: run.cpu_seconds)
        return msgspec.structs.replace(quickest, confirmed=False, slowness=slowness)
    return msgspec.structs.replace(runs[-1], end="timeout", exit_code=None, confirmed=False, slowness=slowness)


def find_doubt(
    runs: Mapping[int, ProgramRun],
    decided: Collection[int],
    time_seconds: float,
    stop_after: int,
    allowed: float | None = None,
    slowness: float = 1.0,
) -> int | None:
    """Return the first index, among the runs that count, that a run alone has to decide (see `is_suspect`), or None."""
    cut = find_cut(runs, stop_after)
    open_runs = {index: run for index, run in runs.items() if index not in decided}
    suspects = (index for index, run in open_runs.items() if is_suspect(run, time_seconds, allowed, slowness))
    return min((index for index in suspects if cut is None or index <= cut), default=None)


def find_cut(runs: Mapping[int, ProgramRun], stop_after: int) -> int | None:
    """Return the index of the `stop_after`-th timeout, or None. Later results are ignored."""
    if stop_after <= 0:
        return None
    late = sorted(index for index, run in runs.items() if run.end == "timeout")
    return late[stop_after - 1] if len(late) >= stop_after else None


def order_runs(runs: Mapping[int, ProgramRun], count: int, stop_after: int) -> Sequence[ProgramRun]:
    """Return a result per input, the same however the runs were spread over slots."""
    cut = find_cut(runs, stop_after)
    return [
        runs.get(index, NOT_RUN) if cut is None or index <= cut else NOT_RUN for index in range(count)
    ]  # fmt: skip
