"""The command `plan`."""

from collections.abc import Sequence
from pathlib import Path

import click

from evalrun_cli.commands.group import EXIT_CODES, Numbers, evalrun
from evalrun_runtime.exits import ExitCode


@evalrun.command(epilog=EXIT_CODES)
@click.argument("names", metavar="FILE|RUN...", nargs=-1, required=True)
@click.option("--like", metavar="RUN", help="Outputs of an earlier run, whose rates give wall time and GPU hours.")
@click.option("--local", is_flag=True, help="Plan for `run --local`: no pods, sources may be paths.")
@click.option("--gate", is_flag=True, help="How many answers a gate needs, from a baseline and a pilot.")
@click.option("--race", is_flag=True, help="How many answers a race needs, from two finished runs or more.")
@click.option("--dataset", metavar="NAME", help="With --gate, --race: dataset. Default: the one that all runs have.")
@click.option(
    "--points",
    metavar="NUMBER,...",
    type=Numbers(),
    help="With --gate, --race: differences to find, in points of 100. Default: 1,2,5,10.",
)
@click.option(
    "--runners", type=click.IntRange(2, 100), help="With --race: how many runs. Default: as many as are named."
)
@click.option(
    "--format",
    "view",
    type=click.Choice(["text", "json", "svg"]),
    default="text",
    show_default=True,
    help="With --gate, --race: output format.",
)
@click.option("--output", type=click.Path(path_type=Path), help="With --gate, --race: file instead of the terminal.")
def plan(
    names: tuple[str, ...],
    like: str | None,
    dataset: str | None,
    points: Sequence[int] | None,
    runners: int | None,
    view: str,
    output: Path | None,
    *,
    local: bool,
    gate: bool,
    race: bool,
) -> ExitCode:
    """Print what a run will take, or what a decision will.

    \b
    A run:                       evalrun plan run.yaml --like outputs/small
    To see a difference:         evalrun plan --gate outputs/main outputs/pilot
    To find the best of ten:     evalrun plan --race outputs/a outputs/b --runners 10

    Of the EvalRuns of FILE: pods and their requests, answers, wall time, GPU hours. Wall time and GPU hours need a
    measured run: --like names the outputs of one, a directory or fsspec URL. What cannot be known is listed as unknown.
    Requests are the operator's defaults; values of your chart can differ.

    Of a decision: problems and samples with which a difference is seen 4 times in 5, if runs differ as those that are
    named do, without and with stopping early; GPU hours if the last one had GPUs of its own.
    """
    if runners is not None and not race:
        raise click.UsageError("--runners: only with --race")
    if gate or race:
        from evalrun_cli.run_plan.answers import print_decision_plan

        if (gate and race) or like is not None or local:
            raise click.UsageError("--gate, --race, --like, --local: only one of them")
        return print_decision_plan(
            names, race=race, dataset=dataset, points=points or (), runners=runners, view=view, output=output
        )
    asked = {"--dataset": dataset, "--points": points, "--output": output, "--format": view != "text"}
    if given := [flag for flag, value in asked.items() if value]:
        raise click.UsageError(f"{', '.join(given)}: only with --gate or --race")
    if len(names) > 1 or not (file := Path(names[0])).is_file():
        raise click.UsageError(f"{' '.join(names)}: name one file with EvalRuns, or --gate or --race before runs")
    from evalrun_cli.run_plan.command import print_plan

    return print_plan(file, like=like, local=local)
