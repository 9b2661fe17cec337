"""What each run pays of the replicas that its schedule keeps."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from builders.operator.schedule_world import BEGIN

from evalrun_api.v1alpha1 import MAX_PAID, EvalScheduleStatus, KeptCosts, KeptReplicas
from evalrun_operator.schedules.cron import parse_cron
from evalrun_operator.schedules.kept_costs import EARLIER, add_gpu_seconds, add_run, paid_gpu_seconds, split_by_weight
from evalrun_operator.schedules.run_history import take_over_runs
from evalrun_operator.schedules.runs import ScheduledRun


@pytest.mark.parametrize(
    ("total", "weights", "expected"),
    [
        (100, [], []),
        (100, [7], [100]),
        (100, [300, 100], [75, 25]),
        (100, [0, 5], [0, 100]),
        (100, [0, 0, 0], [34, 33, 33]),
        (10, [1, 1, 1], [4, 3, 3]),
        (2, [1, 1, 1], [1, 1, 0]),
        (10, [5, 25, 70], [1, 2, 7]),
        (0, [3, 4], [0, 0]),
    ],
)
def test_shares_are_by_weight_and_add_up(total: int, weights: Sequence[int], expected: list[int]) -> None:
    assert split_by_weight(total, weights) == expected


def drawn(step: int, tokens: int, seconds: int) -> ScheduledRun:
    return ScheduledRun(
        name=f"nightly-{step}", uid=f"uid-{step}", url="pvc://x", step=step, digest=f"{step:010}", start="",
        created=BEGIN, keeps_replicas=True, output_tokens=tokens, generating_seconds=seconds,
    )  # fmt: skip


def two_turns(first: ScheduledRun, second: ScheduledRun) -> KeptCosts:
    """Return the costs of two GPUs: 50 s of start, turns of 100 and 20 s, 10 s idle between and 20 s after."""
    costs = KeptCosts(cluster="kept-1")
    costs = add_gpu_seconds(costs, "start", 100, None, [], 2)
    for run, turn, idle in ((first, 200, 20), (second, 40, 40)):
        costs = add_run(costs, replace(run, output_tokens=0, generating_seconds=0))
        costs = add_gpu_seconds(costs, "use", turn, run.uid, [first, second], 2)
        costs = add_gpu_seconds(costs, "idle", idle, None, [first, second], 2)
    return costs


@pytest.mark.parametrize(
    ("first", "second", "use", "start", "idle"),
    [
        # The first run's turn holds the engine's start: of its 200 GPU seconds it generated in 40.
        pytest.param((3000, 20), (1000, 15), (40, 30), (203, 67), (45, 15), id="by tokens"),
        pytest.param((0, 0), (1000, 15), (0, 30), (0, 310), (0, 60), id="one without an answer"),
        pytest.param((0, 0), (0, 0), (0, 0), (170, 170), (30, 30), id="no answer at all"),
        # A worker's clock that says more than the turn was long does not make a run pay for others.
        pytest.param((10, 500), (10, 500), (200, 40), (50, 50), (30, 30), id="no longer than the turn"),
    ],
)
def test_a_run_pays_what_it_used_and_its_share_of_the_rest(
    first: tuple[int, int], second: tuple[int, int], use: tuple[int, int], start: tuple[int, int], idle: tuple[int, int]
) -> None:
    costs = two_turns(drawn(10, *first), drawn(20, *second))
    assert tuple(each.use_gpu_seconds for each in costs.runs) == use
    assert tuple(each.start_gpu_seconds for each in costs.runs) == start
    assert tuple(each.idle_gpu_seconds for each in costs.runs) == idle
    assert sum(paid_gpu_seconds(costs).values()) == 100 + 200 + 40 + 60


def test_run_that_moved_to_another_cluster_pays_only_for_its_tokens_there() -> None:
    costs = add_run(KeptCosts(cluster="kept-2"), drawn(10, 900, 9))
    costs = add_gpu_seconds(costs, "use", 100, "uid-10", [drawn(10, 1000, 12)], 2)
    (paid,) = costs.runs
    assert (paid.output_tokens, paid.use_gpu_seconds, paid.start_gpu_seconds) == (100, 6, 94)


def test_costs_of_a_deleted_run_are_kept() -> None:
    costs = add_run(KeptCosts(cluster="kept-1"), drawn(10, 0, 0))
    costs = add_gpu_seconds(costs, "use", 30, "uid-10", [drawn(10, 50, 10)], 1)
    costs = add_gpu_seconds(costs, "idle", 5, None, [], 1)
    assert paid_gpu_seconds(costs) == {"uid-10": 35}
    assert costs.runs[0].output_tokens == 50


def test_a_second_turn_of_a_run_adds_to_its_first() -> None:
    costs = add_run(KeptCosts(cluster="kept-1"), drawn(10, 0, 0))
    costs = add_gpu_seconds(costs, "use", 30, "uid-10", [drawn(10, 50, 10)], 1)
    costs = add_run(costs, drawn(10, 50, 10))
    costs = add_gpu_seconds(costs, "use", 30, "uid-10", [drawn(10, 90, 25)], 1)
    (paid,) = costs.runs
    assert (paid.output_tokens, paid.turn_gpu_seconds, paid.use_gpu_seconds) == (90, 60, 25)


def test_earliest_runs_beyond_the_limit_are_summed_without_losing_costs() -> None:
    costs = KeptCosts(cluster="kept-1")
    for step in range(MAX_PAID + 20):
        run = drawn(step, 0, 0)
        costs = add_gpu_seconds(add_run(costs, run), "use", 7, run.uid, [drawn(step, 10, 5)], 1)
    assert len(costs.runs) == MAX_PAID
    assert (costs.runs[0].run, costs.runs[0].run_uid, costs.runs[0].output_tokens) == (EARLIER, None, 210)
    paid = sum(each.use_gpu_seconds + each.start_gpu_seconds for each in costs.runs)
    assert paid == 7 * (MAX_PAID + 20)


def test_gpu_hours_of_a_run_on_kept_replicas_are_its_share_of_the_costs() -> None:
    cron, costs = parse_cron("0 2 * * *", "UTC"), two_turns(drawn(10, 3000, 20), drawn(20, 1000, 15))
    released = BEGIN + timedelta(hours=5)
    runs = [replace(drawn(step, 0, 0), gpus=2, started=BEGIN, released=released) for step in (10, 20)]
    status = EvalScheduleStatus(replicas=KeptReplicas(costs=costs))
    before = take_over_runs(status, runs, cron, released, races=False)
    assert [(one.gpu_hours, one.final) for one in before.usage] == [("0.08", False), ("0.03", False)]
    settled = KeptReplicas(costs=costs.model_copy(update={"settled": True}))
    after = take_over_runs(before.model_copy(update={"replicas": settled}), runs, cron, released, races=False)
    assert [one.final for one in after.usage] == [True, True]
    # The next RayCluster knows nothing of them.
    fresh = after.model_copy(update={"replicas": KeptReplicas(costs=KeptCosts(cluster="kept-2"))})
    assert take_over_runs(fresh, runs, cron, released, races=False).usage == after.usage
    assert after.last_run_gpu_hours == "0.03"
