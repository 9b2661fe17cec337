"""The operator under load: 1,000 EvalRuns created within a minute, 50 of them deleted midway, on a real control plane.

API server, etcd, controllers and scheduler are real; nodes and pods are kwok's, and the runs' ledgers are the simulated
ones that ship with the operator. All of it shares this machine, so the API server's part is shown beside: a plain watch
of the benchmark's own says when an event reaches any client, the server's audit log says when requests came and ended.

    .venv/bin/python benchmarks/operator_scale.py [--runs 1000] [--seconds 60] [--delete 50] [--own-judge] [--profile F]

Exits with 1 where a run did not reach its end state, or something of a deleted one is left.
"""

import argparse
import asyncio
import json
import math
import os
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import ClientSession

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from builders.controllers import NODE_PROGRAMS, apply_crds, running_nodes  # noqa: E402
from builders.controlplane import (  # noqa: E402
    ADMIN_TOKEN,
    ControlPlane,
    find_binaries,
    free_ports,
    running_control_plane,
)
from builders.evalruns import evalrun_manifest  # noqa: E402
from builders.running_operator import ACCOUNT, RUNS, OperatorProcess, apply, operator_kubeconfig  # noqa: E402

NAMESPACES = 10
CPUS, CPUS_WITH_JUDGE = 1.5, 6.5
"""That the pods of a run ask for."""
CPUS_A_NODE = 60
PATIENCE_SECONDS = 300.0
ALL_RUNS = "/apis/evalrun.dev/v1alpha1/evalruns"
LEFT_OVERS = ("api/v1/pods", "api/v1/configmaps", "api/v1/services", "apis/apps/v1/statefulsets", "apis/batch/v1/jobs")
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Metadata", "verbs": ["create"], "resources": [{"group": "evalrun.dev"}]},
        {"level": "Metadata", "users": [f"system:serviceaccount:evalrun-system:{ACCOUNT}"]},
        {"level": "None"},
    ],
}  # fmt: skip


@dataclass
class Seen:
    """What the benchmark's own watch saw."""

    arrived: dict[str, float] = field(default_factory=dict)
    """By run, when it first showed; Unix seconds."""
    phases: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    uids: dict[str, str] = field(default_factory=dict)

    def ended(self, run: str) -> bool:
        return run in self.gone or self.phases.get(run) in {"Succeeded", "Degraded", "Failed"}


