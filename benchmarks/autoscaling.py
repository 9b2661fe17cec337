"""A run's own autoscalers on a real control plane while the judge's load changes: 1, 64, 0 and 64 in flight.

    .venv/bin/python benchmarks/autoscaling.py [--scalers cpu custom keda] [--seconds 60 240 420 240] [--plot FILE.svg]

Real: the API server, an operator for each scaler (operator.autoscaling) and what it makes of an EvalRun, Kubernetes'
HPA controller, metrics-server, prometheus-adapter with the rules that we ship, KEDA, Prometheus; with `custom` and
`keda` also a gateway and its sandboxes: a process starts with each sandbox's pod, and gets SIGTERM when the pod goes.
Their programs wait 3 s and use little of a CPU. Pretended: the nodes and pods (kwok), so also what metrics-server
measures: with n programs in flight, every slot that has one uses a CPU, and a gateway 2 % of a CPU a program; and the
run's aggregator: its ledger and, for `keda`, its series say how many answers wait. Time is not compressed: the windows
of an HPA's `behavior` are seconds. With `keda`, whose turn comes after the others (a cluster has one server of external
metrics), the sandboxes begin at zero. Aims: the second sandbox within 2 minutes of the load, all within 4, none taken
away under the load, the smallest size within 7 minutes of its end, no request lost, no verdict changed.
"""

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from builders.aggregator.prometheus import running_prometheus, static_job
from builders.aggregator.waiting_answers import WaitingAnswers
from builders.cluster.controllers import NODE_PROGRAMS, apply_crds, running_nodes
from builders.cluster.controlplane import (
    ROOT,
    ControlPlane,
    find_binaries,
    running_control_plane,
    until,
)
from builders.cluster.keda import KEDA_PROGRAMS, keda_crds, running_keda
from builders.cluster.metrics_apis import (
    ADAPTER_PROGRAMS,
    METRICS_PROGRAMS,
    USAGE_ANNOTATION,
    aggregation_flags,
    running_metrics_server,
    running_prometheus_adapter,
    usage_configs,
)
from builders.judge.held_load import HeldLoad
from builders.operator.evalruns import evalrun_manifest
from builders.operator.running_operator import (
    MERGE,
    Run,
    ScriptedLedger,
    make_namespace,
    operator_kubeconfig,
    running_operator,
    serving_ledger,
)

from evalrun_operator.settings import AutoscalingMode
from evalrun_results.report.markup import Markup, element

SLOTS, MAX_SANDBOXES, MAX_GATEWAYS = 2, 8, 2
MIN_SANDBOXES: dict[AutoscalingMode, int] = {"cpu": 1, "custom": 1, "keda": 0}
LOADS = (1, 64, 0, 64)
"""Programs in flight, by phase."""
LOOK_SECONDS = 2.0
GATEWAY_CPU = 0.02
"""CPUs that a gateway uses per program in flight, about as measured by the gateway's benchmarks."""


@dataclass(frozen=True)
class Look:
    """The observed state at one moment."""

    seconds: float
    in_flight: int
    sandboxes: int
    gateways: int
    """Ready pods."""
    p95: float | None = None
    """95th percentile, in seconds, of the latest 64 requests that have ended; None before any has ended."""


@dataclass
class Scaled:
    """A run whose judge is scaled by one scaler, and the observations of it."""

    scaler: AutoscalingMode
    run: Run
    ledger: ScriptedLedger
    judge: HeldLoad | None = None
    said: str = ""
    """Message of the condition Judged at the last look."""
    looks: list[Look] = field(default_factory=list)
    good: bool = False
    """Whether the aims were met."""


def usage(component: str, in_flight: int, pods: int) -> float:
    share = in_flight / max(1, pods)
    return min(share, SLOTS) if component == "sandbox" else GATEWAY_CPU * share


