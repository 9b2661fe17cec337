"""Shows a run's progress: live bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from evalrun_cli.clock import Clock
from evalrun_cli.local.pace import OpenRequests, Pace, PaceMeter, duration
from evalrun_proto.ledger.v1 import ledger_pb2

STATE_NAMES = {
    ledger_pb2.RUN_STATE_PREPARING: "preparing",
    ledger_pb2.RUN_STATE_GENERATING: "generating",
    ledger_pb2.RUN_STATE_JUDGING: "judging",
    ledger_pb2.RUN_STATE_SUCCEEDED: "succeeded",
    ledger_pb2.RUN_STATE_DEGRADED: "degraded",
    ledger_pb2.RUN_STATE_FAILED: "failed",
}

ENDED = (ledger_pb2.RUN_STATE_SUCCEEDED, ledger_pb2.RUN_STATE_DEGRADED, ledger_pb2.RUN_STATE_FAILED)

PLAIN_SECONDS = 30.0
"""Seconds between two plain lines of the same state, so that a log of a night stays readable."""
LONG_WAIT_SECONDS = 30.0
"""Age of the oldest request from which a plain line is printed, and again at each doubling."""


class Display(Protocol):
    """Shows a run's status repeatedly."""

    def update(self, status: ledger_pb2.GetStatusResponse) -> None:
        """Show the newest status."""
        ...

    def say(self, line: str) -> None:
        """Show a line at once."""
        ...

    def close(self) -> None:
        """Restore the terminal."""
        ...


def progress_line(status: ledger_pb2.GetStatusResponse, seconds: float, pace: Pace, requests: OpenRequests) -> str:
    """Return a line with time, state, counts and score of each dataset, open requests, pace, and the run's obstacle.

    Args:
        status: the newest status.
        seconds: seconds since the command began.
        pace: pace of the run.
        requests: the open requests.
    """
    parts = [STATE_NAMES.get(status.state, "starting")]
    for dataset in status.datasets:
        line = f"{dataset.name}: {dataset.generated}/{dataset.total} generated, {dataset.judged} judged"
        line += f", {render_accepted(dataset)}"
        parts.append(line + (f", {dataset.not_judged} NOT JUDGED" if dataset.not_judged else ""))
    if status.state not in ENDED:
        parts += [part for part in (requests.text(), pace_text(pace)) if part]
    if waits_for(status):
        parts.append(status.message)
    return f"[{seconds:7.1f} s] " + " | ".join(parts)


def render_accepted(dataset: ledger_pb2.DatasetStatus) -> str:
    """Return the number of accepted completions, with their share of the judged completions."""
    share = f" ({100 * dataset.accepted / dataset.judged:.1f} %)" if dataset.judged else ""
    return f"{dataset.accepted} accepted{share}"


def pace_text(pace: Pace) -> str:
    """Return tokens per second and the estimated rest; empty if neither is known."""
    parts = [f"{pace.tokens_per_second:,.0f} tokens/s"] if pace.tokens_per_second >= 1 else []
    parts += [f"about {duration(pace.seconds_left)} left"] if pace.seconds_left is not None else []
    return ", ".join(parts)


def waits_for(status: ledger_pb2.GetStatusResponse) -> str:
    """Describe what the run waits for; empty if it proceeds or has ended."""
    return "" if status.state in ENDED else status.message


class NewMessages:
    """Recognizes messages that differ from the previous message."""

    def __init__(self) -> None:
        self._said = ""

    def is_new(self, message: str) -> bool:
        """Return whether the message differs from the previous message."""
        new = bool(message) and message != self._said
        self._said = message or self._said
        return new


