"""Shared steps of the commands for verl's files: read YAML, show the account, write an EvalRun."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from evalrun_api.manifest import parse_evalrun
from evalrun_api.v1alpha1 import Grader
from evalrun_cli.printable_text import printable, printable_lines
from evalrun_cli.verl_files.document import account_text, refusals
from evalrun_cli.verl_files.evaluation import read_evaluation, rename_columns
from evalrun_cli.verl_files.generation import convert
from evalrun_cli.verl_files.overrides import apply_overrides
from evalrun_runtime.exits import BadInputError, ExitCode


def resolve_rows(config: Path, output: Path) -> tuple[str, Grader | None]:
    """Return the file of problems and completions that an evaluation.yaml names, and its grader.

    Raises BadInputError.
    """
    evaluation = read_evaluation(_yaml(config), str(config))
    unknown = [entry for entry in evaluation.entries if entry.fate == "unknown"]
    for entry in unknown:
        click.echo(printable(f"evalrun: {config}: {entry.key}: {entry.note}"), err=True)
    return rename_columns(evaluation, output, Path.cwd()), evaluation.grader


def convert_file(config: Path | None, output: Path | None, overrides: Sequence[str] = ()) -> ExitCode:
    """Write the EvalRun of a verl configuration, and report on stderr how each key was converted.

    Args:
        config: the file; None: the overrides hold everything.
        output: file of the EvalRun; None: the terminal.
        overrides: overrides in Hydra's form.

    Raises:
        BadInputError: the configuration cannot be converted, or a key is refused.
    """
    where = "the overrides" if config is None else str(config)
    converted = convert(apply_overrides({} if config is None else _yaml(config), overrides), where)
    click.echo(printable_lines(account_text(converted.entries)), err=True)
    refusals(converted.entries, where)
    parse_evalrun(dict(converted.manifest), where=where, place="machine")
    text = (
        f"# From {where if config is None else config.name}. In a cluster datasets and model lie on a volume, in a "
        "bucket or on a hub, and results\n# should go to output.url.\n"
    )
    if "exports" in converted.manifest["spec"]:
        text += "# In a cluster WandB's key is named by exports.wandb.secretRef.\n"
    text += yaml.safe_dump(dict(converted.manifest), sort_keys=False, allow_unicode=True)
    if output is None:
        click.echo(text, nl=False)
    else:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise BadInputError(f"--output {output}: {error.strerror}") from error
    return ExitCode.SUCCEEDED


def _yaml(config: Path) -> Mapping[str, Any]:
    try:
        values = yaml.safe_load(config.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInputError(f"{config}: {error.strerror}") from error
    # A ValueError means that the text is not UTF-8, or has a date that no calendar has.
    except (ValueError, yaml.YAMLError) as error:
        raise BadInputError(f"{config}: not readable as YAML: {error}".replace("\n", " ")) from error
    if not isinstance(values, dict):
        raise BadInputError(f"{config}: not a mapping of keys: no configuration of verl's")
    return values
