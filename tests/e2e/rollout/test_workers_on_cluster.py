"""GPU workers between minReplicas and maxReplicas on real pods: one joins, is drained, is lost, and leaves.

An answer takes minutes, and a replica some two of them to start; each restart begins when the other replica has just
finished an answer, so that the two never end together and the last answer leaves one of them idle for long.
"""

from pathlib import Path

import pytest
from builders.cluster.install import Installed
from builders.cluster.rollout_workers import WORKERS, WorkerRun, workers_manifest
from builders.cluster.runs import outcome


@pytest.mark.timeout(3600)  # seven answers of minutes each, and four starts of a replica on two CPUs
def test_workers_join_leave_and_are_replaced_while_a_run_draws_its_answers(
    ray_install: Installed, ray_images: dict[str, str], long_problems: tuple[Path, dict[str, str]], directory: Path
) -> None:
    file, wanted = long_problems
    run = WorkerRun(ray_install, ray_install.start(workers_manifest("workers", file, ray_images["gen"]), directory))

    run.wait("the first worker is there", lambda seen: len(seen.workers) == 1)
    run.wait("its replica serves", lambda seen: len(seen.serving) == 1)
    run.wait("a second replica serves, and has work", lambda seen: len(seen.busy) == WORKERS)
    assert run.seen.generated < len(wanted)
    first, second = run.seen.workers

    run.wait_for_an_answer("an answer is done")
    with run.cordoned():
        run.evict(second)
        run.wait("its worker is gone, the next waits for a node", lambda seen: "unschedulable" in seen.told)
        assert first in run.seen.workers
    run.wait("drained: a third replica serves, and has work", lambda seen: len(seen.busy) == WORKERS)
    oldest, third = run.seen.workers
    assert oldest == first
    assert third != second

    run.wait_for_an_answer("an answer is done")
    run.lose(third)
    run.wait("its replica no longer serves", lambda seen: len(seen.serving) < WORKERS)
    run.wait("lost: a fourth replica serves, and has work", lambda seen: len(seen.busy) == WORKERS)
    before = run.seen.workers

    run.wait("one has left, answers are still drawn", lambda seen: len(seen.workers) == 1 and not seen.all_drawn)
    (staying,) = run.seen.workers
    assert staying in before
    run.wait("all is drawn", lambda seen: seen.all_drawn)
    assert run.seen.workers in {(staying,), ()}

    ended = outcome(ray_install, run.name, seconds=600)
    assert {problem: verdict for (_, problem, _), verdict in ended.verdicts.items()} == wanted
    assert ended.status["attempts"] == 1
    print(f"replicas: {ended.info['replicas']}; {ended.info['gpu_seconds']:.0f} GPU seconds")