class Warnings:
    """Prints each of a run's warnings once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def show(self, console: Console, status: ledger_pb2.GetStatusResponse) -> None:
        """Print the new warnings."""
        for warning in status.warnings:
            if warning not in self._said:
                self._said.add(warning)
                console.print(f"warning: {warning}", style="yellow", markup=False, highlight=False, soft_wrap=True)


class PlainDisplay:
    """Prints a line at each change of state or obstacle; between them, if something has changed."""

    def __init__(self, console: Console, clock: Clock, unix_clock: Callable[[], float] = time.time) -> None:
        self._console = console
        self._clock = clock
        self._unix_clock = unix_clock
        self._state: ledger_pb2.RunState.ValueType | None = None
        self._facts: object = None
        self._printed_at = 0.0
        self._pace = PaceMeter()
        self._news = NewMessages()
        self._warnings = Warnings()

    def update(self, status: ledger_pb2.GetStatusResponse) -> None:
        """Print a line if the state or the obstacle is new, or if something has changed and enough time has passed."""
        self._warnings.show(self._console, status)
        same = status.state == self._state and not self._news.is_new(waits_for(status))
        now = self._clock()
        pace, requests = self._pace.read(status, now), OpenRequests.from_status(status, self._unix_clock())
        facts = _facts(status, requests)
        if same and (facts == self._facts or now - self._printed_at < PLAIN_SECONDS):
            return
        self._state, self._facts, self._printed_at = status.state, facts, now
        self.say(progress_line(status, now, pace, requests))

    def say(self, line: str) -> None:
        """Print a line."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Do nothing: lines stay."""


def _facts(status: ledger_pb2.GetStatusResponse, requests: OpenRequests) -> object:
    """Return the facts whose change makes a line worth printing."""
    long_waits = int(requests.oldest_seconds // LONG_WAIT_SECONDS).bit_length()
    counts = [(each.generated, each.judged, each.accepted, each.not_judged) for each in status.datasets]
    return counts, requests.count, long_waits


class LiveDisplay:
    """Shows a bar for generation and a bar for judging per dataset, and above them the run's obstacle."""

    def __init__(self, console: Console, clock: Clock, unix_clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._unix_clock = unix_clock
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
        self._pace = PaceMeter()
        self._progress.start()

    def update(self, status: ledger_pb2.GetStatusResponse) -> None:
        """Move the bars."""
        self._warnings.show(self._progress.console, status)
        if self._news.is_new(waits_for(status)):
            self._progress.console.print(status.message, markup=False, highlight=False, soft_wrap=True)
        now = self._clock()
        pace, requests = self._pace.read(status, now), OpenRequests.from_status(status, self._unix_clock())
        rest = "" if pace.seconds_left is None else f", about {duration(pace.seconds_left)} left"
        for dataset in status.datasets:
            if dataset.name not in self._bars:
                self._bars[dataset.name] = (
                    self._progress.add_task(f"{dataset.name} generated", note="", time=""),
                    self._progress.add_task(f"{dataset.name} judged", note="", time=""),
                )
            generated, judged = self._bars[dataset.name]
            # A single queue serves all datasets, so its requests stand beside the first dataset that waits for
            # completions.
            waits = dataset.generated < dataset.total
            parts = [requests.text(), f"{pace.tokens_per_second:,.0f} tokens/s"] if waits else []
            asked, requests = ", ".join(part for part in parts if part), OpenRequests() if waits else requests
            self._progress.update(generated, total=dataset.total, completed=dataset.generated, note=asked)
            note = render_accepted(dataset)
            note += f", [red]{dataset.not_judged} not judged[/red]" if dataset.not_judged else ""
            done = dataset.judged + dataset.not_judged
            shown = f"{timedelta(seconds=int(now))}{rest if done < dataset.total else ''}"
            self._progress.update(judged, total=dataset.total, completed=done, note=note, time=shown)

    def say(self, line: str) -> None:
        """Print a line above the bars."""
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Stop redrawing; the last state stays on the screen."""
        self._progress.stop()


def make_display(console: Console, clock: Clock) -> Display:
    """Return the display for this console."""
    return LiveDisplay(console, clock) if console.is_terminal else PlainDisplay(console, clock)
