"""verl's server for vLLM with the steps from one checkpoint to the next."""

import asyncio
import time
from typing import Final

from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

from evalrun_generator.weights.checkpoint_files import UnfitCheckpointError
from evalrun_generator.weights.weights_guard import SERVED

DRAIN_SECONDS: Final = 10.0
"""Seconds to wait for requests of an earlier driver. A driver ends its turn after all replies, so only a killed driver
leaves requests behind."""
POLL_SECONDS: Final = 0.01


class KeptServer(vLLMHttpServer):  # type: ignore[misc] # verl is untyped
    """A server whose engine outlives a checkpoint. While it changes weights, it refuses requests."""

    async def evalrun_prove(self, directory: str, version: str) -> dict[str, str]:
        """Compare the weights that the engine has loaded itself with their files, and serve them as `version`.

        Raises:
            UnfitCheckpointError: this engine cannot load other weights. It still serves the present weights.
        """
        SERVED.version = version
        return await self._ask_workers("evalrun_prove_weights", directory)

    async def evalrun_replace(self, directory: str, version: str) -> dict[str, str]:
        """Replace the weights, prove them, and serve them as `version`. Return the seconds of each step.

        After any exception the server no longer replies.
        """
        SERVED.version = ""
        began = time.monotonic()
        await self._drain()
        drained = time.monotonic() - began
        facts = await self._ask_workers("evalrun_replace_weights", directory)
        if not await self.engine.reset_prefix_cache():
            raise UnfitCheckpointError("the engine did not reset its prefix cache: a request was running")
        await self.engine.resume_generation()
        SERVED.version = version
        return {**facts, "weights_drain_seconds": f"{drained:.2f}", "model": directory}

    async def _drain(self) -> None:
        """Wait until the engine runs no request, then have it refuse requests.

        Requests that take too long are cut off.
        """
        waiting = self.engine.output_processor
        deadline = time.monotonic() + DRAIN_SECONDS
        while waiting.has_unfinished_requests() and time.monotonic() < deadline:  # noqa: ASYNC110
            # vLLM has no event for the end of the last request.
            await asyncio.sleep(POLL_SECONDS)
        await self.engine.pause_generation(mode="abort", clear_cache=True)

    async def _ask_workers(self, method: str, directory: str) -> dict[str, str]:
        found = await self.engine.collective_rpc(method, args=(directory,))
        workers = self.engine.vllm_config.parallel_config.world_size
        if len(found) != workers:
            raise UnfitCheckpointError(f"{len(found)} of {workers} workers answered")
        return {name: f"{max(each[name] for each in found):.2f}" for name in found[0]}
