"""The ledger's SQLite connections: one writer and any number of readers. Blocking; `ledger` calls them in threads.

The writer runs with journal_mode=WAL and synchronous=FULL: SQLite syncs the WAL at each commit, so what was committed
outlives a power cut. (NORMAL syncs at checkpoints only: an acknowledged batch could be gone after a power cut.)
`benchmarks/ledger_growth.py` measures what that costs; group commit makes one sync serve many batches.
"""

import json
import sqlite3
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalrun_aggregator.ledger.entries import (
    CompletionTally,
    Exchange,
    Recorded,
    StoredCompletion,
    StoredEvent,
    StoredReplica,
    StoredSample,
    StoredVerdict,
)
from evalrun_aggregator.ledger.schema import drop_earlier_verdicts, prepare_schema, set_verdicts_aside
from evalrun_runtime.exits import BadInputError

CACHE_KIB = 16 * 1024
CHECKPOINT_PAGES = 4000
"""16 MB of WAL between checkpoints; the default of 1000 pages moves a hot page four times as often."""
WAL_LIMIT_BYTES = 64 * 1024 * 1024
OPERATIONS_PER_CHECK = 10_000
"""Number of SQLite's operations between two checks of the clock."""

INSERT_COMPLETION = "INSERT OR IGNORE INTO completions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_TEXT = "INSERT OR IGNORE INTO texts VALUES (?, ?)"
INSERT_LOG_PROBS = "INSERT OR IGNORE INTO log_probs VALUES (?, ?)"
INSERT_VERDICT = """INSERT INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (row) DO UPDATE SET
    final_status = excluded.final_status, judged = excluded.judged, accepted = excluded.accepted,
    recorded_at = excluded.recorded_at, attempts = excluded.attempts, reason = excluded.reason WHERE judged = 0"""
INSERT_FEEDBACK = "INSERT OR IGNORE INTO feedbacks VALUES (?, ?)"
INSERT_VERDICT_BYTES = "INSERT OR REPLACE INTO verdict_bytes VALUES (?, ?)"

SELECT_COMPLETION = """SELECT c.row, t.text, c.finish_reason, c.prompt_tokens, c.output_tokens, c.generation_seconds,
    c.started_at, c.replica, c.model, c.attempts, c.mode, c.language"""
SELECT_STORED = f"""{SELECT_COMPLETION}, b.verdict, v.final_status, v.judged, v.accepted,
    v.recorded_at, v.attempts, v.reason, coalesce(f.text, '')
    FROM completions c JOIN texts t ON t.row = c.row
    LEFT JOIN verdicts v ON v.row = c.row LEFT JOIN verdict_bytes b ON b.row = c.row
    LEFT JOIN feedbacks f ON f.row = c.row"""
SELECT_SAMPLES = f"{SELECT_STORED} WHERE c.row >= ? AND c.row < ? ORDER BY c.row"
HAS_LOG_PROBS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'log_probs'"
SELECT_LOG_PROBS = "SELECT packed FROM log_probs WHERE row = ?"
SELECT_RECORDED = """SELECT row, judged, recorded_at FROM verdicts WHERE recorded_at >= ?
    ORDER BY recorded_at, row LIMIT ?"""
LAST_ROW = (1 << 63) - 1


