from dataclasses import replace

import pytest

from evalrun_api.run_config import Rollout
from evalrun_generator.rollout.policy import (
    Action,
    ActionKind,
    DecisionHistory,
    ObservedReplica,
    PolicyLimits,
    decide,
    give_up_reason,
    places,
    useful_replicas,
)
from evalrun_generator.rollout.starts import NodeCapacity, Start, StartPhase

LIMITS = PolicyLimits(start_seconds=600, place_seconds=100, idle_seconds=30)
TWO = Rollout(tensor_parallel=1, replicas=2)
ELASTIC = Rollout(tensor_parallel=1, min_replicas=1, max_replicas=4, max_num_seqs=10)


def start(slot: int = 0, phase: StartPhase = StartPhase.SERVING, **fields: object) -> Start:
    return replace(Start(slot, f"s{slot}", gpus=1, started_at=0.0, phase=phase, placed=True), **fields)  # type: ignore[arg-type]


def seen(
    slot: int = 0, phase: StartPhase = StartPhase.SERVING, *, admitted: bool = True, **fields: object
) -> ObservedReplica:
    return replace(ObservedReplica(start(slot, phase), admitted=admitted), **fields)  # type: ignore[arg-type]


def decided(
    rollout: Rollout,
    *living: ObservedReplica,
    free: int = 8,
    remaining: int | None = 100,
    history: DecisionHistory | None = None,
    taken: frozenset[int] = frozenset(),
    now: float = 10.0,
) -> list[Action]:
    return decide(
        rollout,
        living,
        taken=taken,
        free_places=free,
        remaining=remaining,
        history=history or DecisionHistory(),
        limits=LIMITS,
        now=now,
    )


def kinds(actions: list[Action]) -> list[tuple[str, int]]:
    return [(action.what.value, action.slot) for action in actions]


@pytest.mark.parametrize(
    ("rollout", "remaining", "wanted"),
    [
        (TWO, None, 0),  # nothing is started before the ledger says that something is missing
        (TWO, 0, 0),
        (TWO, 1, 1),
        (TWO, 100, 2),
        (Rollout(tensor_parallel=2, gpus_per_node=8), 100, 4),  # what fits one node
        (Rollout(tensor_parallel=16, gpus_per_node=8), 100, 1),
        (ELASTIC, 5, 1),
        (ELASTIC, 21, 3),
        (ELASTIC, 1000, 4),
    ],
)
def test_useful_replicas_follow_from_remaining_answers_and_bounds(
    rollout: Rollout, remaining: int | None, wanted: int
) -> None:
    assert useful_replicas(rollout, remaining) == wanted


class TestPlaces:
    @pytest.mark.parametrize(
        ("rollout", "rooms", "expected"),
        [
            (TWO, [(8, 18)], 8),  # what the operator gives a worker: two CPUs a GPU and two more
            (TWO, [(8, 16)], 7),  # the last HTTP server would find no CPU, and verl would wait for it forever
            (TWO, [(1, 2)], 0),
            (TWO, [(1, 3), (0, 16)], 1),
            (Rollout(tensor_parallel=4), [(3, 99), (4, 99)], 1),  # never split over nodes
            (Rollout(tensor_parallel=16, gpus_per_node=8), [(8, 17), (8, 17), (8, 17)], 1),
        ],
    )
    def test_places_are_bounded_by_gpus_and_cpus(
        self, rollout: Rollout, rooms: list[tuple[int, int]], expected: int
    ) -> None:
        assert places(rollout, [NodeCapacity("n", gpus, cpus) for gpus, cpus in rooms], []) == expected

    def test_starts_that_have_not_taken_their_gpus_yet_are_taken_off(self) -> None:
        rooms = [NodeCapacity("n", 2, 99)]
        waiting = start(0, StartPhase.STARTING, placed=False)
        assert places(TWO, rooms, [waiting, start(1)]) == 1


