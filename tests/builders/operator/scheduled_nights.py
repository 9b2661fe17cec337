"""Nights of a schedule on a real API server: a driven clock, real listings of a real directory, an operator to kill.

Played here: the Job controller and kubelet, which run a Job's real listing and write its pod's termination message, and
the runs' controller, which ends a run.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from builders.cluster.controlplane import ControlPlane, until
from builders.operator.evalschedules import evalschedule_manifest
from builders.operator.running_operator import TESTS, apply

from evalrun_api.checkpoint_listing import ListingRequest, encode_answer
from evalrun_data.checkpoints.choice import list_checkpoints
from evalrun_data.checkpoints.store import CheckpointStore

API = "/apis/evalrun.dev/v1alpha1/namespaces"
MERGE = "application/merge-patch+json"
NAME = "nightly"


GATES = {"True": "NoRegression", "False": "Regression", "Unknown": "Inconclusive"}


@dataclass
class Nights:
    """One schedule in a namespace of its own."""

    plane: ControlPlane
    kubeconfig: Path
    namespace: str
    checkpoints: Path
    now: datetime
    reachable: bool = True
    process: "subprocess.Popen[bytes] | None" = None
    made: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By uid, name and step of every run that was ever there."""
    kills: int = 0

    @property
    def clock(self) -> Path:
        return self.plane.directory / f"{self.namespace}.clock"

    def begin(self, changes: dict[str, Any] | None = None) -> None:
        """Make the namespace and the schedule, and start the operator."""
        self.set_clock(self.now)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        account["metadata"] = {"name": "default", "namespace": self.namespace}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        apply(self.plane, namespace, account)
        manifest = evalschedule_manifest({"spec.template.rollout.replicas": 1, **(changes or {})})
        manifest["metadata"]["namespace"] = self.namespace
        apply(self.plane, manifest)
        # The schedule was made just now by the API server's clock, and the driven one is ahead of it by years.
        handled = {"lastScheduleTime": self.now.isoformat().replace("+00:00", "Z")}
        self._patched(f"{API}/{self.namespace}/evalschedules/{NAME}/status", handled)
        self.start()
        until(lambda: bool(self.status().get("conditions")), "the operator's first reconciliation", 60)

    def start(self) -> None:
        command = [sys.executable, "-m", "builders.operator.schedule_operator", str(self.clock)]
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PYTHONPATH": str(TESTS)}
        with (self.plane.directory / f"{self.namespace}.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
            self.kills += 1

    def set_clock(self, moment: datetime) -> None:
        self.now = moment
        part = self.clock.with_suffix(".part")
        part.write_text(moment.isoformat())
        part.replace(self.clock)

    def schedule(self) -> dict[str, Any]:
        return self.plane.request("GET", f"{API}/{self.namespace}/evalschedules/{NAME}").body

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.schedule().get("status", {})
        return status

    def condition(self, kind: str) -> dict[str, Any]:
        return next((one for one in self.status().get("conditions", ()) if one["type"] == kind), {})

    def runs(self) -> list[dict[str, Any]]:
        """Return the runs that are there, and remember them."""
        found: list[dict[str, Any]] = self.plane.request("GET", f"{API}/{self.namespace}/evalruns").body["items"]
        for run in found:
            metadata = run["metadata"]
            self.made[metadata["uid"]] = metadata["name"], run["spec"]["lineage"]["step"]
        return found

    @property
    def steps(self) -> list[int]:
        """The step of each run that was ever there: twice if a checkpoint was evaluated twice."""
        return sorted(step for _, step in self.made.values())

    def events(self, reason: str) -> list[str]:
        found = self.plane.request("GET", f"/api/v1/namespaces/{self.namespace}/events").body["items"]
        return [event["message"] for event in found if event["reason"] == reason]

    def play(self, done: Callable[[], bool], what: str, limit: float = 60.0) -> None:
        """Run Jobs as they come, until something holds."""

        def answered() -> bool:
            self.run_jobs()
            return done()

        until(answered, what, limit)

    def night(self, moment: datetime, *, ends: bool = True) -> None:
        """Let the clock come to a start, wait until it has been dealt with, and end its runs."""
        self.set_clock(moment)
        self.play(lambda: self.is_settled(moment), f"the start of {moment}")
        self.runs()
        if ends:
            self.end_runs()

    def is_settled(self, moment: datetime) -> bool:
        """Return whether the start of a moment has been dealt with, as far as it can be for now."""
        status = self.status()
        last = status.get("lastScheduleTime")
        if last is None or datetime.fromisoformat(last) < moment - timedelta(minutes=5):
            return False
        start = status.get("start")
        if start is None:
            return True
        return "job" not in start and (start.get("listed", False) or start.get("failures", 0) > 0)

    def end_runs(self, gate_passed: Callable[[dict[str, Any]], str] | None = None) -> None:
        """End every active run, as the runs' controller would; `gate_passed` returns its gates' status."""
        for run in self.runs():
            if run.get("status", {}).get("completionTime"):
                continue
            moment = self.now.isoformat().replace("+00:00", "Z")
            conditions = [
                {"type": kind, "status": "True", "reason": "Finished", "message": "", "lastTransitionTime": moment}
                for kind in ("Succeeded", "Complete")
            ]
            if gate_passed is not None:
                passed = gate_passed(run)
                conditions.append({**conditions[0], "type": "GatePassed", "status": passed, "reason": GATES[passed]})
            status = {
                "conditions": conditions, "startTime": moment, "generationCompletedTime": moment,
                "completionTime": moment, "phase": "Succeeded", "outputURL": f"s3://out/{run['metadata']['name']}",
            }  # fmt: skip
            path = f"{API}/{self.namespace}/evalruns/{run['metadata']['name']}/status"
            answer = self.plane.request("PATCH", path, {"status": status}, MERGE)
            if answer.status not in {200, 404}:
                raise RuntimeError(answer.message)

    def run_jobs(self) -> None:
        jobs = f"/apis/batch/v1/namespaces/{self.namespace}/jobs"
        for job in self.plane.request("GET", jobs).body["items"]:
            if job.get("status", {}).get("conditions"):
                continue
            name = job["metadata"]["name"]
            container = job["spec"]["template"]["spec"]["containers"][0]
            if "-merge-" in name:  # the merger itself has tests of its own
                code, message = 0, ""
            else:
                code, message = self._listed(ListingRequest.model_validate_json(container["args"][0]))
            pod = {
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": f"{name}-x", "labels": {"batch.kubernetes.io/job-name": name}},
                "spec": {"containers": [{"name": "checkpoints", "image": "i"}], "restartPolicy": "Never"},
            }  # fmt: skip
            pods = f"/api/v1/namespaces/{self.namespace}/pods"
            self.plane.request("POST", pods, pod)
            ended = {"terminated": {"exitCode": code, "message": message}}
            state = {"name": "checkpoints", "state": ended, "image": "i", "imageID": "", "ready": False,
                     "restartCount": 0}  # fmt: skip
            phase = "Failed" if code else "Succeeded"
            self._patched(f"{pods}/{name}-x/status", {"phase": phase, "containerStatuses": [state]})
            self._patched(f"{jobs}/{name}/status", _job_status(failed=code != 0))

    def _listed(self, request: ListingRequest) -> tuple[int, str]:
        if not self.reachable:
            return 1, "evalrun: s3://training/grpo: could not connect to the endpoint"
        here = request.model_copy(update={"url": str(self.checkpoints)})
        return 0, encode_answer(list_checkpoints(here, CheckpointStore(here.url), self.now))

    def _patched(self, path: str, status: dict[str, Any]) -> None:
        answer = self.plane.request("PATCH", path, {"status": status}, MERGE)
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.message}")


def _job_status(*, failed: bool) -> dict[str, Any]:
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    words = ("FailureTarget", "Failed") if failed else ("SuccessCriteriaMet", "Complete")
    conditions = [
        {"type": word, "status": "True", "reason": "Played", "message": "", "lastTransitionTime": moment,
         "lastProbeTime": moment}
        for word in words
    ]  # fmt: skip
    status: dict[str, Any] = {"startTime": moment, "conditions": conditions}
    return {**status, "failed": 1} if failed else {**status, "succeeded": 1, "completionTime": moment}


@contextmanager
def nights(
    plane: ControlPlane, kubeconfig: Path, namespace: str, directory: Path, now: datetime, changes: dict[str, Any]
) -> Iterator[Nights]:
    """Make a schedule with its operator, and end the operator afterwards."""
    world = Nights(plane, kubeconfig, namespace, directory, now)
    try:
        world.begin(changes)
        yield world
    except BaseException:
        log = plane.directory / f"{namespace}.log"
        sys.stderr.write(f"{json.dumps(world.status(), indent=1)}\n{log.read_text()[-3000:]}\n")
        raise
    finally:
        world.kill()