def pretend(plane: ControlPlane, namespace: str, component: str, in_flight: int) -> int:
    """Write each ready pod's usage where kwok reads it. Return how many pods are ready."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    found = plane.request("GET", pods, labelSelector=f"app.kubernetes.io/component={component}").body["items"]
    ready = [pod for pod in found if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]
    amount = f"{max(1, round(1000 * usage(component, in_flight, len(ready))))}m"
    for pod in ready:
        if (pod["metadata"].get("annotations") or {}).get(USAGE_ANNOTATION) != amount:
            body = {"metadata": {"annotations": {USAGE_ANNOTATION: amount}}}
            plane.request("PATCH", f"{pods}/{pod['metadata']['name']}", body, MERGE)
    return len(ready)


def is_ready(pod: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def look(plane: ControlPlane, scaled: Scaled, seconds: float, load: int) -> None:
    """Count the pods of a run's judge, write their usage, and print what has changed."""
    counts = [pretend(plane, scaled.run.namespace, part, load) for part in ("sandbox", "judge")]
    p95 = None
    if scaled.judge is not None:
        scaled.judge.in_flight, scaled.judge.running = load, min(counts[0], MAX_SANDBOXES)
        scaled.ledger.judged = len(scaled.judge.ends)
        scaled.ledger.generated = scaled.ledger.judged + scaled.judge.unanswered
        latest = sorted(scaled.judge.ends[-64:])
        p95 = latest[int(0.95 * (len(latest) - 1))] if latest else None
    seen = Look(seconds, load, counts[0], counts[1], p95)
    before = scaled.looks[-1] if scaled.looks else None
    if before is None or (before.in_flight, before.sandboxes, before.gateways) != (load, *counts):
        latency = "" if p95 is None else f"   p95 {p95:.1f} s"
        print(
            f"{scaled.scaler:8s}{seconds:6.0f} s {load:4d} in flight {counts[0]:3d} sandboxes {counts[1]:3d} gateways"
            f"{latency}",
            flush=True,
        )
    scaled.looks.append(seen)
    said = scaled.run.conditions().get("Judged", {})
    if said.get("reason") == "WaitingForServices" and said["message"] != scaled.said:
        print(f"{scaled.scaler:8s}{seconds:6.0f} s Judged: {said['reason']}: {said['message']}", flush=True)
    scaled.said = said.get("message", "")


def watch(plane: ControlPlane, runs: Sequence[Scaled], seconds: Sequence[float]) -> None:
    started = time.monotonic()
    for load, end in zip(LOADS, itertools.accumulate(seconds), strict=True):
        while (now := time.monotonic() - started) < end:
            for scaled in runs:
                look(plane, scaled, now, load)
            time.sleep(LOOK_SECONDS)


def phase_of(looks: Sequence[Look], number: int, seconds: Sequence[float]) -> list[Look]:
    begin = sum(seconds[:number])
    return [look for look in looks if begin <= look.seconds < begin + seconds[number]]


def seconds_until(looks: Sequence[Look], sandboxes: int) -> float | None:
    """Return the seconds of a phase until this number of sandboxes was reached, from below or above; None: never."""
    up = looks[0].sandboxes < sandboxes
    for one in looks:
        if one.sandboxes >= sandboxes if up else one.sandboxes <= sandboxes:
            return round(one.seconds - looks[0].seconds)
    return None


def turns(looks: Sequence[Look]) -> int:
    """Return how often the number of sandboxes changed its direction."""
    steps = [after.sandboxes - before.sandboxes for before, after in itertools.pairwise(looks)]
    moves = [step > 0 for step in steps if step]
    return sum(one is not other for one, other in itertools.pairwise(moves))


