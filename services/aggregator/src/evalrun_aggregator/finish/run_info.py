"""Collects facts for a run's audit: its configuration, its versions, and the servers' own descriptions."""

import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from evalrun_aggregator.ledger.entries import StoredEvent, StoredReplica
from evalrun_aggregator.start.datasets import RunDataset
from evalrun_aggregator.start.problems import RunProblems, make_turn_policies
from evalrun_aggregator.start.start_warnings import dataset_warnings
from evalrun_aggregator.turns.feedback import WRONG
from evalrun_api.run_config import RunConfig
from evalrun_data.prompts import TEMPLATES_VERSION
from evalrun_runtime.distribution import read_own_version

PACKAGES = ("grpcio", "numpy", "protobuf", "pyarrow", "pydantic", "verl", "vllm", "ray", "torch")


def run_info(
    order: RunConfig,
    problems: RunProblems,
    *,
    judges: Mapping[str, Mapping[str, object]],
    containment_levels: Sequence[str],
    replicas: Sequence[StoredReplica],
    gpu_seconds: float,
    weights_version: str,
    started_at: float,
    ended_at: float,
    partial: str = "",
    attested_by: str = "",
    events: Sequence[StoredEvent] = (),
) -> dict[str, object]:
    """Return the content of run_info.json, except for the fields that the writer of the outputs adds.

    Args:
        order: the run configuration.
        problems: the problems of the run.
        judges: each judge's own description, by address.
        containment_levels: levels that the judges named.
        replicas: the replicas in the ledger.
        gpu_seconds: sum over all workers.
        weights_version: version of the weights of all completions; empty if no replica reported it.
        started_at: Unix seconds.
        ended_at: Unix seconds.
        partial: why the results do not cover every problem; empty if they do.
        attested_by: id of the key that signs the outputs; empty if no key does.
        events: acts on the run from outside.
    """
    spec = order.spec.to_wire()
    if order.responses is not None:
        # The protocol's defaults do not describe completions that were made elsewhere.
        del spec["protocol"]
    return {
        "run": order.run,
        "namespace": order.namespace,
        "created": order.created.astimezone(UTC).isoformat(),
        "started_at": _iso(started_at),
        "ended_at": _iso(ended_at),
        "partial": partial or None,
        "attested_by": attested_by or None,
        "spec": spec,
        "responses": order.responses,
        "answers_per_problem": order.answers_per_problem,
        "k": order.k or None,
        "rejudge": order.rejudge,
        "prompt_templates": TEMPLATES_VERSION,
        "feedback_templates": {
            name: WRONG if policy.feedback.only_wrong else policy.feedback.template
            for name, policy in (make_turn_policies(order.spec) or {}).items()
        },
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
                "engine": dict(r.engine),
                "error": r.error,
            }
            for r in replicas
        ],
        "gpu_seconds": gpu_seconds,
        "weights_version": weights_version or None,
        "events": [{"at": _iso(event.at), "act": event.act, "detail": event.detail} for event in events],
        "datasets": {
            dataset.spec.name: {
                "source": dataset.spec.source,
                "more_sources": order.sources.get(dataset.spec.name, []),
                "problems": len(dataset.problems),
                "records_sha256": dataset.records_sha256,
                "prompts_sha256": dataset.prompts_sha256,
                "prompt_template": dataset.template,
                "grader_sha256": None if dataset.grader is None else dataset.grader.sha256,
                "role": dataset.role,
                "dates": date_window(problem.date for problem in dataset.problems),
                "audit": _audit(dataset),
                "warnings": list(dataset_warnings(dataset)),
            }
            for dataset in problems.datasets
        },
        "seeds": {
            "first": None if order.responses is not None else order.spec.protocol.seed,
            # With a token budget each problem has its own number of samples, which results.jsonl shows.
            "samples": None if order.spec.protocol.budget else problems.items.samples,
        },
    }


def date_window(dates: Iterable[str]) -> list[str] | None:
    """Return the first and last publication day of the problems, or None if no problem has a date."""
    known = sorted(date for date in dates if date)
    return [known[0], known[-1]] if known else None


def _audit(dataset: RunDataset) -> dict[str, object] | None:
    audit = dataset.audit
    if audit is None:
        return None
    return {
        "manifest": audit.manifest,
        "manifest_sha256": audit.manifest_sha256,
        "audit_sha256": audit.audit_sha256,
        "state": audit.state,
        "warnings": list(audit.warnings),
    }


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the relevant installed packages."""
    found = {"python": platform.python_version(), "evalrun": read_own_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def git_revision(directory: Path) -> str | None:
    """Return the commit of the repository that contains the directory, with `+changes` if files differ; None outside
    a repository."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(directory), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        revision = git("rev-parse", "HEAD")
        return f"{revision}+changes" if git("status", "--porcelain", "--untracked-files=no") else revision
    except (OSError, subprocess.SubprocessError):
        return None


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
