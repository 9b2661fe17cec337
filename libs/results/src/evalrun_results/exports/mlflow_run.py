"""The exporter to MLflow, through its own package. Imported in the export's process only."""

import time
from collections.abc import Iterator, Mapping

from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from pydantic_core import to_json

from evalrun_results.exports.content import ExportContent
from evalrun_results.exports.exporter import Exported, ExportError, MlflowTarget
from evalrun_results.json_text import json_line

ID_TAG = "evalrun.id"
MAX_PARAMETER_CHARACTERS = 500
"""Characters; servers refuse more (500 before MLflow 2.8, 6,000 since)."""
BATCH = 100
"""Parameters a call; a server takes no more."""


class MlflowExporter:
    """Writes one run of an experiment.

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
            self._send(client, run, content)
            client.set_terminated(run)
        except (MlflowException, OSError) as error:
            raise ExportError(" ".join(str(error).split())) from error
        if not self._target.tracking_uri.startswith(("http://", "https://")):
            return Exported()
        return Exported(url=f"{self._target.tracking_uri.rstrip('/')}/#/experiments/{experiment}/runs/{run}")

    def _experiment_id(self, client: MlflowClient) -> str:
        found = client.get_experiment_by_name(self._experiment)
        return str(client.create_experiment(self._experiment) if found is None else found.experiment_id)

    def _run_id(self, client: MlflowClient, experiment: str, content: ExportContent) -> str:
        """Return the run with our id, so that none is duplicated; create it if there is none."""
        found = client.search_runs([experiment], filter_string=f"tags.`{ID_TAG}` = '{content.id}'", max_results=1)
        if found:
            return str(found[0].info.run_id)
        tags = {ID_TAG: content.id, "evalrun.namespace": content.namespace}
        return str(client.create_run(experiment, tags=tags, run_name=content.run).info.run_id)

    def _send(self, client: MlflowClient, run: str, content: ExportContent) -> None:
        """Send what can be sent twice: parameters never change over the exports of a run, metrics of step 0 may."""
        now = int(time.time() * 1000)
        client.log_batch(run, metrics=[Metric(key, value, now, 0) for key, value in content.metrics.items()])
        parameters = [Param(key, value) for key, value in flattened(content.info.get("spec", {}))]
        for start in range(0, len(parameters), BATCH):
            client.log_batch(run, params=parameters[start : start + BATCH])
        client.log_dict(run, content.info, "run_info.json")
        client.log_text(run, "".join(f"{json_line(record).decode()}\n" for record in content.qa), "qa_logs.jsonl")


def flattened(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Return the leaves of nested values by their dotted names, as texts that a parameter may hold."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from flattened(value, f"{prefix}{name}.")
        else:
            text = value if isinstance(value, str) else to_json(value).decode()
            yield f"{prefix}{name}", text[:MAX_PARAMETER_CHARACTERS]
