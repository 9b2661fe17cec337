"""Common parts of all pods: restricted in the sense of Kubernetes' Pod Security Standards, and more.

Non-root, no privilege escalation, no capability, seccomp RuntimeDefault, a read-only root, and no token of a
ServiceAccount: no part of a run calls the API server.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from evalrun_api import names
from evalrun_api.api_model import Resources, SecretKeyReference
from evalrun_api.v1alpha1 import Part
from evalrun_cluster.objects import Object
from evalrun_operator.resources.plan import RunPlan

USER = 10001
"""User of the images of Dockerfile.judge."""
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""The cluster autoscaler reads this annotation before it empties a node to save it."""
COMPONENTS: Mapping[Part, str] = {
    "sandbox": names.SANDBOX, "gateway": names.JUDGE, "aggregator": names.AGGREGATOR, "generator": names.GENERATOR,
    "rayHead": names.RAY, "rayWorkers": names.RAY,
}  # fmt: skip
"""Component that the labels of a part's pods name."""
RAY_NODE: Mapping[Part, dict[str, str]] = {
    "rayHead": {"ray.io/node-type": "head"}, "rayWorkers": {"ray.io/node-type": "worker"},
}  # fmt: skip
"""KubeRay's label, which tells pods of the same component apart."""
UNMOVABLE = frozenset({names.RAY, names.GENERATOR, names.AGGREGATOR})
"""Components whose pods must not be moved: that would lose minutes of GPU work or delay the whole run."""
LOST_NODE_SECONDS = 60
"""Seconds after which gateways and sandboxes leave a lost node. Kubernetes' default is five minutes, during which a run
would wait for verdicts."""
LOST_GENERATOR_SECONDS = 25
"""Seconds for generators and Ray's pods. Their grace period of 30 s follows, during which a lost node does not confirm
their end, and only then another pod may replace them."""


def lost_node(seconds: int) -> tuple[Object, ...]:
    """Return the tolerations with which a pod leaves a lost node after some seconds."""
    return tuple(
        {
            "key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": seconds,
        }
        for state in ("not-ready", "unreachable")
    )  # fmt: skip


LOST_NODE = lost_node(LOST_NODE_SECONDS)
LEAVE_AFTER: Mapping[str, int] = {
    names.JUDGE: LOST_NODE_SECONDS, names.SANDBOX: LOST_NODE_SECONDS,
    names.GENERATOR: LOST_GENERATOR_SECONDS, names.RAY: LOST_GENERATOR_SECONDS,
}  # fmt: skip
"""Seconds after which a component's pods leave a lost node. An aggregator stays, because its ledger is on a volume."""
SHARED_TOKEN = "shared-judge-token"  # noqa: S105 - the name of a file
CONTAINER_SECURITY: Object = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def pod_template(
    plan: RunPlan,
    part: Part,
    pod_spec: Object,
    *,
    metrics: bool = True,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """Return the pod template of a part, placed as the chart requests. Fields that the spec sets take precedence."""
    settings, component = plan.settings, COMPONENTS[part]
    chart, *own = plan.placements(part)
    notes = {names.TOKEN_DIGEST_ANNOTATION: plan.token_digest, **(annotations or {})}
    if component in UNMOVABLE:
        notes[SAFE_TO_EVICT] = "false"
    if metrics and plan.spec.exports.prometheus:
        notes |= {"prometheus.io/scrape": "true", "prometheus.io/port": str(names.METRICS_PORT)}
    layers = (chart, plan.spec.pods, *own)
    labels = reduce(or_, (layer.labels for layer in layers), settings.pod_labels) | plan.labels(component)
    notes = reduce(or_, (layer.annotations for layer in layers), settings.pod_annotations) | notes
    selector = plan.selector(component) | RAY_NODE.get(part, {})
    fields = (layer.pod_fields(selector) for layer in (chart, *own))
    spec = reduce(or_, fields, pod_spec)
    if component in LEAVE_AFTER and plan.leaves_lost_nodes:
        leaves = lost_node(LEAVE_AFTER[component])
        spec = {**spec, "tolerations": [*spec.get("tolerations", ()), *leaves]}
    return {"metadata": {"labels": labels, "annotations": notes}, "spec": spec}


def pod_spec(
    plan: RunPlan,
    containers: Sequence[Object],
    volumes: Sequence[Object] = (),
    *,
    user: int = USER,
    scratch: str | None = None,
    **fields: object,
) -> Object:
    """Return a restricted pod.

    Args:
        plan: plan of the run.
        containers: containers of the pod.
        volumes: volumes beside that at /tmp.
        user: user and group of the pod.
        scratch: maximum size of /tmp; a pod beyond it is evicted before it fills its node's disk.
        fields: fields that are added or replaced.
    """
    spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(user),
        "containers": list(containers),
        "volumes": [{"name": "tmp", "emptyDir": {} if scratch is None else {"sizeLimit": scratch}}, *volumes],
        **fields,
    }
    if plan.spec.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret.name} for secret in plan.spec.image_pull_secrets]
    return spec


