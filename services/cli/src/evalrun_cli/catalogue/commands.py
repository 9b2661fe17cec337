"""Runs the commands about many runs: updates the catalogue, runs a query, and shows or writes its rows."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich import box
from rich.table import Table

from evalrun_cli.catalogue.database import check_is_query, find_views, open_catalogue, open_database
from evalrun_cli.comparisons.views import plain, terminal
from evalrun_cli.printable_text import printable
from evalrun_runtime.exits import BadInputError, ExitCode

if TYPE_CHECKING:
    import pyarrow as pa

FLIPS: Final = """
WITH each AS (
  SELECT place, dataset, problem_id, avg(accepted::INT) AS accepted,
    string_agg(DISTINCT final_status, ', ' ORDER BY final_status) AS ended
  FROM results WHERE judged AND repeat = 0 AND turn = 0 AND list_contains($places, place) GROUP BY ALL)
SELECT dataset, problem_id, map(list(place ORDER BY place), list(accepted ORDER BY place)) AS accepted,
  map(list(place ORDER BY place), list(ended ORDER BY place)) AS ended
FROM each GROUP BY ALL HAVING count(*) > 1 AND max(accepted) > min(accepted) ORDER BY dataset, problem_id
"""


def index_runs(place: str) -> ExitCode:
    """Update the catalogue of the runs below a place. Raises BadInputError."""
    try:
        catalogue = open_catalogue(place)
        changes = catalogue.update()
        catalogue.begin()
    except OSError as error:
        raise BadInputError(f"{place}: the catalogue cannot be written: {error.strerror or error}") from error
    for line in changes.skipped:
        click.echo(printable(f"left out: {line}"), err=True)
    click.echo(
        f"{changes.added} added, {changes.changed} changed, {changes.removed} removed, {changes.unchanged} unchanged"
    )
    return ExitCode.SUCCEEDED


def answer_query(sql: str, place: str, view: str, output: Path | None) -> ExitCode:
    """Print or write the rows of a SELECT. Raises BadInputError."""
    return _answer(sql, None, place, view, output)


def find_runs(where: str, place: str, view: str, output: Path | None) -> ExitCode:
    """Print or write the runs that meet a condition. Raises BadInputError."""
    columns = "place, run, state, model, schedule, step, phase, gate, created"
    sql = f"SELECT {columns} FROM runs WHERE ({where}) ORDER BY created"
    return _answer(sql, None, place, view, output)


def find_flips(runs: Sequence[str], place: str, view: str, output: Path | None) -> ExitCode:
    """Print or write the problems that some runs solve and others do not. Raises BadInputError."""
    return _answer(FLIPS, [each.rstrip("/") for each in runs], place, view, output)


def _answer(sql: str, runs: Sequence[str] | None, place: str, view: str, output: Path | None) -> ExitCode:
    if view == "parquet" and output is None:
        raise BadInputError("--format parquet: name a file: --output FILE")
    check_is_query(sql)
    with open_database(place, {"runs"} | find_views(sql)) as connection:
        import duckdb

        if runs is not None:
            known = {name for (name,) in connection.execute("SELECT place FROM runs").fetchall()}
            if unknown := [each for each in runs if each not in known]:
                few = ", ".join(sorted(known)[:5])
                raise BadInputError(f"{unknown[0]}: no such run below {place}: it has {few}")
        try:
            found = connection.sql(sql, params={} if runs is None else {"places": list(runs)})
            table = found.to_arrow_table()
        except duckdb.Error as error:
            raise BadInputError(f"SQL: {error}") from error
    if view == "parquet" and output is not None:
        import pyarrow.parquet as pq

        pq.write_table(table, output)
        return ExitCode.SUCCEEDED
    text = VIEWS[view](table)
    if output is None:
        click.echo(text)
    else:
        output.write_text(text + "\n", encoding="utf-8")
    return ExitCode.SUCCEEDED


def _as_text(table: "pa.Table") -> str:
    console = terminal()
    shown = Table(box=box.SIMPLE)
    for name in table.column_names:
        shown.add_column(plain(name), overflow="fold")
    for row in table.to_pylist():
        shown.add_row(*(plain(_cell(value)) for value in row.values()))
    with console.capture() as captured:
        console.print(shown)
    return captured.get().rstrip("\n")


def _as_json(table: "pa.Table") -> str:
    return json.dumps(table.to_pylist(), indent=2, ensure_ascii=False, default=str)


def _as_csv(table: "pa.Table") -> str:
    import csv
    import io

    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(table.column_names)
    writer.writerows([_cell(value) for value in row.values()] for row in table.to_pylist())
    return sink.getvalue().rstrip("\n")


def _as_markdown(table: "pa.Table") -> str:
    lines = ["| " + " | ".join(table.column_names) + " |", "|" + "---|" * table.num_columns]
    for row in table.to_pylist():
        cells = [printable(_cell(value)).replace("|", "\\|") for value in row.values()]
        lines += ["| " + " | ".join(cells) + " |"]
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list) and all(isinstance(each, tuple) for each in value):
        return ", ".join(f"{name}: {_cell(each)}" for name, each in value)
    return str(value)


VIEWS: Final[dict[str, Callable[[Any], str]]] = {
    "text": _as_text,
    "json": _as_json,
    "csv": _as_csv,
    "md": _as_markdown,
}
