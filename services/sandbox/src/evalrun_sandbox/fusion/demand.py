"""Translates a /run_code request into the executor's request, or refuses it. Pure."""

import math

from evalrun_executor.api import Limits, RunRequest
from evalrun_executor.private_files import RequestWithFiles
from evalrun_registry.languages import LANGUAGES, find_fusion
from evalrun_registry.limits import DEFAULT_LIMITS
from evalrun_sandbox.fusion.files import Files
from evalrun_sandbox.fusion.refusals import BadRequest
from evalrun_sandbox.fusion.schemas import RunCodeRequest

_MIN_MEMORY_MIB, _MAX_MEMORY_MIB = 16, 1 << 20
_MAX_SECONDS = 3600.0

CLIENT_MARGIN_SECONDS = 10.0
"""verl's client times out `compile_timeout + run_timeout + 10` seconds after sending a request."""
_STOP_FACTOR = 1.2
_ANSWER_SECONDS = 2.0
_MIN_PATIENCE = 5.0


def seconds(timeout: float) -> float:
    """Return a time limit that the executor accepts, or 0 if `timeout` is not positive or not a number."""
    return min(timeout, _MAX_SECONDS) if timeout > 0 else 0.0


def memory_mib(asked: int | None) -> int:
    """Return the memory limit in MiB for a requested limit; the default if none is requested."""
    if asked is None or asked <= 0:
        # The stock server has no default, so one program can take its machine down.
        return DEFAULT_LIMITS.memory_mib
    return min(max(asked, _MIN_MEMORY_MIB), _MAX_MEMORY_MIB)


def make_run_request(request: RunCodeRequest, files: Files | None = None) -> RunRequest:
    """Return the executor's request: one run with `run_timeout` as CPU seconds.

    Raises BadRequest for an unknown language.
    """
    language = find_fusion(request.language)
    if language is None:
        known = sorted(each.fusion.name for each in LANGUAGES.values() if each.fusion is not None)
        raise BadRequest(f"language {request.language} is not one of {', '.join(known)}")
    limits = Limits(seconds(request.run_timeout), memory_mib(request.memory_limit_MB), DEFAULT_LIMITS.output_kib)
    inputs = [(request.stdin or "").encode()]
    if files is None or not (files.placed or files.fetched):
        return RunRequest(language.name, request.code, inputs, limits)
    return RequestWithFiles(
        language.name, request.code, inputs, limits, files=dict(files.placed), fetch=files.wanted
    )  # fmt: skip


def patience_seconds(compile_timeout: float, run_timeout: float) -> float:
    """Return the seconds for which a request may wait for a slot.

    This is the longest wait after which an answer in time is still likely: the timeout of verl's client, minus the CPU
    time the program may use, minus a margin. After a longer wait the client has timed out and blames the sandbox; much
    shorter waits would use up the client's three attempts while the queue moves.
    """
    run = seconds(run_timeout)
    compile_ = seconds(compile_timeout)
    left = compile_ + run + CLIENT_MARGIN_SECONDS - _STOP_FACTOR * run - _ANSWER_SECONDS
    return max(_MIN_PATIENCE, math.floor(left))
