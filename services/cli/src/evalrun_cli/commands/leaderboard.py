"""The command `leaderboard`."""

from pathlib import Path

import click

from evalrun_cli.commands.group import EXISTING_FILE, EXIT_CODES, evalrun, shown
from evalrun_runtime.exits import ExitCode


@evalrun.command(epilog=EXIT_CODES)
@click.argument("runs", metavar="RUN|DIR...", nargs=-1, required=True)
@click.option("--suite", "datasets", multiple=True, metavar="NAME", help="Only this dataset; may be repeated.")
@click.option(
    "--trust",
    multiple=True,
    type=EXISTING_FILE,
    help="PEM file of a public key that you trust: runs that are as it has signed them are marked attested.",
)
@click.option("--revocations", type=EXISTING_FILE, help="File of attestations that their signers took back.")
@shown
def leaderboard(
    runs: tuple[str, ...],
    datasets: tuple[str, ...],
    trust: tuple[Path, ...],
    revocations: Path | None,
    view: str,
    output: Path | None,
) -> ExitCode:
    """Rank finished runs by dataset, and show which of them cannot be told apart.

    Runs are directories of outputs or fsspec URLs; a directory of runs stands for all of them. Runs that were measured
    in another way (sampling, prompts, tests, judge) stand in a table of their own, which says what differs. Runs that
    differ only by their seed are one entry.

    A rank such as 2-4 says that the entry cannot be told apart from others: equal runs are ranked apart in at most 5 %
    of leaderboards. Answers that were not judged make a score a range.
    """
    from evalrun_cli.comparisons.leaderboard_views import print_leaderboard

    if output is not None and output.suffix == ".html" and view == "text":
        view = "html"
    return print_leaderboard(runs, datasets=datasets, trust=trust, revocations=revocations, view=view, output=output)
