"""Items, rows and the item states."""

import random

import pytest

from evalrun_aggregator.ledger.item_states import ItemState, ItemStates
from evalrun_aggregator.ledger.items import MAX_SAMPLES, DatasetItems, ItemKey, RunItems, pack_row, unpack_row
from evalrun_aggregator.ledger.leases import Leases

ITEMS = RunItems([DatasetItems("a", ["a1", "a2", "a3"]), DatasetItems("b", ["b1"])], samples=2, repeats=1)


def test_every_index_has_a_distinct_key_and_row_that_map_back() -> None:
    keys = [ITEMS.get_key(index) for index in range(ITEMS.count)]
    rows = [ITEMS.get_row(index) for index in range(ITEMS.count)]
    assert len(set(keys)) == len(set(rows)) == ITEMS.count == 16
    assert [ITEMS.find_index(key) for key in keys] == list(range(ITEMS.count))
    assert [ITEMS.index_of_row(row) for row in rows] == list(range(ITEMS.count))
    assert keys[:3] == [ItemKey("a", "a1", 0), ItemKey("a", "a1", 1), ItemKey("a", "a2", 0)]
    assert all(key.repeat == 0 for key in keys[: ITEMS.own_count])
    assert all(key.repeat == 1 for key in keys[ITEMS.own_count :])


@pytest.mark.parametrize(
    "key",
    [
        ItemKey("c", "a1"), ItemKey("a", "b1"), ItemKey("a", "a1", sample=2), ItemKey("a", "a1", repeat=2),
        ItemKey("a", "a1", turn=1),
    ],
)  # fmt: skip
def test_a_key_of_another_run_has_no_index(key: ItemKey) -> None:
    assert ITEMS.find_index(key) is None


@pytest.mark.parametrize("row", [pack_row(4, 0, 0), pack_row(0, 2, 0), pack_row(0, 0, 2), pack_row(0, 0, 0, 1)])
def test_a_row_of_another_run_has_no_index(row: int) -> None:
    assert ITEMS.index_of_row(row) is None


def test_rows_hold_the_largest_parts_and_sort_by_problem_then_pass_then_sample() -> None:
    largest = (2**27 - 1, 255, 2**20 - 1, 255)
    assert unpack_row(pack_row(*largest)) == largest
    assert pack_row(*largest) == 2**63 - 1  # SQLite's largest integer
    assert (
        pack_row(1, 0, 0) > pack_row(0, 255, MAX_SAMPLES - 1) > pack_row(0, 0, MAX_SAMPLES - 1) > pack_row(0, 0, 0, 255)
    )


def test_more_samples_than_a_row_can_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        RunItems([DatasetItems("a", ["p"])], samples=MAX_SAMPLES + 1)


def test_counts_follow_from_moves_and_leave_noise_floor_repeats_out() -> None:
    item_states = ItemStates(ITEMS)
    own, repeated = 3, 14
    assert ITEMS.get_key(own) == ItemKey("a", "a2", 1)
    assert ITEMS.get_key(repeated) == ItemKey("b", "b1", 0, repeat=1)
    item_states.move(own, ItemState.GENERATED)
    item_states.move(repeated, ItemState.GENERATED)
    assert (item_states.remaining, item_states.unjudged) == (14, 2)
    assert [(d.total, d.generated, d.judged) for d in item_states.datasets] == [(6, 1, 0), (2, 0, 0)]
    item_states.judge(own, judged=True, accepted=True, final_status=1)
    item_states.judge(repeated, judged=True, accepted=True, final_status=1)
    assert [(d.judged, d.accepted, dict(d.final_status)) for d in item_states.datasets] == [(1, 1, {1: 1}), (0, 0, {})]


def test_items_not_judged_count_only_as_not_judged() -> None:
    item_states = ItemStates(ITEMS)
    item_states.judge(0, judged=False, accepted=False, final_status=7)
    (counts, _) = item_states.datasets
    assert (counts.not_judged, counts.judged, counts.accepted, counts.accepted_at_1) == (1, 0, 0, None)
    assert not counts.final_status


def test_accepted_at_1_is_the_mean_over_problems_not_over_samples() -> None:
    item_states = ItemStates(RunItems([DatasetItems("a", ["p", "q"])], samples=3))
    chance = random.Random(4)
    verdicts = [(0, True), (1, True), (2, False), (3, False)]  # p: 2 of 3; q: 0 of 1 so far
    chance.shuffle(verdicts)
    for index, accepted in verdicts:
        item_states.judge(index, judged=True, accepted=accepted, final_status=1 if accepted else 6)
    assert item_states.datasets[0].accepted_at_1 == pytest.approx((2 / 3 + 0) / 2)


def test_first_returns_the_next_item_in_a_state_and_wraps() -> None:
    item_states = ItemStates(ITEMS)
    for index in (3, 9):
        item_states.move(index, ItemState.GENERATED)
    assert [item_states.first(ItemState.GENERATED, start) for start in (0, 4, 10)] == [3, 9, 3]
    assert item_states.first(ItemState.ACCEPTED) is None


@pytest.mark.parametrize(("keep", "expected"), [(True, ItemState.NOT_JUDGED), (False, ItemState.GENERATED)])
def test_restore_takes_the_states_of_the_ledgers_rows(keep: bool, expected: ItemState) -> None:
    item_states = ItemStates(ITEMS)
    rows = [ITEMS.get_row(index) for index in (0, 1, 2)]
    foreign = item_states.restore(
        [*rows, pack_row(99, 0, 0)], [(rows[0], 1, True, True), (rows[1], 7, False, False)], keep_not_judged=keep
    )
    assert foreign == 1
    assert [item_states.state(i) for i in range(4)] == [
        ItemState.ACCEPTED, expected, ItemState.GENERATED, ItemState.PENDING,
    ]  # fmt: skip