class LedgerWriter:
    """The only writing connection. All other methods run between `begin` and `commit` or `rollback`."""

    def __init__(self, path: Path, *, max_pages: int | None = None) -> None:
        """Open or create the file.

        Args:
            path: the file; its directory exists.
            max_pages: pages of 4096 bytes beyond which the file counts as full.

        Raises:
            BadInputError: the file is no ledger, or a ledger of a newer version.
            sqlite3.Error: the disk or the file failed.
        """
        self._connection = connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise BadInputError(f"ledger {path}: SQLite cannot use its WAL there (journal mode is {mode})")
            for pragma in (
                "synchronous = FULL", f"cache_size = -{CACHE_KIB}", f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
                f"journal_size_limit = {WAL_LIMIT_BYTES}", "temp_store = MEMORY",
            ):  # fmt: skip
                connection.execute(f"PRAGMA {pragma}")
            prepare_schema(connection, str(path))
            if max_pages is not None:
                connection.execute(f"PRAGMA max_page_count = {max_pages:d}")
        except sqlite3.DatabaseError as error:
            connection.close()
            if getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB":
                raise BadInputError(f"ledger {path}: not a SQLite database: name another file") from error
            raise
        except BadInputError:
            connection.close()
            raise

    def begin(self) -> None:
        """Start a group of changes."""
        self._connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Put the group on disk: after the call it survives a power cut."""
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        """Undo the group; harmless if SQLite has already done so, as it does on a full disk."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """Checkpoint and close."""
        self._connection.close()

    def add_completions(self, completions: Iterable[StoredCompletion]) -> list[bool]:
        """Store completions; the first completion of a row wins. Return for each completion whether it was new."""
        execute, new = self._connection.execute, []
        for c in completions:
            changed = execute(
                INSERT_COMPLETION,
                (c.row, c.finish_reason, c.prompt_tokens, c.output_tokens, c.generation_seconds, c.started_at,
                 c.replica, c.model, c.attempts, c.mode, c.language),
            ).rowcount == 1  # fmt: skip
            if changed:
                execute(INSERT_TEXT, (c.row, c.text))
                if c.log_probs:
                    execute(INSERT_LOG_PROBS, (c.row, struct.pack(f"<{len(c.log_probs)}f", *c.log_probs)))
            new.append(changed)
        return new

    def add_verdicts(self, verdicts: Iterable[StoredVerdict]) -> list[bool]:
        """Store a verdict per row. A verdict replaces "not judged", but never another verdict.

        Returns for each verdict whether it was stored.
        """
        execute, new = self._connection.execute, []
        for v in verdicts:
            changed = execute(
                INSERT_VERDICT, (v.row, v.final_status, v.judged, v.accepted, v.recorded_at, v.attempts, v.reason)
            ).rowcount == 1  # fmt: skip
            if changed:
                execute(INSERT_VERDICT_BYTES, (v.row, v.verdict))
                if v.feedback:
                    execute(INSERT_FEEDBACK, (v.row, v.feedback))
            new.append(changed)
        return new

    def set_facts(self, facts: dict[str, str]) -> None:
        """Write facts about the run, replacing facts of the same name."""
        self._connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())

    def add_event(self, event: StoredEvent) -> None:
        """Store an event after the existing events."""
        self._connection.execute("INSERT INTO events (at, act, detail) VALUES (?, ?, ?)", event)

    def add_problems(self, names: Iterable[tuple[str, str]]) -> None:
        """Write the run's problems in order of position, once."""
        rows = ((position, dataset, problem_id) for position, (dataset, problem_id) in enumerate(names))
        self._connection.executemany("INSERT INTO problems VALUES (?, ?, ?)", rows)

    def set_replicas(self, worker: str, replicas: Iterable[StoredReplica], gpu_seconds: Mapping[str, float]) -> None:
        """Store a worker's last report. The GPU seconds of a holder never decrease."""
        self._connection.executemany(
            "INSERT OR REPLACE INTO replicas (worker, name, address, models, error, load_format, engine) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (worker, r.name, r.address, json.dumps(list(r.models)), r.error, r.load_format, json.dumps(r.engine))
                for r in replicas
            ],
        )
        self._connection.executemany(
            "INSERT INTO gpu_seconds VALUES (?, ?) ON CONFLICT (worker) DO UPDATE "
            "SET seconds = max(seconds, excluded.seconds)",
            gpu_seconds.items(),
        )

    def set_verdicts_aside(self) -> None:
        """Start with no verdicts. Earlier verdicts are kept until `drop_earlier_verdicts`."""
        set_verdicts_aside(self._connection)

    def drop_earlier_verdicts(self) -> None:
        """Delete the verdicts that were set aside."""
        drop_earlier_verdicts(self._connection)


