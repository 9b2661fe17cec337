"""`python -m evalrun_results.exports DIRECTORY`: does the export that FOLDER/job.json asks for, in this process.

Ends with 0 and DIRECTORY/exported.json, or with 1 and one line on stderr. The packages of the services are imported
here and nowhere else: they cost 100 MB and seconds, and may be missing.
"""

import os
import sys
from pathlib import Path

from evalrun_results.exports.exporter import Exporter, ExportError, ExportJob, WandbTarget
from evalrun_runtime.distribution import describe_install
from evalrun_runtime.process import die_with_parent

EXPERIMENT = "evalrun"
"""Experiment of MLflow, unless MLFLOW_EXPERIMENT_NAME names another."""


def make_exporter(job: ExportJob) -> Exporter:
    """Return the exporter. Raises ImportError where its package is missing."""
    if isinstance(job.target, WandbTarget):
        from evalrun_results.exports.wandb_run import WandbExporter

        return WandbExporter(job.target, job.directory, job.scratch)
    from evalrun_results.exports.mlflow_run import MlflowExporter

    return MlflowExporter(job.target, os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT)


def main(directory: Path) -> int:
    """Export, and return the exit code."""
    die_with_parent()
    job = ExportJob.model_validate_json((directory / "job.json").read_bytes())
    try:
        exported = make_exporter(job).export(job.content)
    except ImportError as error:
        sys.stderr.write(f"{error}: {describe_install('exports')}\n")
        return 1
    except ExportError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    (directory / "exported.json").write_text(exported.model_dump_json())
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
