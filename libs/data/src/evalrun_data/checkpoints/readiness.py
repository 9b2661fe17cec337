"""Whether a checkpoint is complete, or still being written. Pure: the time is an argument.

The first available sign of three counts: a marker inside the directory, written last; the trainer's tracker one
level up, which names the newest complete step (verl); else nothing has been written for a while.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from evalrun_api.v1alpha1.lineage import MAX_STEP

TRACKER = "latest_checkpointed_iteration.txt"
"""verl and Megatron write it, in the directory of the checkpoints, after a checkpoint."""

MAX_STEP_DIGITS = len(str(MAX_STEP))


@dataclass(frozen=True)
class CompletionMarks:
    """Signs by which a checkpoint counts as complete."""

    marker: str | None
    tracked: int | None
    """The step that the tracker names; None if there is no tracker."""
    quiet_seconds: int


def parse_step(name: str) -> int | None:
    """Return the step in a directory's name, its last number; None if the name has no number, or one too long for a
    step."""
    numbers = re.findall(r"[0-9]+", name)
    digits = numbers[-1].lstrip("0") or "0" if numbers else ""
    return int(digits) if 0 < len(digits) <= MAX_STEP_DIGITS else None


def why_no_step(name: str) -> str:
    """Return why a directory's name contains no step."""
    numbers = re.findall(r"[0-9]+", name)
    if not numbers:
        return "has no step: no number in its name"
    return f"has no step: its last number has {len(numbers[-1])} digits, and a step at most {MAX_STEP_DIGITS}"


def parse_tracker(text: bytes) -> int | None:
    """Return the step that a tracker names; None if the file is being written or names no step."""
    digits = text.strip().lstrip(b"0") or text.strip()[-1:]
    return int(digits) if digits.isdigit() and len(digits) <= MAX_STEP_DIGITS else None


def explain_unfinished(step: int, files: Mapping[str, datetime | None], signs: CompletionMarks, now: datetime) -> str:
    """Return why a checkpoint counts as still being written; empty if it is complete.

    Args:
        step: the checkpoint's.
        files: when each file was last written, by path below the checkpoint's directory; None if the store does not
            say.
        signs: the rules by which a checkpoint counts as complete.
        now: the time.
    """
    if signs.marker is not None:
        return "" if signs.marker in files else f"has no {signs.marker} yet"
    if signs.tracked is not None:
        return "" if step <= signs.tracked else f"is being written: {TRACKER} names step {signs.tracked}"
    times = [time for time in files.values() if time is not None]
    if len(times) < len(files):
        return "cannot be told complete: the store gives no time of its files; write checkpoints.readyMarker"
    if not times:
        return "is empty"
    quiet = (now - max(times)).total_seconds()
    if quiet < signs.quiet_seconds:
        return f"was written to {max(0, round(quiet))} s ago: {signs.quiet_seconds} s without a write are waited for"
    return ""