class TestDecide:
    def test_missing_replicas_are_started_as_far_as_there_is_room(self) -> None:
        assert kinds(decided(TWO)) == [("start", 0), ("start", 1)]
        assert kinds(decided(TWO, free=1)) == [("start", 0)]
        assert kinds(decided(TWO, seen(1))) == [("start", 0)]
        assert kinds(decided(TWO, free=0)) == []

    def test_a_slot_is_free_only_once_its_last_start_has_ended(self) -> None:
        assert kinds(decided(TWO, taken=frozenset({0}))) == [("start", 1)]
        assert kinds(decided(TWO, seen(0, trouble="dead"))) == [("end", 0), ("start", 1)]
        assert kinds(decided(TWO, seen(1), taken=frozenset({0}))) == []

    def test_no_replica_is_started_before_the_ledger_reports_remaining_items(self) -> None:
        assert decided(TWO, remaining=None) == []

    def test_living_replicas_of_an_earlier_attempt_are_let_in_not_started_again(self) -> None:
        found = decided(TWO, seen(0, admitted=False), seen(1, StartPhase.STARTING, admitted=False))
        assert found == [Action(ActionKind.ADMIT, 0, "s0")]

    @pytest.mark.parametrize(
        ("one", "why", "failed"),
        [
            (seen(trouble="dead: /health: 503"), "dead: /health: 503", False),
            (ObservedReplica(start(0, StartPhase.FAILED, error="out of memory")), "out of memory", True),
            (ObservedReplica(start(0, StartPhase.STARTING, started_at=-601.0)), "it did not serve within 600 s", True),
        ],
    )
    def test_dead_failed_or_late_replica_is_ended(self, one: ObservedReplica, why: str, failed: bool) -> None:
        assert decided(TWO, one, free=0, now=0.0) == [Action(ActionKind.END, 0, "s0", why, failed)]

    def test_a_failed_start_is_tried_again_after_a_wait_that_doubles(self) -> None:
        history = DecisionHistory().apply_failed_start("x", now=10.0).apply_failed_start("x", now=10.0)
        assert decided(TWO, history=history, now=11.9) == []
        assert kinds(decided(TWO, history=history, now=12.1)) == [("start", 0), ("start", 1)]

    def test_idle_replicas_above_the_minimum_end_longest_idle_first(self) -> None:
        living = [seen(0, idle_seconds=31), seen(1, idle_seconds=99), seen(2), seen(3, idle_seconds=29)]
        assert kinds(decided(ELASTIC, *living, remaining=25)) == [("end", 1)]
        assert kinds(decided(ELASTIC, *living, remaining=5)) == [("end", 1), ("end", 0)]
        assert kinds(decided(ELASTIC, *living, remaining=100)) == []

    def test_idle_replica_is_not_ended_in_favour_of_a_starting_one(self) -> None:
        starting = seen(1, StartPhase.STARTING, admitted=False)
        assert kinds(decided(ELASTIC, seen(0, idle_seconds=99), starting, remaining=5)) == []
        assert kinds(decided(ELASTIC, seen(0, idle_seconds=99), seen(2), starting, remaining=5)) == [("end", 0)]

    def test_idle_replicas_of_a_fixed_number_are_not_ended(self) -> None:
        assert decided(TWO, seen(0, idle_seconds=999), seen(1, idle_seconds=999), remaining=1) == []


class TestGivingUp:
    def test_gives_up_after_three_failed_starts_in_a_row(self) -> None:
        history = DecisionHistory()
        for number in range(3):
            assert give_up_reason(TWO, [], history, LIMITS, 0) is None
            history = history.apply_failed_start(f"error {number}", 0)
        reason = give_up_reason(TWO, [], history, LIMITS, 0)
        assert reason == "3 replica starts failed in a row, the last with: error 2"
        assert give_up_reason(TWO, [], history.apply_success(), LIMITS, 0) is None

    def test_gives_up_when_no_place_appears_and_names_the_free_resources(self) -> None:
        history = DecisionHistory().apply_look(lacking=True, now=5.0).apply_look(lacking=True, now=50.0)
        assert give_up_reason(TWO, [], history, LIMITS, 104.9) is None
        reason = give_up_reason(TWO, [NodeCapacity("n", 8, 2)], history, LIMITS, 105.0)
        assert reason is not None
        assert "needs 1 GPUs and 3 CPUs" in reason
        assert "free now: 8 GPUs and 2 CPUs" in reason
        assert give_up_reason(TWO, [], history.apply_look(lacking=False, now=60.0), LIMITS, 999.0) is None
