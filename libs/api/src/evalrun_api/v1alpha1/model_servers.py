"""The servers that answer: replicas that the run starts on GPUs, or endpoints that are already running."""

from typing import Annotated, Literal

from pydantic import Field

from evalrun_api.api_model import (
    NO_CREDENTIALS_RULE,
    URL_RULE,
    ApiModel,
    DnsName,
    ImageName,
    PositiveFractionText,
    ResourceName,
    Resources,
    Rule,
    SecretKeyReference,
    list_type,
)
from evalrun_api.v1alpha1.placement import Toleration

DEFAULT_CONCURRENT_REQUESTS = 256
"""Per endpoint: vLLM's own default bound, which keeps a GPU busy."""


class EnvironmentVariable(ApiModel):
    """A variable of the engine's processes."""

    name: str = Field(
        min_length=1, max_length=128, pattern=r"^[A-Z_][A-Z0-9_]*$", description="The name, in capital letters."
    )
    value: str = Field(max_length=1024, description="The value, as text.")


class Rollout(ApiModel):
    """verl standalone replicas on a RayCluster of the run's own."""

    engine: Literal["vllm", "sglang"] = Field("vllm", description="The inference engine.")
    replicas: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="Replicas at the start; unset: what fits one node, gpusPerNode / (TP x PP x DP), at least 1.",
    )
    min_replicas: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="With maxReplicas: minimum number of replicas, while little work is pending; generation begins as "
        "soon as the workers of so many are ready.",
    )
    max_replicas: int | None = Field(
        None, ge=1, le=1024, description="With minReplicas: maximum number of replicas, while much work is pending."
    )
    tensor_parallel: int = Field(2, ge=1, le=64, description="GPUs that share each layer of a replica.")
    pipeline_parallel: int = Field(1, ge=1, le=64, description="Groups of layers of a replica; verl supports only 1.")
    data_parallel: int = Field(1, ge=1, le=64, description="Copies of the model inside a replica.")
    gpus_per_node: int = Field(8, ge=1, le=64, description="GPUs of one worker pod.")
    gpu_resource: ResourceName | None = Field(
        None,
        description="The resource that counts as a GPU, e.g. amd.com/gpu or nvidia.com/mig-3g.40gb; unset: the "
        "chart's, nvidia.com/gpu.",
    )
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = Field("bfloat16", description="Type of the weights.")
    load_format: Literal["auto", "safetensors", "pt", "sharded_state", "runai_streamer", "dummy"] = Field(
        "auto", description="How weights are loaded. dummy loads none: the answers are noise."
    )
    allow_dummy_weights: bool = Field(
        default=False, description="Confirms loadFormat: dummy, for a load test: its figures mean nothing."
    )
    gpu_memory_utilization: PositiveFractionText = Field(
        "0.8", description='Share of a GPU\'s memory that the engine takes, in quotes, e.g. "0.8".'
    )
    enforce_eager: bool = Field(
        default=False, description="Disable CUDA graphs: the engine starts sooner and is half as fast."
    )
    enable_prefix_caching: bool = Field(
        default=True, description="Cache the keys and values of shared prompt prefixes."
    )
    enable_chunked_prefill: bool = Field(
        default=True, description="Process long prompts in parts, together with decoding."
    )
    max_num_seqs: int = Field(256, ge=1, le=8192, description="Answers in progress at once in a replica.")
    max_num_batched_tokens: int = Field(
        8192, ge=1, le=1_048_576, description="Maximum number of tokens in one step of the engine."
    )
    prompt_length: int = Field(
        4096, ge=1, le=1_048_576, description="Maximum length of a prompt, in tokens; the answer's is maxNewTokens."
    )
    image: ImageName | None = Field(None, description="Image of head and workers; unset: the chart's.")
    resources: Resources | None = Field(
        None,
        description="Resources of a worker pod, except GPUs. Unset: 2 CPUs per GPU and 2 more, and 32Gi of memory per "
        "GPU (the chart can set another amount); as much ephemeral-storage, if the weights are downloaded to the pod's "
        "disk.",
    )
    head_resources: Resources | None = Field(None, description="Resources of the Ray head; unset: the chart's.")
    node_selector: dict[str, Annotated[str, Field(max_length=63)]] = Field(
        {}, max_length=16, description="Labels that a node must have for the workers to run on it."
    )
    tolerations: list[Toleration] = Field(
        [], max_length=16, description="Taints that the workers tolerate.", json_schema_extra=list_type("atomic")
    )
    env: list[EnvironmentVariable] = Field(
        [],
        max_length=32,
        description="Environment variables of the engine's processes, e.g. NCCL_DEBUG. No secrets: everyone who can "
        "read the EvalRun can read them.",
        json_schema_extra=list_type("map", "name"),
    )
    queue_name: DnsName | None = Field(None, description="Kueue's LocalQueue whose quota the RayCluster uses.")

    RULES = (
        Rule(
            "self.loadFormat != 'dummy' || self.allowDummyWeights",
            "loadFormat: dummy loads no weights and every figure is worthless: write loadFormat: auto, or, for a load "
            "test, allowDummyWeights: true",
            ".loadFormat",
        ),
        Rule(
            "self.gpusPerNode % (self.tensorParallel * self.pipelineParallel * self.dataParallel) == 0 || "
            "(self.tensorParallel * self.pipelineParallel * self.dataParallel) % self.gpusPerNode == 0",
            "a replica takes tensorParallel x pipelineParallel x dataParallel GPUs: make gpusPerNode a multiple of "
            "that, or that a multiple of gpusPerNode",
            ".gpusPerNode",
        ),
        Rule(
            "self.pipelineParallel == 1",  # verl 0.9.1, workers/config/rollout.py:319: refused for either engine
            "verl's replicas have no pipeline parallelism: write pipelineParallel: 1, and a larger tensorParallel",
            ".pipelineParallel",
        ),
        Rule(
            "has(self.minReplicas) == has(self.maxReplicas)",
            "write both minReplicas and maxReplicas, or neither",
        ),
        Rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "minReplicas is above maxReplicas: write minReplicas up to maxReplicas",
            ".minReplicas",
        ),
        Rule(
            "!has(self.queueName) || !has(self.minReplicas)",  # Kueue ends a RayCluster whose pods it did not let in
            "Kueue lets in a fixed number of workers: write replicas instead of minReplicas and maxReplicas, or remove "
            "queueName",
            ".queueName",
        ),
        Rule(
            "!has(self.replicas) || ((!has(self.minReplicas) || self.replicas >= self.minReplicas) && "
            "(!has(self.maxReplicas) || self.replicas <= self.maxReplicas))",
            "replicas is where the run starts: write a number from minReplicas to maxReplicas",
            ".replicas",
        ),
        Rule(
            "self.maxNumBatchedTokens >= self.maxNumSeqs",
            "each sequence takes a token a step: write maxNumBatchedTokens at least as large as maxNumSeqs",
            ".maxNumBatchedTokens",
        ),
        Rule(
            "!has(self.resources) || (self.resources.requests.all(r, r != GPU) && "
            "self.resources.limits.all(r, r != GPU))".replace(
                "GPU", "(has(self.gpuResource) ? self.gpuResource : 'nvidia.com/gpu')"
            ),
            "GPUs of a worker are gpusPerNode of gpuResource (nvidia.com/gpu if unset): remove them from resources",
            ".resources",
        ),
    )

    @property
    def gpus_per_replica(self) -> int:
        """GPUs that one replica takes."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def pods_per_replica(self) -> int:
        """Worker pods that one replica spans."""
        return -(-self.gpus_per_replica // self.gpus_per_node)

    @property
    def gpus_per_pod(self) -> int:
        """GPUs that one replica takes of each of its pods."""
        return min(self.gpus_per_replica, self.gpus_per_node)

    @property
    def elastic(self) -> bool:
        """Whether the number of replicas follows the pending work."""
        return self.min_replicas is not None and self.max_replicas is not None

    @property
    def initial_replicas(self) -> int:
        """Replicas at the start: `replicas`, else the number that fits one node, clamped to min and max."""
        wanted = self.replicas or max(1, self.gpus_per_node // self.gpus_per_replica)
        return min(max(wanted, self.min_replicas or 1), self.max_replicas or wanted)

    def worker_pods(self, replicas: int) -> int:
        """Return the worker pods that `replicas` need: each pod has `gpus_per_node` GPUs."""
        return -(-replicas * self.gpus_per_replica // self.gpus_per_node)

    @property
    def gpu_memory_utilization_value(self) -> float:
        """`gpuMemoryUtilization` as a number."""
        return float(self.gpu_memory_utilization)


class Generator(ApiModel):
    """The generator's Job of simple mode."""

    resources: Resources | None = Field(None, description="Resources of the generator's container; unset: the chart's.")
    queue_name: DnsName | None = Field(None, description="Kueue's LocalQueue whose quota the generator's Job uses.")


class Endpoint(ApiModel):
    """A server that speaks the OpenAI API."""

    url: Annotated[
        str,
        Field(min_length=1, max_length=512, description="Base URL up to /v1, e.g. http://vllm.models:8000/v1."),
        Rule("self.matches('^https?://[^/]')", "write a base URL with its scheme, e.g. http://vllm.models:8000/v1"),
        URL_RULE,
        Rule(
            "!self.matches('/completions/?$')",
            "write the base URL up to /v1: the path of the call is added to it",
        ),
        NO_CREDENTIALS_RULE,
    ]
    model: str | None = Field(
        None, min_length=1, max_length=1024, description="The model's name on the server; unset: model.path."
    )
    max_concurrent_requests: int = Field(
        DEFAULT_CONCURRENT_REQUESTS,
        ge=1,
        le=65_536,
        description="Maximum number of requests in flight at this server. A value below the server's own bound (vLLM: "
        "--max-num-seqs) leaves GPUs idle; an API with a rate limit needs a low value.",
    )
    api_key_secret_ref: SecretKeyReference | None = Field(None, description="The API key that the server requires.")
