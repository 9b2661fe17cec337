"""The header of a log: the run, its state, and its metrics with their intervals. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from evalrun_registry.metrics import HEADLINE
from evalrun_results.inspect_log.samples import ACCEPTED, GRADE, PASS_RATIO, stable_id
from evalrun_results.samples import JsonObject, JsonValue

VERSION: Final = 2
"""Version of the format."""
Status = Literal["started", "success", "cancelled", "error"]
_SCORERS: Final[Sequence[str]] = (ACCEPTED, PASS_RATIO, GRADE)
_MEASURED: Final = ("coverage", "accepted_bounds")
"""Fields of a dataset's summary that are exported with the metrics."""
_BOUNDS: Final = ("low", "high")


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """A dataset of a run, as the header describes it."""

    run: str
    dataset: str
    model: str
    created: str
    """ISO time, as are the following."""
    started: str
    ended: str
    """Empty for a run that has not ended."""
    status: Status
    evalrun: str
    """Version."""
    protocol: Mapping[str, Any]
    """Protocol of its spec; empty if the completions were made elsewhere."""
    summary: Mapping[str, Any] | None
    """Entry of the dataset in `summary.json`; None for a run that has not ended."""
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    error: str = ""
    """Reason why the results do not cover every problem."""

    @property
    def run_id(self) -> str:
        """The same for every export of the run."""
        return stable_id(self.run, self.created)


@dataclass(slots=True)
class LogTotals:
    """Sums over the samples of a log."""

    samples: int = 0
    errors: int = 0
    epochs: int = 1
    ids: dict[str, None] = field(default_factory=dict)
    """Ids of problems, in their order, by which readers go through the samples."""
    scored: dict[str, int] = field(default_factory=dict)
    """Samples by score."""
    usage: dict[str, dict[str, int]] = field(default_factory=dict)
    """Tokens by model, of the completions whose tokens are known."""

    def add(self, sample: Mapping[str, Any]) -> None:
        """Count a sample."""
        self.samples += 1
        self.errors += "error" in sample
        self.epochs = max(self.epochs, sample["epoch"])
        self.ids[sample["id"]] = None
        for name in sample["scores"]:
            self.scored[name] = self.scored.get(name, 0) + 1
        for model, usage in sample["model_usage"].items():
            total = self.usage.setdefault(model, dict.fromkeys(usage, 0))
            for kind, tokens in usage.items():
                total[kind] += tokens


def make_start(run: LoggedRun, totals: LogTotals) -> JsonObject:
    """Return the part of the header that is known when a run starts."""
    return {"version": VERSION, "eval": _eval(run, totals), "plan": {"name": "plan", "steps": [], "config": {}}}


def make_header(run: LoggedRun, totals: LogTotals) -> JsonObject:
    """Return the header."""
    header: JsonObject = {**make_start(run, totals), "status": run.status, "stats": _stats(run, totals)}
    if run.summary is not None:
        header["results"] = _results(run.summary, totals)
    if run.error:
        header["error"] = {"message": run.error, "traceback": run.error, "traceback_ansi": run.error}
    return header


def _eval(run: LoggedRun, totals: LogTotals) -> JsonObject:
    return {
        "eval_id": stable_id(run.run_id, run.dataset, "eval"),
        "run_id": run.run_id,
        "created": run.created,
        "task": run.dataset,
        "task_id": stable_id(run.dataset),
        "task_version": 0,
        "dataset": {"name": run.dataset, "samples": len(totals.ids), "sample_ids": list(totals.ids)},
        "model": run.model,
        "model_generate_config": _generation(run.protocol),
        "config": {"epochs": totals.epochs},
        "packages": {"evalrun": run.evalrun},
        "metadata": {"evalrun_run": run.run, **run.metadata},
    }


def _generation(protocol: Mapping[str, Any]) -> JsonObject:
    """Return how completions were generated; empty if unknown."""
    found: JsonObject = {}
    for name, field_name, kind in (
        ("temperature", "temperature", float), ("top_p", "topP", float), ("max_tokens", "maxNewTokens", int),
        ("seed", "seed", int),
    ):  # fmt: skip
        if protocol.get(field_name) is not None:
            found[name] = kind(protocol[field_name])
    if stop := protocol.get("stop"):
        found["stop_seqs"] = list(stop)
    return found


def _stats(run: LoggedRun, totals: LogTotals) -> JsonObject:
    usage: JsonObject = {model: dict(kinds) for model, kinds in totals.usage.items()}
    return {"started_at": run.started, "completed_at": run.ended, "model_usage": usage}


def _results(summary: Mapping[str, Any], totals: LogTotals) -> JsonObject:
    metrics = _metrics(summary["metrics"])
    names = [name for name in _SCORERS if name in totals.scored or name == ACCEPTED]
    return {
        "total_samples": totals.samples,
        "completed_samples": totals.samples - totals.errors,
        "scores": [
            {
                "name": name, "scorer": name, "scored_samples": totals.scored.get(name, 0),
                "unscored_samples": totals.samples - totals.scored.get(name, 0),
                "metrics": {metric: each for metric, each in metrics.items() if _find_scorer(metric, names) == name},
            }
            for name in names
        ],
        "headline": {"scorer": ACCEPTED, "metric": HEADLINE.name},
        "metadata": {name: summary[name] for name in _MEASURED if name in summary},
    }  # fmt: skip


def _find_scorer(metric: str, names: Sequence[str]) -> str:
    return next((name for name in names if name != ACCEPTED and metric.startswith(f"{name}_")), ACCEPTED)


def _metrics(measured: Mapping[str, Any]) -> dict[str, JsonObject]:
    """Return the metrics that have a value, each followed by the bounds of its interval, which lists show too."""
    found: dict[str, JsonObject] = {}
    for name, figures in measured.items():
        if (value := figures.get("value")) is None:
            continue
        more = {key: item for key, item in figures.items() if key != "value" and item is not None}
        found[name] = {"name": name, "value": value, "metadata": more}
        for bound in _BOUNDS:
            if (limit := figures.get(bound)) is not None:
                found[f"{name}_{bound}"] = {"name": f"{name}_{bound}", "value": limit}
    return found
