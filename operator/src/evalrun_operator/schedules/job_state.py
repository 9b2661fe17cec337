"""Reads the state of a listing or merge Job from the Job and its pods. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from evalrun_runtime.termination import parse_termination_message

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class ListingJob:
    """The observed state of a Job that lists or merges checkpoints."""

    name: str
    uid: str
    state: Literal["Running", "Succeeded", "Failed"]
    message: str = ""
    """The reply of a Job that succeeded, the error of a Job that failed, or the obstacle of a Job that waits."""
    image: str = ""
    """Image of the Job's first container."""


def parse_listing_job(job: Manifest, pods: Iterable[Manifest]) -> ListingJob:
    """Return the state of a Job, with its result, its error, or its obstacle."""
    metadata, status = job["metadata"], job.get("status") or {}
    conditions = {one.get("type"): one for one in status.get("conditions") or () if one.get("status") == "True"}
    ends = list(_ends(pods))
    if "Complete" in conditions:
        message = next((text for code, text in ends if code == 0), "")
        return ListingJob(metadata["name"], metadata["uid"], "Succeeded", message)
    if "Failed" in conditions:
        failed = conditions["Failed"]
        said = next((text for code, text in ends if code != 0 and text), "")
        kept = "; ".join(_waits(pods))
        why = _last_words(said) or kept or f"{failed.get('reason', '')}: {failed.get('message', '')}".strip(": ")
        return ListingJob(metadata["name"], metadata["uid"], "Failed", why)
    containers = job.get("spec", {}).get("template", {}).get("spec", {}).get("containers") or [{}]
    image = str(containers[0].get("image", ""))
    return ListingJob(metadata["name"], metadata["uid"], "Running", "; ".join(_waits(pods)), image)


def _last_words(message: str) -> str:
    """Return the text of a container's termination record, or the last line if an older image wrote no record."""
    record = parse_termination_message(message)
    if record is not None:
        return record.text
    lines = message.strip().splitlines()
    return lines[-1] if lines else ""


def _ends(pods: Iterable[Manifest]) -> Iterator[tuple[int, str]]:
    """Yield exit code and message of each container that has ended."""
    for pod in pods:
        for container in _containers(pod):
            ended = (container.get("state") or {}).get("terminated")
            if ended is not None:
                yield int(ended.get("exitCode", 1)), str(ended.get("message") or ended.get("reason") or "")


def _waits(pods: Iterable[Manifest]) -> Iterator[str]:
    """Yield the reasons why a pod does not run."""
    for pod in pods:
        status = pod.get("status") or {}
        for container in _containers(pod):
            waits = (container.get("state") or {}).get("waiting")
            if waits is not None and waits.get("reason") not in {None, "ContainerCreating", "PodInitializing"}:
                yield f"{waits['reason']}: {waits.get('message', '')}".strip(": ")[:300]
        for condition in status.get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                yield f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": ")[:300]


def _containers(pod: Manifest) -> list[Manifest]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
