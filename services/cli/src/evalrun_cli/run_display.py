"""What a person sees while a run of a cluster goes on: its tables, redrawn; plain lines where stdout is no terminal."""

from datetime import datetime, timedelta
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live

from evalrun_cli.run_view import progress_line, reason_line, status_of, status_tables
from evalrun_operator.api.v1alpha1 import EvalRun

PLAIN_INTERVAL = timedelta(seconds=5)
"""Between two lines of the same state; a log stays readable over a night."""


class RunDisplay(Protocol):
    """Shows a run again and again."""

    def update(self, run: EvalRun, now: datetime) -> None:
        """Show its newest state."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...


class PlainRunDisplay:
    """A line where phase or reason changes, and every few seconds where the counts do."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._state: tuple[str | None, str] | None = None
        self._counts = ""
        self._printed_at: datetime | None = None

    def update(self, run: EvalRun, now: datetime) -> None:
        """Print a line where it is time for one."""
        state = (status_of(run).phase, reason_line(run))
        counts = "".join(dataset.model_dump_json() for dataset in status_of(run).datasets)
        due = self._printed_at is None or now - self._printed_at >= PLAIN_INTERVAL
        # A phase is always news; a reason that holds counts changes with each of them.
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
        """Draw the tables anew."""
        self._live.update(Group(*status_tables(run, now)), refresh=True)

    def close(self) -> None:
        """Take them away: what follows shows the last state."""
        self._live.stop()


def run_display_for(console: Console) -> RunDisplay:
    """Choose by what stdout is."""
    return LiveRunDisplay(console) if console.is_terminal else PlainRunDisplay(console)
