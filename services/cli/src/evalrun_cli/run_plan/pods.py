"""The pods of a run and their requests, derived from the operator's manifests. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from evalrun_api.quantities import amount
from evalrun_api.v1alpha1 import EvalRun
from evalrun_cluster.objects import Object, RunIdentity
from evalrun_operator import resources
from evalrun_operator.policies.worker_count import Workers
from evalrun_operator.resources import RunPlan
from evalrun_operator.settings import OperatorSettings

MIB = Decimal(1 << 20)


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods with equal requests."""

    part: str
    min_pods: int
    max_pods: int
    cpus: Decimal
    memory_mib: int
    gpus: int = 0


def plan_pods(run: EvalRun, settings: OperatorSettings) -> list[PodGroup]:
    """Return the pods of a run, without those of a shared judge."""
    # The objects contain names and times, on which the requests do not depend.
    identity = RunIdentity(run.metadata.name, "default", "planned", datetime.fromtimestamp(0, UTC))
    plan = RunPlan(identity, run.spec, settings, "planned")
    spec = run.spec
    groups = [_group("aggregator", 1, 1, _template(resources.aggregator_stateful_set(plan)), settings)]
    judge = spec.own_judge
    if judge is not None:
        gateway, sandbox = judge.gateway, judge.sandbox
        made = _template(resources.judge_deployment(plan, judge, 1))
        groups.append(_group("gateway", gateway.min_replicas, gateway.max_replicas, made, settings))
        made = _template(resources.sandbox_deployment(plan, judge, 1))
        groups.append(_group("sandbox", sandbox.min_replicas, sandbox.max_replicas, made, settings))
    rollout = spec.rollout
    if rollout is None:
        made = _template(resources.generator_job(plan, spec.endpoints or [], 1))
        return [*groups, _group("generator", 1, 1, made, settings)]
    least = rollout.worker_pods(rollout.min_replicas or rollout.initial_replicas)
    most = rollout.worker_pods(rollout.max_replicas or rollout.initial_replicas)
    cluster = resources.ray_cluster(plan, rollout, 1, Workers(most))["spec"]
    resource = rollout.gpu_resource or settings.gpu_resource
    return [
        *groups,
        _group("ray head", 1, 1, cluster["headGroupSpec"]["template"], settings),
        _group("ray worker", least, most, cluster["workerGroupSpecs"][0]["template"], settings, resource),
    ]


def count_slots(run: EvalRun, settings: OperatorSettings) -> tuple[int, int] | None:
    """Return the least and greatest number of programs that the sandboxes run at once; None with a shared judge."""
    judge = run.spec.own_judge
    if judge is None:
        return None
    slots = judge.sandbox.slots or settings.sandbox_slots
    return slots * judge.sandbox.min_replicas, slots * judge.sandbox.max_replicas


def _template(made: Object) -> Object:
    template: Object = made["spec"]["template"]
    return template


def _group(
    part: str, least: int, most: int, template: Object, settings: OperatorSettings, gpu_resource: str | None = None
) -> PodGroup:
    wanted = list(_requests(template))
    gpu = gpu_resource or settings.gpu_resource
    return PodGroup(
        part,
        least,
        most,
        sum((amount(str(each.get("cpu", "0"))) for each in wanted), Decimal(0)),
        int(sum((amount(str(each.get("memory", "0"))) for each in wanted), Decimal(0)) / MIB),
        sum(int(amount(str(each.get(gpu, "0")))) for each in wanted),
    )


def _requests(template: Object) -> Iterator[Object]:
    """Yield the requests of the containers that run side by side. A limit without a request counts as a request."""
    pod = template["spec"]
    sidecars = [each for each in pod.get("initContainers", []) if each.get("restartPolicy") == "Always"]
    for container in [*pod["containers"], *sidecars]:
        given = container.get("resources", {})
        yield {**given.get("limits", {}), **given.get("requests", {})}
