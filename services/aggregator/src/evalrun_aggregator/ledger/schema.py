"""The ledger's tables and their version.

Small columns and long texts have separate tables: counting and resuming read the small tables only (60 bytes per item),
however long the completions and verdicts are. The view `samples` is for people with a `sqlite3` shell.
"""

import json
import sqlite3

from evalrun_aggregator.ledger.items import MAX_REPEATS, MAX_SAMPLES, PROBLEM_SHIFT, SAMPLE_BITS, TURN_BITS
from evalrun_runtime.exits import BadInputError

SCHEMA_VERSION = 4
"""Version of the tables. In version 1 `replicas.models` was a list, or an object with the load format if the replica
reported it. Before version 3 `replicas` had no column `engine`, before version 4 there was no table `feedbacks`."""

CREATE_FEEDBACKS = "CREATE TABLE feedbacks (row INTEGER PRIMARY KEY, text TEXT NOT NULL)"
"""Table of the messages sent after a completion, by the completion's row. They are kept apart from the verdicts,
because judging again does not change what was sent."""

CREATE_EVENTS = """CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, act TEXT NOT NULL, detail TEXT NOT NULL)"""
"""Added to ledgers of any version without a version of its own: a release that does not know the table leaves it alone,
so a rollback during a run stays possible."""

CREATE_LOG_PROBS = "CREATE TABLE IF NOT EXISTS log_probs (row INTEGER PRIMARY KEY, packed BLOB NOT NULL)"
"""Log-probabilities of a completion's tokens as little-endian 32-bit floats, for runs that ask for them."""

CREATE_VERDICTS = (
    """CREATE TABLE verdicts (
        row INTEGER PRIMARY KEY, final_status INTEGER NOT NULL, judged INTEGER NOT NULL, accepted INTEGER NOT NULL,
        recorded_at REAL NOT NULL, attempts INTEGER NOT NULL, reason TEXT NOT NULL)""",
    "CREATE TABLE verdict_bytes (row INTEGER PRIMARY KEY, verdict BLOB NOT NULL)",
)

CREATE = (
    "CREATE TABLE schema_version (version INTEGER NOT NULL)",
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE problems (position INTEGER PRIMARY KEY, dataset TEXT NOT NULL, problem_id TEXT NOT NULL)",
    """CREATE TABLE completions (
        row INTEGER PRIMARY KEY, finish_reason TEXT NOT NULL, prompt_tokens INTEGER, output_tokens INTEGER,
        generation_seconds REAL NOT NULL, started_at REAL NOT NULL, replica TEXT NOT NULL, model TEXT NOT NULL,
        attempts INTEGER NOT NULL, mode INTEGER NOT NULL, language TEXT NOT NULL)""",
    "CREATE TABLE texts (row INTEGER PRIMARY KEY, text TEXT NOT NULL)",
    *CREATE_VERDICTS,
    CREATE_FEEDBACKS,
    """CREATE TABLE replicas (
        worker TEXT NOT NULL, name TEXT NOT NULL, address TEXT NOT NULL, models TEXT NOT NULL, error TEXT NOT NULL,
        load_format TEXT NOT NULL DEFAULT '', engine TEXT NOT NULL DEFAULT '{}',
        PRIMARY KEY (worker, name)) WITHOUT ROWID""",
    # `worker` names a holder (see gpu_time): the worker itself, or a start of one of its replicas.
    "CREATE TABLE gpu_seconds (worker TEXT PRIMARY KEY, seconds REAL NOT NULL) WITHOUT ROWID",
)

SAMPLES_VIEW = "samples"
CREATE_VIEW = f"""CREATE VIEW {SAMPLES_VIEW} AS
    SELECT p.dataset, p.problem_id, (c.row >> {TURN_BITS}) & {MAX_SAMPLES - 1} AS sample,
        c.row & {(1 << TURN_BITS) - 1} AS turn, (c.row >> {SAMPLE_BITS + TURN_BITS}) & {MAX_REPEATS - 1} AS repeat,
        c.finish_reason, c.output_tokens, v.judged, v.accepted, v.final_status, v.reason, t.text
    FROM completions c JOIN problems p ON p.position = c.row >> {PROBLEM_SHIFT} JOIN texts t ON t.row = c.row
    LEFT JOIN verdicts v ON v.row = c.row"""  # noqa: S608 - numbers of ours


def prepare_schema(connection: sqlite3.Connection, path: str) -> None:
    """Create the tables in an empty file. Check the version of existing tables and migrate older versions.

    Raises:
        BadInputError: the file is no ledger, or a ledger of a newer version.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        connection.execute("BEGIN IMMEDIATE")
        for statement in (*CREATE, CREATE_VIEW):
            connection.execute(statement)
        connection.execute("INSERT INTO schema_version VALUES (?)", (SCHEMA_VERSION,))
        for statement in (CREATE_EVENTS, CREATE_LOG_PROBS):
            connection.execute(statement)
        connection.execute("COMMIT")
        return
    found = (
        connection.execute("SELECT max(version) FROM schema_version").fetchone() if "schema_version" in tables else None
    )
    if found is None or found[0] is None:
        raise BadInputError(f"ledger {path}: a database, but not an evalrun ledger: name another file")
    if found[0] > SCHEMA_VERSION:
        raise BadInputError(
            f"ledger {path}: written by a newer evalrun (schema {found[0]}; this one supports up to {SCHEMA_VERSION}): "
            "open it with that version"
        )
    if found[0] < SCHEMA_VERSION:
        connection.execute("BEGIN IMMEDIATE")
        if found[0] < 2:
            _split_served(connection)
        if found[0] < 3:
            connection.execute("ALTER TABLE replicas ADD COLUMN engine TEXT NOT NULL DEFAULT '{}'")
        connection.execute(CREATE_FEEDBACKS)
        connection.execute("UPDATE schema_version SET version = ?", (SCHEMA_VERSION,))
        connection.execute("COMMIT")
    for statement in (CREATE_EVENTS, CREATE_LOG_PROBS):
        connection.execute(statement)


def _split_served(connection: sqlite3.Connection) -> None:
    """Migrate `replicas` from version 1 to 2: the load format gets a column of its own."""
    connection.execute("ALTER TABLE replicas ADD COLUMN load_format TEXT NOT NULL DEFAULT ''")
    for worker, name, models in connection.execute("SELECT worker, name, models FROM replicas").fetchall():
        served = json.loads(models)
        if isinstance(served, dict):
            connection.execute(
                "UPDATE replicas SET models = ?, load_format = ? WHERE worker = ? AND name = ?",
                (json.dumps(served["ids"]), served["load_format"], worker, name),
            )


def set_verdicts_aside(connection: sqlite3.Connection) -> None:
    """Rename the tables of verdicts and create empty tables, inside the caller's transaction. Takes no time."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.execute("DROP VIEW samples")
    for table in ("verdicts", "verdict_bytes"):
        # An earlier rejudging never ended. Its verdicts are dropped, and the first verdicts stay set aside.
        if f"earlier_{table}" in tables:
            connection.execute(f"DROP TABLE {table}")
        else:
            connection.execute(f"ALTER TABLE {table} RENAME TO earlier_{table}")
    for statement in (*CREATE_VERDICTS, CREATE_VIEW):
        connection.execute(statement)


def drop_earlier_verdicts(connection: sqlite3.Connection) -> None:
    """Delete the verdicts that were set aside, inside the caller's transaction."""
    for table in ("verdicts", "verdict_bytes"):
        connection.execute(f"DROP TABLE IF EXISTS earlier_{table}")
