"""Finds a run on this machine, and the command that goes on with it once it has ended."""

import asyncio
import json
import shlex
from pathlib import Path

from evalrun_aggregator.control.acts import Act
from evalrun_aggregator.control.client import NoControlError, NotRunningError, control_ledger
from evalrun_aggregator.control.messages import refusal_once_ended
from evalrun_cli.control.texts import ControlledRun
from evalrun_cli.local.workspace import Workspace
from evalrun_proto.ledger.v1 import ledger_pb2
from evalrun_runtime.exits import BadInputError


def local_run(directory: Path) -> ControlledRun:
    """Return the run in a directory. Raises BadInputError if none lies there."""
    if not Workspace(directory).work_order.is_file():
        raise BadInputError(
            f"{directory}: no run lies there: name the directory of a run on this machine, or er/NAME of a cluster"
        )
    return ControlledRun(shlex.quote(str(directory)), _remedy(directory))


def control_local(directory: Path, act: Act) -> ledger_pb2.ControlRunResponse:
    """Have the process of a run on this machine perform an act.

    Raises:
        BadInputError: the run is not under way and has no results, or its process is of another version; the message
            names a remedy.
    """
    workspace = Workspace(directory.resolve())
    try:
        return asyncio.run(control_ledger(workspace.ledger, act))
    except NotRunningError as error:
        if workspace.summary.is_file():
            return ledger_pb2.ControlRunResponse(refusal=refusal_once_ended(act), state=_end_state(workspace))
        raise BadInputError(f"{directory}: the run is not under way: {_remedy(directory)}") from error
    except NoControlError as error:
        raise BadInputError(
            f"{directory}: the run is under way in a version of evalrun that knows no ctl, or not this act ({error}): "
            "press Ctrl-C there, then go on with this version: evalrun resume"
        ) from error


def _remedy(directory: Path) -> str:
    """Return a clause with the command that goes on with a run whose process has ended."""
    place = shlex.quote(str(directory))
    content = _summary(Workspace(directory))
    if content is None or content.get("partial"):
        return f"evalrun resume {place} does the rest"
    if content.get("state") == "Degraded":
        return f"evalrun resume {place} judges again what was not judged"
    return f"evalrun rejudge {place} judges its answers again"


def _end_state(workspace: Workspace) -> "ledger_pb2.RunState.ValueType":
    degraded = (_summary(workspace) or {}).get("state") == "Degraded"
    return ledger_pb2.RUN_STATE_DEGRADED if degraded else ledger_pb2.RUN_STATE_SUCCEEDED


def _summary(workspace: Workspace) -> dict[str, object] | None:
    try:
        content = json.loads(workspace.summary.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadInputError(f"{workspace.summary}: cannot be read: {error}") from error
    return content if isinstance(content, dict) else {}
