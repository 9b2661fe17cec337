"""Exports a finished run to the targets in its spec. Failures become warnings of the run."""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from evalrun_api.run_config import RunConfig
from evalrun_api.v1alpha1 import Exports
from evalrun_results.exports.content import ExportContent, make_content, metric_values
from evalrun_results.exports.exporter import Exported, ExportError, MlflowTarget, Target, WandbTarget
from evalrun_results.exports.process import export_apart
from evalrun_results.metrics.accumulator import DatasetMetrics
from evalrun_results.samples import JsonObject

logger = logging.getLogger(__name__)

RunExport = Callable[[Target, ExportContent, Path], Exported]
"""Does an export into the outputs' directory. Raises ExportError, OSError."""


@dataclass(frozen=True, slots=True)
class ExportReport:
    """Results of a run's exports."""

    entries: JsonObject
    """The `exports` of run_info.json, by service."""
    warnings: tuple[str, ...] = ()
    """Warnings for people, one per line."""
    wandb_url: str = ""


def list_targets(exports: Exports) -> list[Target]:
    """Return the export targets that a spec names."""
    targets: list[Target] = []
    if exports.wandb is not None and exports.wandb.mode != "disabled":
        wandb = exports.wandb
        targets.append(
            WandbTarget(
                project=wandb.project,
                entity=wandb.entity,
                name=wandb.name,
                group=wandb.group,
                tags=tuple(wandb.tags),
                mode=wandb.mode,
            )
        )
    if exports.mlflow is not None:
        targets.append(MlflowTarget(tracking_uri=exports.mlflow.tracking_uri))
    return targets


class RunExports:
    """The exports of a run.

    Args:
        order: the run's.
        export: exports to a target; `make_exports` passes a function that does so in a child process.
    """

    def __init__(self, order: RunConfig, export: RunExport) -> None:
        self._order = order
        self._export = export

    def __call__(
        self,
        info: Mapping[str, object],
        datasets: Mapping[str, DatasetMetrics],
        qa: Mapping[str, Sequence[JsonObject]],
        directory: Path,
    ) -> ExportReport:
        """Export to every target at once; blocking. Never raises for their sake: the run has its results."""
        content = make_content(self._order, info, metric_values(datasets), qa)
        targets = list_targets(self._order.spec.exports)
        entries: JsonObject = {}
        warnings, wandb_url = [], ""
        # The exports run in parallel, so that only the longest time limit is waited for.
        with ThreadPoolExecutor(len(targets)) as threads:
            outcomes = threads.map(lambda target: self._try(target, content, directory), targets)
        for target, outcome in zip(targets, outcomes, strict=True):
            entry: JsonObject = {"id": content.id, **target.model_dump(exclude={"kind"})}
            if isinstance(outcome, Exported):
                entry |= {"state": "done", **outcome.model_dump()}
                wandb_url = outcome.url if target.kind == "wandb" else wandb_url
            else:
                remedy = f"send it later: evalrun publish {target.kind} RUN --send"
                warnings.append(f"export to {target.kind} failed: {outcome}: {remedy}")
                logger.warning("%s", warnings[-1])
                entry |= {"state": "failed", "reason": outcome}
            entries[target.kind] = entry
        return ExportReport(entries, tuple(warnings), wandb_url)

    def _try(self, target: Target, content: ExportContent, directory: Path) -> Exported | str:
        """Export to a target. Return the reason if it fails."""
        try:
            return self._export(target, content, directory)
        except (ExportError, OSError) as error:
            return str(error)


def make_exports(order: RunConfig, *, scratch_in: Path, seconds: float) -> RunExports | None:
    """Return the exports of a run; None if its spec names none.

    Args:
        order: the run's.
        scratch_in: a directory with room for what the packages write.
        seconds: the time limit of each export.
    """
    if not list_targets(order.spec.exports):
        return None

    def export(target: Target, content: ExportContent, directory: Path) -> Exported:
        return export_apart(target, content, directory, scratch_in=scratch_in, seconds=seconds)

    return RunExports(order, export)
