"""The exporter to Weights & Biases, through its own package. Imported in the export's process only."""

import shutil
from pathlib import Path

import wandb
from wandb.errors import Error as WandbError

from evalrun_results.exports.content import QA_COLUMNS, ExportContent, qa_row
from evalrun_results.exports.exporter import Exported, ExportError, WandbTarget

OFFLINE_FOLDER = "wandb"


class WandbExporter:
    """Writes one run of a project.

    Args:
        target: the project.
        folder: the outputs'; an offline run's files are left in its `wandb` folder, for `wandb sync`.
        scratch: where the package writes meanwhile.
    """

    def __init__(self, target: WandbTarget, folder: Path, scratch: Path) -> None:
        self._target = target
        self._folder = folder
        self._scratch = scratch

    def export(self, content: ExportContent) -> Exported:
        """Send the run; see `Exporter.export`."""
        try:
            run = self._open(content)
            table = wandb.Table(
                columns=list(QA_COLUMNS), data=[qa_row(record) for record in content.qa], allow_mixed_types=True
            )
            run.log({**content.metrics, "qa_logs": table})
            url = run.url or ""
            run.finish()
        except (WandbError, OSError) as error:
            raise ExportError(" ".join(str(error).split())) from error
        if self._target.mode == "online":
            return Exported(url=url)
        return Exported(files=self._keep(content.id))

    def _open(self, content: ExportContent) -> "wandb.Run":
        """Start the run, or go on with it: `resume="allow"` finds it by its id."""
        return wandb.init(
            project=self._target.project,
            entity=self._target.entity,
            id=content.id,
            resume="allow" if self._target.mode == "online" else None,
            name=self._target.name or content.run,
            group=self._target.group or content.namespace,
            tags=self._target.tags,
            job_type="evaluation",
            config=content.info,
            allow_val_change=True,
            dir=self._scratch,
            settings=wandb.Settings(
                mode=self._target.mode,
                console="off",
                silent=True,
                disable_git=True,
                save_code=False,
                x_disable_stats=True,
                x_disable_machine_info=True,  # hostname, user and command line are nobody's business
                x_disable_meta=True,
                x_save_requirements=False,
            ),
        )

    def _keep(self, run_id: str) -> str:
        """Move an offline run's files beside the outputs, instead of those of an earlier export; give their folder."""
        place = self._folder / OFFLINE_FOLDER
        place.mkdir(exist_ok=True)
        for earlier in place.glob(f"offline-run-*-{run_id}"):
            shutil.rmtree(earlier)
        (written,) = (self._scratch / "wandb").glob(f"offline-run-*-{run_id}")
        shutil.move(written, place / written.name)
        return f"{OFFLINE_FOLDER}/{written.name}"
