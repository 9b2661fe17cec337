"""The objects that a run needs at each stage of its life. Pure."""

from dataclasses import dataclass

from evalrun_api import names
from evalrun_api.v1alpha1 import Rollout
from evalrun_cluster.objects import Object
from evalrun_operator import resources
from evalrun_operator.lifecycle.scaling_words import find_missing_group
from evalrun_operator.lifecycle.situation import ReconcileContext, aggregator_restarts, has_ledger_failed, judge_rests
from evalrun_operator.observation.records import ObjectKey, ObservedCluster
from evalrun_operator.policies.generation import GenerationStep
from evalrun_operator.policies.worker_count import WorkerPod, Workers, plan_workers


def services(context: ReconcileContext) -> list[Object]:
    """Return the objects of the aggregator and the judge. A resting judge has no Deployments and autoscalers."""
    plan, judge = context.plan, context.run.spec.own_judge
    desired = [*ledger_objects(context), *resources.network_policies(plan)]
    if judge is None:
        return desired
    gateway, sandbox = judge.gateway, judge.sandbox
    slots = resources.count_slots(plan, judge)
    per_gateway = slots * sandbox.max_replicas / gateway.max_replicas
    gateways = _scale_part(context, names.JUDGE, (gateway.min_replicas, gateway.max_replicas), per_gateway, 1)
    sandboxes = _scale_part(context, names.SANDBOX, (sandbox.min_replicas, sandbox.max_replicas), slots, slots)
    desired += [
        resources.judge_service(plan),
        resources.judge_disruption_budget(plan),
        resources.sandbox_service(plan),
    ]
    if judge_rests(context):
        return desired
    return [
        *desired,
        resources.judge_deployment(plan, judge, gateways.replicas),
        resources.sandbox_deployment(plan, judge, sandboxes.replicas),
        *gateways.scaler,
        *sandboxes.scaler,
    ]


def ledger_objects(context: ReconcileContext) -> list[Object]:
    """Return the objects of the aggregator."""
    plan = context.plan
    restarts = aggregator_restarts(context)
    if has_ledger_failed(context):
        # The ledger is intact, and a fresh process continues with it.
        restarts += 1
    return [
        resources.ledger_claim(plan),
        resources.order_config_map(plan),
        *([] if plan.new_tokens is None else [resources.token_secret(plan, plan.new_tokens)]),
        *([resources.judge_tls_secret(plan)] if plan.new_judge_certificate else []),
        resources.aggregator_service(plan),
        resources.aggregator_stateful_set(plan, restarts),
    ]


@dataclass(frozen=True)
class Scaled:
    """A Deployment's replica count, or the autoscaler that sets it."""

    replicas: int | None
    """None: an autoscaler sets the number."""
    scaler: tuple[Object, ...] = ()


def _scale_part(context: ReconcileContext, part: str, bounds: tuple[int, int], load: float, cpus: int) -> Scaled:
    kind = "ScaledObject" if context.settings.autoscaling == "keda" else "HorizontalPodAutoscaler"
    scaler = resources.autoscaler(context.plan, part, *bounds, load, cpus)
    there = context.observed.find(kind, names.component(context.plan.run.name, part)) is not None
    if kind in context.observed.missing_kinds or (find_missing_group(context) and not there):
        scaler = None
    if scaler is None:
        return Scaled(max(1, bounds[0]))
    return Scaled(None, (scaler,))


def generation_objects(context: ReconcileContext, generation: GenerationStep) -> tuple[list[Object], set[ObjectKey]]:
    """Return the objects that the generation needs, and the keys of existing objects that stay unchanged."""
    plan, spec = context.plan, context.run.spec
    kept = {seen.ref for seen in context.observed.find_by_kind("RayJob", "Job", "RayCluster")}
    desired = []
    if generation.cluster is not None and spec.rollout is not None:
        name = names.ray_cluster(plan.run.name, plan.run.uid, generation.cluster)
        there = [seen.ref.name for seen in context.observed.find_by_kind("RayCluster") if not seen.deleting]
        # Otherwise an earlier release has created the object under another name, and it stays.
        if name in there or not there:
            workers = _workers(context, spec.rollout, name)
            desired.append(resources.ray_cluster(plan, spec.rollout, generation.cluster, workers))
    start, epoch = generation.start, int(context.now.timestamp())
    replicas = context.observed.kept
    if start is not None and replicas is not None and spec.rollout is not None:
        job = resources.kept_generator_job(
            plan, spec.rollout, start.number, start.cluster, replicas.image, epoch, auth=replicas.auth
        )
        desired.append(job)
    elif start is not None and spec.endpoints is not None:
        desired.append(resources.generator_job(plan, spec.endpoints, start.number, epoch))
    elif start is not None:
        desired.append(resources.generator_ray_job(plan, start.number, start.cluster, start.head_uid, epoch))
    return desired, kept


def _workers(context: ReconcileContext, rollout: Rollout, cluster: str) -> Workers:
    """Return the worker group of the existing RayCluster, or of the RayCluster to create."""
    observed, ledger = context.observed, context.observed.ledger
    seen = observed.find("RayCluster", cluster)
    detail = None if seen is None else seen.detail
    return plan_workers(
        rollout,
        # A ledger without a total is still reading its datasets.
        ledger.pending if ledger is not None and ledger.total else None,
        Workers(detail.workers, detail.leaving, detail.begun) if isinstance(detail, ObservedCluster) else None,
        [
            WorkerPod(seen.ref.name, pod.host, seen.deleting)
            for seen, pod in observed.pods(names.RAY)
            if pod.cluster == cluster and pod.node_type == "worker"
        ],
        None if ledger is None else ledger.replica_hosts,
    )
