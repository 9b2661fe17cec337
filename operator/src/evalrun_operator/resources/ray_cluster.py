"""The RayCluster that hosts the replicas: a head without GPU, which also runs the generator, and GPU workers."""

from collections.abc import Sequence

from evalrun_api import names
from evalrun_api.v1alpha1 import Rollout
from evalrun_cluster.objects import Object
from evalrun_operator.policies.worker_count import Workers
from evalrun_operator.resources.images import ray_image
from evalrun_operator.resources.plan import RunPlan
from evalrun_operator.resources.pods import (
    ORDER_MOUNT,
    HeldTokens,
    choose_resources,
    claim_volumes,
    container,
    held_tokens,
    order_volume,
    pod_spec,
    pod_template,
    secret_env,
    service_account,
    tracing_env,
)

USER = 1000
"""User of Dockerfile.gen, as in Ray's own images."""
HOME = "/scratch"
"""Writable directory for files that Ray, the engine and its compilers keep under HOME."""
CACHE = "/model-cache"
"""Mount path of the claim that keeps models between runs."""
CACHED_CHECKPOINTS = f"{CACHE}/checkpoints"
"""Directory of models from buckets; the hub's models have the rest of the claim."""
DISK = "ephemeral-storage"
SCRATCH_DISK = "16Gi"
"""Space for logs, compilers' caches and objects that Ray spills, without weights on the pod's own disk."""
KEPT_GRACE_SECONDS = 5
"""An engine that is told to end has nothing to finish: its GPUs are to be free within ten seconds."""
CHECKPOINT_DIRECTORY = f"{HOME}/checkpoint"
ADAPTER_DIRECTORY = f"{HOME}/adapter"
ENGINE_ENV = [
    {"name": "HOME", "value": HOME},
    # torch asks for the user's name, and the image need not have a name for the number.
    {"name": "USER", "value": "evalrun"},
    {"name": "TOKENIZERS_PARALLELISM", "value": "true"},
    {"name": "NCCL_DEBUG", "value": "WARN"},
]


def ray_cluster(plan: RunPlan, rollout: Rollout, attempt: int, workers: Workers) -> Object:
    """Return the RayCluster of an attempt, with its worker group.

    Ray's autoscaler stays off, because verl never waits for GPUs; the operator sets the number of workers.
    `minReplicas` is the number of workers with which generation begins (`record_parser`). `suspend` is left out,
    because Kueue sets it.
    """
    enough = workers.count if rollout.min_replicas is None else rollout.worker_pods(rollout.min_replicas)
    annotations = {names.ATTEMPT_ANNOTATION: str(attempt)}
    spec: Object = {
        "rayVersion": plan.settings.ray_version,
        "enableInTreeAutoscaling": False,
        **_authentication(plan),
        "headGroupSpec": {
            # No work is placed on the head: it has no GPU, and keeps the cluster's state.
            "rayStartParams": {"num-cpus": "0"},
            "template": pod_template(plan, "rayHead", _head(plan, rollout), metrics=False),
        },
        "workerGroupSpecs": [
            {
                "groupName": "gpu",
                "replicas": workers.count,
                "minReplicas": min(enough, workers.count),
                "maxReplicas": workers.count,
                "scaleStrategy": {"workersToDelete": list(workers.leaving)},
                # KubeRay reports only a device called "gpu" to Ray.
                "rayStartParams": {
                    "num-cpus": str(worker_cpus(rollout)),
                    "num-gpus": str(rollout.gpus_per_node),
                },
                "template": pod_template(plan, "rayWorkers", _worker(plan, rollout), metrics=False),
            }
        ],
    }
    name = names.ray_cluster(plan.run.name, plan.run.uid, attempt)
    return add_queue_label(plan.make_object("RayCluster", name, names.RAY, annotations, spec=spec), rollout.queue_name)


def kept_ray_cluster(plan: RunPlan, rollout: Rollout, number: int, claims: Sequence[str]) -> Object:
    """Return the RayCluster that a schedule keeps: like a run's, but without anything that belongs to a single run.

    Its pods hold neither tokens nor a run configuration. The generators come in their own pods and join the cluster.

    Args:
        plan: plan of the schedule.
        rollout: rollout of its template.
        number: number of the RayCluster.
        claims: URLs on the volumes that hold checkpoints.
    """
    count = rollout.worker_pods(rollout.initial_replicas)
    grace = {"terminationGracePeriodSeconds": KEPT_GRACE_SECONDS}
    head = _pod(plan, rollout, "ray-head", head_resources(plan, rollout), NO_TOKENS, claims, **grace)
    worker = _pod(
        plan, rollout, "ray-worker", worker_resources(plan, rollout), NO_TOKENS, claims, restartPolicy="Never", **grace
    )
    spec: Object = {
        "rayVersion": plan.settings.ray_version,
        "enableInTreeAutoscaling": False,
        **_authentication(plan),
        "headGroupSpec": {
            "rayStartParams": {"num-cpus": "0"},
            "template": pod_template(plan, "rayHead", head, metrics=False),
        },
        "workerGroupSpecs": [
            {
                "groupName": "gpu",
                "replicas": count,
                "minReplicas": count,
                "maxReplicas": count,
                "rayStartParams": {
                    "num-cpus": str(worker_cpus(rollout)),
                    "num-gpus": str(rollout.gpus_per_node),
                },
                "template": pod_template(plan, "rayWorkers", worker, metrics=False),
            }
        ],
    }
    return plan.make_object("RayCluster", names.kept_cluster(plan.run.name, plan.run.uid, number), names.RAY, spec=spec)


