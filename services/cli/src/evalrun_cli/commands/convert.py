"""The command `convert`: turns other tools' configurations into EvalRuns."""

from collections.abc import Sequence
from pathlib import Path

import click

from evalrun_cli.commands.group import TO_FILE, evalrun
from evalrun_runtime.exits import ExitCode


@evalrun.group()
def convert() -> None:
    """Turn another tool's configuration into an EvalRun."""


@convert.command()
@click.argument("arguments", nargs=-1, required=True, metavar="[FILE] [KEY=VALUE]...")
@TO_FILE
def verl(arguments: Sequence[str], output: Path | None) -> ExitCode:
    """Turn a verl configuration into an EvalRun.

    FILE is generation.yaml (verl 0.7.0), a configuration of a standalone evaluation, or a trainer's as printed by
    `--cfg job`; from the latter, the model, the validation files and their sampling are used. KEY=VALUE, +KEY=VALUE
    and ~KEY change it as Hydra's overrides do. Each key is listed as mapped, default, ignored (with the reason),
    refused, or unknown.
    """
    from evalrun_cli.verl_files.commands import convert_file

    file, overrides = Path(arguments[0]), arguments[1:]
    if "=" in arguments[0] and not file.exists():
        return convert_file(None, output, arguments)
    return convert_file(file, output, overrides)
