"""Shows the progress of a run in a cluster: tables on a terminal, plain lines elsewhere."""

from datetime import datetime, timedelta
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live

from evalrun_api.v1alpha1 import EvalRun
from evalrun_cli.cluster.run_view import get_status, progress_line, reason_line, status_tables

PLAIN_INTERVAL = timedelta(seconds=5)
"""Seconds between two lines of the same state, so that a log of a night stays readable."""


class RunDisplay(Protocol):
    """Shows a run repeatedly."""

    def update(self, run: EvalRun, now: datetime) -> None:
        """Show its newest state."""
        ...

    def close(self) -> None:
        """Restore the terminal."""
        ...


class PlainRunDisplay:
    """Prints a line when the phase changes, and every few seconds if the reason or the counts have changed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._state: tuple[str | None, str] | None = None
        self._counts = ""
        self._printed_at: datetime | None = None

    def update(self, run: EvalRun, now: datetime) -> None:
        """Print a line if the phase is new, or if something else has changed and enough time has passed."""
        state = (get_status(run).phase, reason_line(run))
        counts = "".join(dataset.model_dump_json() for dataset in get_status(run).datasets)
        due = self._printed_at is None or now - self._printed_at >= PLAIN_INTERVAL
        # A new phase is always printed. A reason may contain counts and then changes with each count.
        moved = self._state is None or state[0] != self._state[0]
        if moved or (due and (counts != self._counts or state != self._state)):
            self._state, self._counts, self._printed_at = state, counts, now
            self._console.print(progress_line(run, now), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Do nothing: lines stay."""


class LiveRunDisplay:
    """The run's tables, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, transient=True, auto_refresh=False)
        self._live.start()

    def update(self, run: EvalRun, now: datetime) -> None:
        """Redraw the tables."""
        self._live.update(Group(*status_tables(run, now)), refresh=True)

    def close(self) -> None:
        """Remove the tables, because the final state is printed next."""
        self._live.stop()


def make_run_display(console: Console) -> RunDisplay:
    """Return the display for this stdout."""
    return LiveRunDisplay(console) if console.is_terminal else PlainRunDisplay(console)
