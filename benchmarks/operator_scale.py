"""Two operators under load: 1,000 EvalRuns created within a minute, 50 of them deleted midway, on a real control plane.

API server, etcd, controllers and scheduler are real; nodes and pods are kwok's, and the runs' ledgers are simulated and
outlive the operators. One operator works, the other stands by, as the chart installs them. All processes share this
machine, so the API server's part is shown beside: a plain watch of the benchmark shows when an event reaches any
client, and the server's audit log shows when requests came and ended.

    .venv/bin/python benchmarks/operator_scale.py [--runs 1000] [--seconds 60] [--delete 50] [--own-judge] [--profile F]
    .venv/bin/python benchmarks/operator_scale.py --seconds 300 --kill-every 30

The second command kills the operator that works (-9) again and again, restarts it, and measures how long the other
takes to take over. Exits with 1 if a run did not reach its end state, if something was made twice or an attempt too
many was begun, or if something of a deleted run is left.
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
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import ClientSession

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from builders.cluster.controllers import NODE_PROGRAMS, apply_crds, running_nodes  # noqa: E402
from builders.cluster.controlplane import (  # noqa: E402
    ADMIN_TOKEN,
    ControlPlane,
    find_binaries,
    running_control_plane,
)
from builders.operator.audit_log import Request, audit_flags, made_twice, read_audit_log  # noqa: E402
from builders.operator.evalruns import evalrun_manifest  # noqa: E402
from builders.operator.running_operator import (  # noqa: E402
    OPERATOR_NAMESPACE,
    RUNS,
    apply,
    operator_kubeconfig,
)
from builders.operator.two_operators import Operators  # noqa: E402

NAMESPACES = 10
CPUS, CPUS_WITH_JUDGE = 1.5, 6.5
"""CPUs that the pods of a run request, without and with a judge."""
CPUS_A_NODE = 60
PATIENCE_SECONDS = 300.0
LEDGER_SECONDS = 10
"""Seconds that generating takes, and that judging takes."""
BACKOFF_SECONDS = 60
"""Seconds before a failed attempt is followed by another. kwok ends a Job's pods at once, and the run's ledger is
complete within this time, so each run must have a single attempt."""
ERRORS = 300
"""Status codes from this number on mean that a request changed nothing."""
ALL_RUNS = "/apis/evalrun.dev/v1alpha1/evalruns"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases"
LEFT_OVERS = ("api/v1/pods", "api/v1/configmaps", "api/v1/services", "apis/apps/v1/statefulsets", "apis/batch/v1/jobs")


@dataclass
class ObservedRuns:
    """Observations of the benchmark's own watch."""

    arrived: dict[str, float] = field(default_factory=dict)
    """Unix seconds at which each run was first seen, by run."""
    phases: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    uids: dict[str, str] = field(default_factory=dict)
    led_from: list[float] = field(default_factory=list)
    """Times at which the operators got the Lease, one after the other."""

    def ended(self, run: str) -> bool:
        return run in self.gone or self.phases.get(run) in {"Succeeded", "Degraded", "Failed"}


