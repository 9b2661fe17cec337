"""The exporter to Weights & Biases, through its own package. Imported in the export's process only."""

import shutil
from pathlib import Path
from typing import Any

import wandb
from wandb.errors import Error as WandbError

from evalrun_results.exports.content import QA_COLUMNS, CurvePoint, ExportContent, qa_row
from evalrun_results.exports.exporter import Exported, ExportError, WandbTarget

OFFLINE_DIRECTORY = "wandb"
STEP = "checkpoint_step"
"""The horizontal axis of a schedule's curve. Not WandB's own step, which only grows: checkpoints come in any order."""


class WandbExporter:
    """Writes a run of a project, and its point on the curve of its schedule, which is a separate run.

    Args:
        target: the project.
        directory: the outputs'; an offline run's files are left in its `wandb` directory, for `wandb sync`.
        scratch: where the package writes meanwhile.
    """

    def __init__(self, target: WandbTarget, directory: Path, scratch: Path) -> None:
        self._target = target
        self._folder = directory
        self._scratch = scratch

    def export(self, content: ExportContent) -> Exported:
        """Send the run; see `Exporter.export`."""
        try:
            run = self._open(content.id, self._target.name or content.run, content, "evaluation", content.info)
            table = wandb.Table(
                columns=list(QA_COLUMNS), data=[qa_row(record) for record in content.qa], allow_mixed_types=True
            )
            run.log({**content.metrics, "qa_logs": table})
            url = run.url or ""
            run.finish()
            if content.point is not None:
                self._add_to_curve(content, content.point)
        except (WandbError, OSError) as error:
            raise ExportError(" ".join(str(error).split())) from error
        if self._target.mode == "online":
            return Exported(url=url)
        if content.point is not None:
            self._keep(content.point.id)
        return Exported(files=self._keep(content.id))

    def _add_to_curve(self, content: ExportContent, point: CurvePoint) -> None:
        """Log a row of the curve. A point that is sent twice appears twice, at the same position."""
        curve = {"schedule": point.schedule, "namespace": content.namespace}
        run = self._open(point.id, point.schedule, content, "curve", curve)
        run.define_metric(STEP, hidden=True)
        run.define_metric("eval/*", step_metric=STEP)
        run.log({STEP: point.step, "run": content.run, "model": point.model, "phase": point.phase, **content.metrics})
        run.finish()

    def _open(
        self, run_id: str, name: str, content: ExportContent, job_type: str, config: dict[str, Any]
    ) -> "wandb.Run":
        """Start a run, or go on with it: `resume="allow"` finds it by its id."""
        return wandb.init(
            project=self._target.project,
            entity=self._target.entity,
            id=run_id,
            resume="allow" if self._target.mode == "online" else None,
            name=name,
            group=self._target.group or content.namespace,
            tags=self._target.tags,
            job_type=job_type,
            config=config,
            allow_val_change=True,
            dir=self._scratch,
            settings=wandb.Settings(
                mode=self._target.mode,
                console="off",
                silent=True,
                disable_git=True,
                save_code=False,
                x_disable_stats=True,
                # Hostname, user and command line are private.
                x_disable_machine_info=True,
                x_disable_meta=True,
                x_save_requirements=False,
            ),
        )

    def _keep(self, run_id: str) -> str:
        """Move an offline run's files beside the outputs, replacing an earlier export. Return their directory."""
        place = self._folder / OFFLINE_DIRECTORY
        place.mkdir(exist_ok=True)
        for earlier in place.glob(f"offline-run-*-{run_id}"):
            shutil.rmtree(earlier)
        (written,) = (self._scratch / "wandb").glob(f"offline-run-*-{run_id}")
        for link in [
            path
            for path in written.rglob("*")
            if path.is_symlink()
            # These files go into the scratch directory, which is removed.
        ]:
            link.unlink()
        shutil.move(written, place / written.name)
        return f"{OFFLINE_DIRECTORY}/{written.name}"
