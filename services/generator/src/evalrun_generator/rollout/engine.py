"""Translates a run configuration into the configuration of verl and the engine. Pure.

Every field whose default in verl 0.9.1 is wrong for serving is set explicitly: `load_format` (the default serves random
weights and answers 200), `enable_sleep_mode`, `disable_log_stats` (the default disables metrics), `response_length` (a
hard cap on every request's max_tokens) and `max_model_len`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from evalrun_generator.rollout.order import RolloutOrder
from evalrun_generator.rollout.sglang_arguments import KEY_VARIABLE, sglang_arguments
from evalrun_generator.weights.checkpoint_files import UnfitCheckpointError, compute_serving_digest
from evalrun_runtime.exits import BadInputError

KEY_VARIABLES: Final[Mapping[str, str]] = {"vllm": "VLLM_API_KEY", "sglang": KEY_VARIABLE}
"""Environment variable from which each engine's server reads the API key that it requires."""
QUIET: Final[Mapping[str, Mapping[str, str]]] = {
    "vllm": {"VLLM_NO_USAGE_STATS": "1"},
    # Without this, /health takes a second and generates a token. Progress alone shows whether an engine hangs.
    "sglang": {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"},
}
"""Environment of each engine's processes, unless the run sets it."""
KEPT_MODEL: Final = "checkpoint"
"""The server's name for the model of a kept replica."""
EXTENSION: Final = "evalrun_generator.weights.worker_extension.WeightsExtension"
GUARD: Final = "evalrun_generator.weights.weights_guard.WeightsGuard"
UNMEASURED_KERNELS: Final = {"combo_kernels": False, "benchmark_combo_kernel": False}
"""vLLM 0.24 has its compiler time kernels against each other. verl's settings for `full_determinism` forbid that: the
engine's start failed with "In the deterministic mode of Inductor, we will avoid those benchmarkings"."""
SMALL_MAX_NUM_SEQS = 64
"""A 7B model on one H200 gave 11,746 tokens/s with 64 sequences in progress and 26,247 with 256."""


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """Identifies the weights of replicas that outlive their run."""

    weights: str
    """Unique per run and checkpoint: each request names it; see `weights_guard`."""
    model: str
    """Name of the model in results; the server itself calls each model `KEPT_MODEL`."""
    serving_digest: str
    """See `checkpoint_files.compute_serving_digest`."""


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """The configuration of a replica, as plain data, because it is sent to Ray."""

    engine: str
    rollout_config: dict[str, object]
    """Fields of verl's RolloutConfig."""
    model_config: dict[str, object]
    """Fields of verl's HFModelConfig."""
    gpus: int
    gpus_per_node: int
    served_model: str
    load_format: str
    adapter: str | None = None
    """Directory of the LoRA adapter that is evaluated, or None if the model itself is."""
    revision: str | None = None
    """Requested revision of a hub model."""
    environment: dict[str, str] = field(default_factory=dict)
    """Environment of the engine's processes."""
    kept: KeptPlan | None = None
    """None: the replicas end with their run."""

    @property
    def digest(self) -> str:
        """Identifies the plan: only replicas with the same digest are reused."""
        kept = [] if self.kept is None else [self.kept.weights]
        return _digest([self.engine, self.rollout_config, self.model_config, self.gpus, self.gpus_per_node, *kept])

    @property
    def shape(self) -> str:
        """Digest of the plan without the weights: a kept replica with the same shape may take other weights."""
        model = {name: value for name, value in self.model_config.items() if name != "path"}
        serving = "" if self.kept is None else self.kept.serving_digest
        return _digest([self.engine, self.rollout_config, model, self.gpus, self.gpus_per_node, serving])

    @property
    def directory(self) -> Path:
        """Directory of a kept replica's model."""
        return Path(str(self.model_config["path"]))


def _digest(content: Sequence[object]) -> str:
    # The environment is left out, because it does not change the served model and may contain a key.
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def engine_plan(
    order: RolloutOrder,
    environment: dict[str, str],
    model_folder: str | None = None,
    adapter_folder: str | None = None,
    *,
    kept: bool = False,
) -> EnginePlan:
    """Return the plan for the replicas of a run.

    Args:
        order: the run's run configuration.
        environment: environment of the engine's processes.
        model_folder: directory of the fetched model, or None if the engine reads `model.path` itself. Requests and
            results always name the model by `model.path`.
        adapter_folder: directory of the fetched LoRA adapter, or None likewise. With an adapter, requests name
            `model.adapter`.
        kept: whether the replicas outlive the run and take the next one's weights. Requests name the model by
            `KEPT_MODEL` then, because the server's name for it outlives the run too.

    Raises:
        BadInputError: dummy weights without `allowDummyWeights`, a parallelism that verl or the engine lacks, arguments
            for SGLang that cannot be used, or replicas that cannot be kept.
    """
    rollout, model, protocol = order.rollout, order.spec.model, order.spec.protocol
    if rollout.load_format == "dummy" and not rollout.allow_dummy_weights:
        raise BadInputError(
            "spec.rollout.loadFormat: dummy loads no weights, so every score is meaningless: write loadFormat: auto, "
            "or, for a load test, allowDummyWeights: true"
        )
    if rollout.pipeline_parallel > 1:
        raise BadInputError(
            f"spec.rollout.pipelineParallel: verl 0.9.1 has no pipeline parallelism with {rollout.engine}: write 1"
        )
    variables = {**QUIET[rollout.engine], **environment, **{each.name: each.value for each in rollout.env}}
    own: dict[str, object] = {"served_model_name": model.path}
    if model.revision is not None:
        own["revision"] = model.revision
    if rollout.engine == "sglang":
        own |= sglang_arguments(order, variables)
    elif model.revision is not None:
        own["tokenizer_revision"] = model.revision
    adapter = None if model.adapter is None else adapter_folder or model.adapter
    if adapter is not None:
        # verl has no field for an adapter to serve; its engine takes vLLM's. The launcher adds the rank.
        own["lora_modules"] = [json.dumps({"name": model.evaluated, "path": adapter})]
    if kept:
        own |= {"served_model_name": KEPT_MODEL, "worker_extension_cls": EXTENSION, "middleware": [GUARD]}
    if protocol.deterministic and rollout.engine == "vllm":
        own["compilation_config"] = {"inductor_compile_config": UNMEASURED_KERNELS}
    config: dict[str, object] = {
        "name": rollout.engine,
        "load_format": rollout.load_format,
        "tensor_model_parallel_size": rollout.tensor_parallel,
        "data_parallel_size": rollout.data_parallel,
        "dtype": rollout.dtype,
        "gpu_memory_utilization": rollout.gpu_memory_utilization_value,
        "enforce_eager": rollout.enforce_eager,
        "enable_prefix_caching": rollout.enable_prefix_caching,
        "enable_chunked_prefill": rollout.enable_chunked_prefill,
        "max_num_seqs": rollout.max_num_seqs,
        "max_num_batched_tokens": rollout.max_num_batched_tokens,
        "prompt_length": rollout.prompt_length,
        "response_length": protocol.max_new_tokens,
        "max_model_len": rollout.prompt_length + protocol.max_new_tokens,
        "enable_sleep_mode": False,
        "free_cache_engine": False,
        "disable_log_stats": False,
        "seed": protocol.seed % 2**31,
        "full_determinism": protocol.deterministic,
        "engine_kwargs": {rollout.engine: own},
    }
    return EnginePlan(
        engine=rollout.engine,
        rollout_config=config,
        model_config={"path": model_folder or model.path, "trust_remote_code": model.trust_remote_code},
        gpus=rollout.gpus_per_replica,
        gpus_per_node=rollout.gpus_per_node,
        served_model=KEPT_MODEL if kept else model.evaluated,
        adapter=adapter,
        load_format=rollout.load_format,
        revision=model.revision,
        environment=variables,
        kept=_kept_plan(order, model_folder) if kept else None,
    )


def _kept_plan(order: RolloutOrder, model_folder: str | None) -> KeptPlan:
    rollout, model = order.rollout, order.spec.model
    if rollout.engine != "vllm" or model.adapter is not None:
        raise BadInputError(
            "replicas are kept for vLLM and whole checkpoints alone: write spec.rollout.engine: vllm and leave "
            "spec.model.adapter away, or run each checkpoint by itself"
        )
    if model_folder is None:
        raise BadInputError(f"spec.model.path: {model.path} is no directory: kept replicas read checkpoints from files")
    try:
        weights = _digest([order.identity, model_folder])
        return KeptPlan(weights, model.path, compute_serving_digest(Path(model_folder)))
    except UnfitCheckpointError as error:
        raise BadInputError(f"spec.model.path: {error}") from error


def add_key(plan: EnginePlan, key: str) -> EnginePlan:
    """Return the plan with the key that its servers require."""
    return replace(plan, environment={**plan.environment, KEY_VARIABLES[plan.engine]: key})


def slots(order: RolloutOrder) -> int:
    """Return the requests in flight for a replica: an eighth more than the engine's max_num_seqs, so that a finished
    sequence is replaced in the next step and not a round trip later."""
    most = order.rollout.max_num_seqs
    return most + max(1, most // 8)


def idle_gpu_warnings(order: RolloutOrder, in_flight: int) -> list[str]:
    """Return warnings about settings that leave a GPU idle: one line each, with the field and a remedy.

    The numbers were measured on one H200 with a 7B model, vLLM 0.24 and verl 0.9.1 (docs/rollout.md).

    Args:
        order: the run's run configuration.
        in_flight: requests in flight for a replica.
    """
    rollout = order.rollout
    found = []
    if rollout.engine == "sglang":
        found.append(
            "rollout.engine: sglang was tried on one GPU alone and for minutes, with Triton's attention: "
            "write vllm unless you mean to try it"
        )
    if rollout.enforce_eager:
        found.append(
            "rollout.enforceEager: true disables CUDA graphs, which gave 15,672 instead of 26,247 tokens/s: "
            "write false unless you debug the engine"
        )
    if rollout.max_num_seqs < SMALL_MAX_NUM_SEQS:
        found.append(
            f"rollout.maxNumSeqs: {rollout.max_num_seqs} leaves most of a GPU idle (64 gave 11,746 tokens/s, 256 gave "
            "26,247): write 256 unless the KV cache is too small"
        )
    if in_flight < rollout.max_num_seqs:
        found.append(
            f"concurrency: {in_flight} requests per replica are fewer than maxNumSeqs {rollout.max_num_seqs}, so the "
            "GPU waits for requests: leave concurrency unset"
        )
    if not rollout.enable_prefix_caching:
        found.append("rollout.enablePrefixCaching: false recomputes the prompt for each of its samples: write true")
    if rollout.load_format == "dummy":
        found.append("rollout.loadFormat: dummy: the weights are random, so only speed figures are meaningful")
    return found
