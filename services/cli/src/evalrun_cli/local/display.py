"""Shows a run's progress: live bars on a terminal, plain lines elsewhere."""

from datetime import timedelta
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from evalrun.ledger.v1 import ledger_pb2
from evalrun_cli.clock import Clock

STATE_NAMES = {
    ledger_pb2.RUN_STATE_PREPARING: "preparing",
    ledger_pb2.RUN_STATE_GENERATING: "generating",
    ledger_pb2.RUN_STATE_JUDGING: "judging",
    ledger_pb2.RUN_STATE_SUCCEEDED: "succeeded",
    ledger_pb2.RUN_STATE_DEGRADED: "degraded",
    ledger_pb2.RUN_STATE_FAILED: "failed",
}

ENDED = (ledger_pb2.RUN_STATE_SUCCEEDED, ledger_pb2.RUN_STATE_DEGRADED, ledger_pb2.RUN_STATE_FAILED)

PLAIN_SECONDS = 5.0
"""Seconds between two plain lines of the same state, so that a log of a night stays readable."""


class Display(Protocol):
    """Shows a run's status repeatedly."""

    def update(self, status: ledger_pb2.GetStatusResponse) -> None:
        """Show the newest status."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...


def progress_line(status: ledger_pb2.GetStatusResponse, seconds: float) -> str:
    """Return one line: time, state, what of each data set is generated, judged, accepted and not judged, and what the
    run waits for.
    """
    parts = [STATE_NAMES.get(status.state, "starting")]
    for dataset in status.datasets:
        line = f"{dataset.name}: {dataset.generated}/{dataset.total} generated, {dataset.judged} judged"
        line += f", {dataset.accepted} accepted"
        parts.append(line + (f", {dataset.not_judged} NOT JUDGED" if dataset.not_judged else ""))
    if waits_for(status):
        parts.append(status.message)
    return f"[{seconds:7.1f} s] " + " | ".join(parts)


def waits_for(status: ledger_pb2.GetStatusResponse) -> str:
    """Return what the run waits for, or an empty text if it proceeds or has ended."""
    return "" if status.state in ENDED else status.message


class NewMessages:
    """Recognizes messages that differ from the previous one; what a run waits for comes and goes."""

    def __init__(self) -> None:
        self._said = ""

    def is_new(self, message: str) -> bool:
        """Return whether there is a message that differs from the previous one."""
        new = bool(message) and message != self._said
        self._said = message or self._said
        return new


class Warnings:
    """Prints each of a run's warnings once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def show(self, console: Console, status: ledger_pb2.GetStatusResponse) -> None:
        """Print those that are new."""
        for warning in status.warnings:
            if warning not in self._said:
                self._said.add(warning)
                console.print(f"warning: {warning}", style="yellow", markup=False, highlight=False, soft_wrap=True)


class PlainDisplay:
    """A line at each change of state and at whatever the run waits for, and every few seconds between."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._state: ledger_pb2.RunState.ValueType | None = None
        self._printed_at = 0.0
        self._news = NewMessages()
        self._warnings = Warnings()

    def update(self, status: ledger_pb2.GetStatusResponse) -> None:
        """Print a line where it is time for one."""
        self._warnings.show(self._console, status)
        same = status.state == self._state and not self._news.is_new(waits_for(status))
        now = self._clock()
        if same and now - self._printed_at < PLAIN_SECONDS:
            return
        self._state, self._printed_at = status.state, now
        self._console.print(progress_line(status, now), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Do nothing: lines stay."""


class LiveDisplay:
    """A bar for generation and one for judging, for each dataset; above them a line for what the run waits for."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._clock = clock
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TextColumn("{task.fields[time]}"),
            console=console,
        )
        self._bars: dict[str, tuple[TaskID, TaskID]] = {}
        self._news = NewMessages()
        self._warnings = Warnings()
        self._generating, self._rate = True, 0.0  # the rate stands still while the judge goes on
        self._progress.start()

    def update(self, status: ledger_pb2.GetStatusResponse) -> None:
        """Move the bars."""
        self._warnings.show(self._progress.console, status)
        if self._news.is_new(waits_for(status)):
            self._progress.console.print(status.message, markup=False, highlight=False, soft_wrap=True)
        if self._generating:
            self._rate = status.output_tokens / status.elapsed_seconds if status.elapsed_seconds else 0.0
            self._generating = not status.datasets or any(each.generated < each.total for each in status.datasets)
        for dataset in status.datasets:
            if dataset.name not in self._bars:
                self._bars[dataset.name] = (
                    self._progress.add_task(f"{dataset.name} generated", note="", time=""),
                    self._progress.add_task(f"{dataset.name} judged", note="", time=""),
                )
            generated, judged = self._bars[dataset.name]
            self._progress.update(
                generated, total=dataset.total, completed=dataset.generated, note=f"{self._rate:,.0f} tokens/s"
            )
            note = f"{dataset.accepted} accepted"
            note += f", [red]{dataset.not_judged} not judged[/red]" if dataset.not_judged else ""
            done = dataset.judged + dataset.not_judged
            shown = str(timedelta(seconds=int(self._clock())))
            self._progress.update(judged, total=dataset.total, completed=done, note=note, time=shown)

    def close(self) -> None:
        """Stop redrawing; the last state stays on the screen."""
        self._progress.stop()


def display_for(console: Console, clock: Clock) -> Display:
    """Return the display for this stdout."""
    return LiveDisplay(console, clock) if console.is_terminal else PlainDisplay(console, clock)