class Load:
    """Creates, deletes and watches runs, as clients of the API server do."""

    def __init__(self, session: ClientSession, plane: ControlPlane, options: argparse.Namespace) -> None:
        self._session = session
        self._plane = plane
        self._options = options
        self.seen = Seen()
        self.created_at: list[float] = []
        self.deleted: set[str] = set()

    async def create(self) -> None:
        """Create the runs, evenly over the time; delete every n-th some seconds after it was made."""
        options, loop = self._options, asyncio.get_running_loop()
        start = loop.time()
        step = max(1, options.runs // options.delete) if options.delete else options.runs + 1
        async with asyncio.TaskGroup() as group:
            for number in range(options.runs):
                await asyncio.sleep(max(0.0, start + number * options.seconds / options.runs - loop.time()))
                name = f"run-{number:04}"
                group.create_task(self._create(number, name))
                if number % step == step - 1 and len(self.deleted) < options.delete:
                    self.deleted.add(name)
                    group.create_task(self._delete(number, name, 3 + number % 15))

    async def _create(self, number: int, name: str) -> None:
        changes: dict[str, Any] = {
            "metadata.name": name, "spec.output": {"url": "s3://bucket/x"}, "spec.datasets.0.source": "s3://bucket/h",
        }  # fmt: skip
        if not self._options.own_judge:
            changes["spec.judgeRef"] = {"name": "shared"}
        async with self._session.post(self._place(number), json=evalrun_manifest(changes)) as answer:
            if answer.status != 201:
                raise RuntimeError(await answer.text())
        self.created_at.append(time.monotonic())

    async def _delete(self, number: int, name: str, after: float) -> None:
        await asyncio.sleep(after)
        async with self._session.delete(f"{self._place(number)}/{name}") as answer:
            answer.raise_for_status()

    def _place(self, number: int) -> str:
        return self._plane.url + RUNS.format(namespace=f"load-{number % NAMESPACES}")

    async def watch(self) -> None:
        """Follow all runs, as any client would."""
        version = ""
        while True:
            query = {"watch": "true", "resourceVersion": version} if version else {"watch": "true"}
            async with self._session.get(f"{self._plane.url}{ALL_RUNS}", params=query) as answer:
                async for line in answer.content:
                    now = time.time()
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    item = event["object"]
                    name, version = item["metadata"]["name"], item["metadata"]["resourceVersion"]
                    self.seen.arrived.setdefault(name, now)
                    self.seen.uids[name] = item["metadata"]["uid"]
                    self.seen.phases[name] = item.get("status", {}).get("phase", "")
                    if event["type"] == "DELETED":
                        self.seen.gone.add(name)

    async def finish(self) -> float:
        """Wait until every run has ended or is gone; gives the seconds since the last was made. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not all(self.seen.ended(f"run-{number:04}") for number in range(self._options.runs)):  # noqa: ASYNC110
                await asyncio.sleep(0.25)
        return time.monotonic() - max(self.created_at)

    async def left_of_deleted(self) -> list[str]:
        """Give what is left of the deleted runs, after the garbage collector had its time."""
        left: list[str] = []
        for _ in range(60):
            left = [item async for item in self._objects_of_deleted()]
            if not left:
                return []
            await asyncio.sleep(1)
        return left

    async def _objects_of_deleted(self) -> AsyncIterator[str]:
        uids = {self.seen.uids[name] for name in self.deleted}
        for place in LEFT_OVERS:
            query = {"labelSelector": "evalrun.dev/run-uid"}
            async with self._session.get(f"{self._plane.url}/{place}", params=query) as answer:
                for item in (await answer.json())["items"]:
                    if item["metadata"]["labels"]["evalrun.dev/run-uid"] in uids:
                        yield f"{place}/{item['metadata']['name']}"


def main() -> int:
    """Measure; gives the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0, help="within which they are created")
    parser.add_argument("--delete", type=int, default=50, help="how many are deleted midway")
    parser.add_argument("--own-judge", action="store_true", help="a judge each, instead of a shared one: 7 pods a run")
    parser.add_argument("--profile", metavar="FILE", help="have cProfile write the operator's profile there")
    parser.add_argument("--folder", type=Path, help="where logs go; default: a temporary one")
    options = parser.parse_args()
    binaries = find_binaries(("etcd", "kube-apiserver", "kubectl", *NODE_PROGRAMS))
    with tempfile.TemporaryDirectory(prefix="operator-scale-") as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "audit.yaml").write_text(json.dumps(AUDIT_POLICY))
        audit = [
            f"--audit-policy-file={folder / 'audit.yaml'}", f"--audit-log-path={folder / 'audit.log'}",
            "--audit-log-mode=batch",
        ]  # fmt: skip
        with running_control_plane(binaries, folder, audit) as plane:
            apply_crds(plane, ROOT / "k8s" / "crd.yaml")
            count = math.ceil(options.runs * (CPUS_WITH_JUDGE if options.own_judge else CPUS) / CPUS_A_NODE) + 1
            with running_nodes(plane, binaries, count=count, gpus=0, requests_per_second=1000):
                return measure(plane, options)


def measure(plane: ControlPlane, options: argparse.Namespace) -> int:
    apply(
        plane,
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"load-{n}"}} for n in range(NAMESPACES)),
    )
    for first in range(0, options.runs, 500):
        apply(plane, *(volume(number) for number in range(first, min(options.runs, first + 500))))
    metrics_port, port = free_ports(2)
    interpreter = [sys.executable, *(["-m", "cProfile", "-o", options.profile] if options.profile else [])]
    operator = OperatorProcess(
        plane, operator_kubeconfig(plane), "unused", plane.folder / "operator.log", metrics_port, port,
        flags=["--aggregators=simulated", "--log-level=warning"], interpreter=interpreter,
    )  # fmt: skip
    operator.start()
    try:
        return asyncio.run(drive(plane, operator, options))
    finally:
        operator.stop()


