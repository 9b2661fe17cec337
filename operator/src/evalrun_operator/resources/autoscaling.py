"""Autoscalers of gateway and sandboxes, in the operator's mode.

The signal is the judge's load, its queue plus its requests in flight as the gateways export it, against 0.8 of the
slots. The requests in flight alone are capped by the slots and would never pass the target.
"""

import math

from evalrun_api import names
from evalrun_cluster.objects import Object
from evalrun_operator.resources.plan import RunPlan

LOAD_METRIC = "evalrun_judge_load"
"""Metric that an adapter must serve with `custom`: evalrun_judge_queue_depth + evalrun_judge_inflight, by run."""
LOAD_SHARE = 0.8
CPU_PERCENT = 50
"""Share of a pod's CPUs. A full pod uses no more than all of them, so this is also the pace: a step doubles the pods.
With 80 a step adds a quarter, and 4 minutes were too short for eight sandboxes (benchmarks/autoscaling.py)."""
BEHAVIOR: Object = {
    "scaleUp": {"stabilizationWindowSeconds": 30, "policies": [{"type": "Percent", "value": 100, "periodSeconds": 60}]},
    "scaleDown": {"stabilizationWindowSeconds": 300},
}
"""At most twice as many pods per minute, and no more pods for a peak of half a minute; fewer only after five quiet
minutes."""


FALLBACK_AFTER = 3
"""Failed requests to Prometheus, half a minute apart, after which KEDA keeps the present size plus one pod."""


def autoscaler(
    plan: RunPlan, component: str, min_pods: int, max_pods: int, load_per_pod: float, cpus: int = 1
) -> Object | None:
    """Return the autoscaler of a component's Deployment; None if there is nothing to scale.

    Args:
        plan: plan of the run.
        component: judge or sandbox.
        min_pods: minimum number of pods; 0 needs KEDA.
        max_pods: maximum number of pods.
        load_per_pod: part of the judge's load that a pod takes, before the target share.
        cpus: CPUs that a pod may use.
    """
    if min_pods >= max_pods:
        return None
    name = names.component(plan.run.name, component)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    threshold = max(1, math.floor(LOAD_SHARE * load_per_pod))
    if plan.settings.autoscaling == "keda":
        return plan.make_object(
            "ScaledObject",
            name,
            component,
            spec={
                "scaleTargetRef": {"name": name},
                "minReplicaCount": min_pods,
                "maxReplicaCount": max_pods,
                "advanced": {"horizontalPodAutoscalerConfig": {"behavior": BEHAVIOR}},
                # Without a fallback, a judge that was scaled to zero stays there while Prometheus does not reply.
                "fallback": {
                    "failureThreshold": FALLBACK_AFTER,
                    "replicas": max(1, min_pods),
                    "behavior": "currentReplicasIfHigher",
                },
                "triggers": [
                    {
                        "type": "prometheus",
                        "metadata": {
                            "serverAddress": plan.settings.keda_prometheus,
                            "query": load_query(plan),
                            "threshold": str(threshold),
                        },
                    }
                ],
            },
        )
    metric = cpu_metric(cpus) if plan.settings.autoscaling == "cpu" else _load_metric(plan, threshold)
    return plan.make_object(
        "HorizontalPodAutoscaler",
        name,
        component,
        spec={
            "scaleTargetRef": target,
            "minReplicas": min_pods,
            "maxReplicas": max_pods,
            "metrics": [metric],
            "behavior": BEHAVIOR,
        },
    )


def load_query(plan: RunPlan) -> str:
    """Return the judge's load as a Prometheus expression; the gateways' pods carry the run in their labels.

    Without a running gateway nothing would report that a gateway is needed. Completions that wait for a verdict, as the
    aggregator reports them, therefore count as a further request.
    """
    run = f'namespace="{plan.run.namespace}",run="{plan.run.name}"'
    waiting = f'max(evalrun_problems{{{run},state="generated"}} > bool 0)'
    parts = (f"sum(evalrun_judge_queue_depth{{{run}}})", f"sum(evalrun_judge_inflight{{{run}}})", waiting)
    return " + ".join(f"({part} or vector(0))" for part in parts)


def cpu_metric(cpus: int) -> Object:
    """Return a target of CPU use as a share of the limit.

    A share of a small request would be exceeded by a busy program.
    """
    target = {"type": "AverageValue", "averageValue": f"{CPU_PERCENT * 10 * cpus}m"}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _load_metric(plan: RunPlan, threshold: int) -> Object:
    selector = {"matchLabels": {"run": plan.run.name, "namespace": plan.run.namespace}}
    return {
        "type": "External",
        "external": {
            "metric": {"name": LOAD_METRIC, "selector": selector},
            "target": {"type": "AverageValue", "averageValue": str(threshold)},
        },
    }
