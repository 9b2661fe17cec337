"""One run as the page reads it: its description, and the files that the description names."""

import logging
import re
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Executor
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, cast

from evalrun_cli.local.workspace import Workspace
from evalrun_cli.viewer.live_index import LedgerSource, LiveIndex
from evalrun_cli.viewer.prompt_file import PROMPT_INDEX, PROMPTS, write_prompts
from evalrun_cli.viewer.run_catalog import check_own_files, open_inside
from evalrun_data.store_problems import name_read_errors
from evalrun_results.outputs.destination import SUMMARY, resolve_destination
from evalrun_results.sample_index.stored_index import INDEX_DIRECTORY, LINES, TEXTS, IndexState, build_index
from evalrun_results.sample_rows.fields import FIELDS
from evalrun_results.samples import JsonObject
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

FORMAT: Final = 1
HEADLINE_SECONDS: Final = 600.0
"""Seconds for which a list keeps its entry of a run at a URL: a page asks every second, and an entry takes three
requests to the bucket."""
CHANGE_SECONDS: Final = 30.0
"""Minimum seconds between two checks whether the outputs at a URL are still the indexed outputs."""
SEGMENT_FILE: Final = re.compile(r"(?:\d{5}|live-\d{6})\.(?:columns|words)")
_SHOWN_OF_INFO: Final = ("run", "lineage", "started_at", "ended_at", "versions", "labels", "seeds", "partial")


class ShownRun(Protocol):
    """A run as the server shows it."""

    run_id: str
    place: str

    @property
    def is_live(self) -> bool:
        """Whether the run has not ended."""

    def headline(self) -> JsonObject:
        """Return the run's entry in a list of runs. Raises BadInputError if it cannot be read."""

    def description(self) -> JsonObject:
        """Return the content of `run.json`. Raises BadInputError if the run cannot be read."""

    def open_file(self, name: str) -> BinaryIO | None:
        """Open a file that the description names; None for any other file."""


