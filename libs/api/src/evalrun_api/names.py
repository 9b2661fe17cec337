"""Defines, in one place, every name, label, annotation and port of the objects that the operator creates."""

from typing import Final

FIELD_MANAGER: Final = "evalrun-operator"
PREFIX: Final = "evalrun.dev"

RUN_LABEL: Final = f"{PREFIX}/run"
"""The EvalRun's name: for people and for metrics."""
RUN_UID_LABEL: Final = f"{PREFIX}/run-uid"
"""The EvalRun's uid: what selectors use, so that a run never takes the pods of an earlier one of its name."""
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
QUEUED_UID_LABEL: Final = "kueue.x-k8s.io/job-uid"
"""On Kueue's Workloads: the uid of the object that is queued."""

APPLIED_ANNOTATION: Final = f"{PREFIX}/applied"
"""Digest of the object as it was last applied: what has it already need not be applied again."""
ATTEMPT_ANNOTATION: Final = f"{PREFIX}/attempt"
"""Number of the generator attempt, or of the one that a RayCluster was made for."""
CLUSTER_ANNOTATION: Final = f"{PREFIX}/ray-cluster"
"""On a RayJob, or on a Job that uses kept replicas: the RayCluster that it runs on."""
HEAD_UID_ANNOTATION: Final = f"{PREFIX}/head-uid"
"""On a RayJob: the head pod that it was started on; a new head knows nothing of its actors and jobs."""
RESTARTS_ANNOTATION: Final = f"{PREFIX}/restarts"
"""On the aggregator: how often it was restarted since its run had failed."""
SCHEDULE_LABEL: Final = f"{PREFIX}/schedule"
"""On a run and a Job: the EvalSchedule that made it."""
STEP_LABEL: Final = f"{PREFIX}/step"
"""On a run: the training step of its checkpoint."""
PHASE_LABEL: Final = f"{PREFIX}/phase"
"""On a run: the phase of the training."""
CHECKPOINT_DIGEST_ANNOTATION: Final = f"{PREFIX}/checkpoint-digest"
"""On a run: the digest of the checkpoint that it evaluates."""
CHECKPOINT_URL_ANNOTATION: Final = f"{PREFIX}/checkpoint-url"
"""On a run whose model was merged: the checkpoint, which outlives the model in the cache."""
SCHEDULED_AT_ANNOTATION: Final = f"{PREFIX}/scheduled-at"
"""On a run: the time of the start that made it."""
TRIGGER_ANNOTATION: Final = f"{PREFIX}/trigger"
"""On an EvalSchedule: any new value asks for a start at once."""
KEPT_ANNOTATION: Final = f"{PREFIX}/kept-replicas"
"""On a run: its replicas are those that its EvalSchedule keeps."""
KEPT_LABEL: Final = f"{PREFIX}/kept-by"
"""On the generator of such a run: the uid of the EvalSchedule, whose replicas it may reach."""
FILLED_ANNOTATION: Final = f"{PREFIX}/filled-by"
"""On a Secret of the chart: who wrote its contents; the chart then renders none."""
JUDGE_AUTHORITY_ANNOTATION: Final = f"{PREFIX}/judge-authority"
"""On the aggregator: the authority of the chart's judge by which its certificate was issued; empty for other judges."""
TOKEN_DIGEST_ANNOTATION: Final = f"{PREFIX}/token-digest"
"""On pods: a digest of the run's first token, so that a new Secret restarts them all; a rotation does not."""

AGGREGATOR: Final = "aggregator"
JUDGE: Final = "judge"
SANDBOX: Final = "sandbox"
GENERATOR: Final = "generator"
RAY: Final = "ray"
KEPT: Final = "kept"
"""In the names of what a schedule's kept replicas are made of."""
CHECKPOINT: Final = "checkpoint"
"""The init container of the Ray workers that fetches the model."""

EVAL_RUN_PREFIX: Final = "er/"
"""Of an EvalRun where a command takes directories too; `er` is its short name in kubectl."""

GRPC_PORT: Final = 50051
RAY_PORT: Final = 6379
"""Of the Ray head, for the nodes that join its cluster."""
SANDBOX_PORT: Final = 8080
METRICS_PORT: Final = 9090
HEALTH_PORT: Final = 9091
"""Of parts whose other port takes TLS: the kubelet's probes have no certificate."""
SAMPLES_PORT: Final = 9092
"""Of an aggregator's pod, on its loopback alone; set by its image."""

