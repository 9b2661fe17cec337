"""Real processes of a reward service: sandboxes, judges, replicas of the service."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from builders.judge.services import services

from evalrun_cli.local.processes import ServiceProcess


@asynccontextmanager
async def reward_stack(
    directory: Path, *, replicas: int = 1, reward_arguments: Sequence[str] = (), judge_arguments: Sequence[str] = ()
) -> AsyncIterator[list[ServiceProcess]]:
    """Start a sandbox, a judge that remembers nothing, and replicas of the service; gives the replicas, ready."""
    async with AsyncExitStack() as stack:
        judge, _ = await stack.enter_async_context(services(directory, judge_arguments=judge_arguments))
        running = []
        for number in range(replicas):
            flags = ["--judge", judge.address, *reward_arguments]
            replica = ServiceProcess("reward", "evalrun_reward", flags, directory / f"reward-{number}.log")
            stack.push_async_callback(replica.stop, 5)
            await replica.start()
            running.append(replica)
        yield running
