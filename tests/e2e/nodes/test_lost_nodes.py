"""A node is lost in mid-run: `make test-e2e-nodes` does so at 20 moments by each kind of fault."""

import time
from pathlib import Path

import pytest
from builders.cluster.controlplane import until
from builders.cluster.install import PROBLEMS, Installed
from builders.cluster.nodes import avoids, is_asked, lead_on, leader_of, lost, moments, nodes_of, prefers, worker_of
from builders.cluster.runs import FinishedRun, Verdicts, outcome, progress, small
from builders.cluster.tasks import Tasks

TAKEOVER_SECONDS = 15.0
LOOK_SECONDS = 3.0
"""A look at the Lease takes so long on a busy machine, before and after."""
MOVED_SECONDS = 20 + 1 + 35 + 60
"""The time to find a node lost here, what pods tolerate, the grace period of a generator, and the start of its pod on a
busy machine."""
SERVER = "paced-slowly"

pytestmark = pytest.mark.skipif(
    not is_asked(), reason="takes minutes and a cluster whose nodes can be lost: make test-e2e-nodes"
)


@pytest.fixture(scope="module")
def worker(install: Installed, paced_tasks: tuple[Tasks, Verdicts]) -> str:
    """The node that will be lost; all but a run's movable parts, and an operator, is on the other one."""
    node = worker_of(install.cluster)
    install.serve_answers(SERVER, paced_tasks[0], "--latency-seconds=2", "--max-concurrency=3", placement=avoids(node))
    return node


def start(install: Installed, worker: str, run: str, tasks: Tasks, directory: Path, *moving: str) -> None:
    """Start a run of which some parts begin on the node that will be lost; wait until they are there."""
    parts = ("sandbox", "gateway", "aggregator", "generator")
    placement = {part: prefers(worker) if part in moving else avoids(worker) for part in parts}
    judge = {"gateway": {"maxReplicas": 1}, "sandbox": {"maxReplicas": 1, "slots": 2}}
    spec = small(judge=judge, placement=placement)
    install.start(tasks.manifest(run, f"pvc://{PROBLEMS}", install.endpoint(SERVER), **spec), directory)
    components = {"judge" if part == "gateway" else part for part in moving}

    def are_there() -> bool:
        nodes = nodes_of(install, run)
        return all(nodes.get(component) == worker for component in components)

    until(are_there, f"{', '.join(moving)} to run on {worker}", 180)


def wait_for(install: Installed, run: str, share: float) -> None:
    """Wait until a share of a run's answers is judged."""
    next(None for judged, total in progress(install, run) if judged >= share * total)


def assert_undisturbed(run: FinishedRun, wanted: Verdicts) -> None:
    """Nothing but the time that it took tells the run from one that nobody disturbed."""
    assert run.verdicts == wanted
    assert (run.status["notJudged"], run.status["attempts"]) == ("0", 1), run.status["conditions"]
    assert run.status["progress"] == f"{len(wanted)}/{len(wanted)}"
    (dataset,) = run.status["datasets"]
    right = sum(verdict == "success" for verdict in wanted.values())
    assert float(dataset["acceptedAt1"]) == pytest.approx(right / len(wanted), abs=0.0001)


@pytest.mark.parametrize("share", moments())
def test_pods_leave_a_crashed_node_and_the_run_keeps_its_figures(
    install: Installed, worker: str, share: float, paced_tasks: tuple[Tasks, Verdicts], directory: Path
) -> None:
    """The generator's, the gateway's, the sandbox's and the active operator's node at once."""
    tasks, wanted = paced_tasks
    run = f"crashed-{round(share * 100)}"
    leader = lead_on(install, worker)
    start(install, worker, run, tasks, directory, "generator", "gateway", "sandbox")
    wait_for(install, run, share)
    assert leader_of(install) == leader
    began = time.monotonic()
    with lost(install.cluster, "crash", "boot", worker):
        crashed = time.monotonic()
        until(lambda: leader_of(install) not in ("", leader), "another operator to work", 60)
        took_over = time.monotonic()
        moving = {"generator", "judge", "sandbox"}

        def have_moved() -> bool:
            nodes = nodes_of(install, run)
            return "completionTime" in install.cluster.get(install.runs, "evalrun", run)["status"] or (
                moving <= nodes.keys() and worker not in nodes.values()
            )

        until(have_moved, "generator, gateway and sandbox to run elsewhere", 300)
        moved = time.monotonic()
    finished = outcome(install, run, 600)
    print(
        f"at {share:.0%}: another operator worked after {took_over - crashed:.1f} to {took_over - began:.1f} s, the "
        f"run's parts ran elsewhere after {moved - crashed:.0f} s"
    )
    assert_undisturbed(finished, wanted)
    assert took_over - crashed <= TAKEOVER_SECONDS + LOOK_SECONDS
    assert moved - crashed <= MOVED_SECONDS


@pytest.mark.parametrize("share", moments())
def test_generator_behind_a_partition_is_replaced_and_its_return_changes_no_figure(
    install: Installed, worker: str, share: float, paced_tasks: tuple[Tasks, Verdicts], directory: Path
) -> None:
    """It goes on there with its work, and comes back while another one writes."""
    tasks, wanted = paced_tasks
    run = f"cut-{round(share * 100)}"
    start(install, worker, run, tasks, directory, "generator")
    wait_for(install, run, share)
    with lost(install.cluster, "cut", "heal", worker):
        cut = time.monotonic()

        def is_replaced() -> bool:
            return nodes_of(install, run).get("generator", worker) != worker

        until(is_replaced, "another generator to run", 300)
        replaced = time.monotonic() - cut
    finished = outcome(install, run, 600)
    print(f"at {share:.0%}: another generator ran {replaced:.0f} s after the partition began")
    assert_undisturbed(finished, wanted)
    assert replaced <= MOVED_SECONDS