def pod_security(user: int) -> Object:
    """Return the security context of a pod that runs as `user`."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        # Otherwise every start would walk a user's whole volume to change its owner.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container(
    plan: RunPlan, name: str, image: str, *, resources: Object, mounts: Iterable[Object] = (), **fields: object
) -> Object:
    """Return a restricted container with a writable /tmp; its last log lines become its termination message."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": plan.settings.image_pull_policy,
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": resources,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *mounts],  # noqa: S108 - an emptyDir of the pod
        **fields,
    }


def choose_resources(*given: Resources | None, default: Object) -> Object:
    """Return the first resources that are set, else the default."""
    return next((one.to_wire() for one in given if one is not None), default)


def spread(plan: RunPlan, component: str) -> Object:
    """Return the pod field that spreads a component over nodes, so that a failing node takes few pods with it."""
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": plan.selector(component)},
            }
        ]
    }


def service_account(plan: RunPlan) -> Object:
    """Return the pod field that names the user's ServiceAccount, if any."""
    name = plan.spec.service_account_name
    return {} if name is None else {"serviceAccountName": name}


def tracing_env(plan: RunPlan) -> list[Object]:
    """Return the environment of a part that sends spans; the sandbox, which may talk to nobody, never does."""
    endpoint = plan.settings.otlp_endpoint
    return [] if endpoint is None else [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": endpoint}]


@dataclass(frozen=True)
class HeldTokens:
    """Variables, mounts and volumes with which a container and its pod hold tokens."""

    env: list[Object]
    mounts: list[Object]
    volumes: list[Object]


def held_tokens(
    plan: RunPlan,
    held: Mapping[str, str],
    shared: SecretKeyReference | None = None,
    *,
    component: str,
    tls: Sequence[str] = (),
) -> HeldTokens:
    """Return the variables, mounts and volumes that give a part its tokens and certificate as files.

    The kubelet updates the files with the Secret. A run with a single token for all parts gets it as variables instead.

    Args:
        plan: plan of the run.
        held: a key of the run's Secret, or `SHARED_TOKEN`, by environment variable.
        shared: the Secret of a shared judge's token.
        component: owner of the certificate.
        tls: environment variables that name the certificate's directory, if the run uses TLS.
    """
    if not plan.hop_tokens:
        secrets = {key: (names.token_secret(plan.run.name), names.TOKEN_KEY) for key in held.values()}
        if shared is not None:
            secrets[SHARED_TOKEN] = shared.name, shared.key
        return HeldTokens([secret_env(variable, *secrets[key]) for variable, key in held.items()], [], [])
    own = sorted({key for key in held.values() if key != SHARED_TOKEN})
    files = {names.token_secret(plan.run.name): {key: key for key in own}}
    directories: list[Object] = []
    if plan.tls:
        secret, keys = plan.find_certificate(component)
        directory = names.TLS_DIRECTORY.removeprefix(f"{names.IDENTITY_DIRECTORY}/")
        files.setdefault(secret, {}).update({key: f"{directory}/{file}" for key, file in keys.items()})
        directories = [{"name": variable, "value": names.TLS_DIRECTORY} for variable in tls]
    sources = [_make_files_source(secret, paths) for secret, paths in files.items()]
    if shared is not None:
        sources.append(_make_files_source(shared.name, {shared.key: SHARED_TOKEN}))
    return HeldTokens(
        [
            *(
                {"name": f"{variable}_FILE", "value": f"{names.IDENTITY_DIRECTORY}/{key}"}
                for variable, key in held.items()
            ),
            *directories,
        ],
        [{"name": "identity", "mountPath": names.IDENTITY_DIRECTORY, "readOnly": True}],
        [{"name": "identity", "projected": {"sources": sources}}],
    )


def _make_files_source(secret: str, paths: Mapping[str, str]) -> Object:
    """Return a source of a projected volume: files with these keys of a Secret."""
    return {"secret": {"name": secret, "items": [{"key": key, "path": path} for key, path in paths.items()]}}


def secret_env(variable: str, secret: str, key: str) -> Object:
    """Return an environment variable with the value of a key of a Secret."""
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def order_volume(plan: RunPlan) -> Object:
    """Return the volume of the run configuration."""
    return {"name": "order", "configMap": {"name": names.order_config_map(plan.run.name)}}


ORDER_MOUNT: Object = {"name": "order", "mountPath": names.ORDER_DIRECTORY, "readOnly": True}
METRICS = {"name": "metrics", "containerPort": names.METRICS_PORT}
GRPC = {"name": "grpc", "containerPort": names.GRPC_PORT}


def metrics_flags(plan: RunPlan) -> list[str]:
    """Return the flags of the metrics port of a part. The digest among them is no secret."""
    digests = plan.settings.scrape_token_sha256
    port = f"--metrics-port={names.METRICS_PORT}"
    return [port] if digests is None else [port, f"--metrics-token-sha256={digests}"]


def health_port(plan: RunPlan, port: int) -> int:
    """Return the port for a part's probes: a separate health port if the part's own port requires TLS."""
    return names.HEALTH_PORT if plan.tls else port


def health_flags(plan: RunPlan) -> list[str]:
    """Return the flag that opens the separate health port, if the run uses TLS."""
    return [f"--health-port={names.HEALTH_PORT}"] if plan.tls else []


def grpc_probes(plan: RunPlan, start: Object) -> Object:
    """Return the probes of a gRPC server; `start` is added to the startup probe."""
    grpc = {"port": health_port(plan, names.GRPC_PORT)}
    return {
        "startupProbe": {"grpc": grpc, **start},
        "readinessProbe": {"grpc": grpc, "periodSeconds": 5, "timeoutSeconds": 5},
        "livenessProbe": {"grpc": grpc, "periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 6},
    }


def claim_volumes(urls: Iterable[str | None], writable: str | None = None) -> tuple[list[Object], list[Object]]:
    """Return volumes and mounts of the claims that `pvc://` URLs name; all but `writable`'s are read-only.

    The volume is read-only too, not only the mount: for a writable volume the kubelet changes every file's group to the
    pod's fsGroup (1.36: csi_mounter.go and local.go skip read-only volumes). Ray's group differs from the aggregator's,
    so each start of either pod would undo the change of the other.
    """
    target = None if writable is None else names.parse_claim(writable)
    claims = {claim for url in urls if url is not None and (claim := names.parse_claim(url)) is not None}
    volumes, mounts = [], []
    for number, claim in enumerate(sorted(claims | ({target} if target else set()))):
        volume = f"claim-{number}"
        reads: Object = {} if claim == target else {"readOnly": True}
        volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": claim, **reads}})
        mounts.append({"name": volume, "mountPath": names.claim_directory(claim), **reads})
    return volumes, mounts


def headless_service(plan: RunPlan, component: str, ports: Mapping[str, int]) -> Object:
    """Return a component's headless Service: clients see every pod and spread over them themselves.

    Without scraping the Service has no port `metrics`, which is what ServiceMonitors look for.
    """
    shown = {name: port for name, port in ports.items() if name != "metrics" or plan.spec.exports.prometheus}
    return plan.make_object(
        "Service",
        names.component(plan.run.name, component),
        component,
        spec={
            "clusterIP": "None",
            "selector": plan.selector(component),
            "ports": [{"name": name, "port": port, "targetPort": port} for name, port in shown.items()],
        },
    )
