"""Estimates wall time and GPU hours of a run from the rates of an earlier run. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from evalrun_cli.run_plan.rates import Rates


@dataclass(frozen=True, slots=True)
class Capacity:
    """Capacity of a run."""

    servers: int
    """Replicas or endpoints."""
    slots: int | None
    """Programs that its sandboxes run at once; None: as many as the earlier run had."""
    gpus: int
    """GPUs of all replicas; 0 if the servers exist already."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds and GPU hours of a run."""

    start_seconds: float
    """Starting parts and engines, writing outputs: as in the earlier run."""
    generating_seconds: float
    judging_seconds: float
    """Seconds of judging without waits for completions. Generating and judging go on at the same time."""
    wall_seconds: float
    gpu_hours: float


def estimate(answers: Mapping[str, int], rates: Rates, capacity: Capacity) -> Estimate:
    """Estimate a run, assuming completions like those of an earlier run.

    Servers and slots are assumed to share the work evenly. Generating costs as much per token as in the earlier run, or
    per completion if the servers did not count tokens. Judging costs the CPU seconds of each dataset's tests, and as
    much overhead as in the earlier run, if that run waited for it. The time of the last completions and verdicts beyond
    the pace of the others is added once: a longer run waits for its slowest program once too.

    Args:
        answers: number of completions by dataset.
        rates: rates of the earlier run.
        capacity: capacity of the new run.
    """
    paced = rates.generating_seconds - rates.generating_tail
    generating = paced * _share(answers, rates) * rates.servers / capacity.servers + rates.generating_tail
    slots = capacity.slots or rates.slots or 1
    slots_then = rates.slots or slots
    busy = sum(count * rates.find_answers(name).judge_seconds for name, count in answers.items())
    busy_then = sum(each.count * each.judge_seconds for each in rates.datasets.values())
    judging = busy / slots
    if rates.judge_decided and busy_then > 0:
        paced = rates.working_seconds - rates.working_tail
        judging = paced * slots_then / slots * busy / busy_then + rates.working_tail
    wall = rates.start_seconds + max(generating, judging)
    return Estimate(
        rates.start_seconds, generating, judging, wall, capacity.gpus * (rates.start_seconds + generating) / 3600
    )


def _share(answers: Mapping[str, int], rates: Rates) -> float:
    """Return the work of generating these completions, as a multiple of the earlier run's."""
    known = all(each.tokens is not None for each in rates.datasets.values())
    then = sum(each.count * (each.tokens or 0.0) for each in rates.datasets.values())
    if not known or not then:
        return sum(answers.values()) / rates.answers
    return sum(count * (rates.find_answers(name).tokens or 0.0) for name, count in answers.items()) / then
