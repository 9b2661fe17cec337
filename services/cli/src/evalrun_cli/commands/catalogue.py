"""The commands `index`, `sql`, `find` and `flips`."""

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from evalrun_cli.commands.group import TO_FILE, evalrun
from evalrun_runtime.exits import ExitCode

_RUNS = click.option(
    "--runs", "place", default="outputs", show_default=True, metavar="DIR|URL", help="Directory or URL of the runs."
)
_FORMAT = click.option(
    "--format",
    "view",
    type=click.Choice(["text", "json", "csv", "md", "parquet"]),
    default="text",
    show_default=True,
    help="Output format.",
)


def _add_flags(command: Callable[..., int]) -> Callable[..., int]:
    return _RUNS(_FORMAT(TO_FILE(command)))


@evalrun.command()
@click.argument("place", metavar="DIR|URL")
def index(place: str) -> ExitCode:
    """Add the runs below DIR or URL to their catalogue.

    The catalogue lies beside the runs and needs no server; several writers may add to it at once. `sql`, `find` and
    `flips` do this by themselves for a directory of this machine; a bucket is looked through by this command alone.
    """
    from evalrun_cli.catalogue.commands import index_runs

    return index_runs(place)


@evalrun.command()
@click.argument("query")
@_add_flags
def sql(query: str, place: str, view: str, output: Path | None) -> ExitCode:
    """Answer QUERY, one SELECT of DuckDB's SQL, over all runs.

    Views: runs, datasets, metrics, gates, results; for runs on this machine also answers and tests, with their texts.
    Nothing can be changed.

    \b
    Example:
      evalrun sql "SELECT run, step, value FROM metrics WHERE metric = 'accepted_at_1' ORDER BY step"
    """
    from evalrun_cli.catalogue.commands import answer_query

    return answer_query(query, place, view, output)


@evalrun.command()
@click.option("--where", default="true", metavar="CONDITION", help="Condition over the columns of the view runs.")
@_add_flags
def find(where: str, place: str, view: str, output: Path | None) -> ExitCode:
    """List the runs that meet a condition.

    \b
    Example:
      evalrun find --where "model LIKE '%qwen%' AND state = 'Succeeded'"
    """
    from evalrun_cli.catalogue.commands import find_runs

    return find_runs(where, place, view, output)


@evalrun.command()
@click.argument("names", metavar="A B [C ...]", nargs=-1, required=True)
@_add_flags
def flips(names: Sequence[str], place: str, view: str, output: Path | None) -> ExitCode:
    """List the problems that some of the runs solve and others do not.

    A, B, ... are places of runs below --runs, as `find` prints them.
    """
    from evalrun_cli.catalogue.commands import find_flips

    return find_flips(names, place, view, output)
