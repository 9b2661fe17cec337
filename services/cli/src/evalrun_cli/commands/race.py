"""The command `race`."""

from typing import Literal

import click

from evalrun_cli.commands.group import EXIT_CODES, evalrun
from evalrun_runtime.exits import ExitCode


@evalrun.command(epilog=EXIT_CODES)
@click.argument("runs", metavar="A B [C ...]", nargs=-1, required=True)
@click.option("--dataset", metavar="NAME", help="Dataset to race on. Default: the one that all runs have.")
@click.option(
    "--population",
    type=click.Choice(["benchmark", "similar"]),
    default="benchmark",
    show_default=True,
    help="What the best run is best at: these very problems, or those that they stand for.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the race as JSON.")
def race(
    runs: tuple[str, ...], dataset: str | None, population: Literal["benchmark", "similar"], *, as_json: bool
) -> ExitCode:
    """Find the best of several finished runs, and say which ones cannot be told apart.

    Runs are directories of outputs or fsspec URLs. Problems are drawn in the order of the first run's seed, and a run
    is dropped as soon as it is clearly behind. A best run is dropped with probability 0.05 at most, whatever the number
    of runs. Answers that were not judged count in the least favourable way.

    Ends with 0 if one run is best, 5 if several may be.
    """
    from evalrun_cli.comparisons.race_view import print_race

    return print_race(runs, dataset=dataset, population=population, as_json=as_json)
