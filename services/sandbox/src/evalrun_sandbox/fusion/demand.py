"""Pure: a /run_code request as the executor's request, or why not."""

import math

from evalrun_sandbox.api import Limits, RunRequest
from evalrun_sandbox.fusion.files import Files
from evalrun_sandbox.fusion.refusals import BadRequest
from evalrun_sandbox.fusion.wire import RunCodeRequest
from evalrun_sandbox.private_files import RequestWithFiles

DEFAULT_MEMORY_MIB = 1024
"""Where the request names no limit. The stock server has none: one program then takes its machine down."""
OUTPUT_KIB = 1024
"""Of stdout and of stderr, each: what the stock server's documents promise, and it does not keep."""
_LEAST_MEMORY_MIB, _MOST_MEMORY_MIB = 16, 1 << 20
_MOST_SECONDS = 3600.0

CLIENT_MARGIN_SECONDS = 10.0
"""verl's client gives up `compile_timeout + run_timeout + 10` seconds after it sent a request."""
_STOP_FACTOR = 1.2
_ANSWER_SECONDS = 2.0
_LEAST_PATIENCE = 5.0


def seconds(timeout: float) -> float:
    """Give a time limit that the executor takes; 0 where none is left: not a number, 0 or less."""
    return min(timeout, _MOST_SECONDS) if timeout > 0 else 0.0


def memory_mib(asked: int | None) -> int:
    """Give the memory limit for what the request asks."""
    if asked is None or asked <= 0:
        return DEFAULT_MEMORY_MIB
    return min(max(asked, _LEAST_MEMORY_MIB), _MOST_MEMORY_MIB)


def to_executor(request: RunCodeRequest, files: Files | None = None) -> RunRequest:
    """Give the executor's request: one run, `run_timeout` as CPU seconds. Raises BadRequest for another language."""
    if request.language not in ("python", "c", "cpp"):
        raise BadRequest(f"language {request.language} is not one of c, cpp, python")
    limits = Limits(seconds(request.run_timeout), memory_mib(request.memory_limit_MB), OUTPUT_KIB)
    inputs = [(request.stdin or "").encode()]
    if files is None or not (files.placed or files.fetched):
        return RunRequest(request.language, request.code, inputs, limits)
    return RequestWithFiles(
        request.language, request.code, inputs, limits, files=dict(files.placed), fetch=files.wanted
    )  # fmt: skip


def patience_seconds(compile_timeout: float, run_timeout: float) -> float:
    """Give how long a request may wait for its turn.

    As late as an answer in time is still likely: what verl's client waits, less the CPU time that the program may use
    before it is stopped, less a margin. Later, its client is gone and takes the time-out for the sandbox's failure;
    much earlier would spend its three attempts while the queue moves.
    """
    run = seconds(run_timeout)
    compile_ = seconds(compile_timeout)
    left = compile_ + run + CLIENT_MARGIN_SECONDS - _STOP_FACTOR * run - _ANSWER_SECONDS
    return max(_LEAST_PATIENCE, math.floor(left))
