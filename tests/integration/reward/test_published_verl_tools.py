"""The published verl 0.9.1 loads our tools, and its tool loop calls them: sessions, rewards, a function tool."""

from pathlib import Path
from typing import Any

import pytest
from builders.other_interpreter import ask_script
from builders.reward.stack import reward_stack

from evalrun_cli.local.processes import ServiceProcess

pytestmark = pytest.mark.timeout(240)
"""Importing verl takes some 10 s of CPU."""

TESTS = {"inputs": ["1\n", "2\n"], "outputs": ["1\n", "2\n"]}


def row(*calls: tuple[str, object]) -> dict[str, Any]:
    return {"tools_kwargs": {"run_program": {"create_kwargs": {"ground_truth": TESTS}}}, "calls": list(calls)}


def program(code: str, tool: str = "run_program") -> tuple[str, object]:
    return tool, {"code": code}


async def test_verls_tool_loop_runs_programs_in_sessions_and_rewards_the_last(gen_cpu: Path, tmp_path: Path) -> None:
    rows = [
        row(program("print('first')"), program("print(1)"), program("print(input())")),
        row(program("print(input())"), program("raise ValueError('x')"), program("print(1)")),
        row(program("print(7)", "code_interpreter"), program("1/0", "code_interpreter")),
        row(("run_program", {}), ("run_program", "no json"), program("print(2)")),
    ]
    flags = ["--session-store", str(tmp_path / "sessions"), "--session-idle-seconds", "1000"]
    sandbox = ServiceProcess("sandbox", "evalrun_sandbox", [], tmp_path / "tools-sandbox.log")
    async with reward_stack(tmp_path, reward_arguments=flags) as (service,):
        await sandbox.start()
        try:
            asked = {"url": service.address, "sandbox": sandbox.address, "rows": rows}
            answer = await ask_script(gen_cpu, "reward/verl_tools_side.py", asked)
        finally:
            await sandbox.stop(5)
    repaired, spoilt, interpreted, clumsy = answer["rows"]
    assert [shown for shown, _ in repaired["seen"]][:2] == ["stdout:\nfirst", "stdout:\n1"]
    assert "EOFError" in repaired["seen"][2][0]  # no public tests: it ran with an empty input
    assert {reward for _, reward in repaired["seen"]} == {None}  # a turn's reward is not known, which is not 0
    assert repaired["reward"] == 1.0
    assert "ValueError: x" in spoilt["seen"][1][0]
    assert spoilt["reward"] == 0.5
    assert interpreted["seen"][0][0] == "7"
    assert "ZeroDivisionError" in interpreted["seen"][1][0]
    assert interpreted["reward"] == 0.0  # its session saw no program
    assert "'code' is missing" in clumsy["seen"][0][0]
    assert "Invalid JSON" in clumsy["seen"][1][0]
    assert clumsy["seen"][2] == ["stdout:\n2", None]
    assert clumsy["reward"] == 0.5
    assert set(answer["schemas"]) == {"run_program", "code_interpreter"}
    assert answer["schemas"]["code_interpreter"]["function"]["parameters"]["required"] == ["code"]
