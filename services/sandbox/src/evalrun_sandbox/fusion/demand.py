"""Pure: a /run_code request as the executor's request, or why not."""

import math
from pathlib import PurePosixPath

from evalrun_sandbox.api import Limits, RunRequest
from evalrun_sandbox.fusion.refusals import BadRequest
from evalrun_sandbox.fusion.wire import RunCodeRequest

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


def refuse_files(request: RunCodeRequest) -> None:
    """Refuse what would have to be put into, or taken out of, the private folder. Raises BadRequest.

    The stock server follows `..` and absolute paths: any caller reads and writes any file of its host.
    """
    placed = [name for name, content in request.files.items() if content is not None]  # the stock server skips nulls
    for field, names in (("files", placed), ("fetch_files", request.fetch_files)):
        for name in names:
            if leaves_folder(name):
                raise BadRequest(f"{field}: {name[:200]!r} leaves the program's private folder")
        if names:
            raise BadRequest(f"{field}: this sandbox places and fetches no files; put the data into stdin")


def leaves_folder(name: str) -> bool:
    """Say whether a relative path would not stay in the folder that it starts from."""
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts


def seconds(timeout: float) -> float:
    """Give a time limit that the executor takes; 0 where none is left: not a number, 0 or less."""
    return min(timeout, _MOST_SECONDS) if timeout > 0 else 0.0


def memory_mib(asked: int | None) -> int:
    """Give the memory limit for what the request asks."""
    if asked is None or asked <= 0:
        return DEFAULT_MEMORY_MIB
    return min(max(asked, _LEAST_MEMORY_MIB), _MOST_MEMORY_MIB)


def to_executor(request: RunCodeRequest) -> RunRequest:
    """Give the executor's request: one run, `run_timeout` as CPU seconds. Raises BadRequest for another language."""
    if request.language not in ("python", "c", "cpp"):
        raise BadRequest(f"language {request.language} is not one of c, cpp, python")
    limits = Limits(seconds(request.run_timeout), memory_mib(request.memory_limit_MB), OUTPUT_KIB)
    return RunRequest(request.language, request.code, [(request.stdin or "").encode()], limits)


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
