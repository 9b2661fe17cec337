"""What the gates made needless: off the item states, off the counts, and never handed out again."""

from evalrun_aggregator.ledger.item_states import ItemState, ItemStates
from evalrun_aggregator.ledger.items import DatasetItems, RunItems
from evalrun_aggregator.ledger.leases import Leases


def new_item_states(repeats: int = 0) -> ItemStates:
    ids = ["a", "b", "c", "d"]
    return ItemStates(RunItems([DatasetItems("first", ids), DatasetItems("other", ids)], samples=2, repeats=repeats))


def test_items_beyond_the_kept_problems_leave_every_count() -> None:
    item_states = new_item_states()
    for index in (0, 1, 2, 3, 6):
        item_states.move(index, ItemState.GENERATED)
    for index, accepted in ((0, True), (1, False), (6, True)):
        item_states.judge(index, judged=True, accepted=accepted, final_status=1 if accepted else 2)
    item_states.cancel({0: 2})
    first, other = item_states.datasets
    assert (first.total, first.generated, first.judged, first.accepted, first.cancelled) == (4, 4, 2, 1, 4)
    assert first.final_status == {1: 1, 2: 1}
    assert first.accepted_at_1 == 0.5
    assert (other.total, other.cancelled) == (8, 0)
    assert item_states.remaining == 8
    assert item_states.unjudged == 2


def test_cancel_removes_noise_floor_repeats_that_were_not_run() -> None:
    item_states = new_item_states(repeats=1)
    item_states.cancel({0: 1, 1: 4})
    assert item_states.count(ItemState.CANCELLED) == 6 + 16
    assert item_states.remaining == 2 + 8


def test_cancel_repeated_or_empty_changes_no_state() -> None:
    item_states = new_item_states()
    assert item_states.cancel({}) == []
    item_states.cancel({0: 2})
    before = [item_states.state(index) for index in range(item_states.items.count)]
    item_states.cancel({0: 2})
    assert [item_states.state(index) for index in range(item_states.items.count)] == before


def test_lease_of_a_cancelled_item_does_not_restore_the_item() -> None:
    item_states = new_item_states()
    leases = Leases(item_states, 10.0)
    leases.take("w", 8, 0.0)
    leased = item_states.cancel({0: 1})
    assert leased == [2, 3, 4, 5, 6, 7]
    assert leases.void("w") == 8
    assert item_states.count(ItemState.CANCELLED) == 6
    assert leases.take("v", 16, 1.0) == [0, 1, *range(8, 16)]


def test_problem_is_settled_once_each_sample_has_a_final_verdict() -> None:
    item_states = new_item_states()
    assert not item_states.is_settled(0)
    for index in (0, 1):
        item_states.move(index, ItemState.GENERATED)
    item_states.judge(0, judged=True, accepted=True, final_status=1)
    assert not item_states.is_settled(0)
    item_states.judge(1, judged=False, accepted=False, final_status=0)
    assert item_states.is_settled(0)
