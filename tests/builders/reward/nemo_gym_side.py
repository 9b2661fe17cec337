"""Runs beneath the published NeMo Gym: serves our resources server, and asks it with the client of its agents.

Reads one JSON object on stdin, writes one on stdout. Never imported by the tests' own interpreter.
"""

import asyncio
import json
import os
import sys
from typing import Any

from aiohttp import ClientResponseError
from builders.reward.environment_server import serving
from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.server_utils import (
    GlobalAIOHTTPAsyncClientConfig,
    ServerClient,
    get_response_json,
    raise_for_status,
    request,
    set_global_aiohttp_client,
)

from evalrun_trainers.nemo_gym_server import JudgedResourcesServer


def verify_body(row: dict[str, Any], field: str) -> dict[str, Any]:
    """Return what an agent sends after a rollout: the request of the model, and its answer."""
    said = {"type": "output_text", "text": row["solution"], "annotations": []}
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [said]}
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "Square it."}]},
        "response": {
            "id": "r", "created_at": 0, "model": "m", "object": "response", "output": [message], "tools": [],
            "parallel_tool_calls": False, "tool_choice": "auto",
        },
        "verifier_metadata": {field: row["ground_truth"]},
    }  # fmt: skip


async def verified(address: str, row: dict[str, Any], field: str = "ground_truth") -> Any:
    """Return the answer of /verify, or the status by which an agent's run ends."""
    answer = await request("POST", f"{address}/verify", json=verify_body(row, field))
    try:
        await raise_for_status(answer)
    except ClientResponseError as error:
        return error.status
    found = await get_response_json(answer)
    return {"reward": found["reward"], "final_status": found["final_status"]}


async def ask(asked: dict[str, Any]) -> dict[str, Any]:
    config = BaseResourcesServerConfig(name="evalrun", host="127.0.0.1", port=1, entrypoint="app.py", domain="coding")
    server = JudgedResourcesServer(config=config, server_client=ServerClient.model_construct())
    application = server.setup_webserver()
    server.setup_exception_middleware(application)
    set_global_aiohttp_client(cfg=GlobalAIOHTTPAsyncClientConfig())
    rows = asked["rows"]
    async with serving(application) as address:
        answers = list(await asyncio.gather(*(verified(address, row) for row in rows)))
        theirs = await verified(address, {**rows[0], "ground_truth": json.loads(rows[0]["ground_truth"])}, "unit_tests")
        os.environ["EVALRUN_REWARD_URL"], os.environ["EVALRUN_REWARD_TIMEOUT_SECONDS"] = asked["nobody"], "1"
        gone = await verified(address, rows[0])
    return {"answers": answers, "theirs": theirs, "gone": gone}


def main() -> None:
    asked = json.load(sys.stdin)
    os.environ["EVALRUN_REWARD_URL"] = asked["url"]
    print("ANSWER" + json.dumps(asyncio.run(ask(asked))))


if __name__ == "__main__":
    main()
