"""Which replicas to start, let in, end, and when to give up. Pure: what is seen in, what to do out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from evalrun_generator.rollout.order import RolloutOrder
from evalrun_generator.rollout.starts import NodeRoom, Phase, Start


@dataclass(frozen=True, slots=True)
class Limits:
    """The policy's constants, in seconds but for the last."""

    start_seconds: float
    """How long a start may take."""
    place_seconds: float
    """How long to wait for the first GPUs, and between a start that failed and giving up for want of a place."""
    idle_seconds: float
    """How long a replica may be idle, between min and max, before it is ended."""
    first_wait_seconds: float = 1.0
    longest_wait_seconds: float = 60.0
    failed_starts: int = 3
    """Starts that fail in a row, while none serves, before the attempt gives up."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A living start, with what the driver knows of it."""

    start: Start
    admitted: bool = False
    """It is asked for completions, or is being tried."""
    trouble: str = ""
    """Why it must go: dead, hung. Empty while it is well."""
    idle_seconds: float = 0.0
    """For how long it has had nothing to do."""


@dataclass(frozen=True, slots=True)
class History:
    """What went before."""

    failures: int = 0
    """Starts that failed in a row."""
    failed_at: float = float("-inf")
    last_error: str = ""
    without_any_since: float | None = None
    """Since when no replica lives though there is work; None while one does."""

    def after_failed_start(self, error: str, now: float) -> "History":
        """Count a start that never served."""
        return replace(self, failures=self.failures + 1, failed_at=now, last_error=error)

    def after_success(self) -> "History":
        """Forget the failures: a replica serves."""
        return History(without_any_since=self.without_any_since)

    def after_look(self, *, lacking: bool, now: float) -> "History":
        """Note whether there is work and no replica."""
        if not lacking:
            return replace(self, without_any_since=None)
        return self if self.without_any_since is not None else replace(self, without_any_since=now)


