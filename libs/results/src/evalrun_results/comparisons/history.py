"""The curve of a metric over the steps of a training, from the outputs of its runs. Pure.

A run names its checkpoint in `spec.lineage`. Without a step there, the number in the model's directory
(`global_step_120`) counts; without either, the run is left out with the reason.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

JsonObject = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Point:
    """The metric of a checkpoint."""

    step: int
    place: str
    """Place of its run's outputs."""
    state: str
    """The run's: Succeeded, Degraded, ..."""
    value: float | None
    low: float | None
    high: float | None
    """The interval of `value`; None where the run has none."""
    judged: int | None
    """Problems that the figure is about."""
    started: str
    """Time at which the run was requested."""
    signer: str = ""
    """Id of the key, or the identity, that signed its summary; empty if nobody did."""

    @property
    def condition(self) -> str:
        """The run's state and its signer."""
        return f"{self.state}, signed by {_shorten_signer(self.signer)}" if self.signer else self.state


def _shorten_signer(signer: str) -> str:
    """Return the beginning of a key's id, which is 64 digits; the name of an identity whole."""
    return signer[:8] if re.fullmatch("[0-9a-f]{64}", signer) else signer


@dataclass(frozen=True, slots=True)
class Curve:
    """The metric of a dataset, by step."""

    schedule: str
    """Empty if the runs name none."""
    dataset: str
    metric: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class HistoryRun:
    """Facts about a run that a curve needs."""

    place: str
    summary: JsonObject
    run_info: JsonObject
    signer: str = ""
    """Id of the key, or the identity, that signed its summary; empty if nobody did."""


def read_lineage(run_info: JsonObject) -> dict[str, object]:
    """Return the lineage that a run records; empty without a lineage."""
    lineage = _object(_object(run_info.get("spec")).get("lineage"))
    return dict(lineage)


def read_step(run_info: JsonObject) -> int | None:
    """Return the training step of a run, or None if it is unknown."""
    step = read_lineage(run_info).get("step")
    if isinstance(step, int) and not isinstance(step, bool):
        return step
    path = str(_object(_object(run_info.get("spec")).get("model")).get("path", ""))
    named = re.search(r"(?:global_step_|checkpoint-|step[-_]?)(\d{1,12})(?:/|$)", path)
    return int(named[1]) if named else None


def curves(runs: Iterable[HistoryRun], metric: str, datasets: Sequence[str] = ()) -> tuple[list[Curve], list[str]]:
    """Return a curve per schedule and dataset, and the locations of runs whose step is unknown.

    Args:
        runs: in any order; two of a step (a checkpoint that was written again) stay two points.
        metric: of the summary.
        datasets: the requested datasets; empty for all.
    """
    points: dict[tuple[str, str], list[Point]] = {}
    stepless = []
    for run in runs:
        step = read_step(run.run_info)
        if step is None:
            stepless.append(run.place)
            continue
        schedule = str(read_lineage(run.run_info).get("schedule") or "")
        for dataset, found in _object(run.summary.get("datasets")).items():
            if not datasets or dataset in datasets:
                points.setdefault((schedule, dataset), []).append(_point(step, run, _object(found), metric))
    ordered = [
        Curve(schedule, dataset, metric, tuple(sorted(found, key=lambda one: (one.step, one.started, one.place))))
        for (schedule, dataset), found in sorted(points.items())
    ]
    return ordered, stepless


def _point(step: int, run: HistoryRun, dataset: JsonObject, metric: str) -> Point:
    figure = _object(_object(dataset.get("metrics")).get(metric))
    judged = figure.get("n")
    return Point(
        step=step,
        place=run.place,
        state=str(run.summary.get("state", "")),
        value=_number(figure.get("value")),
        low=_number(figure.get("low")),
        high=_number(figure.get("high")),
        judged=judged if isinstance(judged, int) else None,
        started=str(run.run_info.get("created") or ""),
        signer=run.signer,
    )


def _object(value: object) -> JsonObject:
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
