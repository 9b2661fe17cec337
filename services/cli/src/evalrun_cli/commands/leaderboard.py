"""The command `leaderboard`."""

from pathlib import Path

import click

from evalrun_cli.attestation.trust_files import TrustFiles
from evalrun_cli.commands.group import EXIT_CODES, add_format_flags, evalrun
from evalrun_cli.commands.trust_options import add_trust_flags
from evalrun_runtime.exits import ExitCode


@evalrun.command(epilog=EXIT_CODES)
@click.argument("runs", metavar="RUN|DIR...", nargs=-1, required=True)
@click.option("--suite", "datasets", multiple=True, metavar="NAME", help="Only this dataset; may be repeated.")
@add_trust_flags
@add_format_flags
def leaderboard(
    runs: tuple[str, ...],
    datasets: tuple[str, ...],
    trust: TrustFiles,
    view: str,
    output: Path | None,
) -> ExitCode:
    """Rank finished runs by dataset, and show which of them cannot be told apart.

    Runs are directories of outputs or fsspec URLs; a directory of runs stands for all of them. Runs that were measured
    in another way (sampling, prompts, tests, judge) stand in a table of their own, which says what differs. Runs that
    differ only by their seed are one entry.

    A rank such as 2-4 says that the entry cannot be told apart from others: equal runs are ranked apart in at most 5 %
    of leaderboards. Answers that were not judged make a score a range. Runs that are as a signer of --trust or
    --identity has signed them are marked attested.
    """
    from evalrun_cli.comparisons.leaderboard_views import print_leaderboard

    if output is not None and output.suffix == ".html" and view == "text":
        view = "html"
    return print_leaderboard(runs, datasets=datasets, trust=trust, view=view, output=output)
