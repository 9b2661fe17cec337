"""The commands `show` and `samples`."""

from collections.abc import Sequence

import click

from evalrun_cli.commands.group import EXIT_CODES, evalrun
from evalrun_runtime.exits import ExitCode

RUN = click.argument("run", metavar="RUN")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON: one line per sample, as in results.jsonl.")


@evalrun.command(epilog=EXIT_CODES)
@RUN
@click.argument("sample", metavar="[PROBLEM[#SAMPLE]]", required=False)
@click.option("--all-tests", is_flag=True, help="Print every test. Default: the first three that failed.")
@AS_JSON
def show(run: str, sample: str | None, *, all_tests: bool, as_json: bool) -> ExitCode:
    """Print one answer of RUN, the tests that it failed, and why.

    RUN is the folder of a run on this machine, running or ended, or the URL of a run's outputs. Without PROBLEM: how
    the samples ended, by dataset. A PROBLEM with several samples lists them.

    \b
    evalrun show outputs/demo
    evalrun show outputs/demo rain_barrels
    evalrun show outputs/demo 'HumanEval/12#3'
    """
    from evalrun_cli.samples.commands import show_run, show_sample

    if sample is None:
        return show_run(run, as_json=as_json)
    return show_sample(run, sample, as_json=as_json, all_tests=all_tests)


@evalrun.command(epilog=EXIT_CODES)
@RUN
@click.option(
    "--where",
    multiple=True,
    metavar="CONDITION",
    help="Only samples for which this holds, e.g. status=timeout, status=timeout|runtime_error, tokens>=2000, "
    "answer~import, score=none; may be repeated, then all must hold.",
)
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="At most so many; 0: all.")
@AS_JSON
def samples(run: str, where: Sequence[str], limit: int, *, as_json: bool) -> ExitCode:
    """List the samples of RUN that meet every condition.

    RUN is the folder of a run on this machine, running or ended, or the URL of a run's outputs. `~` finds a part of a
    text in any case. The page on samples in the documentation lists the fields.
    """
    from evalrun_cli.samples.commands import list_samples

    return list_samples(run, where, limit, as_json=as_json)
