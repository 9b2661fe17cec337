"""Objects of the API server as plain data. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Object = dict[str, Any]
"""A manifest as JSON: its schema is the API server's."""

HARMLESS_WARNINGS = frozenset({"AlreadyMountedVolume"})
"""Reasons of warnings that keep nothing from starting. The kubelet (1.36, local.go) says AlreadyMountedVolume of a
local volume whose files are of another group than the pod's fsGroup, and mounts it.
"""


@dataclass(frozen=True)
class RunIdentity:
    """Identifies an EvalRun."""

    name: str
    namespace: str
    uid: str
    created: datetime


@dataclass(frozen=True)
class StatusEvent:
    """An event of an object, as `kubectl describe` lists it."""

    warning: bool
    reason: str
    message: str


def newest_warning(events: Iterable[Mapping[str, Any]]) -> StatusEvent | None:
    """Return the newest of an object's warnings that may keep it from starting; None if there is no such warning."""
    may_hinder = [event for event in events if event.get("reason") not in HARMLESS_WARNINGS]
    last = max(may_hinder, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "", default=None)
    if last is None:
        return None
    return StatusEvent(warning=True, reason=str(last.get("reason", "")), message=str(last.get("message", "")))