def test_restored_states_count_like_observed_ones() -> None:
    chance = random.Random(3)
    items = RunItems([DatasetItems("a", [f"a{i}" for i in range(9)]), DatasetItems("b", ["b1", "b2"])], 3, 2)
    seen, rows, verdicts = ItemStates(items), [], []
    for index in range(items.count):
        if chance.random() < 0.2:
            continue
        rows.append(items.get_row(index))
        seen.move(index, ItemState.GENERATED)
        if chance.random() < 0.8:
            judged, accepted = chance.random() < 0.9, chance.random() < 0.5
            status = 1 if accepted else chance.choice([3, 6])
            seen.judge(index, judged=judged, accepted=accepted, final_status=status)
            verdicts.append((items.get_row(index), status, judged, accepted))
    restored = ItemStates(items)
    restored.restore(iter(rows), iter(verdicts), keep_not_judged=True)
    assert [restored.state(i) for i in range(items.count)] == [seen.state(i) for i in range(items.count)]
    assert [restored.count(state) for state in ItemState] == [seen.count(state) for state in ItemState]
    for new, old in zip(restored.datasets, seen.datasets, strict=True):
        assert (new.states, new.final_status) == (old.states, old.final_status)
        assert new.accepted_at_1 == pytest.approx(old.accepted_at_1)
    unjudged = restored.first(ItemState.GENERATED)
    assert unjudged is not None
    for item_states in (seen, restored):  # and goes on counting
        item_states.judge(unjudged, judged=True, accepted=True, final_status=1)
    assert restored.datasets[0].accepted_at_1 == pytest.approx(seen.datasets[0].accepted_at_1)


def test_items_without_an_answer_can_be_left_out_of_the_run() -> None:
    item_states = ItemStates(ITEMS)
    item_states.move(0, ItemState.GENERATED)
    assert item_states.settle_pending() == 0
    assert (item_states.remaining, item_states.datasets[0].total, item_states.datasets[1].total) == (0, 1, 0)


def test_board_missing_items_count_as_not_judged() -> None:
    item_states = ItemStates(ITEMS)
    whole = item_states.datasets[0].total
    item_states.move(0, ItemState.GENERATED)
    assert item_states.settle_pending([ITEMS.samples] * len(ITEMS.datasets)) == 15
    first = item_states.datasets[0]
    assert (item_states.remaining, first.total, first.generated, first.not_judged) == (0, whole, 1, whole - 1)
    assert len(list(item_states.find_missing_rows())) == 15


class TestLeases:
    def test_leased_item_is_not_leased_to_another_worker(self) -> None:
        leases = Leases(ItemStates(ITEMS), seconds=10)
        assert leases.take("w1", 3, now=0) == [0, 1, 2]
        assert leases.take("w2", 3, now=1) == [3, 4, 5]

    def test_expired_lease_is_given_to_the_next_worker_and_counts_as_remaining(self) -> None:
        item_states = ItemStates(ITEMS)
        leases = Leases(item_states, seconds=10)
        leases.take("w1", 16, now=0)
        assert leases.take("w2", 16, now=9.9) == []
        assert (item_states.remaining, leases.retry_after(9.0)) == (16, 1.0)
        assert leases.take("w2", 2, now=10) == [0, 1]
        assert leases.void("w1") == 0

    def test_leases_of_a_restarted_worker_are_void(self) -> None:
        leases = Leases(ItemStates(ITEMS), seconds=10)
        leases.take("w1", 2, now=0)
        leases.take("w2", 2, now=0)
        assert leases.void("w1") == 2
        assert leases.take("w3", 3, now=1) == [0, 1, 4]
        assert leases.void("w2") == 2

    def test_completed_item_is_never_leased_again_whoever_sent_it(self) -> None:
        item_states = ItemStates(ITEMS)
        leases = Leases(item_states, seconds=10)
        leases.take("w1", 2, now=0)
        leases.settle(0)
        item_states.move(0, ItemState.GENERATED)
        leases.settle(5)  # never leased: an answer from before a restart
        item_states.move(5, ItemState.GENERATED)
        assert leases.take("w2", 16, now=20) == [1, 2, 3, 4, *range(6, 16)]

    def test_held_work_stays_consistent_under_any_order_of_events(self) -> None:
        chance = random.Random(11)
        item_states = ItemStates(RunItems([DatasetItems("a", [str(i) for i in range(40)])]))
        leases, now = Leases(item_states, seconds=5), 0.0
        done: set[int] = set()
        for _ in range(2000):
            now += chance.random()
            worker = chance.choice(["x", "y", "z"])
            match chance.randrange(4):
                case 0 | 1:
                    taken = leases.take(worker, chance.randrange(4), now)
                    assert not done & set(taken)
                case 2:
                    leases.void(worker)
                case 3:
                    index = chance.randrange(40)
                    if index not in done and chance.random() < 0.05:
                        leases.settle(index)
                        item_states.move(index, ItemState.GENERATED)
                        done.add(index)
            assert item_states.remaining == 40 - len(done)
        leased = item_states.count(ItemState.LEASED)
        assert leased == sum(leases.void(worker) for worker in "xyz")
        assert item_states.count(ItemState.LEASED) == 0
