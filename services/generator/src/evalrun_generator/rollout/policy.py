"""Decides which replicas to start, admit and end, and when to give up. Pure: observations in, actions out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from evalrun_api.run_config import Rollout, count_wanted_replicas
from evalrun_generator.rollout.starts import NodeCapacity, Start, StartPhase
from evalrun_runtime.backoff import backoff_seconds


@dataclass(frozen=True, slots=True)
class PolicyLimits:
    """The policy's constants; all but the last are seconds."""

    start_seconds: float
    """Time limit of a start."""
    place_seconds: float
    """Maximum wait for free GPUs, at the beginning and after a failed start, before giving up."""
    idle_seconds: float
    """Idle time after which a replica beyond the minimum is ended."""
    initial_wait_seconds: float = 1.0
    max_wait_seconds: float = 60.0
    failed_starts: int = 3
    """Consecutive failed starts, while no replica serves, after which the attempt gives up."""


@dataclass(frozen=True, slots=True)
class ObservedReplica:
    """A living replica with the driver's observations."""

    start: Start
    admitted: bool = False
    """Whether the replica serves completions or is being tested."""
    trouble: str = ""
    """Reason why the replica must be ended: dead, hung. Empty while it is healthy."""
    idle_seconds: float = 0.0
    """Seconds for which the replica has been idle."""


@dataclass(frozen=True, slots=True)
class DecisionHistory:
    """Failures and waiting time before this decision."""

    failures: int = 0
    """Consecutive failed starts."""
    failed_at: float = float("-inf")
    last_error: str = ""
    without_any_since: float | None = None
    """Time since which remaining work has had no living replica; None in any other state."""

    def apply_failed_start(self, error: str, now: float) -> "DecisionHistory":
        """Return the history after a start that never served."""
        return replace(self, failures=self.failures + 1, failed_at=now, last_error=error)

    def apply_success(self) -> "DecisionHistory":
        """Return the history without failures, because a replica serves."""
        return DecisionHistory(without_any_since=self.without_any_since)

    def apply_look(self, *, lacking: bool, now: float) -> "DecisionHistory":
        """Return the history after observing whether work lacks a replica."""
        if not lacking:
            return replace(self, without_any_since=None)
        return self if self.without_any_since is not None else replace(self, without_any_since=now)


class ActionKind(Enum):
    START = "start"
    ADMIT = "admit"
    END = "end"


@dataclass(frozen=True, slots=True)
class Action:
    what: ActionKind
    slot: int
    suffix: str = ""
    """Suffix of the start concerned; empty for a new one."""
    why: str = ""
    failed: bool = False
    """With END: the start never served, which counts as a failed start."""


def useful_replicas(rollout: Rollout, remaining: int | None) -> int:
    """Return how many replicas the remaining work justifies; 0 before it is known and when nothing remains.

    Between min and max the formula is the same as the operator's for worker pods. A fixed number is kept, except for
    replicas that would never receive a request.
    """
    if not remaining:
        return 0
    wanted = count_wanted_replicas(rollout, remaining)
    return wanted if rollout.elastic else min(wanted, remaining)


def max_replica_count(rollout: Rollout) -> int:
    """Return the maximum number of simultaneous replicas; slot numbers are below it."""
    return rollout.max_replicas or rollout.initial_replicas


def places(rollout: Rollout, rooms: Iterable[NodeCapacity], starts: Iterable[Start]) -> int:
    """Return how many more replicas can be placed now.

    verl raises at once if GPUs are missing, but blocks forever if CPUs are. On each of its nodes a replica takes its
    GPUs, two CPUs per GPU, and briefly one more CPU while its HTTP server is placed. Starts whose GPUs still count as
    free are subtracted.
    """
    fitting = sum(_count_fitting(rollout, room) for room in rooms) // rollout.pods_per_replica
    unplaced = sum(1 for start in starts if start.phase is StartPhase.STARTING and not start.placed)
    return max(0, fitting - unplaced)


