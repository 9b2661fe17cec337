"""What the operator keeps of runs: memory after thousands that ended and were deleted, and of each that stays.

API server, etcd and garbage collector are real, and two operators follow them, one of which works. Nothing else runs:
there are no pods, this program reports each run's aggregator as ready, and the simulated ledgers end at once.

    .venv/bin/python benchmarks/operator_memory.py [--runs 10000] [--wave 500] [--keep 2000]

Exits with 1 if an operator is larger after the runs by more than a tenth.
"""

import argparse
import asyncio
import json
import os
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from builders.cluster.controllers import apply_crds, running_controllers  # noqa: E402
from builders.cluster.controlplane import (  # noqa: E402
    ADMIN_TOKEN,
    ControlPlane,
    find_binaries,
    running_control_plane,
)
from builders.operator.evalruns import evalrun_manifest  # noqa: E402
from builders.operator.running_operator import (  # noqa: E402
    MERGE,
    RUNS,
    apply,
    operator_kubeconfig,
)
from builders.operator.two_operators import Operators  # noqa: E402

NAMESPACE = "memory"
AT_ONCE = 24
"""Maximum number of this program's simultaneous requests."""
QUIET_SECONDS = 5.0
"""Seconds between the last event of a wave and the measurement of the memory."""
PATIENCE_SECONDS = 240.0
FLAGS = ("--log-level=warning", "--poll-seconds=0.5", "--backoff-seconds=60")
GARBAGE_COLLECTOR = (
    "--controllers=garbage-collector-controller,persistentvolumeclaim-protection-controller",
    "--kube-api-qps=1000",
    "--kube-api-burst=2000",
)
TOLERATED = 1.1


