"""Manifests of the aggregator: a StatefulSet with a single pod, its volume and its Service."""

from evalrun_api import names
from evalrun_cluster.objects import Object
from evalrun_operator.resources.plan import RunPlan, dataset_files, drop_owner
from evalrun_operator.resources.pods import (
    GRPC,
    METRICS,
    ORDER_MOUNT,
    SHARED_TOKEN,
    HeldTokens,
    choose_resources,
    claim_volumes,
    container,
    grpc_probes,
    headless_service,
    health_flags,
    held_tokens,
    metrics_flags,
    order_volume,
    pod_spec,
    pod_template,
    secret_env,
    service_account,
    tracing_env,
)

START_SECONDS = 3600
"""Maximum seconds for reading datasets and a large ledger."""
DEFAULT_RESOURCES: Object = {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "4Gi"}}


def ledger_claim(plan: RunPlan) -> Object:
    """Return the ledger's claim. With `output.retain` it has no owner and stays when the run is deleted."""
    storage = plan.spec.aggregator.storage
    spec: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage.size}}}
    if storage.class_name is not None:
        spec["storageClassName"] = storage.class_name
    name = names.ledger_claim(plan.run.name, plan.run.uid)
    claim = plan.make_object("PersistentVolumeClaim", name, names.AGGREGATOR, spec=spec)
    return drop_owner(claim) if plan.spec.output.retain else claim


def aggregator_service(plan: RunPlan) -> Object:
    """Return the Service by which generator and operator reach the ledger."""
    return headless_service(plan, names.AGGREGATOR, {"grpc": names.GRPC_PORT, "metrics": names.METRICS_PORT})


def aggregator_stateful_set(plan: RunPlan, restarts: int = 0) -> Object:
    """Return the StatefulSet; a higher `restarts` makes it restart its pod."""
    name = names.component(plan.run.name, names.AGGREGATOR)
    notes = {names.RESTARTS_ANNOTATION: str(restarts)}
    issued = {names.JUDGE_AUTHORITY_ANNOTATION: plan.judge_authority} if plan.judge_authority else {}
    return plan.make_object(
        "StatefulSet",
        name,
        names.AGGREGATOR,
        notes | issued,
        spec={
            "replicas": 1,
            "serviceName": name,
            # A pod that cannot start must be replaced: ordered management would wait for it although the image is
            # fixed.
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": plan.selector(names.AGGREGATOR)},
            "template": pod_template(plan, "aggregator", _pod(plan), annotations=notes),
        },
    )


def judge_address(plan: RunPlan) -> str:
    """Return the address of the run's judge, its own or shared."""
    reference = plan.spec.judge_ref
    if reference is None:
        host = names.service_host(names.component(plan.run.name, names.JUDGE), plan.run.namespace)
    else:
        host = names.service_host(reference.name, reference.namespace or plan.run.namespace)
    return f"dns:///{host}:{names.GRPC_PORT}"


def _pod(plan: RunPlan) -> Object:
    spec, output = plan.spec, plan.spec.output
    sources = [url for dataset in spec.to_wire()["datasets"] for _, _, url in dataset_files(dataset)]
    volumes, mounts = claim_volumes([*sources, *map(plan.find_baseline, spec.gates)], writable=output.url)
    tokens = _tokens(plan)
    main = container(
        plan,
        names.AGGREGATOR,
        plan.settings.aggregator_image,
        resources=choose_resources(
            spec.aggregator.resources, plan.settings.aggregator_resources, default=DEFAULT_RESOURCES
        ),
        mounts=[ORDER_MOUNT, {"name": "ledger", "mountPath": names.LEDGER_DIRECTORY}, *tokens.mounts, *mounts],
        command=["python", "-m", "evalrun_aggregator"],
        args=[
            f"--work-order={names.ORDER_DIRECTORY}/{names.ORDER_FILE}",
            f"--ledger={names.LEDGER_DIRECTORY}/{names.LEDGER_FILE}",
            f"--judge={judge_address(plan)}", "--host=0.0.0.0", f"--port={names.GRPC_PORT}",
            *metrics_flags(plan), *health_flags(plan), "--log-format=json",
        ],
        env=[*tokens.env, *_environment(plan), *tracing_env(plan)],
        envFrom=_environment_from(plan),
        ports=[GRPC, METRICS],
        **grpc_probes(plan, {"periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": START_SECONDS // 5}),
    )  # fmt: skip
    ledger = {
        "name": "ledger",
        "persistentVolumeClaim": {"claimName": names.ledger_claim(plan.run.name, plan.run.uid)},
    }
    return pod_spec(
        plan,
        [main],
        [order_volume(plan), ledger, *tokens.volumes, *volumes],
        # Datasets are copied to /tmp from their store, one after the other.
        scratch="16Gi",
        terminationGracePeriodSeconds=90,
        **service_account(plan),
    )


def _tokens(plan: RunPlan) -> HeldTokens:
    reference = plan.spec.judge_ref
    shared = None if reference is None else reference.token_secret_ref
    held = {"EVALRUN_AGGREGATOR_TOKEN": names.LEDGER_TOKEN}
    if shared is not None:
        held["EVALRUN_AGGREGATOR_JUDGE_TOKEN"] = SHARED_TOKEN
    elif reference is None:
        held["EVALRUN_AGGREGATOR_JUDGE_TOKEN"] = names.GATEWAY_TOKEN
    if plan.hop_tokens:
        held["EVALRUN_AGGREGATOR_OPERATOR_TOKEN"] = names.OPERATOR_TOKEN
    tls = ["EVALRUN_AGGREGATOR_TLS_FOLDER"]
    if reference is None:
        tls.append("EVALRUN_AGGREGATOR_JUDGE_TLS_FOLDER")
    tokens = held_tokens(plan, held, shared, component=names.AGGREGATOR, tls=tls)
    if plan.judge_tls_secret is None:
        return tokens
    return HeldTokens(
        [*tokens.env, {"name": "EVALRUN_AGGREGATOR_JUDGE_TLS_FOLDER", "value": names.JUDGE_TLS_DIRECTORY}],
        [*tokens.mounts, {"name": "judge-tls", "mountPath": names.JUDGE_TLS_DIRECTORY, "readOnly": True}],
        [*tokens.volumes, {"name": "judge-tls", "secret": {"secretName": plan.judge_tls_secret}}],
    )


def _environment(plan: RunPlan) -> list[Object]:
    variables = []
    wandb = plan.spec.exports.wandb
    if wandb is not None and wandb.secret_ref is not None:
        variables.append(secret_env("WANDB_API_KEY", wandb.secret_ref.name, wandb.secret_ref.key))
    attest = plan.spec.attest
    if attest is not None:
        key = attest.key_secret_ref
        variables.append(secret_env("EVALRUN_AGGREGATOR_ATTEST_KEY", key.name, key.key))
    return variables


def _environment_from(plan: RunPlan) -> list[Object]:
    mlflow = plan.spec.exports.mlflow
    secrets = [plan.spec.output.credentials_secret_ref, mlflow.secret_ref if mlflow is not None else None]
    return [{"secretRef": {"name": secret.name}} for secret in secrets if secret is not None]
