"""What a person sees while a run goes on: live bars on a terminal, plain lines everywhere else."""

from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from evalrun.ledger.v1 import ledger_pb2

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
"""Seconds of the run between two plain lines of the same state: a log stays readable over a night."""


class Display(Protocol):
    """Shows a run's status again and again."""

    def update(self, status: ledger_pb2.GetStatusResponse) -> None:
        """Show the newest status."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...


def progress_line(status: ledger_pb2.GetStatusResponse) -> str:
    """Give one line: state, for each dataset how many are generated, judged, accepted and not judged, and what the run
    waits for.
    """
    parts = [STATE_NAMES.get(status.state, "starting")]
    for dataset in status.datasets:
        line = f"{dataset.name}: {dataset.generated}/{dataset.total} generated, {dataset.judged} judged"
        line += f", {dataset.accepted} accepted"
        parts.append(line + (f", {dataset.not_judged} NOT JUDGED" if dataset.not_judged else ""))
    if waits_for(status):
        parts.append(status.message)
    return f"[{status.elapsed_seconds:7.1f} s] " + " | ".join(parts)


def waits_for(status: ledger_pb2.GetStatusResponse) -> str:
    """Give what the run waits for; empty where it goes on, or has ended: the command itself says how."""
    return "" if status.state in ENDED else status.message


class News:
    """Tells what a run waits for (room on the disk, a judge, ...) from what was said already: it comes and goes."""

    def __init__(self) -> None:
        self._said = ""

    def is_new(self, message: str) -> bool:
        """Say whether there is a message and it is not the last one that was."""
        new = message not in ("", self._said)
        self._said = message or self._said
        return new


class PlainDisplay:
    """A line at each change of state and at whatever the run waits for, and every few seconds between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._state: ledger_pb2.RunState.ValueType | None = None
        self._printed_at = 0.0
        self._news = News()

    def update(self, status: ledger_pb2.GetStatusResponse) -> None:
        """Print a line where it is time for one."""
        same = status.state == self._state and not self._news.is_new(waits_for(status))
        if same and status.elapsed_seconds - self._printed_at < PLAIN_SECONDS:
            return
        self._state, self._printed_at = status.state, status.elapsed_seconds
        self._console.print(progress_line(status), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Do nothing: lines stay."""


class LiveDisplay:
    """A bar for generation and one for judging, for each dataset; above them a line for what the run waits for."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._bars: dict[str, tuple[TaskID, TaskID]] = {}
        self._news = News()
        self._generating, self._rate = True, 0.0  # the rate stands still while the judge goes on
        self._progress.start()

    def update(self, status: ledger_pb2.GetStatusResponse) -> None:
        """Move the bars."""
        if self._news.is_new(waits_for(status)):
            self._progress.console.print(status.message, markup=False, highlight=False, soft_wrap=True)
        if self._generating:
            self._rate = status.output_tokens / status.elapsed_seconds if status.elapsed_seconds else 0.0
            self._generating = not status.datasets or any(each.generated < each.total for each in status.datasets)
        for dataset in status.datasets:
            if dataset.name not in self._bars:
                self._bars[dataset.name] = (
                    self._progress.add_task(f"{dataset.name} generated", note=""),
                    self._progress.add_task(f"{dataset.name} judged", note=""),
                )
            generated, judged = self._bars[dataset.name]
            self._progress.update(
                generated, total=dataset.total, completed=dataset.generated, note=f"{self._rate:,.0f} tokens/s"
            )
            note = f"{dataset.accepted} accepted"
            note += f", [red]{dataset.not_judged} not judged[/red]" if dataset.not_judged else ""
            done = dataset.judged + dataset.not_judged
            self._progress.update(judged, total=dataset.total, completed=done, note=note)

    def close(self) -> None:
        """Stop redrawing; the last state stays on the screen."""
        self._progress.stop()


def display_for(console: Console) -> Display:
    """Choose by what stdout is."""
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)
