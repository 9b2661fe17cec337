"""The run's own judge gateway: Deployment, headless Service, PodDisruptionBudget."""

from evalrun_api import names
from evalrun_api.v1alpha1 import Judge
from evalrun_cluster.objects import Object
from evalrun_operator.resources.images import gateway_image, sandbox_image
from evalrun_operator.resources.plan import RunPlan
from evalrun_operator.resources.pods import (
    GRPC,
    METRICS,
    choose_resources,
    container,
    grpc_probes,
    headless_service,
    health_flags,
    held_tokens,
    metrics_flags,
    pod_spec,
    pod_template,
    spread,
    tracing_env,
)

ASSERTION_SLOTS = 2
"""Simultaneous replays of function tests, as in the chart's shared judge. The default is a replay per CPU, and the pod
sees all CPUs of its node, while its memory stays the same."""
START_PROBE: Object = {"periodSeconds": 2, "failureThreshold": 300, "terminationGracePeriodSeconds": 30}
"""A slow start is no fault: imports and the first discovery of sandboxes take minutes on a busy node. A gateway that
never came up has nothing to drain, so its probe does not wait for the grace period of a judging gateway."""
GRACE_SECONDS = 630
"""Longer than the gateway drains (600 s): an interrupted verdict is computed again elsewhere."""


def judge_service(plan: RunPlan) -> Object:
    """Return the Service by which the aggregator reaches every gateway."""
    return headless_service(plan, names.JUDGE, {"grpc": names.GRPC_PORT, "metrics": names.METRICS_PORT})


def judge_disruption_budget(plan: RunPlan) -> Object:
    """Return the budget that keeps a drain from taking all gateways at once."""
    return plan.make_object(
        "PodDisruptionBudget",
        names.component(plan.run.name, names.JUDGE),
        names.JUDGE,
        spec={"maxUnavailable": 1, "selector": {"matchLabels": plan.selector(names.JUDGE)}},
    )


def judge_deployment(plan: RunPlan, judge: Judge, replicas: int | None) -> Object:
    """Return the Deployment; without `replicas` an autoscaler owns them."""
    spec: Object = {
        "selector": {"matchLabels": plan.selector(names.JUDGE)},
        "template": pod_template(plan, "gateway", _pod(plan, judge)),
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return plan.make_object("Deployment", names.component(plan.run.name, names.JUDGE), names.JUDGE, spec=spec)


def choose_required_level(judge: Judge) -> str:
    """Return the required containment level: with a RuntimeClass of stronger isolation Landlock may be missing."""
    return "full" if judge.sandbox.runtime_class_name is None else "seccomp"


def _pod(plan: RunPlan, judge: Judge) -> Object:
    host = names.service_host(names.component(plan.run.name, names.SANDBOX), plan.run.namespace)
    tokens = held_tokens(
        plan,
        {"EVALRUN_JUDGE_TOKEN": names.GATEWAY_TOKEN, "EVALRUN_JUDGE_SANDBOX_TOKEN": names.SANDBOX_TOKEN},
        component=names.JUDGE,
        tls=("EVALRUN_JUDGE_TLS_FOLDER", "EVALRUN_JUDGE_SANDBOX_TLS_FOLDER"),
    )
    main = container(
        plan,
        names.JUDGE,
        gateway_image(plan, judge),
        resources=choose_resources(
            judge.gateway.resources,
            plan.settings.gateway_resources,
            default={"requests": {"cpu": plan.settings.gateway_cpu, "memory": "1Gi"}, "limits": {"memory": "4Gi"}},
        ),
        command=["python", "-m", "evalrun_judge"],
        args=[
            f"--sandbox=dns:///{host}:{names.SANDBOX_PORT}", f"--required-level={choose_required_level(judge)}",
            f"--sandbox-image={sandbox_image(plan, judge)}",
            f"--backend={judge.sandbox.backend}", f"--assertion-slots={ASSERTION_SLOTS}",
            "--host=0.0.0.0", f"--port={names.GRPC_PORT}", *metrics_flags(plan), "--log-format=json",
            *health_flags(plan), *judge.sandbox.package_flags,
        ],
        mounts=tokens.mounts,
        env=[*tokens.env, *tracing_env(plan)],
        ports=[GRPC, METRICS],
        **grpc_probes(plan, START_PROBE),
    )  # fmt: skip
    return pod_spec(
        plan,
        [main],
        tokens.volumes,
        scratch="1Gi",
        terminationGracePeriodSeconds=GRACE_SECONDS,
        **spread(plan, names.JUDGE),
    )