def volume(number: int) -> dict[str, Any]:
    """Give a volume for a run's ledger: nothing provisions any here."""
    return {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"volume-{number}"},
        "spec": {
            "capacity": {"storage": "20Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/nowhere"},
            "persistentVolumeReclaimPolicy": "Delete",
        },
    }  # fmt: skip


async def drive(plane: ControlPlane, operator: OperatorProcess, options: argparse.Namespace) -> int:
    if operator.process is None:
        raise RuntimeError("the operator runs")
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(plane.ca_file)), limit=64)
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
    async with ClientSession(connector=connector, headers=headers, timeout=timeout, read_bufsize=1 << 22) as session:
        load = Load(session, plane, options)
        watch = asyncio.create_task(load.watch())
        cpu, waited = cpu_seconds(operator.process.pid), waited_seconds(operator.process.pid)
        await load.create()
        try:
            rest = await load.finish()
        except TimeoutError:
            stuck = {name: phase for name, phase in load.seen.phases.items() if not load.seen.ended(name)}
            print(f"{len(stuck)} runs are stuck: {dict(list(stuck.items())[:5])}")
            return 1
        finally:
            watch.cancel()
        cpu = cpu_seconds(operator.process.pid) - cpu
        waited = waited_seconds(operator.process.pid) - waited
        memory = peak_mib(operator.process.pid)
        left = await load.left_of_deleted()
    ends: dict[str, int] = {}
    for name, phase in load.seen.phases.items():
        end = "deleted" if name in load.seen.gone else phase
        ends[end] = ends.get(end, 0) + 1
    took = max(load.created_at) - min(load.created_at)
    print(f"{options.runs} EvalRuns created in {took:.0f} s, all at their end {rest:.0f} s later: {ends}")
    print(f"left of the deleted ones: {left or 'nothing'}")
    print(f"operator: {memory:.0f} MiB at most (limit 250), {cpu:.1f} s CPU, {1e3 * cpu / options.runs:.1f} ms a run")
    print(f"operator: was ready to run, but had no CPU, for {waited:.1f} s: the rest of the machine had them")
    print_latencies(plane.folder / "audit.log", load.seen)
    wanted = {"deleted": len(load.deleted), "Succeeded": options.runs - len(load.deleted)}
    return 0 if {key: count for key, count in wanted.items() if count} == ends and not left else 1


def print_latencies(log: Path, seen: Seen) -> None:
    """Say how long the operator took from a run's creation to its first write, and what of it the API server took."""
    created: dict[str, float] = {}
    first: dict[str, tuple[float, float]] = {}
    took: list[float] = []
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        if entry["verb"] in {"watch", "list"} or "objectRef" not in entry:
            continue
        came, ended = _unix(entry["requestReceivedTimestamp"]), _unix(entry["stageTimestamp"])
        reference = entry["objectRef"]
        if entry["verb"] == "create" and reference["resource"] == "evalruns":
            created[reference["name"]] = ended
            continue
        took.append(ended - came)
        if reference["resource"] == "evalruns" and entry["verb"] == "update":
            first.setdefault(reference["name"], (came, ended))
    rows = {
        "creation to the operator's first write done": [first[run][1] - created[run] for run in first],
        "  of it: until any watch shows the run": [seen.arrived[run] - created[run] for run in first],
        "  of it: the operator's own, from there to its request": [first[run][0] - seen.arrived[run] for run in first],
        "  of it: the API server at that write": [first[run][1] - first[run][0] for run in first],
        f"all of the operator's {len(took)} writes and reads, at the server": took,
    }
    print(f"{'seconds':58} {'p50':>7} {'p95':>7} {'most':>7}")
    for name, values in rows.items():
        ordered = sorted(max(0.0, value) for value in values)
        p50, p95 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.95))
        print(f"{name:58} {p50:7.3f} {p95:7.3f} {ordered[-1]:7.3f}")


def _unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def waited_seconds(pid: int) -> float:
    """Give how long a process waited for a CPU so far: the machine's doing, not its own."""
    return sum(int(path.read_text().split()[1]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def peak_mib(pid: int) -> float:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


if __name__ == "__main__":
    sys.exit(main())
