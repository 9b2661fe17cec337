"""The exporter to MLflow, through its own package. Imported in the export's process only."""

import time
from collections.abc import Iterator, Mapping

from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, LoggedModelStatus, Metric, Param
from mlflow.exceptions import MlflowException
from pydantic_core import to_json

from evalrun_results.exports.content import ExportContent
from evalrun_results.exports.exporter import Exported, ExportError, MlflowTarget
from evalrun_results.json_text import json_line

ID_TAG = "evalrun.id"
MAX_PARAMETER_CHARACTERS = 500
"""Characters; servers refuse more (500 before MLflow 2.8, 6,000 since)."""
BATCH = 100
"""Maximum parameters per call; a server accepts no more."""
METRIC_BATCH = 1000
"""Maximum metrics per call; a server accepts no more."""


class MlflowExporter:
    """Writes a run of an experiment, and the logged model of its checkpoint.

    Args:
        target: the tracking server.
        experiment: its name; created if it does not exist.
    """

    def __init__(self, target: MlflowTarget, experiment: str) -> None:
        self._target = target
        self._experiment = experiment

    def export(self, content: ExportContent) -> Exported:
        """Send the run; see `Exporter.export`."""
        try:
            client = MlflowClient(tracking_uri=self._target.tracking_uri)
            experiment = self._experiment_id(client)
            run = self._run_id(client, experiment, content)
            model, refusal = self._model_id(client, experiment, run, content)
            self._send(client, run, content, model)
            client.set_terminated(run)
        except (MlflowException, OSError) as error:
            raise ExportError(" ".join(str(error).split())) from error
        if refusal:
            raise ExportError(
                f"the run was sent, but no logged model for its checkpoint (MLflow 3 has them): {refusal}"
            )
        if not self._target.tracking_uri.startswith(("http://", "https://")):
            return Exported()
        return Exported(url=f"{self._target.tracking_uri.rstrip('/')}/#/experiments/{experiment}/runs/{run}")

    def _experiment_id(self, client: MlflowClient) -> str:
        found = client.get_experiment_by_name(self._experiment)
        return str(client.create_experiment(self._experiment) if found is None else found.experiment_id)

    def _run_id(self, client: MlflowClient, experiment: str, content: ExportContent) -> str:
        """Return the run with our id, or create it, so that no run is duplicated."""
        found = client.search_runs([experiment], filter_string=f"tags.`{ID_TAG}` = '{content.id}'", max_results=1)
        if found:
            return str(found[0].info.run_id)
        tags = {ID_TAG: content.id, "evalrun.namespace": content.namespace}
        return str(client.create_run(experiment, tags=tags, run_name=content.run).info.run_id)

    def _model_id(
        self, client: MlflowClient, experiment: str, run: str, content: ExportContent
    ) -> tuple[str | None, str]:
        """Return the logged model of the run's checkpoint, created once, or why there is none.

        A rewritten checkpoint is a new model: models are identified by the run, and each checkpoint has its own run.
        """
        point = content.point
        if point is None:
            return None, ""
        try:
            found = client.search_logged_models(
                [experiment], filter_string=f"tags.`{ID_TAG}` = '{content.id}'", max_results=1
            )
            if found:
                return str(found[0].model_id), ""
            tags = {ID_TAG: content.id, "evalrun.namespace": content.namespace, "evalrun.schedule": point.schedule}
            params = {"step": str(point.step), "path": point.model[:MAX_PARAMETER_CHARACTERS], "phase": point.phase}
            model = client.create_logged_model(
                experiment,
                # A name may contain no dot.
                name=f"{point.schedule.replace('.', '-')}-step-{point.step}",
                source_run_id=run,
                tags=tags,
                params={key: value for key, value in params.items() if value},
                model_type="checkpoint",
            )
            client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
            client.log_outputs(run, [LoggedModelOutput(model.model_id, point.step)])
        except MlflowException as error:
            return None, " ".join(str(error).split())
        return str(model.model_id), ""

    def _send(self, client: MlflowClient, run: str, content: ExportContent, model: str | None) -> None:
        """Send the values that may be sent repeatedly: parameters stay equal between exports of a run, metrics of a
        step may change."""
        now, step = int(time.time() * 1000), 0 if content.point is None else content.point.step
        metrics = [Metric(key, value, now, step, model_id=model) for key, value in content.metrics.items()]
        for start in range(0, len(metrics), METRIC_BATCH):
            client.log_batch(run, metrics=metrics[start : start + METRIC_BATCH])
        parameters = [Param(key, value) for key, value in flatten_values(content.info.get("spec", {}))]
        for start in range(0, len(parameters), BATCH):
            client.log_batch(run, params=parameters[start : start + BATCH])
        client.log_dict(run, content.info, "run_info.json")
        client.log_text(run, "".join(f"{json_line(record).decode()}\n" for record in content.qa), "qa_logs.jsonl")


def flatten_values(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Return the leaves of nested values by their dotted names, as texts that a parameter may hold."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from flatten_values(value, f"{prefix}{name}.")
        else:
            text = value if isinstance(value, str) else to_json(value).decode()
            yield f"{prefix}{name}", text[:MAX_PARAMETER_CHARACTERS]
