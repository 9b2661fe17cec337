"""The runs in some directories or at URLs, searched again when they are asked for, so that new runs appear."""

import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from evalrun_cli.viewer.run_catalog import find_runs, free_id
from evalrun_cli.viewer.run_view import RunView, ShownRun
from evalrun_results.samples import JsonObject
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

DIRECTORY_SECONDS: Final = 1.0
"""Minimum seconds between two searches of a directory."""
URL_SECONDS: Final = 30.0
"""Minimum seconds between two searches of a URL, each of which takes several requests."""


class UnreadablePlace:
    """A directory, namespace or EvalRun that cannot be read now. It is listed among the runs, with the reason."""

    is_live = False

    def __init__(self, run_id: str, place: str, problem: str) -> None:
        self.run_id = run_id
        self.place = place
        self.problem = problem

    def headline(self) -> JsonObject:
        """Raise BadInputError."""
        raise BadInputError(self.problem)

    def description(self) -> JsonObject:
        """Raise BadInputError."""
        raise BadInputError(self.problem)

    def open_file(self, name: str) -> BinaryIO | None:
        """Return None: there is no file."""
        return None


class _Place:
    """A directory, or a URL. A URL is searched in the background, because a bucket may take seconds to reply."""

    def __init__(self, place: str, scanner: Executor, clock: Callable[[], float]) -> None:
        self.place = place
        self.runs: list[str] = []
        self.problem = ""
        """Reason why the runs may be outdated; empty if they are not."""
        self._scanner = scanner
        self._clock = clock
        self._is_url = "://" in place
        self._looked_at = float("-inf")
        self._looking: Future[list[str]] | None = None
        self._is_known = False

    def look(self, *, at_once: bool) -> None:
        """Search the place if that is due, or `at_once`. Waits only for the first search."""
        pause = URL_SECONDS if self._is_url else DIRECTORY_SECONDS
        is_due = at_once or self._clock() - self._looked_at >= pause
        if self._looking is None and is_due:
            self._looked_at = self._clock()
            if not self._is_url:
                self._take(lambda: find_runs(self.place))
                return
            self._looking = self._scanner.submit(find_runs, self.place, tuple(self.runs))
        if self._looking is not None and (self._looking.done() or not self._is_known):
            looking, self._looking = self._looking, None
            self._take(looking.result)

    def _take(self, found: Callable[[], list[str]]) -> None:
        self._is_known = True
        try:
            self.runs, problem = found(), ""
        except BadInputError as error:
            problem = str(error)
        if problem and problem != self.problem:
            logger.warning("%s", problem)
        self.problem = problem


class ShownRuns:
    """The runs in some places. Called in several threads.

    Args:
        places: directories or URLs.
        scratch: directory for files that are not kept in the runs' directories.
        builder: executor that builds indexes.
        scanner: executor that searches URLs.
        clock: seconds, monotonic.
        is_shared: whether others read the runs; then the prompts of datasets outside the run's place are not shown.
    """

    def __init__(
        self,
        places: Sequence[str],
        scratch: Path,
        builder: Executor,
        scanner: Executor,
        clock: Callable[[], float],
        *,
        is_shared: bool = False,
    ) -> None:
        self.scratch = scratch
        self.builder = builder
        self._places = [_Place(place, scanner, clock) for place in places]
        self._clock = clock
        self._is_shared = is_shared
        self._views: dict[str, RunView] = {}
        self._ids: dict[str, str] = {}
        """Id of every run seen so far: another run of the same name must not take over its addresses."""
        self._lock = threading.Lock()
        self._look_at_once = False

    def __call__(self) -> Mapping[str, ShownRun]:
        """Return the runs by id, and the places that cannot be read. A run that is gone is left out."""
        with self._lock:
            self._look()
            shown: dict[str, ShownRun] = {**self._views}
            for place in self._places:
                if place.problem:
                    run_id = free_id(place.place, shown)
                    shown[run_id] = UnreadablePlace(run_id, place.place, place.problem)
            return shown

    def require_runs(self) -> Mapping[str, RunView]:
        """Return the runs by id. Raises BadInputError if a directory cannot be read, or none contains a run."""
        with self._lock:
            self._look()
            for place in self._places:
                if place.problem:
                    raise BadInputError(place.problem)
            if not self._views:
                named = ", ".join(place.place for place in self._places)
                raise BadInputError(f"{named}: no run here or in subdirectories: name a run's directory")
            return dict(self._views)

    def look_at_once(self) -> None:
        """Search every place at the next call, because a run has ended and its outputs may be there."""
        self._look_at_once = True

    def _look(self) -> None:
        at_once, self._look_at_once = self._look_at_once, False
        for place in self._places:
            place.look(at_once=at_once)
        kept = {view.place: view for view in self._views.values()}
        self._views = {}
        for run, source in ((run, place.place) for place in self._places for run in place.runs):
            run_id = self._ids.setdefault(run, free_id(run, self._ids.values()))
            self._views[run_id] = kept.get(run) or RunView(
                run_id, run, self.scratch, self.builder, self._clock,
                sources_in=Path(source) if self._is_shared else None,
            )  # fmt: skip


def add_running_runs(stored: Mapping[str, ShownRun], running: Mapping[str, ShownRun]) -> dict[str, ShownRun]:
    """Return the stored runs under their own ids, and the running runs, each under a free id."""
    shown = dict(stored)
    for name, view in running.items():
        view.run_id = free_id(name, shown)
        shown[view.run_id] = view
    return shown


@contextmanager
def shown_runs(places: Sequence[str], *, is_shared: bool = False) -> Iterator[ShownRuns]:
    """Yield the runs in these directories; temporary files are removed at the end."""
    with tempfile.TemporaryDirectory(prefix="evalrun-view-") as scratch:
        builder = ThreadPoolExecutor(1, thread_name_prefix="index")
        scanner = ThreadPoolExecutor(1, thread_name_prefix="places")
        try:
            yield ShownRuns(places, Path(scratch), builder, scanner, time.monotonic, is_shared=is_shared)
        finally:
            scanner.shutdown(wait=False, cancel_futures=True)
            builder.shutdown(cancel_futures=True)
