"""A generator attempt: a Job in simple mode, else a RayJob on the run's RayCluster. Each attempt has its own name."""

from collections.abc import Sequence

from evalrun_api import names
from evalrun_api.v1alpha1 import Endpoint, Rollout
from evalrun_cluster.objects import Object
from evalrun_operator.resources.plan import RunPlan
from evalrun_operator.resources.pods import (
    METRICS,
    ORDER_MOUNT,
    choose_resources,
    claim_volumes,
    container,
    held_tokens,
    metrics_flags,
    order_volume,
    pod_spec,
    pod_template,
    secret_env,
    service_account,
    tracing_env,
)
from evalrun_operator.resources.ray_cluster import (
    ENGINE_ENV,
    SCRATCH_DISK,
    SCRATCH_MOUNT,
    add_queue_label,
    choose_adapter_directory,
    choose_model_directory,
    head_resources,
)
from evalrun_operator.resources.ray_cluster import USER as RAY_USER

MOVED_PODS: Object = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}
"""A pod that the cluster moves is no failure: another pod continues."""
RAY_TOKEN_KEY = "auth_token"  # noqa: S105 - a key of KubeRay's Secret, which has the RayCluster's name


def ledger_address(plan: RunPlan) -> str:
    """Return the address of the run's ledger."""
    host = names.service_host(names.component(plan.run.name, names.AGGREGATOR), plan.run.namespace)
    return f"dns:///{host}:{names.GRPC_PORT}"


def epoch_flags(plan: RunPlan, epoch: int) -> list[str]:
    """Return the flag by which the ledger tells a generator from its successor.

    Images of runs that began under an earlier release do not know the flag.
    """
    return [f"--epoch={epoch}"] if plan.leaves_lost_nodes else []


