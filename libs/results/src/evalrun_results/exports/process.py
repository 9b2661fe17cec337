"""Runs an export in a child process with a hard limit, so that no failure of it stops the run."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from evalrun_results.exports.content import ExportContent
from evalrun_results.exports.exporter import Exported, ExportError, ExportJob, Target, WandbTarget

logger = logging.getLogger(__name__)

MAX_REASON_CHARACTERS: Final = 300
SECRETS: Final = ("WANDB_API_KEY", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD")


def export_apart(
    target: Target, content: ExportContent, directory: Path, *, scratch_in: Path | None, seconds: float
) -> Exported:
    """Export in a process of its own; blocking.

    Args:
        target: where to.
        content: the exported values.
        directory: the outputs'.
        scratch_in: where a directory for scratch files is made; None uses the system's default.
        seconds: after which the process is killed.

    Raises:
        ExportError: it failed, or was not done in time.
        OSError: this machine's disk is full, or no process can be started.
    """
    if isinstance(target, WandbTarget) and target.mode == "online" and not os.environ.get("WANDB_API_KEY"):
        raise ExportError(
            "no API key: set WANDB_API_KEY (in a cluster: exports.wandb.secretRef), or write mode: offline"
        )
    with TemporaryDirectory(prefix=f"evalrun-{target.kind}-", dir=scratch_in, ignore_cleanup_errors=True) as scratch:
        place = Path(scratch)
        job = ExportJob(target=target, content=content, directory=directory.resolve(), scratch=place)
        (place / "job.json").write_text(job.model_dump_json())
        errors = place / "stderr.txt"
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "evalrun_results.exports", scratch],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                env=environment(os.environ, place),
                start_new_session=True,
            )
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired as error:
                raise ExportError(f"not done after {seconds:g} s: {last_line(errors)}") from error
            finally:
                end_group(process)
        if code != 0:
            raise ExportError(last_line(errors))
        return Exported.model_validate_json((place / "exported.json").read_text())


def environment(given: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Return the export's environment: this process's, with every file of the packages in the scratch directory.

    A pod's root and home are read-only. Without a home and a .netrc the environment is the only source of an API key:
    a run on one machine must never use a key that its user did not name.
    """
    places = ("HOME", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR", "TMPDIR")
    return {
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
        **given,
        **dict.fromkeys(places, str(scratch)),
        "NETRC": str(scratch / "netrc"),
        "WANDB_ERROR_REPORTING": "false",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "GIT_PYTHON_REFRESH": "quiet",
    }


def last_line(errors: Path) -> str:
    """Return the last line that the process wrote, cut, without the values of secrets."""
    lines = [line.strip() for line in errors.read_text(errors="replace").splitlines() if line.strip()]
    text = lines[-1] if lines else "it said nothing"
    for name in SECRETS:
        if value := os.environ.get(name):
            text = text.replace(value, f"({name})")
    return text if len(text) <= MAX_REASON_CHARACTERS else f"{text[:MAX_REASON_CHARACTERS]}..."


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill the process and its remaining children. The service process of wandb ends with its parent."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        logger.debug("the export had ended")
    process.wait()