def _authentication(plan: RunPlan) -> Object:
    """Return the option that makes Ray require a token. KubeRay creates a token per cluster, in a Secret of its name.

    Without it anybody who reaches the head's port may run programs in the cluster, and read its secrets.
    """
    return {"authOptions": {"mode": "token"}} if plan.settings.ray_auth == "token" else {}


def choose_model_directory(plan: RunPlan) -> str | None:
    """Return the directory to which the workers fetch the model; None if the engine reads it in place."""
    rollout, path = plan.spec.rollout, plan.spec.model.path
    streamed = rollout is not None and rollout.load_format == "runai_streamer"
    return None if streamed or "://" not in path or path.startswith("pvc://") else CHECKPOINT_DIRECTORY


def choose_adapter_directory(plan: RunPlan) -> str | None:
    """Return the directory to which the workers download the LoRA adapter.

    None without an adapter, or if the adapter is on a volume.
    """
    adapter = plan.spec.model.adapter
    return None if adapter is None or adapter.startswith("pvc://") else ADAPTER_DIRECTORY


def add_queue_label(manifest: Object, queue: str | None) -> Object:
    """Put a RayCluster or Job into a LocalQueue, if the run names a LocalQueue.

    The queue cannot change, so the digest leaves it out.
    """
    if queue is None:
        return manifest
    metadata = manifest["metadata"]
    labels = {**metadata["labels"], names.QUEUE_LABEL: queue}
    return {**manifest, "metadata": {**metadata, "labels": labels}}


def worker_cpus(rollout: Rollout) -> int:
    """Return the CPUs of a Ray worker. With fewer than two per GPU plus two, Ray never places verl's replicas."""
    least = 2 * rollout.gpus_per_node + 2
    limits = {} if rollout.resources is None else rollout.resources.limits
    given = limits.get("cpu", "")
    return max(least, int(given)) if given.isdecimal() else least


def worker_disk(plan: RunPlan, rollout: Rollout) -> str:
    """Return the disk request and limit of a worker: as large as its memory if the weights are stored there too."""
    hub = "://" not in plan.spec.model.path and not plan.settings.model_cache_claim
    if hub or (choose_model_directory(plan) is not None and not _caches_checkpoints(plan)):
        return f"{rollout.gpus_per_node * plan.settings.worker_memory_gib_per_gpu}Gi"
    return SCRATCH_DISK


def _head(plan: RunPlan, rollout: Rollout) -> Object:
    tokens = held_tokens(
        plan,
        {"EVALRUN_GENERATOR_LEDGER_TOKEN": names.LEDGER_TOKEN},
        component=names.GENERATOR,
        tls=("EVALRUN_GENERATOR_LEDGER_TLS_FOLDER",),
    )
    return _pod(plan, rollout, "ray-head", head_resources(plan, rollout), tokens, _run_claims(plan))


def head_resources(plan: RunPlan, rollout: Rollout) -> Object:
    """Return the resources of the Ray head, and of a generator beside kept replicas, which does the same work."""
    amounts = {"cpu": plan.settings.head_cpu, "memory": plan.settings.head_memory, DISK: SCRATCH_DISK}
    return choose_resources(rollout.head_resources, default={"requests": amounts, "limits": amounts})


def _run_claims(plan: RunPlan) -> list[str | None]:
    return [plan.spec.model.path, plan.spec.model.adapter]


def _worker(plan: RunPlan, rollout: Rollout) -> Object:
    # KubeRay replaces a worker's pod that ended. A restarted container would know nothing of the cluster.
    fields: Object = {"restartPolicy": "Never"}
    model, directory, adapter_folder = plan.spec.model, choose_model_directory(plan), choose_adapter_directory(plan)
    fetched = [] if directory is None else [model.path, directory]
    if model.adapter is not None and adapter_folder is not None:
        fetched += ["--adapter", model.adapter, adapter_folder]
    if fetched:
        if _caches_checkpoints(plan):
            fetched = ["--cache", CACHED_CHECKPOINTS, *fetched]
        fields["initContainers"] = [_fetch(plan, rollout, fetched)]
    return _pod(plan, rollout, "ray-worker", worker_resources(plan, rollout), NO_TOKENS, _run_claims(plan), **fields)


