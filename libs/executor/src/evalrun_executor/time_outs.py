"""Pure: which results stand, given the time limit and how many time-outs a problem may have."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from evalrun_executor.api import ProgramRun
from evalrun_executor.contained.limits import STOP_FACTOR, wall_limit

NOT_RUN = ProgramRun("not_run")

STARVED_SHARE = 0.1
"""Of a CPU. A program stopped at its wall limit that had less of one slept or waited: another run would tell nothing
new. One that had more may have lacked the rest for its neighbours' sake: a limit of 10 s is 25 s of wall time, within
which a program of 9 s needs 0.36 of a CPU."""


def is_suspect(run: ProgramRun, time_seconds: float) -> bool:
    """Return whether a run alone has to decide: it ended by itself past its limit, or was starved.

    At 1.2 x the limit a run is stopped by its own CPU clock, and that is certain.
    """
    if run.end == "timeout":
        return _is_starved(run, time_seconds)
    return run.end != "not_run" and run.cpu_seconds > time_seconds


def _is_starved(run: ProgramRun, time_seconds: float) -> bool:
    """Return whether the wall clock stopped it, and not for its own waiting."""
    by_wall = run.wall_seconds >= wall_limit(time_seconds) and run.cpu_seconds < STOP_FACTOR * time_seconds
    return by_wall and run.cpu_seconds >= STARVED_SHARE * run.wall_seconds


def decide_alone(first: ProgramRun, alone: ProgramRun | None, time_seconds: float) -> ProgramRun:
    """Return the run that counts: the one with all other slots empty; the first, unconfirmed, where there was none.

    Unconfirmed is also one that was starved when it was alone: by what else the machine does.
    """
    run = first if alone is None else alone
    sure = alone is not None and not (run.end == "timeout" and _is_starved(run, time_seconds))
    if run.end != "timeout" and run.cpu_seconds > time_seconds:
        run = msgspec.structs.replace(run, end="timeout", exit_code=None)
    return msgspec.structs.replace(run, confirmed=sure)


def in_doubt(
    runs: Mapping[int, ProgramRun], decided: Collection[int], time_seconds: float, stop_after: int
) -> int | None:
    """Return the first run that counts and that a run alone has to decide and has not yet; None: there is none."""
    cut = cut_after(runs, stop_after)
    suspects = (index for index, run in runs.items() if index not in decided and is_suspect(run, time_seconds))
    return min((index for index in suspects if cut is None or index <= cut), default=None)


def cut_after(runs: Mapping[int, ProgramRun], stop_after: int) -> int | None:
    """Return the index after which nothing counts: that of the `stop_after`-th time-out in order; None: all counts."""
    if stop_after <= 0:
        return None
    late = sorted(index for index, run in runs.items() if run.end == "timeout")
    return late[stop_after - 1] if len(late) >= stop_after else None


def in_order(runs: Mapping[int, ProgramRun], count: int, stop_after: int) -> Sequence[ProgramRun]:
    """Return one result an input, the same however the runs were spread over slots."""
    cut = cut_after(runs, stop_after)
    return [
        runs.get(index, NOT_RUN) if cut is None or index <= cut else NOT_RUN for index in range(count)
    ]  # fmt: skip
