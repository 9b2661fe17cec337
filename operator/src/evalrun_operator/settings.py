"""The operator's settings, read once at the start into a frozen object."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from evalrun_api.api_model import Resources
from evalrun_api.v1alpha1 import Part, Placement
from evalrun_operator.policies.allow_lists import REFUSED
from evalrun_runtime.settings import ServiceSettings

AutoscalingMode = Literal["cpu", "custom", "keda"]
SecretKey = Annotated[str, Field(pattern=r"^[a-z0-9][-a-z0-9]*/[a-z0-9][-a-z0-9.]*/[-._a-zA-Z0-9]+$")]
METRICS_CLIENTS: tuple[Mapping[str, object], ...] = (
    {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}},
)
DNS_PEERS: tuple[Mapping[str, object], ...] = (
    {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    },
    {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "openshift-dns"}}},
    {"ipBlock": {"cidr": "169.254.0.0/16"}},
)
"""DNS of most clusters, of OpenShift, and NodeLocal DNSCache, whose link-local address is a separate setting."""
RAY_WITH_TOKENS = (2, 52)
"""First version of Ray with tokens. KubeRay refuses a RayCluster of an older Ray that requires a token."""


class SharedJudge(BaseModel):
    """The chart's judge, for which the operator issues certificates; each Secret lies in its namespace."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    namespace: str = Field(description="Its namespace.")
    gateway: str = Field(description="Service of its gateways.")
    sandbox: str = Field(description="Service of its sandboxes.")
    authority_secret: str = Field(description="Secret with the seed of its authority.")
    gateway_secret: str = Field(description="Secret of the gateways' certificate.")
    sandbox_secret: str = Field(description="Secret of the sandboxes' certificate.")
    caller_secret: str = Field(description="Secret of a certificate for callers that are no runs of this operator.")


class RunDefaults(ServiceSettings):
    """Images, versions and defaults that a run gets from the operator. Frozen when the run starts, so that an upgrade
    does not change active runs.
    """

    aggregator_image: str = Field("evalrun-aggregator:latest", description="Image of the aggregator.")
    judge_image: str = Field("evalrun-judge:latest", description="Image of the judge gateway.")
    sandbox_image: str = Field("evalrun-sandbox:latest", description="Image of the sandbox and its slot proxy.")
    sandbox_graders_image: str = Field(
        "", description="Image of the sandbox of runs with the grader builtin:verl. Empty: sandbox_image."
    )
    sandbox_fusion_image: str = Field(
        "volcengine/sandbox-fusion:server-20250609", description="Image of stock SandboxFusion."
    )
    generator_image: str = Field(
        "evalrun-aggregator:latest", description="Image of the generator's Job in simple mode; it needs no GPU library."
    )
    ray_image: str = Field("evalrun-gen:latest", description="Image of Ray head and workers (Dockerfile.gen).")
    ray_sglang_image: str = Field(
        "", description="The same for runs with rollout.engine: sglang (--build-arg ENGINE=sglang). Empty: ray_image."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        "IfNotPresent", description="When images are pulled."
    )
    ray_version: str = Field(
        "2.60.0", pattern=r"^[0-9]+\.[0-9]+\.[0-9]+", description="Version of Ray in ray_image, for KubeRay."
    )

    ray_auth: Literal["token", "disabled"] = Field(
        "token",
        description="token: Ray requires a token, which KubeRay generates for each cluster (Ray 2.52, KubeRay 1.5.1 or "
        "newer). disabled: anyone who can reach a head can run programs on it.",
    )
    model_cache_claim: str = Field(
        "",
        max_length=253,
        description="Claim in each run's namespace that caches models of the hub and of buckets; empty: no cache.",
    )

    gateway_resources: Resources | None = Field(
        None, description="Default resources of gateways. Unset: requests of gateway_cpu and 1Gi, a limit of 4Gi."
    )
    generator_resources: Resources | None = Field(
        None,
        description="Default resources of generators in simple mode. Unset: requests of generator_cpu and 512Mi, a "
        "limit of 2Gi.",
    )
    aggregator_resources: Resources | None = Field(
        None, description="Default resources of aggregators. Unset: requests of 1 CPU and 2Gi, a limit of 4Gi."
    )
    pod_labels: dict[str, str] = Field(
        default_factory=dict, max_length=16, description="Additional labels of the runs' pods, as JSON."
    )
    pod_annotations: dict[str, str] = Field(
        default_factory=dict, max_length=16, description="Additional annotations of the runs' pods, as JSON."
    )
    placement: dict[Part, Placement] = Field(
        default_factory=dict, description="Default placement of a run's pods, by part, as JSON."
    )
    metadata_clients: list[Part] = Field(
        default_factory=list,
        description="Parts that may reach the cloud's metadata service, for workload identities that are given there.",
    )
    gpu_resource: str = Field("nvidia.com/gpu", description="Default resource name of a GPU.")
    sandbox_slots: int = Field(4, ge=1, le=1024, description="Default slots, and CPUs, of a sandbox pod.")
    sandbox_slot_memory_mib: int = Field(
        1280, ge=64, description="MiB of memory per slot; a test may use 1024 by default."
    )
    sandbox_slot_milli_cpu: int = Field(
        1000,
        ge=1,
        le=1000,
        description="CPU request per slot in thousandths; the limit is a whole CPU.",
    )
    gateway_cpu: str = Field("1", description="CPU request of a run's gateway; no limit.")
    generator_cpu: str = Field("500m", description="CPU request of the generator in simple mode; no limit.")
    head_cpu: str = Field("4", description="CPUs of the Ray head, which also runs the generator.")
    head_memory: str = Field("16Gi", description="Memory of the Ray head.")
    worker_memory_gib_per_gpu: int = Field(
        32, ge=1, description="Default memory of a worker in GiB per GPU; weights pass through it when they are loaded."
    )

    scrape_token_sha256: str | None = Field(
        None,
        pattern=r"^[0-9a-f]{64}(,[0-9a-f]{64})*$",
        description="SHA-256, in hex, of the bearer tokens that the runs' scrapers send. Unset: runs ask for none.",
    )
    otlp_endpoint: str | None = Field(
        None, description="OTLP gRPC endpoint for the runs' spans, e.g. http://collector.tracing:4317."
    )

    @model_validator(mode="after")
    def _ray_that_knows_tokens(self) -> Self:
        major, minor = self.ray_version.split(".")[:2]
        if self.ray_auth == "token" and (int(major), int(minor)) < RAY_WITH_TOKENS:
            raise ValueError(f"Ray {self.ray_version} does not support tokens (2.52 does): set ray_auth to disabled")
        return self


