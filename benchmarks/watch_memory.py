"""What an operator's memory takes in a cluster full of other people's pods: our watches beside kopf's.

A real API server holds foreign pods (20,000) and pods with a run's label (1,000), as objects that no node runs. These
watchers are measured, each in a separate process: kopf that watches all pods, kopf that watches the pods with our
label, and our operator, which watches all of its kinds. The resident memory is read once everything has been listed
and no more events come.

    .venv/bin/python benchmarks/watch_memory.py [--foreign 20000] [--ours 1000]
"""

import argparse
import asyncio
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import kopf
from prometheus_client import CollectorRegistry

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from builders.cluster.controllers import apply_crds  # noqa: E402
from builders.cluster.controlplane import ADMIN_TOKEN, ControlPlane, find_binaries, running_control_plane  # noqa: E402
from builders.operator.running_operator import apply  # noqa: E402
from builders.operator.world import operator_settings  # noqa: E402

from evalrun_api import names  # noqa: E402
from evalrun_operator.app import build_operator  # noqa: E402
from evalrun_operator.handlers import build_registry, configure  # noqa: E402

NAMESPACES = 20
QUIET_SECONDS = 10.0
"""Seconds of silence before the memory is read; kopf ends its workers after 5 s of silence."""
WATCHERS = {
    "nothing": "kopf and our operator imported, nothing started",
    "kopf": "kopf, pods cluster-wide",
    "kopf-label": "kopf, pods with our label",
    "ours": "our operator, 14 kinds with our label",
}


def pod(number: int, *, ours: bool) -> dict[str, Any]:
    labels = {"app": f"service-{number % 50}"}
    if ours:
        labels |= {names.RUN_UID_LABEL: f"uid-{number}", names.RUN_LABEL: f"run-{number}"}
    variables = [{"name": f"SETTING_{n}", "value": f"value-{n}-of-{number}"} for n in range(20)]
    container = {"name": "main", "image": "registry.example.com/team/service:1", "env": variables}
    metadata = {"name": f"{'ours' if ours else 'theirs'}-{number}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


async def fill(plane: ControlPlane, foreign: int, ours: int) -> None:
    context = ssl.create_default_context(cafile=str(plane.ca_file))
    todo = iter([pod(number, ours=False) for number in range(foreign)] + [pod(n, ours=True) for n in range(ours)])
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), headers=headers) as session:

        async def create() -> None:
            for number, manifest in enumerate(todo):
                place = f"{plane.url}/api/v1/namespaces/crowd-{number % NAMESPACES}/pods"
                async with session.post(place, json=manifest) as answer:
                    if answer.status != 201:
                        raise RuntimeError(await answer.text())

        async with asyncio.TaskGroup() as group:
            for _ in range(24):
                group.create_task(create())


def resident_mib() -> tuple[float, float]:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmRSS"].split()[0]) / 1024, int(lines["VmHWM"].split()[0]) / 1024


async def watch_with_kopf(*, label: bool, expected: int) -> None:
    """Follow pods with a handler that does nothing, until all were seen and no more events come."""
    registry, seen, stop = kopf.OperatorRegistry(), set[str](), asyncio.Event()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 - kopf's own arguments
        return kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.startup(registry=registry)
    async def start(settings: kopf.OperatorSettings, **_: object) -> None:
        configure(settings)
        if label:
            settings.watching.label_selectors["pods"] = names.RUN_UID_LABEL

    @kopf.on.event("", "v1", "pods", registry=registry)
    async def saw(uid: str | None, **_: object) -> None:
        seen.add(uid or "")

    task = asyncio.create_task(kopf.operator(registry=registry, standalone=True, clusterwide=True, stop_flag=stop))
    await until_quiet(lambda: len(seen) >= expected)
    stop.set()
    await task


async def watch_with_ours() -> None:
    """Run our operator, until it has listed everything and no more events come."""
    registry = build_registry(build_operator(operator_settings(), registry=CollectorRegistry()))
    stop, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(
        kopf.operator(registry=registry, standalone=True, clusterwide=True, stop_flag=stop, ready_flag=ready)
    )
    # The operator is ready once it has listed everything.
    await until_quiet(ready.is_set)
    stop.set()
    await task


async def until_quiet(check: Callable[[], bool]) -> None:
    """Wait until a check holds, then for silence, and print the memory."""
    began = time.monotonic()
    while not check():  # noqa: ASYNC110 - kopf offers nothing to wait on
        await asyncio.sleep(0.2)
    took = time.monotonic() - began
    await asyncio.sleep(QUIET_SECONDS)
    now, most = resident_mib()
    print(f"{now:.0f} {most:.0f} {took:.1f}")


def measure(plane: ControlPlane, which: str, expected: int) -> str:
    """Run one watcher in a separate process. Return what it printed."""
    command = [sys.executable, __file__, "--watcher", which, "--ours", str(expected)]
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=300, check=True)
    return done.stdout.split("\n")[-2]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--foreign", type=int, default=20_000)
    parser.add_argument("--ours", type=int, default=1_000)
    parser.add_argument("--watcher", choices=list(WATCHERS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.watcher == "nothing":
        now, most = resident_mib()
        print(f"{now:.0f} {most:.0f} 0.0")
        return
    if options.watcher == "ours":
        asyncio.run(watch_with_ours())
        return
    if options.watcher:
        asyncio.run(watch_with_kopf(label=options.watcher == "kopf-label", expected=options.ours))
        return
    with (
        tempfile.TemporaryDirectory(prefix="watch-memory-") as scratch,
        running_control_plane(find_binaries(), Path(scratch), ["--disable-admission-plugins=ServiceAccount"]) as plane,
    ):
        apply_crds(plane, ROOT / "k8s" / "crd.yaml")
        places = [f"crowd-{number}" for number in range(NAMESPACES)]
        apply(plane, *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}} for place in places))
        asyncio.run(fill(plane, options.foreign, options.ours))
        print(f"{options.foreign} foreign pods, {options.ours} with our label")
        print(f"{'MiB resident: quiet, at most; seconds until all were seen':60}")
        for which, what in WATCHERS.items():
            expected = options.foreign + options.ours if which == "kopf" else options.ours
            figures = measure(plane, which, expected).split()
            print(f"{what:50} {' '.join(f'{figure:>6}' for figure in figures)}")


if __name__ == "__main__":
    main()
