"""The content exported for a run that has ended, from its outputs."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from evalrun_api.run_config import RunConfig
from evalrun_registry.metric import export_name
from evalrun_results.exports.content import ExportContent, content_of
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.exits import BadInputError

_IDENTITY = ("run", "namespace", "created", "spec", "rejudge")


def order_of(run: StoredRun) -> RunConfig:
    """Return what a run was asked for, but for where it wrote and its EvalRun's uid. Raises BadInputError."""
    stored = {name: run.run_info.get(name) for name in _IDENTITY}
    try:
        return RunConfig.model_validate({**stored, "output_dir": "/"})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise BadInputError(f"{run.place}/run_info.json: {field}: {first['msg']}: another evalrun wrote it") from error


def stored_content(run: StoredRun, order: RunConfig) -> ExportContent:
    """Return what an export of the run at its end holds, under the id of such an export if there was one.

    Args:
        run: a run that has ended.
        order: as `order_of` returns it.

    Raises:
        BadInputError: the outputs cannot be read.
    """
    info = {name: value for name, value in run.run_info.items() if name != "exports"}
    content = content_of(order, info, _metric_values(run), run.qa_records())
    earlier = _earlier_id(run.run_info.get("exports"))
    return content if earlier is None else content.model_copy(update={"id": earlier})


def _earlier_id(exports: object) -> str | None:
    entries = exports.values() if isinstance(exports, dict) else ()
    return next((str(entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry), None)


def _metric_values(run: StoredRun) -> dict[str, float]:
    """Return what `metric_values` returns, from the summary."""
    values: dict[str, float] = {}
    summary: Mapping[str, Any] = run.summary
    for name, entry in summary["datasets"].items():
        values[export_name(name, "coverage")] = entry["coverage"]
        values[export_name(name, "not_judged")] = float(entry["counts"]["not_judged"])
        for metric, figure in entry["metrics"].items():
            if figure["value"] is not None:
                values[export_name(name, metric)] = figure["value"]
    return values
