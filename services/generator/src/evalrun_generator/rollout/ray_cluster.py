"""The driver's side of Ray: joins the cluster, finds or creates the run's supervisor, and calls it."""

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence

import ray

# Ray has no public API for free GPUs, so this is the function that verl uses.
from ray._private.state import available_resources_per_node
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_generator.rollout.engine import EnginePlan
from evalrun_generator.rollout.launcher import Handle
from evalrun_generator.rollout.starts import ClusterView, NodeCapacity, Start
from evalrun_generator.rollout.supervisor import SupersededError, Supervisor
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

NAMESPACE = "evalrun"
CALL_SECONDS = 60.0
END_SECONDS = 120.0
REPLACE_SECONDS = 330.0
"""A little more than the supervisor's own `REPLACE_SECONDS`."""
TURN_POLL_SECONDS = 0.1
HEAD_RESOURCE = "node:__internal_head__"
"""Resource that Ray 2.60 lists for its head."""


def join_ray(address: str, node_ip: str | None = None) -> None:
    """Become a driver of the Ray cluster at `address`, on its node at `node_ip`; None: on the node that Ray finds here.

    Raises:
        BadInputError: there is no cluster.
    """
    on_node = {} if node_ip is None else {"_node_ip_address": node_ip}
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False, **on_node)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise BadInputError(f"--ray-address {address}: no Ray cluster: {' '.join(str(error).split())}") from error


class RayCluster:
    """The replicas of a run. Create it with `attach_to_cluster`."""

    def __init__(self, supervisor: Handle, driver: str, api_key: str, *, started: bool, is_kept: bool = False) -> None:
        """Create the client; with `is_kept` the replicas outlive this driver, which only ends its turn."""
        self._is_kept = is_kept
        self._supervisor = supervisor
        self._driver = driver
        self._api_key = api_key
        self.attached_again = not started
        """Whether replicas of an earlier attempt were found."""

    @property
    def api_key(self) -> str:
        return self._api_key

    async def observe(self) -> ClusterView:
        """Return the run's starts and the free resources of every living node."""
        starts = await _answer(self._supervisor.starts.remote(self._driver), CALL_SECONDS)
        return ClusterView(starts, tuple(await asyncio.to_thread(_rooms)))

    async def start(self, slot: int) -> None:
        """Start a replica whose owner runs on the node with the most free GPUs."""
        rooms = await asyncio.to_thread(_rooms)
        node = max(rooms, key=lambda room: room.gpus).node if rooms else ray.get_runtime_context().get_node_id()
        suffix = uuid.uuid4().hex[:12]
        await _answer(self._supervisor.start.remote(self._driver, slot, suffix, node), CALL_SECONDS)

    async def end(self, suffix: str) -> None:
        await _answer(self._supervisor.end.remote(self._driver, suffix), END_SECONDS)

    async def end_all(self) -> Sequence[Start]:
        """End every replica and the supervisor, or, for kept replicas, this driver's turn."""
        if self._is_kept:
            ended: Sequence[Start] = await _answer(self._supervisor.end_turn.remote(self._driver), CALL_SECONDS)
            return ended
        try:
            starts: Sequence[Start] = await _answer(self._supervisor.end_all.remote(self._driver), END_SECONDS)
        finally:
            ray.kill(self._supervisor)
        return starts


async def attach_to_cluster(identity: str, plan: EnginePlan, abandon_seconds: float | None = None) -> RayCluster:
    """Attach to the run's supervisor, or create the supervisor.

    A supervisor whose replicas were started from another plan is ended: they may serve another model or engine.

    Args:
        identity: identity of the run.
        plan: plan of the replicas.
        abandon_seconds: see the supervisor.

    Raises:
        GenerationStoppedError: Ray does not reply.
    """
    name, driver = f"evalrun-rollout-{identity}", uuid.uuid4().hex
    for started in (False, True):
        if started:
            supervisor = _make(name, plan, abandon_seconds)
        else:
            try:
                supervisor = ray.get_actor(name, namespace=NAMESPACE)
            except ValueError:
                continue
        digest, key = await _answer(supervisor.attach.remote(driver), CALL_SECONDS)
        if digest == plan.digest:
            return RayCluster(supervisor, driver, key, started=started)
        logger.warning("the living replicas were started with other settings: restarting them")
        await _answer(supervisor.end_all.remote(driver), END_SECONDS)
        ray.kill(supervisor)
    raise GenerationStoppedError("the supervisor that was just created has another plan")