class Load:
    """Creates, deletes and watches runs, as clients of the API server do."""

    def __init__(self, session: ClientSession, plane: ControlPlane, options: argparse.Namespace) -> None:
        self._session = session
        self._plane = plane
        self._options = options
        self.seen = ObservedRuns()
        self.created_at: list[float] = []
        self.deleted: set[str] = set()

    async def create(self) -> None:
        """Create the runs at even intervals. Delete every n-th run some seconds after its creation."""
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
        async for event in self._events(ALL_RUNS):
            item = event["object"]
            name = item["metadata"]["name"]
            self.seen.arrived.setdefault(name, time.time())
            self.seen.uids[name] = item["metadata"]["uid"]
            self.seen.phases[name] = item.get("status", {}).get("phase", "")
            self.seen.attempts[name] = item.get("status", {}).get("attempts", 0)
            if event["type"] == "DELETED":
                self.seen.gone.add(name)

    async def watch_lease(self) -> None:
        holder = None
        async for event in self._events(LEASES):
            now = (event["object"].get("spec") or {}).get("holderIdentity")
            if now and now != holder:
                self.seen.led_from.append(time.time())
                holder = now

    async def _events(self, place: str) -> AsyncIterator[dict[str, Any]]:
        version = ""
        while True:
            query = {"watch": "true", "resourceVersion": version} if version else {"watch": "true"}
            async with self._session.get(f"{self._plane.url}{place}", params=query) as answer:
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    yield event

    async def finish(self) -> float:
        """Wait until every run has ended or is gone. Return the seconds from the last creation. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not all(self.seen.ended(f"run-{number:04}") for number in range(self._options.runs)):  # noqa: ASYNC110
                await asyncio.sleep(0.25)
        return time.monotonic() - max(self.created_at)

    async def left_of_deleted(self) -> list[str]:
        """Return the remaining objects of deleted runs, after giving the garbage collector a minute."""
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
    """Measure the operators under load. Return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0, help="within which they are created")
    parser.add_argument("--delete", type=int, default=50, help="how many are deleted midway")
    parser.add_argument("--operators", type=int, choices=(1, 2), default=2)
    parser.add_argument("--kill-every", type=float, default=0.0, metavar="SECONDS", help="kill the one that works")
    parser.add_argument("--own-judge", action="store_true", help="a judge each, instead of a shared one: 7 pods a run")
    parser.add_argument("--profile", metavar="FILE", help="have cProfile write the operator's profile there")
    parser.add_argument("--directory", type=Path, help="where logs go; default: a temporary one")
    options = parser.parse_args()
    binaries = find_binaries(("etcd", "kube-apiserver", "kubectl", *NODE_PROGRAMS))
    with tempfile.TemporaryDirectory(prefix="operator-scale-") as scratch:
        directory = options.directory or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        with running_control_plane(binaries, directory, audit_flags(directory)) as plane:
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
    interpreter = [sys.executable, *(["-m", "cProfile", "-o", options.profile] if options.profile else [])]
    operators = Operators(
        plane,
        operator_kubeconfig(plane),
        LEDGER_SECONDS,
        ["--log-level=warning", f"--backoff-seconds={BACKOFF_SECONDS}"],
        count=options.operators,
        interpreter=interpreter,
    )
    operators.start()
    try:
        return asyncio.run(drive(plane, operators, options))
    finally:
        operators.stop()


@dataclass
class Usage:
    """Resources that processes have used so far."""

    cpu: float = 0.0
    waited: float = 0.0
    """Seconds for which the processes could have run, but had no CPU."""
    max_mib: float = 0.0

    def add(self, pid: int) -> None:
        self.cpu += cpu_seconds(pid)
        self.waited += waited_seconds(pid)
        self.max_mib = max(self.max_mib, peak_mib(pid))


def usage_of(pids: list[int], ended: Usage | None = None) -> Usage:
    """Return the usage of processes, added to that of processes that have ended."""
    total = Usage() if ended is None else ended
    for pid in pids:
        total.add(pid)
    return total


def volume(number: int) -> dict[str, Any]:
    """Return a volume for a run's ledger, because nothing provisions volumes here."""
    return {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"volume-{number}"},
        "spec": {
            "capacity": {"storage": "20Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/nowhere"},
            "persistentVolumeReclaimPolicy": "Delete",
        },
    }  # fmt: skip


