"""The commands `setup` and `doctor`, for the requirements of runs on this machine."""

import json
from pathlib import Path

import click

from evalrun_cli.commands.group import evalrun
from evalrun_runtime.exits import BadInputError, ExitCode


@evalrun.group()
def setup() -> None:
    """Install what some runs need beside evalrun itself."""


@setup.command()
@click.option("--cpu", is_flag=True, help="The CPU build, for tests and tiny models: --gpus cpu.")
def gpu(cpu: bool) -> ExitCode:
    """Install Ray, verl and vLLM for replicas on this machine's GPUs, and print their interpreter.

    They get an environment of their own below ~/.cache/evalrun (EVALRUN_CACHE), from requirements locked with hashes.
    It is installed once for each lock, and `evalrun run --gpus` finds it. PIP_INDEX_URL and the like are read as pip
    reads them.
    """
    from evalrun_cli.gpu_host.environment import SetupError, known_environments

    (environment,) = (each for each in known_environments() if each.cpu == cpu)
    try:
        click.echo(environment.install(lambda line: click.echo(line, err=True)))
    except SetupError as error:
        raise BadInputError(f"evalrun setup gpu: {error}") from error
    return ExitCode.SUCCEEDED


@evalrun.command()
@click.option(
    "--gpu-python",
    metavar="PROGRAM",
    type=click.Path(path_type=Path),
    help="Interpreter with Ray, verl and vLLM. Default: that of `evalrun setup gpu`.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(gpu_python: Path | None, as_json: bool) -> ExitCode:
    """Say what this machine has for runs here, and what it lacks.

    Python, kernel, the containment that programs really reach, languages, GPUs, driver, verl, engine, free disk. The
    exit code is 1 if programs cannot be judged here; what only replicas need is named and does not count.
    """
    from evalrun_cli.gpu_host.doctor import examine, render_findings

    findings = examine(gpu_python)
    if as_json:
        click.echo(json.dumps([finding.to_wire() for finding in findings], indent=2))
    else:
        click.echo("\n".join(render_findings(findings)))
    broken = any(finding.lacks and finding.is_required for finding in findings)
    return ExitCode.FAILED if broken else ExitCode.SUCCEEDED
