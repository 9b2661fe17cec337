"""What the gates made needless: off the board, off the counts, and never handed out again."""

from evalrun_aggregator.ledger.board import Board, ItemState
from evalrun_aggregator.ledger.items import DatasetItems, RunItems
from evalrun_aggregator.ledger.leases import Leases


def a_board(repeats: int = 0) -> Board:
    ids = ["a", "b", "c", "d"]
    return Board(RunItems([DatasetItems("first", ids), DatasetItems("other", ids)], samples=2, repeats=repeats))


def test_what_lies_beyond_the_kept_problems_leaves_every_count() -> None:
    board = a_board()
    for index in (0, 1, 2, 3, 6):
        board.move(index, ItemState.GENERATED)
    for index, accepted in ((0, True), (1, False), (6, True)):
        board.judge(index, judged=True, accepted=accepted, final_status=1 if accepted else 2)
    board.cancel({0: 2})
    first, other = board.datasets
    assert (first.total, first.generated, first.judged, first.accepted, first.cancelled) == (4, 4, 2, 1, 4)
    assert first.final_status == {1: 1, 2: 1}
    assert first.accepted_at_1 == 0.5
    assert (other.total, other.cancelled) == (8, 0)
    assert board.remaining == 8
    assert board.unjudged == 2


def test_noise_floor_passes_that_were_not_run_go_too() -> None:
    board = a_board(repeats=1)
    board.cancel({0: 1, 1: 4})
    assert board.count(ItemState.CANCELLED) == 6 + 16
    assert board.remaining == 2 + 8


def test_cancelling_again_changes_nothing_and_nothing_cancels_nothing() -> None:
    board = a_board()
    assert board.cancel({}) == []
    board.cancel({0: 2})
    before = [board.state(index) for index in range(board.items.count)]
    board.cancel({0: 2})
    assert [board.state(index) for index in range(board.items.count)] == before


def test_a_lease_on_what_was_cancelled_does_not_bring_it_back() -> None:
    board = a_board()
    leases = Leases(board, 10.0)
    leases.take("w", 8, 0.0)
    leased = board.cancel({0: 1})
    assert leased == [2, 3, 4, 5, 6, 7]
    assert leases.void("w") == 8
    assert board.count(ItemState.CANCELLED) == 6
    assert leases.take("v", 16, 1.0) == [0, 1, *range(8, 16)]


def test_a_problem_is_settled_once_nothing_more_is_to_come() -> None:
    board = a_board()
    assert not board.settled(0)
    for index in (0, 1):
        board.move(index, ItemState.GENERATED)
    board.judge(0, judged=True, accepted=True, final_status=1)
    assert not board.settled(0)
    board.judge(1, judged=False, accepted=False, final_status=0)
    assert board.settled(0)
