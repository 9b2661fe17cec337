"""The sandboxes, in which programs run: Deployment and headless Service."""

from evalrun_api import names
from evalrun_api.v1alpha1 import Judge
from evalrun_cluster.objects import Object
from evalrun_operator.resources.images import sandbox_image
from evalrun_operator.resources.judge import choose_required_level
from evalrun_operator.resources.plan import RunPlan
from evalrun_operator.resources.pods import (
    CONTAINER_SECURITY,
    METRICS,
    USER,
    HeldTokens,
    choose_resources,
    container,
    headless_service,
    health_flags,
    health_port,
    held_tokens,
    metrics_flags,
    pod_spec,
    pod_template,
    spread,
)

FUSION_PORT = 8081
HTTP = {"name": "http", "containerPort": names.SANDBOX_PORT}
SCRATCH_GIB_PER_SLOT = 1
"""A program may leave 128 MiB in its directory, and a compiler's temporary files need room too."""


def count_slots(plan: RunPlan, judge: Judge) -> int:
    """Return the number of programs that a sandbox pod runs at once: one per CPU."""
    return judge.sandbox.slots or plan.settings.sandbox_slots


def _ping(plan: RunPlan) -> Object:
    """Return the request of a probe, which needs no token.

    The sandbox listens only after its containment has passed its own test.
    """
    return {"httpGet": {"path": "/v1/ping", "port": health_port(plan, names.SANDBOX_PORT)}}


def sandbox_service(plan: RunPlan) -> Object:
    """Return the Service by which the gateways reach every sandbox."""
    return headless_service(plan, names.SANDBOX, {"http": names.SANDBOX_PORT, "metrics": names.METRICS_PORT})


def sandbox_deployment(plan: RunPlan, judge: Judge, replicas: int | None) -> Object:
    """Return the Deployment; without `replicas` an autoscaler owns them."""
    spec: Object = {
        "selector": {"matchLabels": plan.selector(names.SANDBOX)},
        "template": pod_template(plan, "sandbox", _pod(plan, judge)),
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return plan.make_object("Deployment", names.component(plan.run.name, names.SANDBOX), names.SANDBOX, spec=spec)


def _pod(plan: RunPlan, judge: Judge) -> Object:
    scratch = f"{count_slots(plan, judge) * SCRATCH_GIB_PER_SLOT}Gi"
    fields: Object = {"terminationGracePeriodSeconds": 90, "scratch": scratch, **spread(plan, names.SANDBOX)}
    tokens = held_tokens(
        plan,
        {"EVALRUN_SANDBOX_TOKEN": names.SANDBOX_TOKEN},
        component=names.SANDBOX,
        tls=("EVALRUN_SANDBOX_TLS_FOLDER",),
    )
    if judge.sandbox.runtime_class_name is not None:
        fields["runtimeClassName"] = judge.sandbox.runtime_class_name
    if judge.sandbox.backend == "SandboxFusion":
        # The server's image has no user but root. The namespace must allow that: prefer backend Evalrun.
        fields["securityContext"] = {"seccompProfile": {"type": "RuntimeDefault"}}
        return pod_spec(plan, [_fusion(plan, judge), _slot_proxy(plan, judge, tokens)], tokens.volumes, **fields)
    return pod_spec(plan, [_executor(plan, judge, tokens)], tokens.volumes, **fields)


def _executor(plan: RunPlan, judge: Judge, tokens: HeldTokens) -> Object:
    slots = count_slots(plan, judge)
    return container(
        plan,
        names.SANDBOX,
        sandbox_image(plan, judge),
        resources=_resources(plan, judge, slots),
        command=["python", "-m", "evalrun_sandbox"],
        args=[
            "--host=0.0.0.0", f"--port={names.SANDBOX_PORT}", f"--slots={slots}",
            f"--required-level={choose_required_level(judge)}", *metrics_flags(plan), "--log-format=json",
            *health_flags(plan), *judge.sandbox.package_flags,
        ],
        mounts=tokens.mounts,
        env=tokens.env,
        ports=[HTTP, METRICS],
        startupProbe={**_ping(plan), "periodSeconds": 2, "failureThreshold": 60},
        readinessProbe={**_ping(plan), "periodSeconds": 5, "timeoutSeconds": 5},
        # The probe is patient, because programs may use every CPU of the pod.
        livenessProbe={**_ping(plan), "periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 6},
    )  # fmt: skip


def _slot_proxy(plan: RunPlan, judge: Judge, tokens: HeldTokens) -> Object:
    """Return the sidecar that admits no more programs than slots; no other port of the pod is exposed."""
    slots = count_slots(plan, judge)
    return container(
        plan,
        "slot-proxy",
        plan.settings.sandbox_image,
        resources={"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}},
        command=["python", "-m", "evalrun_sandbox.slot_proxy"],
        args=[
            "--host=0.0.0.0", f"--port={names.SANDBOX_PORT}", f"--slots={slots}",
            f"--upstream=http://127.0.0.1:{FUSION_PORT}", *metrics_flags(plan), "--log-format=json",
            *health_flags(plan),
        ],
        mounts=tokens.mounts,
        env=tokens.env,
        ports=[HTTP, METRICS],
        # The user is set here, not for the pod: the SandboxFusion server needs its own user.
        securityContext={**CONTAINER_SECURITY, "runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER},
        # The proxy replies once the server behind it does, which may take minutes to start.
        startupProbe={**_ping(plan), "periodSeconds": 2, "timeoutSeconds": 6, "failureThreshold": 300},
        # Readiness does not use ping: a server that is too busy to reply for a while keeps its requests.
        readinessProbe={"tcpSocket": {"port": health_port(plan, names.SANDBOX_PORT)}, "periodSeconds": 5},
    )  # fmt: skip


def _fusion(plan: RunPlan, judge: Judge) -> Object:
    return container(
        plan,
        "sandbox-fusion",
        sandbox_image(plan, judge),
        resources=_resources(plan, judge, count_slots(plan, judge)),
        # By SETUID and SETGID, which pod security "baseline" allows, the harness leaves root before it runs programs.
        securityContext={
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["SETGID", "SETUID"]},
        },
        env=[{"name": "HOST", "value": "127.0.0.1"}, {"name": "PORT", "value": str(FUSION_PORT)}],
    )


def _resources(plan: RunPlan, judge: Judge, slots: int) -> Object:
    """Return the resources, with requests equal to limits, so that a neighbour's load cannot cause timeouts."""
    memory = f"{slots * plan.settings.sandbox_slot_memory_mib}Mi"
    asked = slots * plan.settings.sandbox_slot_milli_cpu
    cpu = str(asked // 1000) if asked % 1000 == 0 else f"{asked}m"
    default = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": str(slots), "memory": memory}}
    return choose_resources(judge.sandbox.resources, default=default)