class OperatorSettings(RunDefaults):
    """Operator: runs the EvalRuns of a cluster. Creates and watches their objects, reports status, cleans up."""

    model_config = SettingsConfigDict(env_prefix="EVALRUN_OPERATOR_")

    namespace: list[str] = Field(
        default_factory=list,
        max_length=100,
        description="Namespace to serve; none: the whole cluster. Repeatable.",
    )
    operator_class: str = Field(
        "", max_length=63, description="Serve only EvalRuns with this spec.operatorClass; empty: those without one."
    )
    lease: str = Field(
        "",
        pattern=r"^([a-z0-9][-a-z0-9]*/[a-z0-9][-a-z0-9.]*)?$",
        description="NAMESPACE/NAME of the Lease for leader election; empty: there is only one operator.",
    )
    shared_token: list[SecretKey] = Field(
        default_factory=list,
        max_length=100,
        description="NAMESPACE/NAME/KEY of a Secret that gets a random token if it has none: the chart's. Repeatable.",
    )

    shared_judge: SharedJudge | None = Field(
        None, description="The chart's judge, for which certificates are issued, as JSON. Unset: for none."
    )

    # Neither setting is frozen in runs: a correction also helps runs that wait for DNS, or are not scraped.
    metrics_clients: list[dict[str, object]] = Field(
        default_factory=lambda: [dict(peer) for peer in METRICS_CLIENTS],
        max_length=16,
        description="Who may scrape the runs' metrics, as peers of a NetworkPolicy (JSON); none: anyone.",
    )
    dns_peers: list[dict[str, object]] = Field(
        default_factory=lambda: [dict(peer) for peer in DNS_PEERS],
        min_length=1,
        max_length=16,
        description="The cluster's DNS, as peers of a NetworkPolicy (JSON); ports 53 and 5353 are open to it.",
    )

    allowed: dict[str, dict[str, list[str]]] = Field(
        default_factory=dict,
        description="What EvalRuns may ask for: by namespace ('' for all others) the chart's lists admission.allowed, "
        "as JSON. Empty: the operator allows everything.",
    )

    autoscaling: AutoscalingMode = Field(
        "cpu", description="cpu: HPA by CPU. custom: HPA by the judge's load (a metrics adapter). keda: ScaledObject."
    )
    keda_prometheus: str = Field(
        "http://prometheus.monitoring.svc:9090", description="Prometheus that KEDA queries for the judge's load."
    )

    poll_seconds: float = Field(
        5.0, gt=0, description="Seconds between queries of the ledger of a run that makes progress."
    )
    resync_seconds: float = Field(
        600.0, gt=0, description="Seconds after which every object of a run is applied again."
    )
    backoff_seconds: float = Field(
        10.0, ge=0, description="Seconds before the next attempt after a failed one; doubles each time."
    )
    max_backoff_seconds: float = Field(360.0, ge=0, description="Maximum seconds before the next attempt.")
    max_active_runs: int = Field(
        0,
        ge=0,
        le=10_000,
        description="Maximum active runs; the others are queued, fair between namespaces. 0: no limit.",
    )
    start_deadline_seconds: int = Field(
        900,
        ge=0,
        description="Seconds that a part of a run may be unable to start (a missing Secret, claim or image, a refusal, "
        "no node that it fits) before the run fails; waiting for room does not count. 0: no limit.",
    )
    workers: int = Field(16, ge=1, le=1000, description="Maximum runs reconciled at the same time.")
    request_seconds: float = Field(15.0, gt=0, description="Timeout of a request to the API server, in seconds.")
    aggregator_seconds: float = Field(3.0, gt=0, description="Timeout of a request to an aggregator, in seconds.")

    aggregator_address: str = Field(
        "dns:///{service}.{namespace}.svc:50051",
        description="Address of a run's aggregator, with {service}, {namespace} and {run}.",
    )

    @field_validator("allowed")
    @classmethod
    def _whole_lists(cls, lists: dict[str, dict[str, list[str]]]) -> dict[str, dict[str, list[str]]]:
        if lists and "" not in lists:
            raise ValueError("no lists for all other namespaces: write them under the empty name")
        for namespace, named in lists.items():
            if missing := REFUSED.keys() - named.keys():
                raise ValueError(f"namespace {namespace!r} lacks the lists {', '.join(sorted(missing))}")
        return lists

    @model_validator(mode="after")
    def _token_beyond_loopback(self) -> Self:
        """Require no token, unlike the services: the operator serves only liveness and metrics, without secrets."""
        return self
