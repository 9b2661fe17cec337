"""`evalrun publish wandb` and `mlflow`: shows or sends the exports of an ended run."""

import json
from collections.abc import Callable
from pathlib import Path

import click

from evalrun_api.run_config import RunConfig
from evalrun_results.exports.exporter import ExportError, MlflowTarget, Target, WandbTarget
from evalrun_results.exports.process import export_apart
from evalrun_results.exports.run_exports import list_targets
from evalrun_results.exports.stored_content import read_export_content, read_stored_config
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.exits import BadInputError, ExitCode

SECONDS = 300.0
"""Maximum time of sending an export."""


def publish_to_wandb(place: str, project: str | None, entity: str | None, *, sends: bool) -> ExitCode:
    """Show or send a run as a run of WandB. Arguments that are None come from the run's spec. Raises BadInputError."""

    def target(order: RunConfig) -> Target:
        asked = next((each for each in list_targets(order.spec.exports) if isinstance(each, WandbTarget)), None)
        if project is None and asked is None:
            raise BadInputError(f"{place}: its spec names no project of WandB: write --project NAME")
        found = WandbTarget(project=project or "") if asked is None else asked
        given = {name: value for name, value in (("project", project), ("entity", entity)) if value is not None}
        return found.model_copy(update={**given, "mode": "online"})

    return _publish(place, target, sends=sends)


def publish_to_mlflow(place: str, tracking_uri: str | None, *, sends: bool) -> ExitCode:
    """Show or send a run as a run of MLflow. Raises BadInputError.

    The server is never taken from the run's files, which may be another person's, because the token goes there.
    """
    if tracking_uri is None:
        raise BadInputError("name the server of MLflow: write --tracking-uri ADDRESS, or set MLFLOW_TRACKING_URI")
    return _publish(place, lambda _: MlflowTarget(tracking_uri=tracking_uri), sends=sends)


def _publish(place: str, target_of: Callable[[RunConfig], Target], *, sends: bool) -> ExitCode:
    run = StoredRun.open(place)
    order = read_stored_config(run)
    target, content = target_of(order), read_export_content(run, order)
    if not sends:
        leaving = {"to": target.model_dump(exclude_none=True), **content.model_dump()}
        # The escape keeps the text from moving a terminal's cursor.
        click.echo(json.dumps(leaving, indent=2).replace("\x7f", "\\u007f"))
        return ExitCode.SUCCEEDED
    try:
        done = export_apart(target, content, Path.cwd(), scratch_in=None, seconds=SECONDS)
    except (ExportError, OSError) as error:
        raise BadInputError(f"{place}: not sent to {target.kind}: {error}") from error
    click.echo(done.url or f"sent as run {content.id}")
    return ExitCode.SUCCEEDED
