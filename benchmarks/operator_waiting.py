"""What runs cost that only wait for their place: memory and requests of two operators at rest, and with 1,000 of them.

API server and etcd are real. One run is active and never starts, since no controller makes its pods; all others are
queued behind it (`operator.maxActiveRuns: 1`). Beside the memory stands what the runs themselves weigh as JSON, the
least that keeping them whole takes; beside the requests, those of client-go's leader election with its defaults.

    .venv/bin/python benchmarks/operator_waiting.py [--runs 1000] [--seconds 60]

Exits with 1 where a waiting run takes more than MAX_KIB_A_RUN.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from os import getloadavg
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from builders.cluster.controllers import apply_crds  # noqa: E402
from builders.cluster.controlplane import ControlPlane, find_binaries, running_control_plane, until  # noqa: E402
from builders.operator.audit_log import audit_flags, read_audit_log  # noqa: E402
from builders.operator.evalruns import evalrun_manifest  # noqa: E402
from builders.operator.running_operator import RUNS, apply, operator_kubeconfig  # noqa: E402
from builders.operator.two_operators import Operators  # noqa: E402

NAMESPACES = 10
MAX_KIB_A_RUN = 32.0
CLIENT_GO_REQUESTS = 1.0
"""Requests per second of client-go's leader election with its defaults and two replicas: each asks every 2 s."""


def resident_mib(pid: int) -> float:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) / 1024


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def measure(plane: ControlPlane, operators: Operators, seconds: float, what: str) -> list[float]:
    """Count requests and CPU time for some seconds, and print them. Print and return the memory of each operator."""
    began, cpu = time.time(), sum(map(cpu_seconds, operators.pids()))
    time.sleep(seconds)
    requests = Counter(one.resource for one in read_audit_log(plane.directory, began))
    memory = [resident_mib(pid) for pid in operators.pids()]
    a_second = sum(requests.values()) / seconds
    used = (sum(map(cpu_seconds, operators.pids())) - cpu) / seconds
    shown = ", ".join(f"{name} {count / seconds:.2f}" for name, count in requests.most_common())
    print(f"{what:28} {memory[0]:7.1f} {memory[1]:7.1f} MiB  {a_second:6.2f} requests/s ({shown})  {used:.3f} CPUs")
    return memory


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    binaries = find_binaries()
    with tempfile.TemporaryDirectory() as directory:
        flags = audit_flags(Path(directory))
        with running_control_plane(binaries, Path(directory), flags) as plane:
            apply_crds(plane, ROOT / "k8s" / "crd.yaml")
            names = [f"team-{number}" for number in range(NAMESPACES)]
            apply(plane, *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names))
            operators = Operators(plane, operator_kubeconfig(plane), 3600.0, ("--max-active-runs=1",))
            operators.start()
            try:
                return compare(plane, operators, options.runs, options.seconds)
            finally:
                operators.kill()


def compare(plane: ControlPlane, operators: Operators, runs: int, seconds: float) -> int:
    """Measure before the runs are created, and while they wait. Return the exit code."""
    until(lambda: operators.leader() is not None, "an operator to work")
    print(f"load {getloadavg()[0]:.1f}; 2 operators, {seconds:.0f} s each; CPUs and requests of both together")
    before = measure(plane, operators, seconds, "at rest")
    weight = 0
    for number in range(runs):
        namespace = f"team-{number % NAMESPACES}"
        changes = {"metadata": {"name": f"run-{number:04}", "namespace": namespace}}
        manifest = evalrun_manifest({**changes, "spec.output": {"url": "s3://bucket/x"}})
        answer = plane.request("POST", RUNS.format(namespace=namespace), manifest)
        if answer.status != 201:
            raise SystemExit(answer.message)
        weight += len(json.dumps(answer.body))

    def all_wait() -> bool:
        items = [
            item
            for number in range(NAMESPACES)
            for item in plane.request("GET", RUNS.format(namespace=f"team-{number}")).body["items"]
        ]
        return sum(bool(item.get("status", {}).get("conditions")) for item in items) == runs

    began = time.monotonic()
    until(all_wait, "every run to have a status", 900)
    print(f"every run had its first status {time.monotonic() - began:.0f} s after the last was made")
    after = measure(plane, operators, seconds, f"{runs} waiting runs")
    kib = [(late - early) * 1024 / runs for early, late in zip(before, after, strict=True)]
    own = weight / runs / 1024
    each = f"{kib[0]:.1f} and {kib[1]:.1f} KiB"
    print(f"memory per waiting run: {each}; the run as JSON {own:.1f}; ratio {max(kib) / own:.1f}")
    print(f"client-go's leader election: {CLIENT_GO_REQUESTS:.2f} requests/s")
    return int(max(kib) > MAX_KIB_A_RUN)


if __name__ == "__main__":
    sys.exit(main())