def gpu_resource(plan: RunPlan, rollout: Rollout) -> str:
    """Return the resource that counts as a GPU."""
    return rollout.gpu_resource or plan.settings.gpu_resource


def worker_resources(plan: RunPlan, rollout: Rollout) -> Object:
    """Return a worker's requests and limits.

    Memory has equal requests and limits, because a worker that loads the model must not be evicted.


    Requests beyond the usual limits raise the limits: Kubernetes refuses a pod that requests more than its limit.
    """
    gpus = rollout.gpus_per_node
    amounts = {
        "cpu": str(2 * gpus + 2),
        "memory": f"{gpus * plan.settings.worker_memory_gib_per_gpu}Gi",
        DISK: worker_disk(plan, rollout),
    }
    given = rollout.resources
    limits = {**amounts, **(given.requests | given.limits if given else {})}
    requests = {**limits, **(given.requests if given else {}), "memory": limits["memory"]}
    gpu = {gpu_resource(plan, rollout): str(gpus)}
    return {"requests": {**requests, **gpu}, "limits": {**limits, **gpu}}


def _fetch(plan: RunPlan, rollout: Rollout, arguments: list[str]) -> Object:
    """Return the init container that downloads model and adapter.

    Its image has the packages for object stores, which Ray's image need not have. It may use as much as the worker,
    which runs after it: that costs nothing, and every container has its limits.
    """
    amounts, gpu = worker_resources(plan, rollout), gpu_resource(plan, rollout)
    resources = {kind: {name: amount for name, amount in amounts[kind].items() if name != gpu} for kind in amounts}
    secret = plan.spec.output.credentials_secret_ref
    return container(
        plan,
        names.CHECKPOINT,
        plan.settings.aggregator_image,
        resources=resources,
        mounts=[SCRATCH_MOUNT, *([CACHE_MOUNT] if _caches_checkpoints(plan) else [])],
        command=["python", "-m", "evalrun_data.checkpoint"],
        args=arguments,
        env=[{"name": "HOME", "value": "/tmp"}],  # noqa: S108 - an emptyDir of the pod
        envFrom=[] if secret is None else [{"secretRef": {"name": secret.name}}],
    )


NO_TOKENS = HeldTokens([], [], [])
"""Used by the workers, in which a model's own code may run."""
SCRATCH_MOUNT: Object = {"name": "scratch", "mountPath": HOME}
CACHE_MOUNT: Object = {"name": "model-cache", "mountPath": CACHE}


def _caches_checkpoints(plan: RunPlan) -> bool:
    """Return whether the claim of the model cache stores models of buckets."""
    return bool(plan.settings.model_cache_claim) and plan.weights_on_claim


def _cache(plan: RunPlan) -> tuple[str, list[Object], list[Object]]:
    """Return HF_HOME, and the volume and mount of the model cache.

    The init container fetches a bucket's model, so that the model's own code cannot write to other runs' models.
    """
    claim = plan.settings.model_cache_claim
    if not claim:
        return f"{HOME}/huggingface", [], []
    volume = {"name": CACHE_MOUNT["name"], "persistentVolumeClaim": {"claimName": claim}}
    if choose_model_directory(plan) is not None and _caches_checkpoints(plan):
        return f"{HOME}/huggingface", [volume], [{**CACHE_MOUNT, "readOnly": True}]
    return CACHE, [volume], [CACHE_MOUNT]


def _pod(
    plan: RunPlan,
    rollout: Rollout,
    name: str,
    resources: Object,
    tokens: HeldTokens,
    claims: Sequence[str | None],
    **fields: object,
) -> Object:
    volumes, mounts = claim_volumes(claims)
    order = ([], []) if plan.of_schedule else ([ORDER_MOUNT], [order_volume(plan)])
    hub = plan.spec.model.token_secret_ref
    secrets = [] if hub is None else [secret_env("HF_TOKEN", hub.name, hub.key)]
    hub_home, cache_volumes, cache_mounts = _cache(plan)
    main = container(
        plan,
        name,
        ray_image(plan, rollout),
        resources=resources,
        mounts=[*order[0], SCRATCH_MOUNT, *tokens.mounts, *cache_mounts, *mounts],
        env=[*ENGINE_ENV, {"name": "HF_HOME", "value": hub_home}, *secrets, *tokens.env, *tracing_env(plan)],
    )
    disk = resources.get("limits", {}).get(DISK, SCRATCH_DISK)
    scratch = {"name": "scratch", "emptyDir": {"sizeLimit": disk}}
    all_volumes = [*order[1], scratch, *tokens.volumes, *cache_volumes, *volumes]
    spec = pod_spec(plan, [main], all_volumes, user=USER, scratch=disk, **service_account(plan))
    return {**spec, **fields}
