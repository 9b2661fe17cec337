"""Objects of the API server as plain data. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

Object = dict[str, Any]
"""A manifest as JSON: its schema is the API server's."""


@dataclass(frozen=True)
class RunIdentity:
    """Identifies an EvalRun."""

    name: str
    namespace: str
    uid: str
    created: datetime


@dataclass(frozen=True)
class StatusEvent:
    """An event of the run, as `kubectl describe` lists it."""

    warning: bool
    reason: str
    message: str
