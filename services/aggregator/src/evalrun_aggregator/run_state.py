"""The state of a run in progress. Other parts change it and wait for its signals."""

import asyncio
import logging
from typing import Protocol

from evalrun_aggregator.clocks import Clocks
from evalrun_aggregator.ledger.entries import StoredCompletion
from evalrun_aggregator.ledger.item_states import ItemState
from evalrun_aggregator.progress import Progress
from evalrun_aggregator.start.ledger_start import OpenedRun

logger = logging.getLogger(__name__)


class Events(Protocol):
    """Interface to the metrics, which count stored completions and verdicts."""

    def record_completion(self, dataset: str, completion: StoredCompletion) -> None:
        """Record a completion that was stored."""
        ...

    def record_progress(self, now: float) -> None:
        """Record that a completion or verdict was stored; Unix seconds."""
        ...


class RunState:
    """The state of a run.

    Args:
        name: the run's name.
        opened: contents of the ledger at the start.
        events: the metrics.
        clocks: the sources of time.
    """

    def __init__(self, name: str, opened: OpenedRun, events: Events, clocks: Clocks) -> None:
        self.name = name
        self.item_states = opened.item_states
        self.started_at = opened.started_at
        """First start; Unix seconds."""
        self.work_time = opened.work_time
        """Time during which the run has been at work."""
        self.output_tokens = opened.output_tokens
        """Number of tokens generated, as far as servers counted them."""
        self.ended = opened.ended
        """Facts about the end; None before the end."""
        self.ended_early = opened.ended_early
        """Reason why the run was ended before everything was decided; empty if it was not."""
        self.cut_short = opened.cut_short
        """Reason why a run that is judged again had ended early; empty if it had not."""
        self.is_paused = opened.is_paused
        """Whether nothing new is handed out or sent to the judge."""
        self.max_in_flight = opened.max_in_flight
        """Maximum number of requests that a worker may have in flight; None: as many as its endpoints take."""
        self.is_stopped_by_user = opened.is_stopped_by_user
        """Whether a person ended the run early."""
        self.failure: str | None = None
        """Reason why the run cannot continue."""
        self.is_writing = False
        """Whether the outputs are being written."""
        self.has_started = False
        """Whether a worker has asked for work."""
        self.clocks = clocks
        self.changed = asyncio.Event()
        """Set whenever the run may have come nearer to its end."""
        self.judged = asyncio.Event()
        """Set whenever verdicts were stored."""
        self._events = events

    @property
    def progress(self) -> Progress:
        """Facts that the run's state is derived from."""
        item_states = self.item_states
        out = item_states.count(
            ItemState.PENDING, ItemState.LEASED, ItemState.ABSENT, ItemState.CANCELLED, ItemState.MISSING
        )
        generated = item_states.items.count - out
        return Progress(
            started=self.has_started or generated > 0,
            remaining=item_states.remaining + item_states.may_follow,
            unjudged=item_states.unjudged,
            not_judged=item_states.count(ItemState.NOT_JUDGED, ItemState.MISSING),
            outputs_written=self.ended is not None,
            failure=self.failure,
            ended_early=bool(self.ended_early),
        )

    @property
    def has_answers(self) -> bool:
        """Whether there is any completion."""
        item_states = self.item_states
        return item_states.remaining < item_states.items.count - item_states.count(ItemState.ABSENT)

    @property
    def remaining(self) -> int:
        """Number of items that workers may still get, including leased items and later turns."""
        return 0 if self.ended_early else self.item_states.remaining + self.item_states.may_follow

    @property
    def allowed_in_flight(self) -> int | None:
        """Maximum number of requests that a worker may have in flight now; None: as many as its endpoints take."""
        return 0 if self.is_paused else self.max_in_flight

    @property
    def stopped_early(self) -> str:
        """The progress of the run when its gates decided, for people; empty if they did not stop it."""
        parts = [
            f"{each.name}: {each.cancelled} of {each.total + each.cancelled} answers were not needed"
            for each in self.item_states.datasets
            if each.cancelled
        ]
        return "; ".join(parts)

    def measure_elapsed_seconds(self) -> float:
        """Return the seconds from the first start to now, or to the end."""
        end = self.clocks.now() if self.ended is None else self.ended.finished_at
        return max(0.0, end - self.started_at)

    def count_completion(self, index: int, completion: StoredCompletion) -> None:
        """Count an item's completion that was stored."""
        self.output_tokens += completion.output_tokens or 0
        self.work_time.record_completion(completion.started_at, completion.generation_seconds)
        self._events.record_completion(self.item_states.items.get_key(index).dataset, completion)

    def note_completions(self) -> None:
        """Announce that completions were stored and counted."""
        self._events.record_progress(self.clocks.now())
        self.changed.set()

    def note_verdicts(self) -> None:
        """Announce that verdicts were stored and counted."""
        now = self.clocks.now()
        self.work_time.record_verdict(now)
        self._events.record_progress(now)
        self.changed.set()
        self.judged.set()

    def fail(self, reason: str) -> None:
        """Record that the run cannot continue; the first reason stays."""
        logger.error("the run cannot go on: %s", reason)
        self.failure = self.failure or reason
