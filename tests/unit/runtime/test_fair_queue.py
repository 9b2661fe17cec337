"""Slots shared among runs."""

import heapq
from collections import Counter

import pytest

from evalrun_runtime.declared_shares import FLOOR, DeclaredShares, Priority
from evalrun_runtime.fair_queue import FairQueue


def served(queue: FairQueue[str], turns: int) -> list[str]:
    """Serve one slot at a time: each is given back before the next is taken."""
    order = []
    for _ in range(turns):
        waiting = queue.first()
        assert waiting is not None
        order.append(queue.take(waiting[0]))
        queue.release(waiting[0])
    return order


def test_items_of_a_run_are_served_in_order_with_urgent_ones_first() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("1", "2"):
        queue.push("a", item)
    queue.push("a", "0", urgent=True)
    assert served(queue, 3) == ["0", "1", "2"]
    assert queue.first() is None


def test_urgent_items_are_served_in_order_of_arrival() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push("a", "2")
    for item in ("0", "1"):
        queue.push("a", item, urgent=True)
    assert served(queue, 3) == ["0", "1", "2"]


def test_item_passed_over_is_first_again_once_put_back() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("1", "2", "3"):
        queue.push("a", item)
    queue.push("a", "0", urgent=True)
    passed = [queue.pass_over("a"), queue.pass_over("a")]
    assert passed == ["0", "1"]
    assert served(queue, 1) == ["2"]
    for item in reversed(passed):
        queue.put_back("a", item)
    assert served(queue, 3) == ["0", "1", "3"]
    queue.push("a", "4")
    assert queue.first() == ("a", "4")
    assert queue.pass_over("a") == "4"
    assert queue.first() is None
    queue.put_back("a", "4")
    assert served(queue, 1) == ["4"]


def test_one_slot_alternates_between_the_runs() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(100):
        queue.push("big", f"big {number}")
    for run in ("x", "y"):
        queue.push(run, run)
        queue.push(run, run)
    assert served(queue, 7) == ["big 0", "x", "y", "big 1", "x", "y", "big 2"]


def test_a_new_run_gets_its_share_of_the_slots_as_they_come_free() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(20):
        queue.push("big", str(number))
    for _ in range(4):  # four slots, all of them the big run's
        queue.take("big")
    for number in range(20):
        queue.push("small", str(number))
    held = Counter(big=4)
    for _ in range(8):  # whoever ends, the slots even out and stay so
        longest = max(held, key=lambda run: held[run])
        queue.release(longest)
        held[longest] -= 1
        waiting = queue.first()
        assert waiting is not None
        queue.take(waiting[0])
        held[waiting[0]] += 1
    assert held == {"big": 2, "small": 2}


def test_removed_items_are_skipped_and_a_run_of_only_removed_items_is_forgotten() -> None:
    gone = {"1", "2"}
    queue: FairQueue[str] = FairQueue(lambda item: item in gone)
    for item in ("1", "2", "3"):
        queue.push("a", item)
    queue.push("b", "1")
    assert queue.first() == ("a", "3")
    assert queue.clear() == ["3"]
    assert queue.first() is None


def simulated_shares(
    slots: int,
    weights: dict[str, float],
    costs: dict[str, float],
    priorities: dict[str, Priority] | None = None,
    end: float = 20.0,
) -> dict[str, float]:
    """Return the share of slot-seconds of each run, which always has more programs of its cost, in seconds."""
    now = [0.0]
    queue: FairQueue[str] = FairQueue(shares=DeclaredShares(weights, lambda: now[0], priorities or {}))
    spent = dict.fromkeys(costs, 0.0)
    running: list[tuple[float, str]] = []
    for run in costs:
        for _ in range(20_000):
            queue.push(run, run)
    while now[0] < end:
        while len(running) < slots:
            waiting = queue.first()
            assert waiting is not None
            run = queue.take(waiting[0])
            heapq.heappush(running, (now[0] + costs[run], run))
        now[0], run = heapq.heappop(running)
        queue.release(run)
        spent[run] += costs[run]
    return {run: seconds / sum(spent.values()) for run, seconds in spent.items()}


@pytest.mark.parametrize("slots", [1, 2, 3, 16])
@pytest.mark.parametrize(
    "costs", [{"heavy": 0.05, "light": 0.05}, {"heavy": 0.02, "light": 0.3}, {"heavy": 0.3, "light": 0.02}]
)
def test_runs_hold_slots_in_proportion_to_their_weights(slots: int, costs: dict[str, float]) -> None:
    shares = simulated_shares(slots, {"heavy": 3.0}, costs)
    assert shares["heavy"] == pytest.approx(0.75, rel=0.05)


def test_three_runs_share_two_slots_by_weight() -> None:
    shares = simulated_shares(2, {"a": 5.0, "b": 3.0, "c": 2.0}, {"a": 0.1, "b": 0.04, "c": 0.2})
    assert shares == pytest.approx({"a": 0.5, "b": 0.3, "c": 0.2}, rel=0.07)


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize(
    "costs", [{"storm": 0.2, "evaluation": 0.2}, {"storm": 0.2, "evaluation": 1.0}, {"storm": 1.0, "evaluation": 0.2}]
)
@pytest.mark.parametrize("first", ["storm", "evaluation"])
def test_fair_queue_higher_priority_takes_all_but_the_floor(slots: int, costs: dict[str, float], first: str) -> None:
    shares = simulated_shares(slots, {"storm": 9.0}, costs, {first: Priority.HIGH}, end=100.0)
    assert shares[first] == pytest.approx(1 - FLOOR, rel=0.03)


@pytest.mark.parametrize("slots", [1, 4, 16])
def test_fair_queue_lower_priority_keeps_at_least_the_floor_of_long_programs(slots: int) -> None:
    """MAX_CARRY bounds what the higher one is owed, so the lower one has more where few slots are held for long."""
    shares = simulated_shares(slots, {}, {"high": 10.0, "normal": 10.0}, {"high": Priority.HIGH}, end=20_000.0)
    assert FLOOR * 0.97 <= shares["normal"] < 0.5


def test_fair_queue_low_priority_gets_its_floor_in_a_storm_of_many_runs() -> None:
    """Whatever waits before it: a slot-second of what it lacks is carried on, and decides against any of them."""
    costs = {"low": 0.2, **{f"high{number}": 0.2 for number in range(8)}}
    priorities = {run: Priority.HIGH if run != "low" else Priority.LOW for run in costs}
    shares = simulated_shares(2, {}, costs, priorities, end=200.0)
    assert shares["low"] == pytest.approx(FLOOR, rel=0.1)


def test_slots_of_a_run_that_was_alone_are_divided_by_weight_once_another_waits() -> None:
    now = [0.0]
    queue: FairQueue[str] = FairQueue(shares=DeclaredShares({"heavy": 3.0}, lambda: now[0]))
    for number in range(10):
        queue.push("light", str(number))
    for _ in range(4):
        queue.take("light")
    now[0] = 100.0
    for number in range(10):
        queue.push("heavy", str(number))
    held = Counter(light=4)
    for _ in range(4):
        queue.release("light")
        held["light"] -= 1
        waiting = queue.first()
        assert waiting is not None
        queue.take(waiting[0])
        held[waiting[0]] += 1
    assert held == {"heavy": 3, "light": 1}
