"""Selects the metrics of a run that may be published, with the notes that must accompany them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evalrun_registry.metrics import HEADLINE
from evalrun_results.stored_run import StoredRun

KS = "pass_at_"
"""Prefix of the name of each metric pass@k."""


class UnpublishableError(Exception):
    """A run's metrics would mislead; the message names the reason and a remedy."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A share of problems solved, with its interval."""

    dataset: str
    k: int
    """The k of pass@k."""
    value: float
    interval: tuple[float, float] | None
    """The 95 % interval."""
    method: str
    """Method of the interval."""
    problems: int


@dataclass(frozen=True, slots=True)
class Publication:
    """What is said of a run. No text of a problem or a model is in it."""

    run: str
    model: str
    """Name of the model in its spec."""
    ended: datetime
    evalrun: str
    """Version."""
    engine: Mapping[str, str]
    """Name and version, or empty where an endpoint answered."""
    containment: str
    protocol: Mapping[str, Any]
    """Protocol of its spec; empty for completions made elsewhere without a description."""
    records_sha256: Mapping[str, str]
    """Digest of problems and tests, by dataset."""
    figures: tuple[Figure, ...]

    @property
    def conditions(self) -> str:
        """How answers were drawn, in a few words."""
        protocol = self.protocol
        if not protocol:
            return "answers made elsewhere"
        drawn = "greedy" if float(protocol["temperature"]) == 0 else f"temperature {protocol['temperature']}"
        samples = protocol["samples"]
        return f"{drawn}, {samples} sample{'s' * (samples != 1)} per problem, {protocol['maxNewTokens']} tokens at most"


def read_publication(run: StoredRun) -> Publication:
    """Return the publishable metrics of a run, and the conditions under which they were measured.

    Raises:
        UnpublishableError: it is incomplete, or its weights are random.
    """
    info: Mapping[str, Any] = run.run_info
    summary: Mapping[str, Any] = run.summary
    spec = info["spec"]
    if summary["state"] != "Succeeded" or run.stopped_early or info.get("partial"):
        raise UnpublishableError(
            f"the run is {'stopped early' if run.stopped_early else summary['state']}: publish one that has succeeded"
        )
    if (spec.get("rollout") or {}).get("loadFormat") == "dummy":
        raise UnpublishableError("the weights are random (spec.rollout.loadFormat: dummy): its figures mean nothing")
    for name, dataset in summary["datasets"].items():
        if dataset["coverage"] != 1.0:
            raise UnpublishableError(
                f"{name}: {dataset['counts']['not_judged']} answers were not judged, so its figures are ranges, which "
                "no format of others holds: evalrun rejudge RUN judges them"
            )
    engine: Mapping[str, str] = next((each["engine"] for each in info.get("replicas", ()) if each.get("engine")), {})
    return Publication(
        run=info["run"],
        model=spec["model"].get("adapter") or spec["model"]["path"],
        ended=datetime.fromisoformat(info["ended_at"]),
        evalrun=info["versions"]["evalrun"],
        engine={"name": engine["engine"], "version": engine.get("engine_version", "unknown")}
        if "engine" in engine
        else {},
        containment=", ".join(info.get("containment_levels", ())),
        protocol=spec.get("protocol") or {},
        records_sha256={name: dataset["records_sha256"] for name, dataset in info["datasets"].items()},
        figures=tuple(_figures(summary["datasets"])),
    )


def _figures(datasets: Mapping[str, Any]) -> list[Figure]:
    found = []
    for name, dataset in datasets.items():
        for metric, measured in dataset["metrics"].items():
            k = _parse_k(metric)
            if k is None or measured.get("value") is None:
                continue
            low, high = measured.get("low"), measured.get("high")
            found.append(
                Figure(
                    dataset=name,
                    k=k,
                    value=measured["value"],
                    interval=None if low is None or high is None else (low, high),
                    method=measured.get("method") or "",
                    problems=dataset["counts"]["problems"],
                )
            )
    return found


def _parse_k(metric: str) -> int | None:
    """Return the k of pass@k; None for another metric, and for pass_at_1, which is the headline's second name."""
    if metric == HEADLINE.name:
        return 1
    number = metric.removeprefix(KS)
    is_k = metric.startswith(KS) and number.isdecimal() and number != "1"
    return int(number) if is_k else None
