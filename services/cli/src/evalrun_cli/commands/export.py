"""The command `export`: a run's answers as data for training, and as logs of Inspect."""

from pathlib import Path

import click

from evalrun_cli.commands.group import EXIT_CODES, evalrun
from evalrun_runtime.exits import ExitCode

RUN = click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
OUTPUT = click.option(
    "--output", required=True, type=click.Path(path_type=Path), help="File for the rows: .parquet or .jsonl."
)
PER_PROBLEM = click.option(
    "--per-problem", type=click.IntRange(min=1), default=4, show_default=True, help="At most so many rows per problem."
)


@evalrun.group()
def export() -> None:
    """Write the answers of a run as data for training, or as logs of Inspect.

    RUN is the directory of a run on this machine. In data for training each program of a problem counts once. Answers
    that were not judged are left out of it, and so are accepted ones whose result a program could have forged.
    """


@export.command(epilog=EXIT_CODES)
@RUN
@OUTPUT
@PER_PROBLEM
def sft(run: Path, output: Path, per_problem: int) -> ExitCode:
    """Write accepted answers as `prompt` and `completion`, both chats, as TRL's SFTTrainer reads them."""
    from evalrun_cli.training_export import export_sft

    return export_sft(run, output, per_problem)


@export.command(epilog=EXIT_CODES)
@RUN
@OUTPUT
@PER_PROBLEM
def pairs(run: Path, output: Path, per_problem: int) -> ExitCode:
    """Write an accepted and a rejected answer as `prompt`, `chosen` and `rejected`, as TRL's DPOTrainer reads them."""
    from evalrun_cli.training_export import export_pairs

    return export_pairs(run, output, per_problem)


@export.command(epilog=EXIT_CODES)
@RUN
@OUTPUT
@click.option("--agent-name", metavar="NAME", help="Value of the column `agent_name`, which verl's agent loops read.")
@click.option(
    "--interaction",
    metavar="NAME",
    help="Name in `extra_info.interaction_kwargs`, by which verl chooses an interaction.",
)
def verl(run: Path, output: Path, agent_name: str | None, interaction: str | None) -> ExitCode:
    """Write every problem with all its answers in verl's layout: `responses`, `data_source`, `reward_model`.

    verl's main_eval and `evalrun judge --verl-config` read it. Problems need stdin/stdout tests or asserts.
    """
    from evalrun_cli.training_export import export_verl

    return export_verl(run, output, agent_name, interaction)


@export.command(epilog=EXIT_CODES)
@click.argument("run", metavar="RUN")
@click.option(
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="File that ends in .eval, or a directory for a file per dataset.",
)
@click.option("--dataset", metavar="NAME", help="Only this dataset. Default: all.")
@click.option(
    "--with-tests",
    is_flag=True,
    help="Also write the texts of the first failed test (input, expected, printed) and the references of graders.",
)
def inspect(run: str, output: Path, dataset: str | None, *, with_tests: bool) -> ExitCode:
    """Write every sample as a log of Inspect, for `inspect view` and its dataframes.

    RUN is the directory of a run on this machine, running or ended, or the URL of a run's outputs. An answer that was
    not judged has no score. The package inspect-ai is not needed.
    """
    from evalrun_cli.inspect_export import export_inspect

    return export_inspect(run, output, dataset, with_tests=with_tests)
