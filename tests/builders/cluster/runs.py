"""Runs on a cluster: what they are told, what became of them, and what their pods say meanwhile."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from builders.cluster.cluster import CommandFailedError, Object
from builders.cluster.install import RESULTS, Installed
from builders.cluster.tasks import verdicts_of

LOOKS = 6
"""How often the pods of a run are looked into; each look costs the machine half a second."""
COMPONENTS = ("aggregator", "generator", "judge", "sandbox")
ASKS_FOR_INFO = """
import os, ssl, urllib.request
directory = os.environ["EVALRUN_JUDGE_SANDBOX_TLS_FOLDER"]
context = ssl.create_default_context(cafile=directory + "/ca.crt")
context.load_cert_chain(directory + "/tls.crt", directory + "/tls.key")
tokens = open(os.environ["EVALRUN_JUDGE_SANDBOX_TOKEN_FILE"]).read().split()
asked = urllib.request.Request("https://HOST:8080/v1/info", headers={"Authorization": "Bearer " + tokens[0]})
print(urllib.request.urlopen(asked, context=context).read().decode())
"""
"""Run in a gateway's pod: a sandbox has no certificate that it could call itself with."""
READS_MEMORY = """
from pathlib import Path
group = Path("/sys/fs/cgroup")  # version 2, or 1
files = [group / "memory.peak", group / "memory" / "memory.max_usage_in_bytes"]
print(max(int(file.read_text()) for file in files if file.exists()))
"""

Verdicts = dict[tuple[str, str, int], str]


def small(**spec: Any) -> Object:
    """Return what a run's spec says so that several fit on a small node, with further fields."""
    return {
        "judge": {"gateway": {"maxReplicas": 1}, "sandbox": {"maxReplicas": 1, "slots": 2}},
        "aggregator": {
            "keepSecondsAfterFinished": 3600,  # it is asked for logs and files long after the end
            "storage": {"size": "1Gi"},
            "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        },
        "output": {"url": f"pvc://{RESULTS}/runs"},
        **spec,
    }


@dataclass(frozen=True)
class FinishedRun:
    """A run that has ended, and what became of it."""

    name: str
    status: Object
    outputs: str
    """The directory of the outputs: /CLAIM/..."""
    verdicts: Verdicts
    info: Object
    """Its run_info.json."""


def outcome(install: Installed, name: str, seconds: int = 300) -> FinishedRun:
    """Wait for a run whose outputs go to the claim `results`; read them.

    Raises:
        ValueError: it did not succeed.
    """
    status = install.wait(name, seconds)["status"]
    if status["phase"] != "Succeeded":
        raise ValueError(f"{name} is {status['phase']}: {status['conditions']}")
    return read_outcome(install, name, status, "/" + status["outputURL"].removeprefix("pvc://"), "files")


def read_outcome(install: Installed, name: str, status: Object, outputs: str, pod: str) -> FinishedRun:
    verdicts = verdicts_of(install.read(f"{outputs}/results.jsonl", pod))
    return FinishedRun(name, status, outputs, verdicts, json.loads(install.read(f"{outputs}/run_info.json", pod)))


@dataclass
class PodObservations:
    """What the pods of a run said while it was at work."""

    sandbox: Object = field(default_factory=dict)
    """What the sandbox says of itself."""
    peak_bytes: dict[str, int] = field(default_factory=dict)
    """The largest memory of each component's pod so far."""


def progress(install: Installed, run: str) -> Iterator[tuple[int, int]]:
    """Return how many answers are judged, of how many, whenever the run's status changes; ends when the run does."""
    with install.cluster.watching(install.runs, run, "{.status.progress} {.status.completionTime}") as lines:
        for line in lines:
            so_far, _, completed = line.partition(" ")
            judged, _, total = so_far.partition("/")
            if total:
                yield int(judged), int(total)
            if completed or (total and judged == total):
                return


def look_at_pods(install: Installed, run: str) -> PodObservations:
    """Look into the pods of a run now and then as it makes progress, until all is judged."""
    seen, due = PodObservations(), 0
    for judged, total in progress(install, run):
        if judged < due:
            continue
        due = judged + max(1, total // LOOKS)
        for component in COMPONENTS:
            for pod in install.cluster.pods(install.runs, run, component):
                try:
                    if component == "judge" and not seen.sandbox:
                        asks = ASKS_FOR_INFO.replace("HOST", f"{run}-sandbox.{install.runs}.svc")
                        seen.sandbox = json.loads(install.cluster.python(install.runs, pod, asks))
                    peak = int(install.cluster.python(install.runs, pod, READS_MEMORY))
                except CommandFailedError:
                    continue  # it ended while we looked
                seen.peak_bytes[component] = max(peak, seen.peak_bytes.get(component, 0))
    return seen


def kill(install: Installed, namespace: str, pod: str) -> None:
    """Kill a pod: SIGKILL a second after SIGTERM. Waits until it is gone."""
    install.cluster.kubectl("delete", "pod", pod, "--namespace", namespace, "--now", "--timeout=50s")