class LedgerReader:
    """A connection that reads committed data, for a single thread at a time."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(
            f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        self._connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._connection.execute("PRAGMA trusted_schema = OFF")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def interrupt_after(self, seconds: float) -> None:
        """Make reads raise sqlite3.OperationalError once they have taken this long from now."""
        end = time.monotonic() + seconds
        self._connection.set_progress_handler(lambda: time.monotonic() >= end, OPERATIONS_PER_CHECK)

    def computed_tables(self) -> set[str]:
        """Return the names of views and virtual tables, which are computed when they are read."""
        return {name for _, name, kind, *_ in self._connection.execute("PRAGMA table_list") if kind != "table"}

    def facts(self) -> dict[str, str]:
        """Return all facts."""
        return dict(self._connection.execute("SELECT name, value FROM facts"))

    def events(self, since: float = 0.0) -> list[StoredEvent]:
        """Return the events from a moment on (Unix seconds), in order."""
        found = self._connection.execute("SELECT at, act, detail FROM events WHERE at >= ? ORDER BY number", (since,))
        return [StoredEvent(*columns) for columns in found]

    def problems(self) -> Iterator[tuple[str, str]]:
        """Return (dataset, problem id) in order of position."""
        return iter(self._connection.execute("SELECT dataset, problem_id FROM problems ORDER BY position"))

    def replicas(self) -> list[StoredReplica]:
        """Return the last report about every replica of all workers."""
        found = self._connection.execute(
            "SELECT name, address, models, error, load_format, engine FROM replicas ORDER BY worker, name"
        )
        return [
            StoredReplica(name, address, json.loads(models), error, load_format, json.loads(engine))
            for name, address, models, error, load_format, engine in found
        ]

    def gpu_seconds(self) -> dict[str, float]:
        """Return the GPU seconds of each holder (`gpu_time.held_seconds`)."""
        return dict(self._connection.execute("SELECT worker, seconds FROM gpu_seconds"))

    def output_tokens(self) -> Iterator[tuple[int, int | None]]:
        """Return (row, output tokens) of every completion, in order; None where the server did not count them."""
        return iter(self._connection.execute("SELECT row, output_tokens FROM completions ORDER BY row"))

    def completion_rows(self) -> Iterator[int]:
        """Return the rows that have a completion, in order."""
        return (row for (row,) in self._connection.execute("SELECT row FROM completions ORDER BY row"))

    def request_times(self) -> Iterator[tuple[float, float]]:
        """Return (started at, seconds) of each completion's request, in order of time."""
        return iter(
            self._connection.execute("SELECT started_at, generation_seconds FROM completions ORDER BY started_at")
        )

    def replica_requests(self) -> Iterator[tuple[str, float, float]]:
        """Return (replica, started at, seconds) of each completion's request, in order of time."""
        return iter(
            self._connection.execute(
                "SELECT replica, started_at, generation_seconds FROM completions ORDER BY started_at"
            )
        )

    def verdict_times(self) -> Iterator[float]:
        """Yield the time at which each verdict was stored, in order; Unix seconds."""
        return (at for (at,) in self._connection.execute("SELECT recorded_at FROM verdicts ORDER BY recorded_at"))

    def verdict_rows(self) -> Iterator[tuple[int, int, bool, bool]]:
        """Return (row, final status, judged, accepted) of every verdict, in order."""
        found = self._connection.execute("SELECT row, final_status, judged, accepted FROM verdicts ORDER BY row")
        return ((row, status, bool(judged), bool(accepted)) for row, status, judged, accepted in found)

    def feedback_rows(self) -> Iterator[int]:
        """Return, in order, the rows whose completions got feedback."""
        return (row for (row,) in self._connection.execute("SELECT row FROM feedbacks ORDER BY row"))

    def exchanges(self, first: int, end: int) -> list[Exchange]:
        """Return the completions of the rows from `first` to before `end` with the feedback on each, in order."""
        found = self._connection.execute(
            "SELECT t.text, f.text FROM texts t JOIN feedbacks f ON f.row = t.row "
            "WHERE t.row >= ? AND t.row < ? ORDER BY t.row",
            (first, end),
        )
        return [Exchange(answer, feedback) for answer, feedback in found]

    def tallies(self, first: int, end: int) -> list[CompletionTally]:
        """Return the completions of the rows from `first` to before `end`, counted by finish reason."""
        found = self._connection.execute(
            "SELECT finish_reason, count(*), total(output_tokens) FROM completions "
            "WHERE row >= ? AND row < ? GROUP BY 1",
            (first, end),
        )
        return [CompletionTally(reason, count, int(tokens)) for reason, count, tokens in found]

    def completions(self, rows: Sequence[int]) -> list[StoredCompletion]:
        """Return the completions of these rows, in order of row. Rows without a completion are left out."""
        marks = ",".join("?" * len(rows))
        found = self._connection.execute(
            f"{SELECT_COMPLETION} FROM completions c JOIN texts t ON t.row = c.row "
            f"WHERE c.row IN ({marks}) ORDER BY c.row",
            rows,
        )
        return [StoredCompletion(*columns) for columns in found]

    def samples(self, first: int = 0, end: int = LAST_ROW) -> Iterator[StoredSample]:
        """Yield the completions of the rows from `first` up to `end` with their verdicts, in order of row.

        That is the order of problem, repeat and sample. Only one sample is in memory at a time.
        """
        found = map(_make_stored_sample, self._connection.execute(SELECT_SAMPLES, (first, end)))
        # A ledger that an earlier release writes, and that is only read here, has no such table.
        has_log_probs = (
            self._connection.execute(HAS_LOG_PROBS).fetchone()
            and self._connection.execute("SELECT 1 FROM log_probs LIMIT 1").fetchone()
        )
        return map(self._add_log_probs, found) if has_log_probs else found

    def _add_log_probs(self, sample: StoredSample) -> StoredSample:
        completion = sample.completion
        found = self._connection.execute(SELECT_LOG_PROBS, (completion.row,)).fetchone()
        if found is None:
            return sample
        (packed,) = found
        log_probs = struct.unpack(f"<{len(packed) // 4}f", packed)
        return sample._replace(completion=completion._replace(log_probs=log_probs))

    def list_recorded(self, moment: float, limit: int = -1) -> list[Recorded]:
        """Return the verdicts stored at or after a moment, in order of time.

        Args:
            moment: Unix seconds.
            limit: maximum number of verdicts; -1: all of them.
        """
        found = self._connection.execute(SELECT_RECORDED, (moment, limit))
        return [Recorded(row, bool(judged), at) for row, judged, at in found]


def _make_stored_sample(columns: Sequence[Any]) -> StoredSample:
    completion, blob, feedback = StoredCompletion(*columns[:12]), columns[12], columns[19]
    if blob is None:
        return StoredSample(completion, None, feedback)
    status, judged, accepted, recorded_at, attempts, reason = columns[13:19]
    verdict = StoredVerdict(completion.row, blob, status, bool(judged), bool(accepted), recorded_at, attempts, reason)
    return StoredSample(completion, verdict, feedback)