LEDGER_DIRECTORY: Final = "/var/lib/evalrun"
LEDGER_FILE: Final = "ledger.sqlite"
ORDER_DIRECTORY: Final = "/etc/evalrun/order"
ORDER_FILE: Final = "work-order.json"
CLAIMS_DIRECTORY: Final = "/mnt/claims"
IDENTITY_DIRECTORY: Final = "/etc/evalrun/identity"
TLS_DIRECTORY: Final = f"{IDENTITY_DIRECTORY}/tls"
TLS_FILES: Final = ("tls.crt", "tls.key", "ca.crt")
"""Of such a directory, and keys of a Secret in cert-manager's layout: certificate, its key, authorities."""
JUDGE_TLS_DIRECTORY: Final = "/etc/evalrun/judge-tls"
"""Of the certificate for a shared judge."""
OPERATOR: Final = "operator"
"""Component of the operator's pods, and in a run's Secret the owner of its certificate."""
SEED_KEY: Final = "seed"
"""Of what the authority of the chart's judge is derived from, in a Secret of the chart."""
AUTHORITY_KEY: Final = "ca.crt"
"""Of the run's own authority's certificate, in the run's Secret."""
TOKEN_KEY: Final = "token"  # noqa: S105 - the key inside the Secret, not a secret
"""Of the token that earlier releases know: the ledger accepts it as the operator's. In runs that began with it alone,
every part has it."""
LEDGER_TOKEN: Final = "ledger-token"  # noqa: S105 - a key too
"""Of what workers send to the ledger."""
OPERATOR_TOKEN: Final = "operator-token"  # noqa: S105 - a key too
"""Of what the operator sends to the ledger, to ask for the run's state and to end it."""
GATEWAY_TOKEN: Final = "gateway-token"  # noqa: S105 - a key too
"""Of what the aggregator sends to the gateways."""
SANDBOX_TOKEN: Final = "sandbox-token"  # noqa: S105 - a key too
"""Of what the gateways send to the sandboxes."""
HOP_TOKENS: Final = (LEDGER_TOKEN, OPERATOR_TOKEN, GATEWAY_TOKEN, SANDBOX_TOKEN)

UID_DIGITS: Final = 5
"""Of a run's uid, in the names of what may outlive it for a while."""
MAX_RUN_NAME: Final = 30
"""Longest name of an EvalRun; KubeRay takes 53 characters for a RayCluster and 47 for a RayJob."""


def component(run: str, part: str) -> str:
    """Return the name of a part's workload and Service, e.g. `phase0-judge`."""
    return f"{run}-{part}"


def order_config_map(run: str) -> str:
    """Return the name of the ConfigMap that holds the run configuration."""
    return f"{run}-order"


def token_secret(run: str) -> str:
    """Return the name of the Secret that holds the run's tokens."""
    return f"{run}-token"


def judge_tls_secret(run: str, authority: str) -> str:
    """Return the name of the Secret with the run's certificate for the chart's judge, one for each authority."""
    return f"{run}-judge-tls-{authority}"


def certificate_keys(part: str) -> tuple[str, str]:
    """Return the keys of a part's certificate and private key in the run's Secret."""
    return f"{part}.crt", f"{part}.key"


def ledger_claim(run: str, uid: str) -> str:
    """Return the name of the ledger's claim. It may outlive its run, so a later run of that name needs another
    claim."""
    return f"{run}-ledger-{uid[:8]}"


def ray_cluster(run: str, uid: str, attempt: int) -> str:
    """Return the name of the RayCluster that was made for an attempt; at most 53 characters.

    The uid is in it since a run may be deleted and applied again while the objects of the first still terminate:
    KubeRay mistakes a new cluster of the same name for the old cluster.
    """
    return f"{run}-{uid[:UID_DIGITS]}-ray-{attempt}"


def kept_cluster(schedule: str, uid: str, number: int) -> str:
    """Return the name of a RayCluster that a schedule keeps: KubeRay mistakes another cluster of the same name for
    it."""
    return f"{schedule}-{uid[:UID_DIGITS]}-{KEPT}-{number}"


def attempt_job(run: str, uid: str, attempt: int) -> str:
    """Return the name of an attempt's Job or RayJob; at most 47 characters."""
    return f"{run}-{uid[:UID_DIGITS]}-gen-{attempt}"


def service_host(name: str, namespace: str) -> str:
    """Return the host name of a Service inside the cluster, without the cluster's domain."""
    return f"{name}.{namespace}.svc"


def claim_directory(claim: str) -> str:
    """Return the directory under which a user's volume is mounted."""
    return f"{CLAIMS_DIRECTORY}/{claim}"


def local_path(url: str) -> str:
    """Return the path inside our pods of `pvc://CLAIM/PATH`; any other URL as it is."""
    if not url.startswith("pvc://"):
        return url
    claim, _, path = url.removeprefix("pvc://").partition("/")
    return f"{claim_directory(claim)}/{path}"


def claim_url(path: str, ledger: str) -> str:
    """Return `pvc://CLAIM/PATH` for a path inside our pods that lies on a volume; anything else as it is.

    Args:
        path: a path in the aggregator's pod, or a URL.
        ledger: the claim of the run's ledger.
    """
    for directory, claim in ((f"{LEDGER_DIRECTORY}/", f"{ledger}/"), (f"{CLAIMS_DIRECTORY}/", "")):
        if path.startswith(directory):
            return f"pvc://{claim}{path.removeprefix(directory)}"
    return path


def aggregator_path(url: str, ledger: str) -> str:
    """Return the path in the aggregator's pod of a URL that `claim_url` gave; any other URL as it is."""
    own = f"pvc://{ledger}/"
    return f"{LEDGER_DIRECTORY}/{url.removeprefix(own)}" if url.startswith(own) else local_path(url)


def parse_claim(url: str) -> str | None:
    """Return the claim that `pvc://CLAIM/PATH` names; None for any other URL."""
    return url.removeprefix("pvc://").partition("/")[0] if url.startswith("pvc://") else None
