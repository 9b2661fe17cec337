"""The command `plan`."""

from pathlib import Path

import click

from evalrun_cli.commands.group import EXISTING_FILE, EXIT_CODES, evalrun
from evalrun_runtime.exits import ExitCode


@evalrun.command(epilog=EXIT_CODES)
@click.argument("file", type=EXISTING_FILE)
@click.option("--like", metavar="RUN", help="Outputs of an earlier run, whose rates give wall time and GPU hours.")
@click.option("--local", is_flag=True, help="Plan for `run --local`: no pods, sources may be paths.")
def plan(file: Path, like: str | None, local: bool) -> ExitCode:
    """Print what the EvalRuns of FILE will take: pods and their requests, answers, wall time, GPU hours.

    Wall time and GPU hours need a measured run: --like names the outputs of one, a directory or fsspec URL. What cannot
    be known is listed as unknown. Requests are the operator's defaults; values of your chart can differ.
    """
    from evalrun_cli.run_plan.command import print_plan

    return print_plan(file, like=like, local=local)
