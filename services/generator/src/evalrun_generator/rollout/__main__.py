"""`python -m evalrun_generator.rollout`: launch replicas, generate a run's missing completions, end the replicas."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial

from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_generator.rollout.app import roll_out
from evalrun_generator.rollout.cluster import ReplicaCluster
from evalrun_generator.rollout.engine import EnginePlan
from evalrun_generator.rollout.engine_facts import model_facts
from evalrun_generator.rollout.order import read_rollout_order
from evalrun_generator.rollout.settings import RolloutSettings
from evalrun_generator.weights.checkpoint_files import file_stamps
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.logs import configure_logging
from evalrun_runtime.settings import load_settings
from evalrun_runtime.termination import end_with
from evalrun_runtime.tracing import start_tracing, stop_tracing


async def _attach_in_turn(
    wait: Callable[[str, tuple[int, str], EnginePlan, Mapping[str, str]], Awaitable[ReplicaCluster]],
    name: str,
    place: tuple[int, str],
    identity: str,
    plan: EnginePlan,
) -> ReplicaCluster:
    """Read every file of the checkpoint while another checkpoint is in use, then wait for this run's turn."""
    # Several runs use the replicas in turn, so the identity of this run does not name them.
    del identity
    before = file_stamps(plan.directory)
    facts = await asyncio.to_thread(model_facts, str(plan.directory), None, aside=True)
    cluster = await wait(name, place, plan, facts)
    if file_stamps(plan.directory) != before:
        await cluster.end_all()
        raise BadInputError(f"{plan.directory}: its files changed while they were read: run again when it is written")
    return cluster


def main(argv: Sequence[str]) -> int:
    """Run the rollout and return its exit code. If that is not 0, the last line on stderr says why."""
    try:
        settings = load_settings(RolloutSettings, argv, program="evalrun-rollout")
        configure_logging(settings.log_format, settings.log_level)
        start_tracing("generator")
        order = read_rollout_order(settings.work_order)
        # The import is made only here: Ray takes seconds to load, and --help or an invalid run configuration do not
        # need it.
        from evalrun_generator.rollout.ray_cluster import attach_in_turn, attach_to_cluster, join_ray
        from evalrun_generator.rollout.ray_node import join_cluster

        node_ip = settings.ray_node_ip
        with nullcontext() if settings.ray_join is None else join_cluster(settings.ray_join, node_ip):
            join_ray(settings.ray_join or settings.ray_address, node_ip)
            if settings.keep_replicas is None:
                attach_own = partial(attach_to_cluster, abandon_seconds=settings.abandon_seconds)
                return asyncio.run(roll_out(settings, order, attach_own))
            attach = partial(_attach_in_turn, attach_in_turn, settings.keep_replicas, order.place)
            return asyncio.run(roll_out(settings, order, attach))
    except BadInputError as error:
        return end_with(error, ExitCode.BAD_INPUT)
    except GenerationStoppedError as error:
        return end_with(error, ExitCode.FAILED, cause=error.cause)
    finally:
        stop_tracing()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