def plot(runs: Sequence[Scaled]) -> Markup:
    """Return load, sandboxes, gateways and p95 over time as SVG, with one row per figure and scaler."""
    width, left, row = 760.0, 130.0, 64.0
    drawn, base, span = [], 0.0, max(scaled.looks[-1].seconds for scaled in runs)
    for scaled in runs:
        rows = [
            ("in flight", "#475569", [float(look.in_flight) for look in scaled.looks]),
            ("sandboxes", "#2563eb", [float(look.sandboxes) for look in scaled.looks]),
            ("gateways", "#c2410c", [float(look.gateways) for look in scaled.looks]),
        ]
        if scaled.judge is not None:
            rows.append(("p95, seconds", "#15803d", [look.p95 or 0.0 for look in scaled.looks]))
        for name, colour, values in rows:
            base, most, before, points = base + row, max([*values, 1.0]), values[0], []
            for seen, value in zip(scaled.looks, values, strict=True):
                x = left + (width - left - 10) * seen.seconds / span
                points += [f"{x:.1f},{base - 44 * before / most:.1f}", f"{x:.1f},{base - 44 * value / most:.1f}"]
                before = value
            drawn += [
                element("line", x1=left, x2=width - 10, y1=base, y2=base, stroke="#cbd5e1"),
                element("polyline", points=" ".join(points), fill="none", stroke=colour, stroke_width="1.5"),
                element("text", f"{scaled.scaler}: {name}", x=4, y=base - 18, fill=colour),
                element("text", f"{most:.0f}", x=left - 4, y=base - 38, text_anchor="end", fill="#475569"),
            ]
    for minute in range(0, int(span // 60) + 1, 2):
        x = left + (width - left - 10) * minute * 60 / span
        drawn.append(element("text", f"{minute} min", x=f"{x:.1f}", y=base + 16, fill="#475569"))
    back = element("rect", width=width, height=base + 24, fill="white")
    return element(
        "svg", back, drawn, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:g} {base + 24:g}",
        font_family="system-ui, sans-serif", font_size="11",
    )  # fmt: skip


def report(scaled: Scaled, seconds: Sequence[float]) -> bool:
    """Print the findings about one scaler. Return whether the aims were met."""
    good = True
    for number in (1, 3):
        phase = phase_of(scaled.looks, number, seconds)
        second, most = seconds_until(phase, 2), seconds_until(phase, MAX_SANDBOXES)
        print(
            f"{scaled.scaler}: {LOADS[number]} in flight: 2 sandboxes after {second} s, {MAX_SANDBOXES} after {most} s"
        )
        good &= second is not None and second <= 120 and not turns(phase)
        good &= most is not None and most <= 240
    smallest = MIN_SANDBOXES[scaled.scaler]
    least = seconds_until(phase_of(scaled.looks, 2, seconds), smallest)
    print(
        f"{scaled.scaler}: 0 in flight: {smallest} sandboxes again after {least} s; "
        f"{turns(scaled.looks)} changes of direction"
    )
    good &= least is not None and least <= 420 and turns(scaled.looks) == 2
    if scaled.judge is not None:
        print(f"{scaled.scaler}: {len(scaled.judge.ends)} verdicts, {len(scaled.judge.faults)} lost or wrong")
        good &= not scaled.judge.faults
    scaling = scaled.run.conditions().get("ScalingActive", {})
    print(f"{scaled.scaler}: ScalingActive {scaling.get('status')} {scaling.get('reason')}")
    return good and scaling.get("status") == "True"


def start(
    plane: ControlPlane, stack: ExitStack, scaler: AutoscalingMode, judge: HeldLoad | None, flags: Sequence[str] = ()
) -> Scaled:
    """Start an operator with this scaler in a new namespace, and a run that stays at work."""
    namespace = f"by-{scaler}"
    make_namespace(plane, namespace)
    ledger = ScriptedLedger(total=100_000)
    address = stack.enter_context(serving_ledger(ledger))
    flags = (f"--namespace={namespace}", f"--autoscaling={scaler}", "--poll-seconds=5", *flags)
    stack.enter_context(running_operator(plane, operator_kubeconfig(plane, scaler), address, flags))
    parts = {
        "gateway": {"minReplicas": 1, "maxReplicas": MAX_GATEWAYS},
        "sandbox": {"minReplicas": MIN_SANDBOXES[scaler], "maxReplicas": MAX_SANDBOXES, "slots": SLOTS},
    }
    nowhere = {"generator": {"nodeSelector": {"nowhere": "here"}}}
    changes = {"spec.output": {"url": "s3://bucket/x"}, "spec.judge": parts, "spec.placement": nowhere}
    run = Run(plane, namespace, "run").create(evalrun_manifest(changes))
    run.wait_for("Generated", "False", "Generating", limit=120)
    return Scaled(scaler, run, ledger, judge)


@contextmanager
def running_nodes_that_tell_usage(binaries: Mapping[str, Path], directory: Path, *crds: Path) -> Iterator[ControlPlane]:
    """Run a control plane with two nodes, whose API server can pass requests on to other servers."""
    flags = aggregation_flags(directory / "aggregation")
    with running_control_plane(binaries, directory / "plane", flags) as plane:
        apply_crds(plane, ROOT / "k8s" / "crd.yaml", *crds)
        with running_nodes(plane, binaries, count=2, gpus=0, usage=usage_configs()):
            yield plane


def scale(
    binaries: Mapping[str, Path], directory: Path, scalers: Sequence[AutoscalingMode], seconds: Sequence[float]
) -> list[Scaled]:
    """Go through all phases with HPAs, and print the findings. Return the observations of each scaler."""
    with ExitStack() as stack:
        plane = stack.enter_context(running_nodes_that_tell_usage(binaries, directory))
        stack.enter_context(running_metrics_server(plane, binaries))
        judge = None
        if "custom" in scalers:
            judge = stack.enter_context(HeldLoad(directory, MAX_SANDBOXES, SLOTS))
            job = static_job("gateway", judge.metrics_port, namespace="by-custom", run="run")
            prometheus = stack.enter_context(running_prometheus(directory, [job], "15s"))
            stack.enter_context(running_prometheus_adapter(plane, binaries, prometheus.url))
        runs = [start(plane, stack, scaler, judge if scaler == "custom" else None) for scaler in scalers]
        watch(plane, runs, seconds)
        for scaled in runs:
            scaled.good = report(scaled, seconds)
    return runs


def scale_by_keda(binaries: Mapping[str, Path], directory: Path, seconds: Sequence[float]) -> Scaled:
    """Go through all phases with KEDA, from no sandbox, and print the findings. Return the observations."""
    with ExitStack() as stack:
        plane = stack.enter_context(running_nodes_that_tell_usage(binaries, directory, keda_crds()))
        answers = stack.enter_context(WaitingAnswers().serving())
        judge = stack.enter_context(HeldLoad(directory, MAX_SANDBOXES, SLOTS, running=0))
        answers.number = lambda: judge.unanswered
        jobs = [
            static_job("gateway", judge.metrics_port, namespace="by-keda", run="run"),
            static_job("aggregator", answers.port, namespace="by-keda", run="run"),
        ]
        prometheus = stack.enter_context(running_prometheus(directory, jobs, "15s"))
        stack.enter_context(running_keda(plane, binaries))
        scaled = start(plane, stack, "keda", judge, (f"--keda-prometheus={prometheus.url}",))
        sandboxes = f"/apis/apps/v1/namespaces/{scaled.run.namespace}/deployments/run-sandbox"
        until(lambda: plane.request("GET", sandboxes).body["spec"]["replicas"] == 0, "no sandbox", 120)
        watch(plane, [scaled], seconds)
        scaled.good = report(scaled, seconds)
    return scaled


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scalers", nargs="+", choices=tuple(MIN_SANDBOXES), default=list(MIN_SANDBOXES))
    parser.add_argument("--seconds", type=float, nargs=len(LOADS), default=[60, 240, 420, 240], help="of each phase")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    by_hpa = [scaler for scaler in arguments.scalers if scaler != "keda"]
    wanted = ["etcd", "kube-apiserver", "kubectl", *NODE_PROGRAMS]
    wanted += METRICS_PROGRAMS if by_hpa else ()
    wanted += ADAPTER_PROGRAMS if "custom" in by_hpa else ()
    wanted += KEDA_PROGRAMS if "keda" in arguments.scalers else ()
    binaries = find_binaries(wanted)
    runs = []
    if by_hpa:
        with tempfile.TemporaryDirectory() as scratch:
            runs += scale(binaries, Path(scratch), by_hpa, arguments.seconds)
    if "keda" in arguments.scalers:
        with tempfile.TemporaryDirectory() as scratch:
            runs.append(scale_by_keda(binaries, Path(scratch), arguments.seconds))
    if arguments.plot is not None:
        arguments.plot.write_text(f"{plot(runs)}\n")
    return 0 if all(scaled.good for scaled in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
