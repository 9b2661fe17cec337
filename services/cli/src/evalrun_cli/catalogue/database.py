"""The catalogue as views of DuckDB: read-only, with bounded memory, and with access to nothing but the runs."""

import shutil
import tempfile
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

import fsspec
from fsspec.implementations.local import LocalFileSystem

from evalrun_data.store_problems import name_read_errors
from evalrun_results.catalogue.location import FOLDER
from evalrun_results.catalogue.store import Catalogue
from evalrun_runtime.distribution import describe_install
from evalrun_runtime.exits import BadInputError

if TYPE_CHECKING:
    import duckdb

MEMORY: Final = "768MB"
OF_THE_CATALOGUE: Final = frozenset({"runs", "datasets", "metrics", "gates", "results"})
OF_THE_RUNS: Final = frozenset({"answers", "tests"})
"""Views over the runs' own files: DuckDB opens each of these files before it runs a query."""

_LIVE: Final = """
CREATE TABLE live AS SELECT * EXCLUDE (newest) FROM (
  SELECT *, row_number() OVER (
    PARTITION BY place ORDER BY indexed_at DESC, compacted_at DESC, results_file DESC) AS newest
  FROM read_parquet({runs}, union_by_name = true) WHERE schema <= 1)
WHERE newest = 1 AND NOT removed
"""
_ABOUT: Final = "l.place, l.run, l.model, l.schedule, l.step, l.phase"
_RUNS: Final = """
CREATE VIEW runs AS SELECT place, run, namespace, state, partial, model, protocol, created, started_at, ended_at,
  evalrun_version, signed_by, schedule, step, phase, gpu_seconds, gate FROM live
"""


def import_duckdb() -> ModuleType:
    """Return the module. Raises BadInputError if it is not installed."""
    try:
        import duckdb
    except ImportError as error:
        raise BadInputError(f"SQL needs the extra sql: {describe_install('sql')}") from error
    return duckdb


def open_catalogue(place: str) -> Catalogue:
    """Return the catalogue of the runs below a directory or URL. Raises BadInputError."""
    with name_read_errors(place):
        files, path = fsspec.core.url_to_fs(place)
        if not files.exists(path):
            raise BadInputError(f"{place}: no such directory: name the one that holds your runs")
    return Catalogue(place, now=time.time, new_name=lambda: uuid.uuid4().hex, signer_of=_find_signer)


def _find_signer(place: str) -> str:
    """Return the signer of a run. Only an update of a catalogue needs it, and few commands need the imports."""
    from evalrun_cli.attestation.requirement import find_signer

    return find_signer(place)


@contextmanager
def open_database(place: str, views: Collection[str] = OF_THE_CATALOGUE) -> Iterator["duckdb.DuckDBPyConnection"]:
    """Yield a connection with views over the runs below a place. Runs on this machine are searched first.

    Args:
        place: directory or URL of the runs.
        views: views that will be read; files of other views are neither fetched nor opened.

    Raises:
        BadInputError: DuckDB is not installed, there is no run, or the catalogue cannot be read.
    """
    duckdb = import_duckdb()
    catalogue = open_catalogue(place)
    files, path = fsspec.core.url_to_fs(place)
    is_local = isinstance(files, LocalFileSystem)
    if is_local:
        catalogue.update()
    scratch = Path(tempfile.mkdtemp(prefix="evalrun-sql-"))
    try:
        folder = Path(path) / FOLDER if is_local else scratch / "catalogue"
        if not is_local:
            with name_read_errors(place):
                for kind in ("runs", "results") if "results" in views else ("runs",):
                    source = f"{path.rstrip('/')}/{FOLDER}/{kind}"
                    if files.exists(source):
                        files.get(source, str(folder / kind), recursive=True)
        with duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": str(scratch / "spill")}) as connection:
            _create_views(connection, folder, place)
            if "results" in views:
                _create_view_of_results(connection, folder)
            if is_local and not OF_THE_RUNS.isdisjoint(views):
                _create_views_of_texts(connection, Path(path))
            # The progress bar would be printed among the rows.
            connection.execute("SET enable_progress_bar = false")
            connection.execute("SET allowed_directories = $1", [[str(folder), *([path] if is_local else [])]])
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            yield connection
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _create_views(connection: "duckdb.DuckDBPyConnection", folder: Path, place: str) -> None:
    runs = [str(path) for path in sorted((folder / "runs").glob("*.parquet"))]
    if not runs:
        raise BadInputError(f"{place}: no run was found: name the directory of your runs, or run evalrun index {place}")
    connection.execute(_LIVE.format(runs=_list(runs)))
    connection.execute(_RUNS)
    for name in ("datasets", "metrics", "gates"):
        connection.execute(f"CREATE VIEW {name} AS SELECT {_ABOUT}, unnest(l.{name}, recursive := true) FROM live l")


