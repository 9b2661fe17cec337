"""The command `prune`."""

from datetime import UTC, datetime

import click

from evalrun_cli.commands.group import EXIT_CODES, evalrun
from evalrun_runtime.exits import ExitCode


@evalrun.command(epilog=EXIT_CODES)
@click.argument("places", metavar="DIR...", nargs=-1, required=True)
@click.option(
    "--retain-completions-days",
    "days",
    type=click.IntRange(min=0),
    help="Keep the answers of runs that ended within this many days. Default: the run's output.retainCompletionsDays.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
def prune(places: tuple[str, ...], days: int | None, dry_run: bool) -> ExitCode:
    """Remove what models wrote from old runs.

    DIR is the directory of a run, or of runs. Answers, programs, what they printed, QA logs and the ledger go; summary,
    figures and verdicts stay, so that the run is compared, gated and shown as before. It can no longer be resumed,
    judged again or exported.
    """
    from evalrun_results.retention import prune as prune_runs

    return prune_runs(places, days=days, now=datetime.now(UTC), is_dry=dry_run, report=click.echo)
