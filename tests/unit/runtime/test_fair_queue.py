"""Slots shared among runs."""

from collections import Counter

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


def test_within_a_run_first_come_first_served_and_the_urgent_before() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("1", "2"):
        queue.push("a", item)
    queue.push("a", "0", urgent=True)
    assert served(queue, 3) == ["0", "1", "2"]
    assert queue.first() is None


def test_the_urgent_too_are_served_in_the_order_they_came() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push("a", "2")
    for item in ("0", "1"):
        queue.push("a", item, urgent=True)
    assert served(queue, 3) == ["0", "1", "2"]


def test_who_is_passed_over_comes_first_again_once_it_is_put_back() -> None:
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


def test_one_slot_goes_round_the_runs() -> None:
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


def test_who_is_gone_is_passed_over_and_a_run_of_them_forgotten() -> None:
    gone = {"1", "2"}
    queue: FairQueue[str] = FairQueue(lambda item: item in gone)
    for item in ("1", "2", "3"):
        queue.push("a", item)
    queue.push("b", "1")
    assert queue.first() == ("a", "3")
    assert queue.clear() == ["3"]
    assert queue.first() is None


def test_runs_hold_slots_in_proportion_to_their_weights() -> None:
    queue: FairQueue[str] = FairQueue(weights={"heavy": 3.0})
    held: Counter[str] = Counter()
    for run in ("heavy", "light"):
        for number in range(1000):
            queue.push(run, f"{run} {number}")

    def fill(slots: int) -> None:
        while sum(held.values()) < slots:
            waiting = queue.first()
            assert waiting is not None
            queue.take(waiting[0])
            held[waiting[0]] += 1

    fill(16)
    assert held == {"heavy": 12, "light": 4}
    for run in ("light", "heavy", "light", "light", "light") * 20:  # whichever ends, its place is its own again
        held[run] -= 1
        queue.release(run)
        fill(16)
        assert held == {"heavy": 12, "light": 4}


def test_a_light_run_gets_a_slot_beside_a_heavy_one_where_there_are_few() -> None:
    queue: FairQueue[str] = FairQueue(weights={"heavy": 100.0})
    for run in ("heavy", "light"):
        queue.push(run, "1")
        queue.push(run, "2")
    first = queue.first()
    assert first is not None
    queue.take(first[0])
    second = queue.first()
    assert second is not None
    assert {first[0], second[0]} == {"heavy", "light"}