def generator_job(plan: RunPlan, endpoints: Sequence[Endpoint], attempt: int, epoch: int = 0) -> Object:
    """Return the Job of an attempt in simple mode. A node that is drained does not cost an attempt."""
    key = endpoints[0].api_key_secret_ref
    secrets = [] if key is None else [secret_env("EVALRUN_GENERATOR_API_KEY", key.name, key.key)]
    tokens = held_tokens(
        plan,
        # Nobody calls the generator, but nothing listens beyond loopback without a token, not even for metrics.
        {"EVALRUN_GENERATOR_LEDGER_TOKEN": names.LEDGER_TOKEN, "EVALRUN_GENERATOR_TOKEN": names.LEDGER_TOKEN},
        component=names.GENERATOR,
        tls=("EVALRUN_GENERATOR_LEDGER_TLS_FOLDER",),
    )
    main = container(
        plan,
        names.GENERATOR,
        plan.settings.generator_image,
        resources=choose_resources(
            None if plan.spec.generator is None else plan.spec.generator.resources,
            plan.settings.generator_resources,
            default={"requests": {"cpu": plan.settings.generator_cpu, "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        ),
        command=["python", "-m", "evalrun_generator"],
        args=[
            f"--ledger={ledger_address(plan)}", f"--model={endpoints[0].model or plan.spec.model.path}",
            f"--tokenizer={plan.spec.model.path}",
            *(f"--endpoint={endpoint.url}" for endpoint in endpoints),
            f"--concurrency={','.join(str(endpoint.max_concurrent_requests) for endpoint in endpoints)}",
            f"--worker-id={plan.run.name}", *epoch_flags(plan, epoch),
            "--host=0.0.0.0", *metrics_flags(plan), "--log-format=json",
        ],
        mounts=tokens.mounts,
        env=[*tokens.env, *secrets, *tracing_env(plan)],
        ports=[METRICS],
    )  # fmt: skip
    job = plan.make_object(
        "Job",
        names.attempt_job(plan.run.name, plan.run.uid, attempt),
        names.GENERATOR,
        {names.ATTEMPT_ANNOTATION: str(attempt)},
        spec={
            # The operator counts attempts itself, so the Job must not repeat its pod.
            "backoffLimit": 0,
            "podFailurePolicy": MOVED_PODS,
            "template": pod_template(
                plan,
                "generator",
                pod_spec(plan, [main], tokens.volumes, scratch="1Gi", restartPolicy="Never", **service_account(plan)),
            ),
        },
    )
    return add_queue_label(job, plan.spec.queue_name)


def kept_generator_job(
    plan: RunPlan, rollout: Rollout, attempt: int, cluster: str, image: str, epoch: int, *, auth: str = ""
) -> Object:
    """Return the Job of an attempt on kept replicas: a Ray node without resources, which joins the schedule's cluster.

    A RayJob runs on the head, which would have to get each run's token and certificate. Here they are in the run's own
    pod, and the replicas' pods hold none.

    Args:
        plan: plan of the run.
        rollout: rollout of its spec.
        attempt: number of the attempt.
        cluster: the RayCluster on which the run has its turn.
        image: image of the RayCluster: Ray accepts no node of another version.
        epoch: epoch of the start.
        auth: `ray_auth` of the RayCluster's creation; empty: as the run keeps it.
    """
    tokens = held_tokens(
        plan,
        {"EVALRUN_GENERATOR_LEDGER_TOKEN": names.LEDGER_TOKEN},
        component=names.GENERATOR,
        tls=("EVALRUN_GENERATOR_LEDGER_TLS_FOLDER",),
    )
    ray_token = [secret_env("RAY_AUTH_TOKEN", cluster, RAY_TOKEN_KEY), {"name": "RAY_AUTH_MODE", "value": "token"}]
    volumes, mounts = claim_volumes([plan.spec.model.path])
    main = container(
        plan,
        names.GENERATOR,
        image,
        resources=head_resources(plan, rollout),
        command=["python", "-m", "evalrun_generator.rollout"],
        args=[
            f"--work-order={names.ORDER_DIRECTORY}/{names.ORDER_FILE}",
            f"--ledger={ledger_address(plan)}", f"--worker-id={plan.run.name}", *epoch_flags(plan, epoch),
            f"--ray-join={names.service_host(f'{cluster}-head-svc', plan.run.namespace)}:{names.RAY_PORT}",
            f"--model-folder={names.local_path(plan.spec.model.path)}",
            # The turn ends with this pod, however it ends: the replicas themselves belong to the schedule.
            f"--keep-replicas={names.KEPT}", "--end-replicas", "--log-format=json",
        ],
        mounts=[ORDER_MOUNT, SCRATCH_MOUNT, *tokens.mounts, *mounts],
        env=[
            *ENGINE_ENV, *tokens.env, *(ray_token if (auth or plan.settings.ray_auth) == "token" else []),
            *tracing_env(plan),
        ],
    )  # fmt: skip
    scratch = {"name": SCRATCH_MOUNT["name"], "emptyDir": {"sizeLimit": SCRATCH_DISK}}
    pod = pod_spec(
        plan, [main], [order_volume(plan), scratch, *tokens.volumes, *volumes], user=RAY_USER, scratch=SCRATCH_DISK,
        restartPolicy="Never", **service_account(plan),
    )  # fmt: skip
    return plan.make_object(
        "Job",
        names.attempt_job(plan.run.name, plan.run.uid, attempt),
        names.GENERATOR,
        {names.ATTEMPT_ANNOTATION: str(attempt), names.CLUSTER_ANNOTATION: cluster},
        spec={
            "backoffLimit": 0,
            "podFailurePolicy": MOVED_PODS,
            "template": pod_template(plan, "generator", pod, metrics=False),
        },
    )


def generator_ray_job(plan: RunPlan, attempt: int, cluster: str, head_uid: str, epoch: int = 0) -> Object:
    """Return the RayJob of an attempt.

    HTTPMode: KubeRay submits over the head's dashboard, and no submitter pod can fail in between. With a
    clusterSelector KubeRay neither retries nor deletes anything; the operator does both. The ledger's token comes from
    the head's environment, so no RayJob contains it.
    """
    entrypoint = (
        f"python -m evalrun_generator.rollout --work-order={names.ORDER_DIRECTORY}/{names.ORDER_FILE} "
        f"--ledger={ledger_address(plan)} --worker-id={plan.run.name} --log-format=json"
    )
    entrypoint = " ".join([entrypoint, *epoch_flags(plan, epoch)])
    directory = choose_model_directory(plan)
    if directory is not None:
        entrypoint += f" --model-folder={directory}"
    adapter = choose_adapter_directory(plan)
    if adapter is not None:
        entrypoint += f" --adapter-folder={adapter}"
    return plan.make_object(
        "RayJob",
        names.attempt_job(plan.run.name, plan.run.uid, attempt),
        names.GENERATOR,
        {
            names.ATTEMPT_ANNOTATION: str(attempt),
            names.CLUSTER_ANNOTATION: cluster,
            names.HEAD_UID_ANNOTATION: head_uid,
        },
        spec={
            "entrypoint": entrypoint,
            "clusterSelector": {"ray.io/cluster": cluster},
            "submissionMode": "HTTPMode",
            "shutdownAfterJobFinishes": False,
        },
    )