def _create_view_of_results(connection: "duckdb.DuckDBPyConnection", folder: Path) -> None:
    named = connection.execute("SELECT DISTINCT results_file FROM live WHERE results_file IS NOT NULL").fetchall()
    results = [str(folder / "results" / name) for (name,) in sorted(named)]
    connection.execute(
        f"CREATE VIEW results AS SELECT {_ABOUT}, r.* EXCLUDE (entry, filename) "
        f"FROM read_parquet({_list(results)}, filename = true) r "
        "JOIN live l ON r.entry = l.entry AND parse_filename(r.filename) = l.results_file"
        if results
        else "CREATE VIEW results AS SELECT 1 AS nothing WHERE false"
    )


def _create_views_of_texts(connection: "duckdb.DuckDBPyConnection", root: Path) -> None:
    found = connection.execute("SELECT place FROM live WHERE results_source = 'results.parquet'").fetchall()
    sources = [str(root / each / "results.parquet") for (each,) in sorted(found)]
    if not sources:
        return
    base = len(str(root)) + 2
    relative = f"substr(filename, {base}, greatest(length(filename) - {base} - 15, 0))"
    connection.execute(
        f"CREATE VIEW answers AS SELECT if({relative} = '', '.', {relative}) AS place, * EXCLUDE (filename, tests) "
        f"FROM read_parquet({_list(sources)}, filename = true, union_by_name = true)"
    )
    connection.execute(
        f"CREATE VIEW tests AS SELECT if({relative} = '', '.', {relative}) AS place, "
        "dataset, problem_id, sample, turn, repeat, unnest(tests, recursive := true) "
        f"FROM read_parquet({_list(sources)}, filename = true, union_by_name = true)"
    )


def _list(paths: Sequence[str]) -> str:
    return "[" + ", ".join("'" + path.replace("'", "''") + "'" for path in paths) + "]"


def find_views(sql: str) -> frozenset[str]:
    """Return the views that a query may read; the query has passed `check_is_query`.

    All views are returned if the query reads anything but a view or a table of its own, or calls a table function.
    """
    duckdb = import_duckdb()
    found = "list(DISTINCT name) FROM (SELECT unnest(json_extract_string(json_serialize_sql($1), $2)) AS name)"
    with duckdb.connect() as parser:
        tables, defined, functions = (
            {name.lower() for name in parser.execute(f"SELECT {found}", [sql, path]).fetchall()[0][0] or ()}
            for path in ("$..table_name", "$..cte_map.map[*].key", "$..from_table..function.function_name")
        )
    views = OF_THE_CATALOGUE | OF_THE_RUNS
    names = tables - {""}
    return views & names if names and names <= views | defined and not functions else views


def check_is_query(sql: str) -> None:
    """Refuse a text that is not a single SELECT. Raises BadInputError."""
    duckdb = import_duckdb()
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise BadInputError(f"SQL: {error}") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise BadInputError("SQL: write one SELECT: nothing else is executed")