async def drive(plane: ControlPlane, operators: Operators, options: argparse.Namespace) -> int:
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(plane.ca_file)), limit=64)
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
    async with ClientSession(connector=connector, headers=headers, timeout=timeout, read_bufsize=1 << 22) as session:
        load = Load(session, plane, options)
        watches = [asyncio.create_task(watch) for watch in (load.watch(), load.watch_lease())]
        before, ended, began = usage_of(operators.pids()), Usage(), time.time()
        killing = asyncio.create_task(kill_again_and_again(operators, options.kill_every, ended))
        await load.create()
        try:
            rest = await load.finish()
        except TimeoutError:
            stuck = {name: phase for name, phase in load.seen.phases.items() if not load.seen.ended(name)}
            print(f"{len(stuck)} runs are stuck: {dict(list(stuck.items())[:5])}")
            return 1
        finally:
            for task in (*watches, killing):
                task.cancel()
            await asyncio.gather(*watches, killing, return_exceptions=True)
        used = usage_of(operators.pids(), ended)
        left = await load.left_of_deleted()
    ends: dict[str, int] = {}
    for name, phase in load.seen.phases.items():
        end = "deleted" if name in load.seen.gone else phase
        ends[end] = ends.get(end, 0) + 1
    requests = read_audit_log(plane.directory, began)
    twice = made_twice(requests)
    again = {name: count for name, count in load.seen.attempts.items() if count > 1}
    took, cpu = max(load.created_at) - min(load.created_at), used.cpu - before.cpu
    kills = len(operators.kills)
    faults = f"made twice: {twice or 'nothing'}; attempts too many: {again or 'none'}"
    lines = (
        f"load {os.getloadavg()[0]:.1f}; {options.operators} operators, the one at work killed {kills} times",
        f"{options.runs} EvalRuns created in {took:.0f} s, all at their end {rest:.0f} s later: {ends}",
        f"left of the deleted: {left or 'nothing'}; {faults}",
        f"each operator: {used.max_mib:.0f} MiB at most (limit 250); all: {1e3 * cpu / options.runs:.1f} ms CPU a run",
        f"ready to run, but without a CPU, for {used.waited - before.waited:.0f} s: the rest of the machine had them",
    )
    print("\n".join(lines))
    print_latencies(requests, load.seen)
    if operators.kills:
        print_takeovers(requests, operators.kills, load.seen.led_from)
    wanted = {"deleted": len(load.deleted), "Succeeded": options.runs - len(load.deleted)}
    whole = {key: count for key, count in wanted.items() if count} == ends
    return 0 if whole and not left and not twice and not again else 1


async def kill_again_and_again(operators: Operators, seconds: float, ended: Usage) -> None:
    """Kill the working operator at intervals of `seconds`; 0: never. Add its usage to `ended`."""
    while seconds:
        await asyncio.sleep(seconds)
        await asyncio.to_thread(operators.kill_leader, ended.add)


def print_takeovers(requests: list[Request], kills: list[float], led_from: list[float]) -> None:
    """Print how long no operator worked after each kill: until another has the Lease, and until its first write."""
    lease, write = [], []
    for kill in kills:
        led = next((time for time in led_from if time > kill), None)
        if led is None:
            # All runs had ended before another operator took the Lease.
            continue
        taken = [one for one in requests if one.resource == "leases" and one.code < ERRORS and kill < one.came <= led][
            -1
        ]
        lease.append(taken.ended - kill)
        first = (one for one in requests if one.came >= taken.came and one.resource != "leases" and one.verb != "get")
        write += [one.ended - kill for one in islice(first, 1)]
    print(f"{'takeover, seconds':58} {'p50':>7} {'p95':>7} {'most':>7}")
    print_row(f"from the kill until another has the Lease ({len(lease)})", lease)
    print_row(f"from the kill until its first write ({len(write)})", write)


def print_latencies(requests: list[Request], seen: ObservedRuns) -> None:
    """Print the seconds from a run's creation to the operator's first write, and the API server's part of them."""
    created = {one.name: one.ended for one in requests if one.verb == "create" and one.resource == "evalruns"}
    first: dict[str, Request] = {}
    for one in requests:
        if one.resource == "evalruns" and one.verb == "update":
            first.setdefault(one.name, one)
    took = [
        one.ended - one.came for one in requests if one.resource not in {"evalruns", "leases"} or one.verb != "create"
    ]
    rows = {
        "creation to the operator's first write done": [first[run].ended - created[run] for run in first],
        "  of it: until any watch shows the run": [seen.arrived[run] - created[run] for run in first],
        "  of it: the operator's own, from there to its request": [
            first[run].came - seen.arrived[run] for run in first
        ],
        "  of it: the API server at that write": [first[run].ended - first[run].came for run in first],
        f"all of the operators' {len(took)} writes and reads, at the server": took,
    }
    print(f"{'seconds':58} {'p50':>7} {'p95':>7} {'most':>7}")
    for name, values in rows.items():
        print_row(name, values)


def print_row(name: str, values: list[float]) -> None:
    """Print median, 95th percentile and maximum."""
    ordered = sorted(max(0.0, value) for value in values)
    p50, p95 = (ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] for share in (0.5, 0.95))
    print(f"{name:58} {p50:7.3f} {p95:7.3f} {ordered[-1]:7.3f}")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def waited_seconds(pid: int) -> float:
    """Return the seconds for which a process has waited for a CPU, which the machine causes, not the process."""
    return sum(int(path.read_text().split()[1]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def peak_mib(pid: int) -> float:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


if __name__ == "__main__":
    sys.exit(main())
