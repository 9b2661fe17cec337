"""The operator's settings: one frozen object, read once at start."""

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from evalrun_api.modelling import Resources
from evalrun_api.v1alpha1 import Part, Placement
from evalrun_runtime.settings import ServiceSettings

AutoscalingMode = Literal["cpu", "custom", "keda"]
RAY_WITH_TOKENS = (2, 52)
"""KubeRay refuses a RayCluster that asks an older Ray for a token."""


class RunDefaults(ServiceSettings):
    """What a run gets from the operator: images, versions, defaults. Frozen when the run starts, so that an upgrade
    changes no run that lives.
    """

    aggregator_image: str = Field("evalrun-aggregator:latest", description="Image of the aggregator.")
    judge_image: str = Field("evalrun-judge:latest", description="Image of the judge gateway.")
    sandbox_image: str = Field("evalrun-sandbox:latest", description="Image of the sandbox and its slot proxy.")
    sandbox_fusion_image: str = Field(
        "volcengine/sandbox-fusion:server-20250609", description="Image of stock SandboxFusion."
    )
    generator_image: str = Field(
        "evalrun-aggregator:latest", description="Image of the generator's Job in simple mode; it needs no GPU library."
    )
    ray_image: str = Field("evalrun-gen:latest", description="Image of Ray head and workers (Dockerfile.gen).")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        "IfNotPresent", description="When images are pulled."
    )
    ray_version: str = Field(
        "2.60.0", pattern=r"^[0-9]+\.[0-9]+\.[0-9]+", description="Version of Ray in ray_image; KubeRay reads it."
    )

    ray_auth: Literal["token", "disabled"] = Field(
        "token",
        description="token: Ray asks for a token that KubeRay draws for each cluster (Ray 2.52, KubeRay 1.5.1 or "
        "newer). disabled: whoever reaches a head runs programs on it.",
    )
    model_cache_claim: str = Field(
        "",
        max_length=253,
        description="Claim, in each run's namespace, that keeps the hub's models between runs; empty: each pod's own.",
    )

    gateway_resources: Resources | None = Field(
        None, description="Of a run's gateway that says nothing; None: gateway_cpu and 1Gi, at most 4Gi."
    )
    generator_resources: Resources | None = Field(
        None, description="Of a generator of simple mode that says nothing; None: generator_cpu and 512Mi, at most 2Gi."
    )
    aggregator_resources: Resources | None = Field(
        None, description="Of an aggregator that says nothing; None: 1 CPU and 2Gi, at most 4Gi."
    )
    pod_labels: dict[str, str] = Field(
        default_factory=dict, max_length=16, description="Further labels of the runs' pods, as JSON."
    )
    pod_annotations: dict[str, str] = Field(
        default_factory=dict, max_length=16, description="Further annotations of the runs' pods, as JSON."
    )
    placement: dict[Part, Placement] = Field(
        default_factory=dict, description="Where the parts of a run go that say nothing, by part, as JSON."
    )
    gpu_resource: str = Field(
        "nvidia.com/gpu", description="The resource that counts as a GPU, for a rollout that says nothing."
    )
    sandbox_slots: int = Field(4, ge=1, le=1024, description="Slots, and CPUs, of a sandbox pod that says nothing.")
    sandbox_slot_memory_mib: int = Field(1280, ge=64, description="Memory a slot, MiB; a test may use 1024 by default.")
    sandbox_slot_milli_cpu: int = Field(
        1000,
        ge=1,
        le=1000,
        description="Thousandths of a CPU that a sandbox pod asks for a slot; it may use a whole one.",
    )
    gateway_cpu: str = Field("1", description="CPUs that a run's gateway asks for; it may use more.")
    generator_cpu: str = Field("500m", description="CPUs that the generator of simple mode asks for; it may use more.")
    head_cpu: str = Field("4", description="CPUs of the Ray head, which also runs the generator.")
    head_memory: str = Field("16Gi", description="Memory of the Ray head.")
    worker_memory_gib_per_gpu: int = Field(
        32, ge=1, description="Memory a GPU of a worker that says nothing, GiB; loading a model passes through it."
    )

    otlp_endpoint: str | None = Field(
        None, description="OTLP gRPC endpoint that runs send their spans to, e.g. http://collector.tracing:4317."
    )

    @model_validator(mode="after")
    def _ray_that_knows_tokens(self) -> Self:
        major, minor = self.ray_version.split(".")[:2]
        if self.ray_auth == "token" and (int(major), int(minor)) < RAY_WITH_TOKENS:
            raise ValueError(f"Ray {self.ray_version} knows no token (2.52 does): set ray_auth to disabled")
        return self


class OperatorSettings(RunDefaults):
    """Runs the EvalRuns of a cluster: makes what they need, watches it, reports, cleans up."""

    model_config = SettingsConfigDict(env_prefix="EVALRUN_OPERATOR_")

    namespace: list[str] = Field(
        default_factory=list, max_length=100, description="Namespaces to serve; none: the whole cluster. Repeatable."
    )
    operator_class: str = Field(
        "", max_length=63, description="Serve the EvalRuns of this spec.operatorClass; empty: those that name none."
    )
    lease: str = Field(
        "",
        pattern=r"^([a-z0-9][-a-z0-9]*/[a-z0-9][-a-z0-9.]*)?$",
        description="NAMESPACE/NAME of the Lease that says which of several operators works; empty: there is one only.",
    )

    autoscaling: AutoscalingMode = Field(
        "cpu", description="cpu: HPA by CPU. custom: HPA by the judge's load (a metrics adapter). keda: ScaledObject."
    )
    keda_prometheus: str = Field(
        "http://prometheus.monitoring.svc:9090", description="Prometheus that KEDA asks for the judge's load."
    )

    poll_seconds: float = Field(5.0, gt=0, description="How often a run's ledger is asked while it makes progress.")
    resync_seconds: float = Field(
        600.0, gt=0, description="How often everything of a run is applied anew, whatever was observed."
    )
    backoff_seconds: float = Field(
        10.0, ge=0, description="Wait before a failed attempt is followed by another; doubles with each."
    )
    longest_backoff_seconds: float = Field(360.0, ge=0, description="Longest such wait.")
    max_active_runs: int = Field(
        0,
        ge=0,
        le=10_000,
        description="Runs that may be active at a time; the others wait in the order of their creation. 0: any number.",
    )
    start_deadline_seconds: int = Field(
        900,
        ge=0,
        description="How long a part of a run may be unable to start (a missing Secret, claim or image, a refusal) "
        "before the run fails; waiting for room does not count. 0: without end.",
    )
    workers: int = Field(16, ge=1, le=1000, description="Runs that are worked on at the same time.")
    request_seconds: float = Field(15.0, gt=0, description="Longest that a request to the API server may take.")
    aggregator_seconds: float = Field(3.0, gt=0, description="Longest that a question to an aggregator may take.")

    aggregator_address: str = Field(
        "dns:///{service}.{namespace}.svc:50051",
        description="Where a run's aggregator answers; {service}, {namespace} and {run} are filled in.",
    )

    @model_validator(mode="after")
    def _token_beyond_loopback(self) -> Self:
        """Ask for no token, unlike the services: only liveness and metrics are served, which hold no secret."""
        return self
