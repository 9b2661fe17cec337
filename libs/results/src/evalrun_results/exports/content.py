"""The content exported for a run, the same for every service. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from pydantic import BaseModel, ConfigDict
from pydantic_core import to_json

from evalrun_api.run_config import RunConfig
from evalrun_registry.metric import export_name
from evalrun_registry.metrics import HEADLINE
from evalrun_results.json_text import json_line
from evalrun_results.metrics.accumulator import DatasetMetrics
from evalrun_results.samples import JsonObject

QA_COLUMNS: Final = (
    "dataset", "problem_id", "sample", "prompt", "response", "ground_truth", "pass_ratio", "accepted", "final_status",
    "not_judged_reason", "output_tokens", "gen_time", "total_judge_time", "error_breakdown", "execution_output",
    "metadata",
)  # fmt: skip
"""Columns of the QA table: the fields of a QA record (docs/outputs.md), nested values as JSON."""

ID_CHARACTERS: Final = 16
_NO_NAME: Final = re.compile(r"[^\w -]")
"""Characters that MLflow refuses in a metric's name, or that would make a path of it."""
MAX_GROUP: Final = 100
"""Characters of a group's name. MLflow refuses a whole batch for one name of more than 250."""


class CurvePoint(BaseModel):
    """The run's point on the curve of a schedule."""

    model_config = ConfigDict(frozen=True)

    id: str
    """Id of the curve, the same for every run on it."""
    schedule: str
    step: int
    phase: str = ""
    model: str = ""
    """Place of the checkpoint."""


class ExportContent(BaseModel):
    """A run, as given to an exporter."""

    model_config = ConfigDict(frozen=True)

    id: str
    """Permanent id of the run at the service: a repeated export finds the run by it and never duplicates it."""
    run: str
    namespace: str
    # Any: JSON.
    info: dict[str, Any]
    """Content of run_info.json, the run's configuration at the service."""
    metrics: dict[str, float]
    """Metrics by `eval/<dataset>/<metric>`."""
    qa: list[dict[str, Any]]
    """The QA records of every dataset."""
    point: CurvePoint | None = None
    """None if the run belongs to no schedule, or names no step."""


def export_id(order: RunConfig) -> str:
    """Return the id of a run at the services.

    The id is the EvalRun's uid if there is one, else an id that survives restarts of a run on one machine. A rejudging
    is another run: its metrics must not replace those of the original.
    """
    own = order.uid or f"{order.created.isoformat()} {order.output_dir}"
    parts = (order.namespace, order.run, own, order.rejudge or "")
    return sha256("\0".join(parts).encode()).hexdigest()[:ID_CHARACTERS]


def curve_point(order: RunConfig) -> CurvePoint | None:
    """Return a run's point on its schedule's curve; None without a schedule or a step.

    A rejudging has no point: its run is on the curve already, and a point must not come from two judges.
    """
    lineage = order.spec.lineage
    if lineage is None or lineage.schedule is None or lineage.step is None or order.rejudge is not None:
        return None
    parts = ("curve", order.namespace, lineage.schedule)
    return CurvePoint(
        id=sha256("\0".join(parts).encode()).hexdigest()[:ID_CHARACTERS],
        schedule=lineage.schedule,
        step=lineage.step,
        phase=lineage.phase or "",
        model=order.spec.model.evaluated,
    )


def metric_values(datasets: Mapping[str, DatasetMetrics]) -> dict[str, float]:
    """Return every known metric as `eval/<dataset>/<metric>`, with each dataset's coverage."""
    return summary_values({name: metrics.summary() for name, metrics in datasets.items()})


def summary_values(datasets: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return what `metric_values` returns, from the datasets of summary.json."""
    values = {}
    for name, entry in datasets.items():
        values[export_name(name, "coverage")] = entry["coverage"]
        values[export_name(name, "not_judged")] = float(entry["counts"]["not_judged"])
        for metric, figure in entry["metrics"].items():
            if figure["value"] is not None:
                values[export_name(name, metric)] = figure["value"]
        values |= {export_name(name, part): value for part, value in _parts(entry)}
    return values


def _parts(entry: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield pass@1 by difficulty and tag, every figure's mean and deviation over seeds, and single tests by status."""
    for kind in ("by_difficulty", "by_tag"):
        groups = entry.get(kind, {})
        names = name_groups(groups)
        for group, found in groups.items():
            value = found["metrics"].get(HEADLINE.name, {}).get("value")
            if value is not None:
                yield f"{kind}/{names[group]}/{HEADLINE.name}", value
    for metric, figure in entry.get("by_seed", {}).get("metrics", {}).items():
        for part in ("mean", "deviation"):
            yield f"by_seed/{metric}/{part}", figure[part]
    for status, number in entry["counts"].get("tests", {}).items():
        yield f"tests/{status}", float(number)


def name_groups(groups: Iterable[str]) -> dict[str, str]:
    """Return a short name for each difficulty or tag, no two alike: each is a free text of the data."""
    short = {group: _NO_NAME.sub("_", group)[:MAX_GROUP] for group in groups}
    shared = Counter(short.values())
    return {
        group: name if shared[name] == 1 and len(group) <= MAX_GROUP else f"{name}_{_digest(group)}"
        for group, name in short.items()
    }


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]


def make_content(
    order: RunConfig,
    info: Mapping[str, object],
    metrics: Mapping[str, float],
    qa: Mapping[str, Sequence[JsonObject]],
) -> ExportContent:
    """Assemble the content of an export; `metrics` as `ExportContent` has them."""
    content: dict[str, object] = {
        "id": export_id(order),
        "run": order.run,
        "namespace": order.namespace,
        "info": info,
        "metrics": metrics,
        "qa": [record for records in qa.values() for record in records],
        "point": None if (point := curve_point(order)) is None else point.model_dump(),
    }
    # A model's completion may contain lone surrogates.
    return ExportContent.model_validate_json(json_line(content))


def qa_row(record: Mapping[str, Any]) -> list[Any]:
    """Return a QA record as a row of `QA_COLUMNS`."""
    return [_cell(record.get(column)) for column in QA_COLUMNS]


def _cell(value: object) -> object:
    return to_json(value).decode() if isinstance(value, dict | list) else value
