"""Callers with a token of their own: each is one run, whatever run its requests name."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from aiohttp import web

from evalrun_runtime.connections.bearer_tokens import carries
from evalrun_runtime.connections.reloaded_files import ReloadedFiles

CALLER: web.RequestKey[str] = web.RequestKey("caller", str)
"""The run of a request's caller, if the request's token is a caller's."""


def find_run(request: web.Request, named: str) -> str:
    """Return the run of the request's token, or, where the token is no caller's, the run that the request names."""
    caller: str | None = request.get(CALLER)
    return named if caller is None else caller


class Callers:
    """Runs by token, read again when the file changes.

    Args:
        file: a line per caller, `RUN TOKEN`.

    Raises:
        BadInputError: the file cannot be used.
    """

    def __init__(self, file: Path) -> None:
        self._file = ReloadedFiles([file], _parse_callers)

    @property
    def runs(self) -> Collection[str]:
        return self._file.current.keys()

    def find_run(self, authorization: str) -> str | None:
        """Return the run of an Authorization header's token; None if the token is no caller's."""
        found = None
        # Every token is compared, so that the time reveals nothing about a token.
        for run, token in self._file.current.items():
            if carries(authorization, token):
                found = run
        return found


def _parse_callers(contents: Sequence[bytes]) -> Mapping[str, str]:
    callers: dict[str, str] = {}
    for number, line in enumerate(contents[0].decode("ascii").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = line.split()
        if len(parts) != 2:
            raise ValueError(f"line {number}: write RUN TOKEN, with a blank between them")
        run, token = parts
        if run in callers:
            raise ValueError(f"line {number}: {run} has a token already: name it once")
        if token in callers.values():
            raise ValueError(f"line {number}: another run has this token: give each its own")
        callers[run] = token
    if not callers:
        raise ValueError("it names no caller: write a line per caller, RUN TOKEN")
    return callers
