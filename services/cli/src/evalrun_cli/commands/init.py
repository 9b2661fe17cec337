"""The command `init`."""

from pathlib import Path

import click

from evalrun_cli.commands.group import evalrun
from evalrun_runtime.exits import BadInputError, ExitCode

STARTING_POINTS = Path(__file__).parents[1] / "starting_points"
AS_TEXT = ".txt"
"""Suffix of a script among the starting points: it is stored as text, because it imports other packages."""


@evalrun.command(name="init", epilog="Exit codes: 0 written, 2 a file is there already.")
@click.argument("directory", type=click.Path(path_type=Path), default=".")
@click.option("--local", "kind", flag_value="local", default="local", help="A run on this machine. The default.")
@click.option("--kubernetes", "kind", flag_value="kubernetes", help="A run in a cluster.")
@click.option("--rewards", "kind", flag_value="rewards", help="Rewards for a training with TRL.")
def init(directory: Path, kind: str) -> ExitCode:
    """Write a commented starting point into DIRECTORY, by default the current one.

    The first lines of each file say how to use it. No file is replaced.
    """
    sources = sorted((STARTING_POINTS / kind).iterdir())
    targets = [directory / source.name.removesuffix(AS_TEXT) for source in sources]
    there = [str(target) for target in targets if target.exists()]
    if there:
        raise BadInputError(f"{', '.join(there)}: already there: name another directory, or move it away")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for source, target in zip(sources, targets, strict=True):
            target.write_bytes(source.read_bytes())
            click.echo(target)
    except OSError as error:
        raise BadInputError(f"{directory}: {error.strerror}: name a directory that can be written to") from error
    return ExitCode.SUCCEEDED
