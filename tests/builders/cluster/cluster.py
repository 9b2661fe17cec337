"""Any Kubernetes cluster with real pods, through kubectl: `KUBECONFIG` says which, nothing here starts or stops one.

Images come to its nodes by the command in `EVALRUN_IMAGE_LOADER`, to which the path of an archive is appended, e.g.
`kind load image-archive` or `minikube image load`.
"""

import json
import os
import queue
import shlex
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builders.cluster.controlplane import find_binaries

Object = dict[str, Any]

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
"""Labels of a namespace in which the API server admits restricted pods only."""
USER = 10001
CONTAINER_SECURITY: Object = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
POD_SECURITY: Object = {
    "runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}  # fmt: skip


class MissingClusterError(Exception):
    """There is no cluster to test on; the message says what to set."""


class CommandFailedError(Exception):
    """A command failed; the message is what it printed on stderr."""


@dataclass(frozen=True)
class Cluster:
    """A cluster that is running already."""

    kubeconfig: str
    kubectl_binary: Path
    helm_binary: Path
    loader: Sequence[str]
    """The command that takes an image archive to the nodes."""

    def kubectl(self, *arguments: str, given: str | None = None, seconds: float = 60) -> str:
        """Run kubectl; give what it printed.

        Raises:
            CommandFailedError: it failed.
        """
        return self._run([str(self.kubectl_binary), *arguments], given, seconds)

    def helm(self, *arguments: str, given: str | None = None, seconds: float = 120) -> str:
        """Run helm; give what it printed. Raises CommandFailedError."""
        return self._run([str(self.helm_binary), *arguments], given, seconds)

    def load(self, archive: Path) -> None:
        """Take an image archive to the nodes. Raises CommandFailedError."""
        self._run([*self.loader, str(archive)], None, 900)

    def apply(self, namespace: str, *objects: Object) -> None:
        """Apply objects. Raises CommandFailedError."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--namespace", namespace, "--filename", "-", given=json.dumps(listed))

    def get(self, namespace: str, *arguments: str) -> Any:
        """Return what `kubectl get` finds, as JSON. Raises CommandFailedError."""
        return json.loads(self.kubectl("get", "--namespace", namespace, "--output", "json", *arguments))

    def pods(self, namespace: str, run: str, component: str) -> list[str]:
        selector = f"evalrun.dev/run={run},app.kubernetes.io/component={component}"
        found = self.get(namespace, "pods", "--selector", selector)["items"]
        return [
            pod["metadata"]["name"]
            for pod in found
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    def python(self, namespace: str, pod: str, program: str) -> str:
        """Run a Python program in a pod's container; give what it printed. Raises CommandFailedError."""
        return self.kubectl("exec", "--namespace", namespace, pod, "--", "python", "-c", program)

    @contextmanager
    def watching(self, namespace: str, run: str, template: str) -> Iterator[Iterator[str]]:
        """Return what a JSONPath template makes of a run, once whenever the run changes."""
        with self.following(namespace, "evalrun", run, template=template) as lines:
            yield lines

    @contextmanager
    def following(self, namespace: str, *arguments: str, template: str) -> Iterator[Iterator[str]]:
        """Return what a JSONPath template makes of each object that `kubectl get` finds, once whenever it changes.

        The lines may be read by another thread, which gets no more of them once the context has ended.
        """
        command = [
            str(self.kubectl_binary), "get", *arguments, "--namespace", namespace, "--watch",
            "--output", f"jsonpath={template}{{'\\n'}}",
        ]  # fmt: skip
        with subprocess.Popen(command, env=self._environment(), stdout=subprocess.PIPE, text=True) as process:
            output: queue.SimpleQueue[str | None] = queue.SimpleQueue()

            def read() -> None:
                for line in process.stdout or ():
                    output.put(line)
                output.put(None)

            reading = threading.Thread(target=read)
            reading.start()
            try:
                yield (line.strip() for line in iter(output.get, None))
            finally:
                process.terminate()
                reading.join()

    def _run(self, command: Sequence[str], given: str | None, seconds: float) -> str:
        done = subprocess.run(
            command, env=self._environment(), input=given, check=False, capture_output=True, text=True, timeout=seconds
        )
        if done.returncode != 0:
            raise CommandFailedError(f"{shlex.join(command)}: {done.stderr or done.stdout}")
        return done.stdout

    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, "KUBECONFIG": self.kubeconfig}


def find_cluster() -> Cluster:
    """Return the cluster that the environment names.

    Raises:
        MissingClusterError: it names none, or says nothing of how images get to its nodes.
        MissingBinariesError: there is no kubectl or helm, and none can be built.
    """
    kubeconfig, loader = os.environ.get("KUBECONFIG"), os.environ.get("EVALRUN_IMAGE_LOADER")
    if not kubeconfig:
        raise MissingClusterError("no cluster: set KUBECONFIG and EVALRUN_IMAGE_LOADER (docs/testing.md, e2e)")
    if not loader:
        raise MissingClusterError(
            "EVALRUN_IMAGE_LOADER is not set: write the command that takes an image archive to the cluster's nodes, "
            "e.g. 'kind load image-archive'"
        )
    binaries = find_binaries(("kubectl", "helm"))
    return Cluster(kubeconfig, binaries["kubectl"], binaries["helm"], shlex.split(loader))
