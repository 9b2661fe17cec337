"""The command `publish`."""

from collections.abc import Callable
from pathlib import Path

import click

from evalrun_cli.commands.group import EXIT_CODES, evalrun
from evalrun_runtime.exits import ExitCode

_RUN = click.argument("run", metavar="RUN")
_MODEL = click.option("--model-id", metavar="DEVELOPER/MODEL", help="Default: the run's model, if it is such an id.")
_OUTPUT = click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Write the files below here.")
_SEND = click.option("--send", is_flag=True, help="Open a pull request on the Hugging Face hub.")

_SEND_THERE = click.option("--send", is_flag=True, help="Send it.")


def _add_flags(command: Callable[..., int]) -> Callable[..., int]:
    return _RUN(_MODEL(_OUTPUT(_SEND(command))))


@evalrun.group()
def publish() -> None:
    """Tell others what a run measured, in their formats.

    Without --output and --send everything is printed, exactly as it would leave, and nothing is written or sent.

    For the public (hub, eee) that is figures and conditions, and no text of a problem or a model. A run whose figures
    would mislead is refused: an incomplete one, and one with random weights. Your own services (wandb, mlflow) get what
    a run with `exports` sends them at its end, samples of the answers included.
    """


@publish.command(epilog=EXIT_CODES)
@_add_flags
@click.option(
    "--hub-dataset",
    "hub_datasets",
    multiple=True,
    metavar="NAME=ORG/DATASET:TASK",
    help="The hub's benchmark that dataset NAME of the run is; once per dataset.",
)
def hub(run: str, model_id: str | None, hub_datasets: tuple[str, ...], output: Path | None, send: bool) -> ExitCode:
    """Write results for a model's page on the Hugging Face hub: .eval_results/*.yaml.

    --output also writes model_card.md, a table for the model's card. --send opens a pull request in the model's
    repository.

    \b
    Example:
      evalrun publish hub outputs/qwen --hub-dataset humaneval=openai/openai_humaneval:openai_humaneval
    """
    from evalrun_cli.publishing import publish_to_hub

    return publish_to_hub(run, model_id, hub_datasets, output, sends=send)


@publish.command(epilog=EXIT_CODES)
@_add_flags
@click.option("--organization", required=True, help="Who ran the evaluation.")
@click.option(
    "--relationship",
    required=True,
    type=click.Choice(["first_party", "third_party", "collaborative", "other"]),
    help="Of the evaluator to the model's developer.",
)
def eee(
    run: str, model_id: str | None, organization: str, relationship: str, output: Path | None, send: bool
) -> ExitCode:
    """Write a record of Every Eval Ever, the shared store of evaluations. --send opens a pull request there."""
    from evalrun_cli.publishing import publish_to_every_eval_ever

    return publish_to_every_eval_ever(run, model_id, organization, relationship, output, sends=send)


@publish.command(epilog=EXIT_CODES)
@_RUN
@click.option("--project", metavar="NAME", help="Default: exports.wandb.project of the run's spec.")
@click.option("--entity", metavar="NAME", help="Default: that of the run's spec, else of your key.")
@_SEND_THERE
def wandb(run: str, project: str | None, entity: str | None, send: bool) -> ExitCode:
    """Send a run to Weights & Biases after its end, such as one whose export failed. Sending it again makes no
    second run. Needs WANDB_API_KEY.

    \b
    Example:
      evalrun publish wandb outputs/qwen --project evals --send
    """
    from evalrun_cli.resending import publish_to_wandb

    return publish_to_wandb(run, project, entity, sends=send)


@publish.command(epilog=EXIT_CODES)
@_RUN
@click.option("--tracking-uri", metavar="ADDRESS", envvar="MLFLOW_TRACKING_URI", help="Default: MLFLOW_TRACKING_URI.")
@_SEND_THERE
def mlflow(run: str, tracking_uri: str | None, send: bool) -> ExitCode:
    """Send a run to MLflow after its end, such as one whose export failed. Sending it again makes no second
    run.

    \b
    Example:
      evalrun publish mlflow outputs/qwen --tracking-uri http://mlflow:5000 --send
    """
    from evalrun_cli.resending import publish_to_mlflow

    return publish_to_mlflow(run, tracking_uri, sends=send)
