"""A run whose GPU workers come and go: its manifest, what is seen of it, and what is done to its workers."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from builders.cluster.cluster import Cluster, CommandFailedError, Object
from builders.cluster.install import Installed
from builders.cluster.rollout import rollout_manifest
from builders.data import write_jsonl

from evalrun_api.names import METRICS_PORT

WORKERS = 2
ANSWERS = 7
TOKENS = 40_000
"""Of an answer: some minutes for a tiny model on a CPU, at 3 to 6 ms a token."""
POSITIONS = 65_536
"""Of the model."""
LOOK_SECONDS = 10.0
"""A look costs the machine that serves the models a second of CPU."""
READS_METRICS = f"""
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:{METRICS_PORT}/metrics").read().decode())
"""


def long_answers(directory: Path) -> tuple[Path, dict[str, str]]:
    """Write problems in HumanEval's form whose prompt is the program; give their file and verdicts by problem."""
    rows, verdicts = [], {}
    for number in range(ANSWERS):
        wrong = number % 3 == 0
        task = f"HumanEval/{number}"
        rows.append(
            {
                "task_id": task, "entry_point": "shifted",
                "prompt": f"def shifted(number):\n    return number + {number + 100 * wrong}\n",
                "canonical_solution": "", "test": f"def check(candidate):\n    assert candidate(1) == {number + 1}\n",
            }
        )  # fmt: skip
        verdicts[task] = "wrong_answer" if wrong else "success"
    return write_jsonl(directory / "long.jsonl", rows), verdicts


def workers_manifest(name: str, problems: Path, image: str) -> Object:
    """Return an EvalRun with one to two replicas, of one GPU and one worker pod each, that draw an answer at a time."""
    manifest = rollout_manifest(name, problems, image)
    spec = manifest["spec"]
    rollout = {key: value for key, value in spec["rollout"].items() if key != "replicas"}
    rollout |= {"minReplicas": 1, "maxReplicas": WORKERS, "maxNumSeqs": 1, "enableChunkedPrefill": True}
    rollout["resources"]["limits"] |= {"memory": "5Gi"}
    return {**manifest, "spec": {**spec, "protocol": {"maxNewTokens": TOKENS}, "rollout": rollout}}


def with_long_context(model: Path) -> Path:
    """Let a model see `POSITIONS` tokens; its weights know no positions."""
    file = model / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "max_position_embeddings": POSITIONS}))
    return model


@dataclass(frozen=True)
class Seen:
    """What was last seen of a run."""

    workers: tuple[str, ...] = ()
    """Worker pods that are not on their way out, the oldest first."""
    serving: frozenset[str] = frozenset()
    """Replicas that answer."""
    busy: frozenset[str] = frozenset()
    """Replicas that have a request."""
    generated: int = 0
    all_drawn: bool = False
    told: str = ""
    """What ClusterReady says."""
    ended: str = ""
    """The phase, once the run is at its end."""


class WorkerRun:
    """A run on a cluster, followed by looking at it every few seconds."""

    def __init__(self, install: Installed, name: str) -> None:
        self.name = name
        self.seen = Seen()
        self._install = install
        self._cluster: Cluster = install.cluster
        self._began = time.monotonic()

    def wait(self, what: str, until: Callable[[Seen], bool]) -> None:
        """Look until something is so, and print when that was.

        Raises:
            ValueError: the run ended before.
        """
        while True:
            self.seen = self._look()
            if until(self.seen):
                print(f"{time.monotonic() - self._began:7.1f} s  {what}: {self.seen}", flush=True)
                return
            if self.seen.ended:
                raise ValueError(f"{self.name} is {self.seen.ended} before {what}: {self.seen}")
            time.sleep(LOOK_SECONDS)

    def wait_for_an_answer(self, what: str) -> None:
        before = self._look().generated
        self.wait(what, lambda seen: seen.generated > before)

    def lose(self, pod: str) -> None:
        """Take a worker away as a node does that vanishes: nothing in it is told."""
        self._cluster.kubectl("delete", "pod", pod, "--namespace", self._install.runs, "--force", "--grace-period=0")

    def evict(self, pod: str) -> None:
        """Evict a worker, as `kubectl drain` does."""
        path = f"/api/v1/namespaces/{self._install.runs}/pods/{pod}/eviction"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self._install.runs},
        }
        self._cluster.kubectl("create", "--raw", path, "--filename", "-", given=json.dumps(body))

    @contextmanager
    def cordoned(self) -> Iterator[None]:
        """Let no node take new pods meanwhile."""
        nodes = [node["metadata"]["name"] for node in self._cluster.get("default", "nodes")["items"]]
        self._cluster.kubectl("cordon", *nodes)
        try:
            yield
        finally:
            self._cluster.kubectl("uncordon", *nodes)

    def _look(self) -> Seen:
        status = self._cluster.get(self._install.runs, "evalrun", self.name).get("status", {})
        conditions = {one["type"]: one for one in status.get("conditions", ())}
        selector = f"evalrun.dev/run={self.name},ray.io/node-type=worker"
        pods = self._cluster.get(self._install.runs, "pods", "--selector", selector)["items"]
        up, busy = self._replicas()
        return Seen(
            workers=tuple(
                pod["metadata"]["name"]
                for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
                if "deletionTimestamp" not in pod["metadata"]
            ),
            serving=up,
            busy=busy & up,
            generated=sum(one.get("generated", 0) for one in status.get("datasets", ())),
            all_drawn=conditions.get("Generated", {}).get("status") == "True",
            told=conditions.get("ClusterReady", {}).get("message", ""),
            ended=status.get("phase", "") if "completionTime" in status else "",
        )

    def _replicas(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the replicas that are up, and those that have a request, by the aggregator's metrics."""
        values: dict[str, set[str]] = {"evalrun_replica_up": set(), "evalrun_replica_inflight": set()}
        for pod in self._cluster.pods(self._install.runs, self.name, "aggregator"):
            try:
                lines = self._cluster.python(self._install.runs, pod, READS_METRICS).splitlines()
            except CommandFailedError:
                continue  # it does not listen yet
            for line in lines:
                name, _, rest = line.partition("{")
                labels, _, value = rest.rpartition("} ")
                if name in values and float(value) > 0:
                    values[name].add(labels.split('replica="')[1].split('"')[0])
        return frozenset(values["evalrun_replica_up"]), frozenset(values["evalrun_replica_inflight"])
