"""Pure: which results stand, given the time limit and how many time-outs a problem may have."""

from collections.abc import Mapping, Sequence

import msgspec

from evalrun_sandbox.api import ProgramRun

NOT_RUN = ProgramRun("not_run")


def is_suspect(run: ProgramRun, time_seconds: float) -> bool:
    """Say whether it ended by itself past its limit, so that a run alone has to decide.

    Below 1.2 x the limit, that is: at 1.2 the run is stopped, and that is certain.
    """
    return run.end not in ("timeout", "not_run") and run.cpu_seconds > time_seconds


def decide_alone(first: ProgramRun, alone: ProgramRun | None, time_seconds: float) -> ProgramRun:
    """Give the run that counts: the one with all other slots empty; the first, unconfirmed, where there was none."""
    run = first if alone is None else alone
    if run.end != "timeout" and run.cpu_seconds > time_seconds:
        run = msgspec.structs.replace(run, end="timeout", exit_code=None)
    return msgspec.structs.replace(run, confirmed=alone is not None)


def cut_after(runs: Mapping[int, ProgramRun], stop_after: int) -> int | None:
    """Give the index after which nothing counts: that of the `stop_after`-th time-out in order; None: all counts."""
    if stop_after <= 0:
        return None
    late = sorted(index for index, run in runs.items() if run.end == "timeout")
    return late[stop_after - 1] if len(late) >= stop_after else None


def in_order(runs: Mapping[int, ProgramRun], count: int, stop_after: int) -> Sequence[ProgramRun]:
    """Give one result an input, the same however the runs were spread over slots."""
    cut = cut_after(runs, stop_after)
    return [
        runs.get(index, NOT_RUN) if cut is None or index <= cut else NOT_RUN for index in range(count)
    ]  # fmt: skip
