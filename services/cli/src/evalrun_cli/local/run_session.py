"""The session of a run on one machine: its clock, its console, and a switch with which another thread stops it."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from evalrun_cli.clock import Clock, stopwatch
from evalrun_cli.local.options import Printing
from evalrun_cli.local.parts import LaunchedParts
from evalrun_cli.terminal import open_console
from evalrun_runtime.exits import ExitCode


class StopSwitch:
    """Stops a run from any thread, even before it has started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop: Callable[[], object] | None = None
        self._pressed = False

    def connect(self, stop: Callable[[], object]) -> None:
        """Set the function that stops the run. Call it from the run's thread; `press` may be called from any."""
        with self._lock:
            self._stop = stop
            pressed = self._pressed
        if pressed:
            stop()

    def press(self) -> None:
        """Stop the run cleanly; it can be resumed."""
        with self._lock:
            self._pressed = True
            stop = self._stop
        if stop is not None:
            stop()


@dataclass(frozen=True)
class RunSession:
    """Clock, consoles and stop switch of a run."""

    clock: Clock = field(default_factory=stopwatch)
    """Seconds since the command began."""
    console: Console = field(default_factory=open_console)
    """Gets the results."""
    progress: Console = field(default_factory=partial(open_console, stderr=True))
    """Receives progress, warnings and the next steps."""
    as_json: bool = False
    """Whether the results are printed as JSON instead of tables."""
    stop: StopSwitch = field(default_factory=StopSwitch)
    launched: LaunchedParts | None = None
    """Parts that the command launched before it knew the run."""
    view: bool = False
    """Whether the page of samples is served while the run continues."""


def session_for(printing: Printing, clock: Clock, launched: LaunchedParts | None) -> RunSession:
    """Return the session of a run that a command starts."""
    progress = open_console(stderr=True, quiet=printing.quiet)
    return RunSession(clock=clock, progress=progress, as_json=printing.as_json, launched=launched, view=printing.view)


@dataclass(frozen=True)
class RunOutcome:
    """End of a run."""

    code: ExitCode
    directory: Path
    summary: Mapping[str, Any] | None = None
    """Its summary.json, or None if it has no results."""
    problem: str = ""
    """Reason why it has no results."""
