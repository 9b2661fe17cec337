"""A resources server of NeMo Gym (0.4) whose reward is the judge's. Write `resources_servers/evalrun/app.py`:

    from evalrun_trainers.nemo_gym_server import JudgedResourcesServer
    if __name__ == "__main__":
        JudgedResourcesServer.run_webserver()

A row's `verifier_metadata` has `ground_truth`, as the service's samples have, or NeMo Gym's own `unit_tests`;
`data_source` and `language` serve too. EVALRUN_REWARD_* variables are the options.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer

from evalrun_trainers.client import choose_reward, client_for
from evalrun_trainers.options import read_options
from evalrun_trainers.samples import make_sample


class JudgedVerifyRequest(BaseVerifyRequest):  # type: ignore[misc] # absent where types are checked
    """A rollout with the tests from its row."""

    verifier_metadata: dict[str, Any] | None = None


class JudgedVerifyResponse(JudgedVerifyRequest, BaseVerifyResponse):  # type: ignore[misc]
    """The rollout with its reward and how its program ended, e.g. wrong_answer."""

    final_status: str = ""


class JudgedResourcesServer(SimpleResourcesServer):  # type: ignore[misc]
    """Judges the last message of each rollout."""

    async def verify(self, body: JudgedVerifyRequest) -> JudgedVerifyResponse:
        """Return the rollout with its reward.

        Raises:
            NotJudgedError: there is no verdict. The agent's call gets status 500, and the rollout has no reward.
            InvalidSampleError: the row holds no tests.
        """
        options, row = read_options({}), body.verifier_metadata or {}
        extra = {"truncated": body.response.incomplete_details is not None, "language": row.get("language")}
        prompt = _last_prompt(body.responses_create_params.input)
        sample = make_sample(
            row.get("data_source", ""),
            body.response.output_text,
            row.get("ground_truth") or row.get("unit_tests"),
            {**extra, **({"problem_prompt": prompt} if prompt else {})},
        )
        result = await asyncio.wrap_future(client_for(options).submit(sample))
        return JudgedVerifyResponse(
            **body.model_dump(),
            reward=choose_reward(result, options),
            final_status=str(result.get("final_status") or ""),
        )


def _last_prompt(asked: Any) -> str:  # noqa: ANN401 - a text, or messages of the Responses API
    """Return the text of the user's last message, which may hold a function's signature; empty if it is no text."""
    if isinstance(asked, str):
        return asked
    for message in reversed(asked):
        said = message if isinstance(message, Mapping) else vars(message)
        if said.get("role") == "user" and isinstance(said.get("content"), str):
            return str(said["content"])
    return ""
