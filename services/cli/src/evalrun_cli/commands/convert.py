"""The command `convert`: turns other tools' configurations into EvalRuns."""

from pathlib import Path

import click

from evalrun_cli.commands.group import EXISTING_FILE, TO_FILE, evalrun
from evalrun_runtime.exits import ExitCode


@evalrun.group()
def convert() -> None:
    """Turn another tool's configuration into an EvalRun."""


@convert.command()
@click.argument("file", type=EXISTING_FILE)
@TO_FILE
def verl(file: Path, output: Path | None) -> ExitCode:
    """Turn a verl configuration into an EvalRun.

    FILE is generation.yaml (verl 0.7.0) or a trainer's configuration as printed by `--cfg job`; from the latter, the
    model, the validation files and their sampling are used. Each key is listed as mapped, default, ignored (with the
    reason), refused, or unknown.
    """
    from evalrun_cli.verl_files.commands import convert_file

    return convert_file(file, output)
