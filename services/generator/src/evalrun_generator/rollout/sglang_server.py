"""verl's server for SGLang with a key, and with a report of what it has loaded."""

import os
from typing import Any

from sglang.srt.entrypoints.http_server import app
from sglang.srt.utils.auth import add_api_key_middleware
from verl.workers.rollout.sglang_rollout.async_sglang_server import SGLangHttpServer

from evalrun_generator.rollout.sglang_arguments import KEY_VARIABLE


class SglangServer(SGLangHttpServer):  # type: ignore[misc] # verl is untyped
    """A server that answers nobody without the key, except about its health and its metrics."""

    async def launch_server(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - verl's own arguments
        """Start the engine and its HTTP server."""
        # SGLang's own launcher adds this; verl puts the application into a server of its own and leaves it out.
        add_api_key_middleware(app, api_key=os.environ[KEY_VARIABLE], admin_api_key=None)
        await super().launch_server(*args, **kwargs)

    async def evalrun_report(self) -> dict[str, Any]:
        """Return the settings of the process that has loaded the weights, as it holds them itself."""
        states = await self.tokenizer_manager.get_internal_state()
        return {name: states[0].get(name) for name in ("model_path", "load_format", "dtype", "quantization")}
