"""Defines the catalogue's rows: a row about the run, and the small columns of each of its results. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

SCHEMA_VERSION: Final = 1

_METRIC: Final = pa.struct(
    [
        ("dataset", pa.string()), ("metric", pa.string()), ("value", pa.float64()), ("low", pa.float64()),
        ("high", pa.float64()), ("n", pa.int64()), ("method", pa.string()),
    ]
)  # fmt: skip
_GATE: Final = pa.struct(
    [
        ("dataset", pa.string()), ("metric", pa.string()), ("baseline", pa.string()), ("decision", pa.string()),
        ("reason", pa.string()), ("message", pa.string()),
    ]
)  # fmt: skip
_DATASET: Final = pa.struct(
    [
        ("dataset", pa.string()), ("problems", pa.int64()), ("samples", pa.int64()), ("judged", pa.int64()),
        ("accepted", pa.int64()), ("coverage", pa.float64()), ("records_sha256", pa.string()), ("role", pa.string()),
    ]
)  # fmt: skip

RUN_SCHEMA: Final = pa.schema(
    [
        ("schema", pa.int32()), ("entry", pa.string()), ("place", pa.string()), ("stamp", pa.string()),
        ("indexed_at", pa.float64()), ("compacted_at", pa.float64()), ("removed", pa.bool_()),
        ("results_file", pa.string()), ("results_source", pa.string()),
        ("run", pa.string()), ("namespace", pa.string()), ("state", pa.string()), ("partial", pa.string()),
        ("model", pa.string()), ("protocol", pa.string()), ("created", pa.string()), ("started_at", pa.string()),
        ("ended_at", pa.string()), ("evalrun_version", pa.string()), ("signed_by", pa.string()),
        ("schedule", pa.string()), ("step", pa.int64()), ("phase", pa.string()), ("gpu_seconds", pa.float64()),
        ("gate", pa.string()),
        ("datasets", pa.list_(_DATASET)), ("metrics", pa.list_(_METRIC)), ("gates", pa.list_(_GATE)),
    ]
)  # fmt: skip
"""One row per entry. `entry` is unique; of several entries with the same `place` the newest counts."""

RESULT_SCHEMA: Final = pa.schema(
    [
        ("entry", pa.string()), ("dataset", pa.string()), ("problem_id", pa.string()), ("sample", pa.int64()),
        ("turn", pa.int64()), ("repeat", pa.int64()), ("judged", pa.bool_()), ("accepted", pa.bool_()),
        ("pass_ratio", pa.float64()), ("score", pa.float64()), ("final_status", pa.string()),
        ("not_judged_reason", pa.string()), ("difficulty", pa.string()), ("language", pa.string()),
        ("forgeable", pa.bool_()), ("finish_reason", pa.string()), ("output_tokens", pa.int64()),
        ("gen_time", pa.float64()), ("total_judge_time", pa.float64()),
    ]
)  # fmt: skip
RESULT_COLUMNS: Final = tuple(name for name in RESULT_SCHEMA.names if name != "entry")


def run_row(
    place: str, summary: Mapping[str, Any], run_info: Mapping[str, Any], *, signed_by: str = ""
) -> dict[str, object]:
    """Return a run's row of the catalogue; the store adds its own columns: entry, stamp, times and files.

    Args:
        place: path of the run, relative to the directory of the catalogue's runs.
        summary: content of summary.json.
        run_info: content of run_info.json.
        signed_by: key or identity that signed the summary; empty if none is known.
    """
    spec = _object(run_info.get("spec"))
    lineage = _object(spec.get("lineage"))
    versions = _object(run_info.get("versions"))
    step = lineage.get("step")
    return {
        "schema": SCHEMA_VERSION,
        "place": place,
        "removed": False,
        "run": _text(run_info.get("run")),
        "namespace": _text(run_info.get("namespace")),
        "state": _text(summary.get("state")),
        "partial": _text(summary.get("partial")),
        "model": _text(_object(spec.get("model")).get("path")),
        "protocol": _text(_object(spec.get("protocol")).get("name")),
        "created": _text(run_info.get("created")),
        "started_at": _text(run_info.get("started_at")),
        "ended_at": _text(run_info.get("ended_at")),
        "evalrun_version": _text(versions.get("evalrun")),
        "signed_by": signed_by or None,
        "schedule": _text(lineage.get("schedule")),
        "step": step if isinstance(step, int) and not isinstance(step, bool) else None,
        "phase": _text(lineage.get("phase")),
        "gpu_seconds": _number(run_info.get("gpu_seconds")),
        "gate": _text(_object(summary.get("gate")).get("decision")),
        "datasets": list(_datasets(summary, run_info)),
        "metrics": list(_metrics(summary)),
        "gates": list(_gates(summary)),
    }


def _datasets(summary: Mapping[str, Any], run_info: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    known = _object(run_info.get("datasets"))
    for name, found in _object(summary.get("datasets")).items():
        counts, recorded = _object(_object(found).get("counts")), _object(known.get(name))
        yield {
            "dataset": name,
            **{count: counts.get(count) for count in ("problems", "samples", "judged", "accepted")},
            "coverage": _number(_object(found).get("coverage")),
            "records_sha256": _text(recorded.get("records_sha256")),
            "role": _text(recorded.get("role")),
        }


def _metrics(summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    for dataset, found in _object(summary.get("datasets")).items():
        for metric, figure in _object(_object(found).get("metrics")).items():
            measured = _object(figure)
            count = measured.get("n")
            yield {
                "dataset": dataset,
                "metric": metric,
                **{part: _number(measured.get(part)) for part in ("value", "low", "high")},
                "n": count if isinstance(count, int) else None,
                "method": _text(measured.get("method")),
            }


def _gates(summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    gate = _object(summary.get("gate"))
    several = gate.get("gates")
    for each in several if isinstance(several, list) else [gate] if gate else []:
        one = _object(each)
        yield {
            part: _text(one.get(part)) for part in ("dataset", "metric", "baseline", "decision", "reason", "message")
        }


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