def _count_fitting(rollout: Rollout, room: NodeCapacity) -> int:
    gpus = rollout.gpus_per_pod
    by_gpus, by_cpus = int(room.gpus // gpus), max(0, int((room.cpus - 1) // (2 * gpus)))
    return min(by_gpus, by_cpus) if rollout.pods_per_replica == 1 else min(1, by_gpus, by_cpus)


def decide(
    rollout: Rollout,
    seen: Sequence[ObservedReplica],
    *,
    taken: frozenset[int],
    free_places: int,
    remaining: int | None,
    history: DecisionHistory,
    limits: PolicyLimits,
    now: float,
) -> list[Action]:
    """Return the actions to take now, the most urgent first.

    Args:
        rollout: the requested replicas.
        seen: the living starts, without those that are being ended.
        taken: slots of starts that are being ended. verl's rank seeds the engine and is free only after they ended.
        free_places: the result of `places`.
        remaining: completions missing from the ledger, or None if unknown.
        history: earlier failures.
        limits: the constants.
        now: Unix seconds, the clock of `Start.started_at`.
    """
    actions: list[Action] = []
    staying: list[ObservedReplica] = []
    for each in seen:
        ending = _decide_end(each, limits, now)
        if ending is not None:
            actions.append(ending)
        else:
            staying.append(each)
            if each.start.phase is StartPhase.SERVING and not each.admitted:
                actions.append(Action(ActionKind.ADMIT, each.start.slot, each.start.suffix))
    wanted = useful_replicas(rollout, remaining)
    if len(staying) < wanted:
        if now - history.failed_at >= _wait(history, limits):
            used = taken | {each.start.slot for each in seen}
            actions += _new_starts(rollout, used, min(wanted - len(staying), free_places))
    elif rollout.elastic and remaining is not None:
        actions += _surplus(staying, wanted, limits)
    return actions


def _decide_end(each: ObservedReplica, limits: PolicyLimits, now: float) -> Action | None:
    start = each.start
    if start.phase is StartPhase.FAILED:
        return Action(ActionKind.END, start.slot, start.suffix, start.error or "it ended while starting", failed=True)
    if each.trouble:
        return Action(ActionKind.END, start.slot, start.suffix, each.trouble)
    if start.phase is StartPhase.STARTING and now - start.started_at > limits.start_seconds:
        why = f"it did not serve within {limits.start_seconds:g} s"
        return Action(ActionKind.END, start.slot, start.suffix, why, failed=True)
    return None


def _new_starts(rollout: Rollout, used: frozenset[int], count: int) -> list[Action]:
    """Start on free slots. A replacement waits for the slot of the replica it replaces, to reuse its name and seed."""
    free = [slot for slot in range(max_replica_count(rollout)) if slot not in used]
    return [Action(ActionKind.START, slot) for slot in free[: max(0, count)]]


def _wait(history: DecisionHistory, limits: PolicyLimits) -> float:
    if not history.failures:
        return 0.0
    return backoff_seconds(history.failures, limits.initial_wait_seconds, limits.max_wait_seconds)


def _surplus(staying: Sequence[ObservedReplica], wanted: int, limits: PolicyLimits) -> list[Action]:
    """End idle replicas beyond `wanted`, the longest idle first.

    A starting replica does not replace a serving replica: loading takes minutes, and the work continues meanwhile.
    """
    serving = [each for each in staying if each.admitted]
    idle = [each for each in serving if each.idle_seconds >= limits.idle_seconds]
    idle.sort(key=lambda each: -each.idle_seconds)
    return [
        Action(ActionKind.END, each.start.slot, each.start.suffix, "it has nothing to do")
        for each in idle[: max(0, len(serving) - wanted)]
    ]


def give_up_reason(
    rollout: Rollout, rooms: Sequence[NodeCapacity], history: DecisionHistory, limits: PolicyLimits, now: float
) -> str | None:
    """Return why this attempt cannot continue, or None if it can. Called only while no replica serves."""
    if history.failures >= limits.failed_starts:
        return f"{history.failures} replica starts failed in a row, the last with: {history.last_error}"
    since = history.without_any_since
    if since is None or now - since < limits.place_seconds:
        return None
    gpus = rollout.gpus_per_pod
    have = ", ".join(f"{room.gpus:g} GPUs and {room.cpus:g} CPUs" for room in rooms) or "no node"
    return (
        f"no room for a replica within {limits.place_seconds:g} s: it needs {gpus} GPUs and {2 * gpus + 1} CPUs free "
        f"on {rollout.pods_per_replica} node(s); free now: {have}. Set a worker's num-cpus to at least 2 x GPUs + 2"
    )