class RunView:
    """A run in a directory or at a URL. It may end, or be resumed, while it is shown.

    Args:
        run_id: id of the run in its addresses.
        place: directory or URL.
        scratch: directory for files that are not kept in the run's directory.
        builder: executor that builds indexes, one at a time.
        clock: seconds, monotonic.
        sources_in: a directory: the prompts of datasets outside it are not shown. None: all prompts are shown.
    """

    def __init__(
        self,
        run_id: str,
        place: str,
        scratch: Path,
        builder: Executor,
        clock: Callable[[], float],
        *,
        sources_in: Path | None = None,
    ) -> None:
        self.run_id = run_id
        self.place = place
        self._scratch = scratch / run_id
        self._builder = builder
        self._clock = clock
        self._sources_in = sources_in
        self._lock = threading.Lock()
        self._live: LiveIndex | None = None
        self._stored: _StoredIndex | None = None
        self._versioned_at = 0.0
        self._prompts_asked = False
        self._home = Path(place).resolve()
        self._headline: tuple[float, JsonObject] | None = None
        """Time and content of the last entry in a list, for a run at a URL."""

    def close(self) -> None:
        """Stop building the index. A later view continues it."""
        if self._stored is not None:
            self._stored.stop()

    @property
    def is_live(self) -> bool:
        """Whether the run has not ended."""
        return "://" not in self.place and not Workspace(Path(self.place)).summary.is_file()

    def headline(self) -> JsonObject:
        """Return the run's entry in a list of runs. Raises BadInputError if it cannot be read."""
        if self._headline is not None and self._clock() - self._headline[0] < HEADLINE_SECONDS:
            return self._headline[1]
        content = self._read_headline()
        if "://" in self.place:
            self._headline = (self._clock(), content)
        return content

    def _read_headline(self) -> JsonObject:
        content: JsonObject = {"id": self.run_id, "place": self.place, "live": self.is_live}
        if self.is_live:
            return {**content, "state": "Running"}
        run = self._open_run()
        datasets = run.summary["datasets"]
        figures = {
            name: {"coverage": entry.get("coverage"), "metrics": entry.get("metrics"), "counts": entry.get("counts")}
            for name, entry in (datasets.items() if isinstance(datasets, dict) else ())
            if isinstance(entry, dict)
        }
        return {
            **content, "state": run.summary.get("state"), "datasets": cast(JsonObject, figures),
            "info": {name: run.run_info[name] for name in _SHOWN_OF_INFO if name in run.run_info},
            "model": _find_model(run.run_info),
        }  # fmt: skip

    def description(self) -> JsonObject:
        """Return the content of `run.json`, with the rows that are indexed by now. Starts to index an ended run.

        Raises:
            BadInputError: the run cannot be read.
        """
        with self._lock:
            content = self._describe_live() if self.is_live else self._describe_stored()
            self._ask_prompts()
            return content

    def export_description(self) -> JsonObject:
        """Return the content of `run.json` of an ended run, after the whole index was built.

        Raises:
            BadInputError: the run cannot be read.
        """
        run, directory = self._open_run(), self._index_directory()
        state = build_index(run, directory)
        self._write_prompts(directory)
        return self._describe(run, state)

    def _open_run(self) -> StoredRun:
        if "://" not in self.place:
            check_own_files(Path(self.place))
        return StoredRun.open(self.place)

    def _describe_live(self) -> JsonObject:
        self._stored = None
        if self._live is None:
            check_own_files(Path(self.place))
            ledger = Workspace(Path(self.place).resolve()).ledger
            self._live = LiveIndex(LedgerSource(ledger), self._scratch / "live", self._clock)
        segments, superseded = self._live.refresh()
        return {
            **self._collect_shared_facts(), "state": "Running", "complete": False, "segments": cast(Any, segments),
            "superseded": cast(Any, superseded),
        }  # fmt: skip

    def _describe_stored(self) -> JsonObject:
        self._live = None
        if self._stored is None or self._has_changed(self._stored):
            self.close()
            self._stored = None
            # The version is taken before the outputs are read, so that later changes are noticed.
            version = self._version()
            self._stored = _StoredIndex(self._open_run(), version, self._index_directory(), self._builder)
            self._prompts_asked, self._headline = False, None
        self._stored.check()
        return self._describe(self._stored.run, self._stored.state)

    def _has_changed(self, stored: "_StoredIndex") -> bool:
        if "://" in self.place and self._clock() - self._versioned_at < CHANGE_SECONDS:
            return False
        try:
            return self._version() != stored.version
        # The store does not reply now. The index stays.
        except BadInputError as error:
            logger.warning("%s", error)
            return False

    def _version(self) -> str:
        """Return an identity of these outputs, which changes if other outputs replace them."""
        self._versioned_at = self._clock()
        files, path = resolve_destination(self.place)
        with name_read_errors(self.place):
            files.invalidate_cache()
            return str(files.info(f"{path.rstrip('/')}/{SUMMARY}"))

    def _describe(self, run: StoredRun, state: IndexState) -> JsonObject:
        return {
            **self._collect_shared_facts(), "state": run.summary.get("state"), "complete": state.is_complete,
            "segments": cast(Any, state.segments), "superseded": [], "summary": run.summary,
            "info": _shown_info(run.run_info),
        }  # fmt: skip

    def _collect_shared_facts(self) -> JsonObject:
        return collect_shared_facts(self.run_id, self.place, is_live=self.is_live, has_prompts=self._has_prompts())

    def _has_prompts(self) -> bool:
        index = self.open_file(PROMPT_INDEX)
        if index is None:
            return False
        index.close()
        return True

    def open_file(self, name: str) -> BinaryIO | None:
        """Open a file that the description names; None for any other file."""
        if name == LINES and "://" not in self.place:
            return open_inside(self._home / LINES, self._home)
        if name in (PROMPTS, PROMPT_INDEX) or name == TEXTS or SEGMENT_FILE.fullmatch(name):
            for directory in (self._scratch / "live", self._index_directory()):
                own = self._home if directory.is_relative_to(self._home) else self._scratch.resolve()
                if (opened := open_inside(directory / name, own)) is not None:
                    return opened
        return None

    def _index_directory(self) -> Path:
        if "://" in self.place:
            return self._scratch / "index"
        directory = Path(self.place) / INDEX_DIRECTORY
        # A run must not choose by a link where the index is written, or which files are shown.
        if directory.is_symlink():
            return self._scratch / "index"
        try:
            directory.mkdir(exist_ok=True)
            with tempfile.TemporaryFile(dir=directory):
                return directory
        # The directory is read-only.
        except OSError:
            return self._scratch / "index"

    def _ask_prompts(self) -> None:
        if not self._prompts_asked and "://" not in self.place:
            self._prompts_asked = True
            self._builder.submit(self._write_prompts, self._index_directory())

    def _write_prompts(self, directory: Path) -> None:
        if "://" in self.place:
            return
        try:
            directory.mkdir(parents=True, exist_ok=True)
            write_prompts(Path(self.place).resolve(), directory, self._sources_in)
        except (BadInputError, OSError) as error:
            logger.warning("%s: the page shows no prompts: %s", self.place, error)


def collect_shared_facts(run_id: str, place: str, *, is_live: bool, has_prompts: bool) -> JsonObject:
    """Return the facts that every run's description contains."""
    return {
        "format": FORMAT, "id": run_id, "place": place, "live": is_live, "prompts": has_prompts,
        "fields": [{"name": f.name, "kind": str(f.kind), "says": f.says, "small": f.is_small} for f in FIELDS],
    }  # fmt: skip


class _StoredIndex:
    """The index of an ended run, as far as it is built."""

    def __init__(self, run: StoredRun, version: str, directory: Path, builder: Executor) -> None:
        self.run = run
        self.version = version
        self.state = IndexState([], is_complete=False)
        self._stopped = threading.Event()
        self._building = builder.submit(build_index, run, directory, self._report)

    def check(self) -> None:
        """Raise the error that ended the building early, if any, such as BadInputError if the run cannot be read."""
        if self._building.done():
            self._building.result()

    def stop(self) -> None:
        """End the building after the segment that is being written."""
        self._stopped.set()

    def _report(self, state: IndexState) -> None:
        self.state = state
        if self._stopped.is_set():
            raise CancelledError


def _find_model(info: Mapping[str, Any]) -> str:
    spec = info.get("spec")
    model = spec.get("model") if isinstance(spec, dict) else None
    path = model.get("path") if isinstance(model, dict) else None
    return path if isinstance(path, str) else ""


def _shown_info(info: Mapping[str, Any]) -> JsonObject:
    shown = {name: info[name] for name in _SHOWN_OF_INFO if name in info}
    return {**shown, "model": _find_model(info)}
