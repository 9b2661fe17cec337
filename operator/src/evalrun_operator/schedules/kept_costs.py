"""Shares the cost of a RayCluster that a schedule keeps among the runs that had their turn on it. Pure.

A run pays the GPU seconds in which it generated itself. All other GPU seconds (until the first turn, while an engine
started or loaded weights, between and after turns) are shared by output tokens, so that the run that happens to come
first does not pay for all. The shares add up to the held GPU seconds, to the second.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from evalrun_api.v1alpha1 import MAX_PAID, KeptCosts, PaidTurn
from evalrun_operator.schedules.runs import ScheduledRun

Part = Literal["start", "use", "idle"]
EARLIER: Final = "earlier runs"
"""Stands in place of a run's name for the first runs of a RayCluster that served very many."""


def split_by_weight(total: int, weights: Sequence[int]) -> list[int]:
    """Return whole shares of a total by weight, or equal shares if every weight is 0.

    The shares add up to the total.
    """
    weighed = weights if any(weights) else [1] * len(weights)
    whole = sum(weighed)
    parts = [divmod(total * weight, whole) for weight in weighed]
    left = total - sum(share for share, _ in parts) if parts else 0
    # Rounding leaves a remainder. It goes to the shares that lost most by rounding, the first shares first.
    favoured = set(sorted(range(len(parts)), key=lambda index: -parts[index][1])[:left])
    return [share + (index in favoured) for index, (share, _) in enumerate(parts)]


def add_run(costs: KeptCosts, run: ScheduledRun) -> KeptCosts:
    """Return the costs with a run that gets its turn."""
    if any(each.run_uid == run.uid for each in costs.runs):
        return costs
    new = PaidTurn(
        run=run.name, run_uid=run.uid, tokens_before=run.output_tokens, seconds_before=run.generating_seconds
    )
    listed = [*costs.runs, new]
    # The status has a fixed size, so the two oldest runs become a single entry.
    if len(listed) > MAX_PAID:
        listed = [_sum(listed[0], listed[1]), *listed[2:]]
    return costs.model_copy(update={"runs": listed})


def add_gpu_seconds(
    costs: KeptCosts, part: Part, held: int, holder: str | None, runs: Iterable[ScheduledRun], gpus: int
) -> KeptCosts:
    """Return the costs after further GPU seconds, with the current facts of the runs.

    Args:
        costs: the costs before.
        part: what the replicas did meanwhile.
        held: the GPU seconds.
        holder: uid of the run whose turn it was, if any.
        runs: the observed runs; facts about deleted runs stay as they are.
        gpus: GPUs that the replicas hold.
    """
    seen = {run.uid: run for run in runs}
    listed = []
    for each in costs.runs:
        turn = each.turn_gpu_seconds + (held if part == "use" and each.run_uid == holder else 0)
        run = seen.get(each.run_uid or "")
        tokens, use = each.output_tokens, each.use_gpu_seconds
        # A run's counts never fall, even if its status is replaced by an older one.
        if run is not None:
            tokens = max(tokens, run.output_tokens - each.tokens_before)
            use = max(use, (run.generating_seconds - each.seconds_before) * gpus)
        # A run cannot have generated longer than its turns lasted: the rest would be paid twice.
        changes = {"output_tokens": tokens, "use_gpu_seconds": min(use, turn), "turn_gpu_seconds": turn}
        listed.append(each.model_copy(update=changes))
    start = costs.start_gpu_seconds + (held if part == "start" else 0)
    idle = costs.idle_gpu_seconds + (held if part == "idle" else 0)
    weights = [each.output_tokens for each in listed]
    unused = sum(each.turn_gpu_seconds - each.use_gpu_seconds for each in listed)
    shares = zip(listed, split_by_weight(start + unused, weights), split_by_weight(idle, weights), strict=True)
    shown = [
        each.model_copy(update={"start_gpu_seconds": of_start, "idle_gpu_seconds": of_idle})
        for each, of_start, of_idle in shares
    ]
    return costs.model_copy(update={"start_gpu_seconds": start, "idle_gpu_seconds": idle, "runs": shown})


def paid_gpu_seconds(costs: KeptCosts) -> dict[str, int]:
    """Return what each run pays, by uid, its share of the idle time included."""
    return {
        each.run_uid: each.use_gpu_seconds + each.start_gpu_seconds + each.idle_gpu_seconds
        for each in costs.runs
        if each.run_uid is not None
    }


def _sum(one: PaidTurn, other: PaidTurn) -> PaidTurn:
    """Combine two runs in a single entry with the sum of what they pay."""
    counts = ("output_tokens", "turn_gpu_seconds", "use_gpu_seconds", "start_gpu_seconds", "idle_gpu_seconds")
    return PaidTurn(run=EARLIER, **{name: getattr(one, name) + getattr(other, name) for name in counts})
