"""A function tool for verl (0.9.1, `multi_turn.function_tool_path`): runs a Python program and returns its output.

As verl's former SandboxFusionTool did, it asks the SandboxFusion API: that of `evalrun-sandbox`, or of a stock server,
at EVALRUN_SANDBOX_URL. No state is kept between calls and no reward follows; `verl_tool` has sessions and rewards.
"""

import functools
import os

from verl.tools.function_tool import function_tool

from evalrun_trainers.calls import RewardCalls
from evalrun_trainers.client import NotJudgedError
from evalrun_trainers.options import Options, OptionsError

RUN_SECONDS = 30
CALL_SECONDS = 300.0
NO_ANSWER = "The sandbox gave no answer: run your program again."


@functools.cache
# A forked process needs threads and connections of its own.
def _calls(process: int) -> RewardCalls:
    url = os.environ.get("EVALRUN_SANDBOX_URL", "")
    if not url:
        raise OptionsError("set EVALRUN_SANDBOX_URL to a sandbox: http://HOST:PORT")
    return RewardCalls(
        Options(url=url, token=os.environ.get("EVALRUN_SANDBOX_TOKEN", ""), timeout_seconds=CALL_SECONDS)
    )


@function_tool("code_interpreter")  # type: ignore[untyped-decorator]  # verl has no types
async def code_interpreter(code: str) -> str:
    """Run a complete Python program and return what it prints.

    Args:
        code: The whole program. Print what you want to see.
    """
    body = {"code": code, "language": "python", "run_timeout": RUN_SECONDS}
    try:
        answer = await _calls(os.getpid()).post("/run_code", body)
    except NotJudgedError:
        return NO_ANSWER
    run = answer.get("run_result")
    if answer.get("status") == "SandboxError" or not run:
        return NO_ANSWER
    parts = [run.get("stdout") or "", run.get("stderr") or ""]
    if run.get("status") == "TimeLimitExceeded":
        parts.append("[stopped: time limit exceeded]")
    elif run.get("return_code"):
        parts.append(f"[exit code {run['return_code']}]")
    return "\n".join(part.rstrip("\n") for part in parts if part) or "[it printed nothing]"