async def attach_in_turn(name: str, place: tuple[int, str], plan: EnginePlan, facts: Mapping[str, str]) -> RayCluster:
    """Wait for the turn on replicas that outlive their runs, then have them serve the plan's checkpoint.

    The replicas load the checkpoint's weights in place if they can, and are restarted if they cannot.

    Args:
        name: name of the replicas.
        place: position in the queue of waiting drivers; the lowest comes first.
        plan: plan with `kept`.
        facts: facts of the checkpoint, for run_info.json.

    Raises:
        GenerationStoppedError: Ray does not reply.
    """
    driver = uuid.uuid4().hex
    supervisor = _make(f"evalrun-rollout-{name}", plan)
    while not await _answer(supervisor.take_turn.remote(driver, place), CALL_SECONDS):  # noqa: ASYNC110
        # The supervisor is an actor, so there is no event to wait for.
        await asyncio.sleep(TURN_POLL_SECONDS)
    shape, weights, key = await _answer(supervisor.weights.remote(driver), CALL_SECONDS)
    wanted = "" if plan.kept is None else plan.kept.weights
    if weights == wanted:
        return RayCluster(supervisor, driver, key, started=not await _serves(supervisor, driver), is_kept=True)
    why = "configuration, tokenizer or settings differ"
    if shape == plan.shape:
        why = await _answer(supervisor.replace_weights.remote(driver, plan, facts), REPLACE_SECONDS)
    if why:
        logger.warning("a fresh start instead of other weights in place: %s", why)
        await _answer(supervisor.renew.remote(driver, plan), END_SECONDS)
    return RayCluster(supervisor, driver, key, started=bool(why), is_kept=True)


async def _serves(supervisor: Handle, driver: str) -> bool:
    return bool(await _answer(supervisor.starts.remote(driver), CALL_SECONDS))


def _make(name: str, plan: EnginePlan, abandon_seconds: float | None = None) -> Handle:
    # The supervisor is placed on the head, which lives as long as the cluster: this process may be on its own node,
    # which ends with it. The affinity is hard: for an actor without resources, Ray 2.60 was seen to ignore a soft one
    # and to use this node.
    here = NodeAffinitySchedulingStrategy(node_id=_head_node(), soft=False)
    options = {"name": name, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True, "num_cpus": 0}
    return ray.remote(Supervisor).options(**options, scheduling_strategy=here).remote(plan, abandon_seconds)


def _head_node() -> str:
    """Return the head's id; this node's id if the cluster does not show its head."""
    heads = [node["NodeID"] for node in ray.nodes() if node["Alive"] and HEAD_RESOURCE in node["Resources"]]
    return str(heads[0] if heads else ray.get_runtime_context().get_node_id())


async def _answer(reference: Handle, seconds: float) -> Handle:
    """Await an actor call with a timeout."""
    try:
        async with asyncio.timeout(seconds):
            return await reference
    except SupersededError as error:
        raise GenerationStoppedError(str(error)) from error
    except TimeoutError as error:
        raise GenerationStoppedError(f"the replicas' supervisor gave no answer within {seconds:g} s") from error
    except ray.exceptions.RayError as error:
        cause = " ".join(str(error).split())[-300:]
        raise GenerationStoppedError(f"the replicas' supervisor is lost: {cause}. Run again to resume") from error


def _rooms() -> list[NodeCapacity]:
    free = available_resources_per_node()
    return [
        NodeCapacity(node["NodeID"], found.get("GPU", 0.0), found.get("CPU", 0.0))
        for node in ray.nodes()
        if node["Alive"] and (found := free.get(node["NodeID"])) is not None and node["Resources"].get("GPU", 0)
    ]