class What(Enum):
    """Kinds of action."""

    START = "start"
    ADMIT = "admit"
    END = "end"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do."""

    what: What
    slot: int
    suffix: str = ""
    """Of the start that is meant; empty for a new one."""
    why: str = ""
    failed: bool = False
    """With END: the start never served, which counts."""


def wanted_replicas(rollout: RolloutOrder, remaining: int | None) -> int:
    """Give how many replicas the remaining work is worth; none before that is known, or when nothing remains.

    Between min and max it is the operator's own formula for the worker pods: as many as the work fills. A fixed number
    stays, but for replicas that would never see a request.
    """
    if not remaining:
        return 0
    if rollout.min_replicas is not None and rollout.max_replicas is not None:
        filled = -(-remaining // rollout.max_num_seqs)
        return min(max(filled, rollout.min_replicas), rollout.max_replicas)
    return min(most_replicas(rollout), remaining)


def most_replicas(rollout: RolloutOrder) -> int:
    """Give the most replicas that there ever are at once: slots are numbered below it."""
    return rollout.max_replicas or rollout.replicas or max(1, rollout.gpus_per_node // rollout.gpus)


def places(rollout: RolloutOrder, rooms: Iterable[NodeRoom], starts: Iterable[Start]) -> int:
    """Give how many more replicas would find their GPUs now.

    verl raises at once when GPUs are missing, and blocks for ever when CPUs are: a replica takes, on each of its nodes,
    its GPUs and two CPUs a GPU, and one more for a moment, while its HTTP server is placed. Starts whose GPUs are still
    counted as free are taken off.
    """
    fitting = sum(_fitting(rollout, room) for room in rooms) // rollout.nodes
    unplaced = sum(1 for start in starts if start.phase is Phase.STARTING and not start.placed)
    return max(0, fitting - unplaced)


def _fitting(rollout: RolloutOrder, room: NodeRoom) -> int:
    gpus = rollout.gpus_a_node
    by_gpus, by_cpus = int(room.gpus // gpus), max(0, int((room.cpus - 1) // (2 * gpus)))
    return min(by_gpus, by_cpus) if rollout.nodes == 1 else min(1, by_gpus, by_cpus)


def decide(
    rollout: RolloutOrder,
    seen: Sequence[Seen],
    *,
    taken: frozenset[int],
    free_places: int,
    remaining: int | None,
    history: History,
    limits: Limits,
    now: float,
) -> list[Action]:
    """Give what to do now, the most urgent first.

    Args:
        rollout: what is asked for.
        seen: the living starts, but for those that are being ended.
        taken: slots of starts that are being ended: verl's rank seeds the engine, and is free once they have ended.
        free_places: as `places` gives them.
        remaining: completions that the ledger lacks; None where it has not said.
        history: what went before.
        limits: the constants.
        now: Unix seconds, the clock of `Start.started_at`.
    """
    actions: list[Action] = []
    staying: list[Seen] = []
    for each in seen:
        ending = _ending(each, limits, now)
        if ending is not None:
            actions.append(ending)
        else:
            staying.append(each)
            if each.start.phase is Phase.SERVING and not each.admitted:
                actions.append(Action(What.ADMIT, each.start.slot, each.start.suffix))
    wanted = wanted_replicas(rollout, remaining)
    if len(staying) < wanted:
        if now - history.failed_at >= _wait(history, limits):
            used = taken | {each.start.slot for each in seen}
            actions += _new_starts(rollout, used, min(wanted - len(staying), free_places))
    elif rollout.elastic and remaining is not None:
        actions += _surplus(staying, wanted, limits)
    return actions


def _ending(each: Seen, limits: Limits, now: float) -> Action | None:
    start = each.start
    if start.phase is Phase.FAILED:
        return Action(What.END, start.slot, start.suffix, start.error or "it ended while starting", failed=True)
    if each.trouble:
        return Action(What.END, start.slot, start.suffix, each.trouble)
    if start.phase is Phase.STARTING and now - start.started_at > limits.start_seconds:
        why = f"it did not serve within {limits.start_seconds:g} s"
        return Action(What.END, start.slot, start.suffix, why, failed=True)
    return None


def _new_starts(rollout: RolloutOrder, used: frozenset[int], count: int) -> list[Action]:
    """Start on free slots. A replacement waits for the slot of what it replaces: names and seeds stay the same few."""
    free = [slot for slot in range(most_replicas(rollout)) if slot not in used]
    return [Action(What.START, slot) for slot in free[: max(0, count)]]


def _wait(history: History, limits: Limits) -> float:
    if not history.failures:
        return 0.0
    return min(limits.longest_wait_seconds, limits.first_wait_seconds * 2.0 ** min(history.failures - 1, 30))


def _surplus(staying: Sequence[Seen], wanted: int, limits: Limits) -> list[Action]:
    """End the replicas beyond `wanted` that have had nothing to do, the longest idle first."""
    idle = [each for each in staying if each.admitted and each.idle_seconds >= limits.idle_seconds]
    idle.sort(key=lambda each: -each.idle_seconds)
    return [
        Action(What.END, each.start.slot, each.start.suffix, "it has nothing to do")
        for each in idle[: max(0, len(staying) - wanted)]
    ]


def give_up_reason(
    rollout: RolloutOrder, rooms: Sequence[NodeRoom], history: History, limits: Limits, now: float
) -> str | None:
    """Say why this attempt cannot go on; None while it can. Only asked while no replica serves."""
    if history.failures >= limits.failed_starts:
        return f"{history.failures} starts of a replica failed in a row, the last: {history.last_error}"
    since = history.without_any_since
    if since is None or now - since < limits.place_seconds:
        return None
    gpus = rollout.gpus_a_node
    have = ", ".join(f"{room.gpus:g} GPUs and {room.cpus:g} CPUs" for room in rooms) or "no node"
    return (
        f"no place for a replica within {limits.place_seconds:g} s: it takes {gpus} GPUs and {2 * gpus + 1} CPUs free "
        f"on {rollout.nodes} node(s), and there is {have}. Give a worker num-cpus of at least 2 x GPUs + 2"
    )
