"""What a run's audit needs: what was asked, with what it ran, what the servers said they were."""

import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from evalrun_aggregator.problems import RunProblems
from evalrun_aggregator.rows import StoredReplica
from evalrun_aggregator.work_order import WorkOrder
from evalrun_data.prompts import TEMPLATES_VERSION

PACKAGES = ("evalrun", "grpcio", "numpy", "protobuf", "pyarrow", "pydantic", "verl", "vllm", "ray", "torch")


def run_info(
    order: WorkOrder,
    problems: RunProblems,
    *,
    judges: Mapping[str, Mapping[str, object]],
    containment_levels: Sequence[str],
    replicas: Sequence[StoredReplica],
    gpu_seconds: float,
    started_at: float,
    ended_at: float,
) -> dict[str, object]:
    """Give run_info.json's content, but for what the outputs' writer adds.

    Args:
        order: the work order.
        problems: the run's.
        judges: by address: what each judge said of itself.
        containment_levels: that they named.
        replicas: as the ledger knows them.
        gpu_seconds: of every worker together.
        started_at: Unix seconds.
        ended_at: Unix seconds.
    """
    return {
        "run": order.run,
        "namespace": order.namespace,
        "created": order.created.astimezone(UTC).isoformat(),
        "started_at": _iso(started_at),
        "ended_at": _iso(ended_at),
        "spec": order.spec.to_wire(),
        "responses": order.responses,
        "rejudge": order.rejudge,
        "prompt_templates": TEMPLATES_VERSION,
        "base_dir_git_revision": git_revision(order.base_dir),
        "versions": package_versions(),
        "images": order.images,
        "judges": {address: dict(said) for address, said in judges.items()},
        "containment_levels": list(containment_levels),
        "replicas": [
            {
                "name": r.name,
                "address": r.address,
                "models": list(r.models),
                "load_format": r.load_format,
                "error": r.error,
            }
            for r in replicas
        ],
        "gpu_seconds": gpu_seconds,
        "datasets": {
            dataset.spec.name: {
                "source": dataset.spec.source,
                "more_sources": order.sources.get(dataset.spec.name, []),
                "problems": len(dataset.problems),
                "records_sha256": dataset.records_sha256,
                "prompts_sha256": dataset.prompts_sha256,
            }
            for dataset in problems.datasets
        },
        "seeds": {
            "first": order.spec.protocol.seed,
            # With a token budget each problem has a number of its own: results.jsonl has them.
            "samples": None if order.spec.protocol.budget else problems.items.samples,
        },
    }


def package_versions() -> dict[str, str]:
    """Give the versions of Python and of the packages that matter, as far as they are here."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def git_revision(folder: Path) -> str | None:
    """Give the commit of the repository that holds the folder, `+changes` where files differ; None outside of one."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        revision = git("rev-parse", "HEAD")
        return f"{revision}+changes" if git("status", "--porcelain", "--untracked-files=no") else revision
    except (OSError, subprocess.SubprocessError):
        return None


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
