"""Runs inside the environment of the published verl: its tool loop loads our tools and calls them, turn by turn.

Reads one JSON object on stdin, writes one on stdout. Never imported by the tests' own interpreter.
"""

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from verl.experimental.agent_loop.tool_agent_loop import AgentData, ToolAgentLoop
from verl.experimental.agent_loop.tool_parser import FunctionCall
from verl.tools.tool_registry import load_all_tools


def loaded(directory: Path, url: str) -> dict[str, Any]:
    """Return the tools by name, loaded from the two files that verl's configuration names."""
    tools = {"tools": [{"class_name": "evalrun_trainers.verl_tool.EvalrunSessionTool",
                        "config": {"type": "native", "url": url, "run": "verl", "timeout_seconds": 60}}]}  # fmt: skip
    config = directory / "tools.yaml"
    config.write_text(json.dumps(tools))  # JSON is YAML
    functions = directory / "functions.py"
    functions.write_text("from evalrun_trainers.verl_function_tool import code_interpreter\n")
    return {tool.name: tool for tool in load_all_tools(str(config), str(functions))}


async def trajectory(loop: Any, row: dict[str, Any]) -> dict[str, Any]:
    """Return what the model of one trajectory is shown for each call, and its reward."""
    data = AgentData([], [], [], None, None, {}, "r", row["tools_kwargs"])
    seen = []
    for name, arguments in row["calls"]:
        call = FunctionCall(name=name, arguments=arguments if isinstance(arguments, str) else json.dumps(arguments))
        response, reward, _ = await loop._call_tool(call, data.tools_kwargs, data)
        seen.append([response.text, reward])
    tool = loop.tools["run_program"]
    instance, _ = await tool.create(create_kwargs=row["tools_kwargs"]["run_program"]["create_kwargs"])
    reward = await tool.calc_reward(instance, agent_data=data)
    await tool.release(instance)
    return {"seen": seen, "reward": reward}


async def work(asked: dict[str, Any]) -> dict[str, Any]:
    os.environ["EVALRUN_SANDBOX_URL"] = asked["sandbox"]
    with tempfile.TemporaryDirectory() as directory:
        tools = loaded(Path(directory), asked["url"])
    loop = ToolAgentLoop.__new__(ToolAgentLoop)  # without a model: what calls tools needs no more than this
    loop.tools = tools
    loop.max_tool_response_length, loop.tool_response_truncate_side = 4096, "middle"
    answers = await asyncio.gather(*(trajectory(loop, row) for row in asked["rows"]))
    schemas = {name: tool.tool_schema.model_dump(exclude_none=True) for name, tool in tools.items()}
    return {"rows": answers, "schemas": schemas}


def main() -> None:
    asked = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):  # verl prints each schema
        answer = asyncio.run(work(asked))
    print("ANSWER" + json.dumps(answer))


if __name__ == "__main__":
    main()