class Runs:
    """Creates runs, reports their aggregators as ready, watches how the runs end, and deletes them."""

    def __init__(self, session: aiohttp.ClientSession, plane: ControlPlane) -> None:
        self._session = session
        self._url = plane.url
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._there: set[str] = set()
        """Names of the existing runs and StatefulSets."""
        self._ended: set[str] = set()
        self._changed = asyncio.Event()

    @property
    def _place(self) -> str:
        return self._url + RUNS.format(namespace=NAMESPACE)

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        sets = f"{self._url}/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets"
        tasks = [asyncio.create_task(self._watch(place)) for place in (self._place, sets)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def complete(self, names: Iterable[str]) -> None:
        """Create runs, and wait until they have succeeded and their aggregators are gone."""
        wanted = set(names)
        async with asyncio.TaskGroup() as group:
            for name in sorted(wanted):
                group.create_task(self._create(name))
        aggregators = {f"{name}-aggregator" for name in wanted}
        await self._until(lambda: wanted <= self._ended and not aggregators & self._there)

    async def delete(self, names: Iterable[str]) -> None:
        """Delete runs, and wait until they are gone."""
        wanted = set(names)
        async with asyncio.TaskGroup() as group:
            for name in sorted(wanted):
                group.create_task(self._ask("DELETE", f"{self._place}/{name}"))
        await self._until(lambda: not wanted & self._there)
        self._ended -= wanted

    async def _until(self, check: Any) -> None:  # noqa: ANN401 - a callable
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not check():
                self._changed.clear()
                await self._changed.wait()

    async def _create(self, name: str) -> None:
        changes: dict[str, Any] = {
            "metadata.name": name, "spec.judgeRef": {"name": "shared"}, "spec.output": {"url": "s3://bucket/x"},
            "spec.datasets.0.source": "s3://bucket/h", "spec.aggregator": {"keepSecondsAfterFinished": 1},
        }  # fmt: skip
        await self._ask("POST", self._place, evalrun_manifest(changes))

    async def _ask(self, method: str, url: str, body: object = None, kind: str = "application/json") -> None:
        async with (
            self._turn,
            self._session.request(method, url, data=json.dumps(body), headers={"Content-Type": kind}) as answer,
        ):
            if answer.status >= 300:
                raise RuntimeError(await answer.text())

    async def _watch(self, place: str) -> None:
        version = ""
        async with asyncio.TaskGroup() as group:
            while True:
                query = {"watch": "true"} | ({"resourceVersion": version} if version else {})
                async with self._session.get(place, params=query) as answer:
                    async for line in answer.content:
                        event = json.loads(line)
                        item = event["object"]
                        if event["type"] == "ERROR":
                            raise RuntimeError(str(item))
                        version = item["metadata"]["resourceVersion"]
                        if self._note(event["type"], item):
                            ready = {"status": {"replicas": 1, "readyReplicas": 1, "observedGeneration": 1}}
                            url = f"{place}/{item['metadata']['name']}/status"
                            group.create_task(self._ask("PATCH", url, ready, MERGE))

    def _note(self, change: str, item: dict[str, Any]) -> bool:
        """Record a change of an object. Return whether the object is a new aggregator, which is not ready yet."""
        name, status = item["metadata"]["name"], item.get("status", {})
        (self._there.discard if change == "DELETED" else self._there.add)(name)
        if status.get("phase") == "Succeeded":
            self._ended.add(name)
        self._changed.set()
        return change == "ADDED" and item["kind"] == "StatefulSet"


def resident_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


async def drive(plane: ControlPlane, operators: list[int], options: argparse.Namespace) -> int:
    """Measure the operators' memory. Return the exit code."""
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(plane.ca_file)), limit=64)
    timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
    session = aiohttp.ClientSession(
        connector=connector, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"}, timeout=timeout, read_bufsize=1 << 22
    )
    print(f"load {os.getloadavg()[0]:.1f}; MiB resident of each of {len(operators)} operators; the first is at work")
    began = time.monotonic()

    async def look(what: str) -> list[float]:
        await asyncio.sleep(QUIET_SECONDS)
        sizes = [resident_mib(one) for one in operators]
        print(
            f"{what:42} {' '.join(f'{size:6.1f}' for size in sizes)}  after {time.monotonic() - began:.0f} s",
            flush=True,
        )
        return sizes

    async with session:
        runs = Runs(session, plane)
        async with runs.followed():
            before = after = await look("no run yet")
            for first in range(0, options.runs, options.wave):
                names = [f"run-{number:05}" for number in range(first, min(first + options.wave, options.runs))]
                await runs.complete(names)
                await runs.delete(names)
                after = await look(f"{first + len(names)} runs ended and were deleted")
                before = before if first else after
            kept = [f"kept-{number:05}" for number in range(options.keep)]
            for first in range(0, options.keep, options.wave):
                await runs.complete(kept[first : first + options.wave])
            most = await look(f"{options.keep} runs ended and are kept")
    growth = [late / early for late, early in zip(after, before, strict=True)]
    print(f"after {options.runs} runs, in terms of what it was after the first {options.wave}: "
          f"{' '.join(f'{ratio:.2f}' for ratio in growth)} (limit {TOLERATED})")  # fmt: skip
    if options.keep:
        sizes = [1024 * (late - early) / options.keep for late, early in zip(most, after, strict=True)]
        print(f"KiB for each ended run that is kept: {' '.join(f'{size:.1f}' for size in sizes)}")
    return 0 if max(growth) <= TOLERATED else 1


def main() -> int:
    """Measure the operators' memory. Return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=10_000, help="that end and are deleted")
    parser.add_argument("--wave", type=int, default=500, help="how many are there at a time")
    parser.add_argument("--keep", type=int, default=2_000, help="that end and stay, afterwards")
    options = parser.parse_args()
    binaries = find_binaries(("etcd", "kube-apiserver", "kubectl", "kube-controller-manager"))
    with (
        tempfile.TemporaryDirectory(prefix="operator-memory-") as scratch,
        running_control_plane(binaries, Path(scratch), ["--disable-admission-plugins=ServiceAccount"]) as plane,
    ):
        apply_crds(plane, ROOT / "k8s" / "crd.yaml")
        apply(plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        operators = Operators(plane, operator_kubeconfig(plane), 0.01, FLAGS)
        with running_controllers(plane, binaries, *GARBAGE_COLLECTOR):
            try:
                operators.start()
                return asyncio.run(drive(plane, operators.pids(), options))
            finally:
                operators.kill()


if __name__ == "__main__":
    sys.exit(main())
