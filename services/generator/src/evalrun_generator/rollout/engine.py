"""From the run's order to what verl and the engine are told. Pure.

Every field that verl 0.9.1 presets badly for serving is said: `load_format` (its default serves random weights and
answers 200), `enable_sleep_mode`, `disable_log_stats` (its default switches the metrics off), `response_length` (a hard
cap on every request's max_tokens) and `max_model_len`.
"""

import hashlib
import json
from dataclasses import dataclass, field

from evalrun_generator.rollout.order import RunOrder
from evalrun_runtime.exits import BadInputError

SMALL_MAX_NUM_SEQS = 64
"""On one H200 a 7B model with 64 answers in progress gave 11,746 tokens/s, with 256 it gave 26,247."""


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """What one replica is made of; plain data, it crosses into Ray."""

    engine: str
    rollout_config: dict[str, object]
    """Fields of verl's RolloutConfig."""
    model_config: dict[str, object]
    """Fields of verl's HFModelConfig."""
    gpus: int
    gpus_per_node: int
    served_model: str
    load_format: str
    environment: dict[str, str] = field(default_factory=dict)
    """Of the engine's processes."""

    @property
    def digest(self) -> str:
        """Replicas started from the same plan have the same digest: only those are taken over."""
        # The environment is left out: it holds nothing that changes what is served, and may hold a key.
        content = [self.engine, self.rollout_config, self.model_config, self.gpus, self.gpus_per_node]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def engine_plan(order: RunOrder, environment: dict[str, str], model_folder: str | None = None) -> EnginePlan:
    """Give the plan of every replica of a run.

    Args:
        order: the run's.
        environment: of the engine's processes.
        model_folder: where the model was fetched to; None: the engine reads `model.path` itself. Requests and results
            name the model by `model.path` in any case.

    Raises:
        BadInputError: dummy weights that nobody asked for, or a parallelism that verl does not have.
    """
    rollout, model, protocol = order.spec.rollout, order.spec.model, order.spec.protocol
    if rollout.load_format == "dummy" and not rollout.allow_dummy_weights:
        raise BadInputError(
            "spec.rollout.loadFormat: dummy loads no weights and every figure is worthless: write loadFormat: auto, "
            "or, for a load test, allowDummyWeights: true"
        )
    if rollout.pipeline_parallel > 1:
        raise BadInputError(
            f"spec.rollout.pipelineParallel: verl 0.9.1 has no pipeline parallelism with {rollout.engine}: write 1"
        )
    own = {"served_model_name": model.path}
    if model.revision is not None:
        own |= {"revision": model.revision, "tokenizer_revision": model.revision}
        if rollout.engine == "sglang":
            own.pop("tokenizer_revision")
    config: dict[str, object] = {
        "name": rollout.engine,
        "load_format": rollout.load_format,
        "tensor_model_parallel_size": rollout.tensor_parallel,
        "data_parallel_size": rollout.data_parallel,
        "dtype": rollout.dtype,
        "gpu_memory_utilization": rollout.gpu_memory_utilization,
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
        gpus=rollout.gpus,
        gpus_per_node=rollout.gpus_per_node,
        served_model=model.path,
        load_format=rollout.load_format,
        environment={"VLLM_NO_USAGE_STATS": "1", **environment},
    )


def slots(order: RunOrder) -> int:
    """Give the requests in flight at a replica: an eighth more than the engine works on at once, so that the place of
    an answer that ends is taken in the next step and not a round trip later."""
    most = order.spec.rollout.max_num_seqs
    return most + max(1, most // 8)


def idle_gpu_warnings(order: RunOrder, in_flight: int) -> list[str]:
    """Give what leaves a GPU idle: one line each, with the field and what to write instead.

    The figures are of one H200 with a 7B model, vLLM 0.24 and verl 0.9.1 (docs/rollout.md).

    Args:
        order: the run's.
        in_flight: requests that are sent to a replica at once.
    """
    rollout = order.spec.rollout
    found = []
    if rollout.enforce_eager:
        found.append(
            "rollout.enforceEager: true does without CUDA graphs, which gave 15,672 instead of 26,247 tokens/s: "
            "write false unless you debug the engine"
        )
    if rollout.max_num_seqs < SMALL_MAX_NUM_SEQS:
        found.append(
            f"rollout.maxNumSeqs: {rollout.max_num_seqs} leaves most of a GPU idle (64 gave 11,746 tokens/s, 256 gave "
            "26,247): write 256 unless the memory for keys and values is too small"
        )
    if in_flight < rollout.max_num_seqs:
        found.append(
            f"concurrency: {in_flight} requests in flight a replica are fewer than maxNumSeqs {rollout.max_num_seqs}: "
            "the GPU waits for requests; leave concurrency unset"
        )
    if not rollout.enable_prefix_caching:
        found.append(
            "rollout.enablePrefixCaching: false computes the same prompt anew for each of its samples: write true"
        )
    if rollout.load_format == "dummy":
        found.append("rollout.loadFormat: dummy: the weights are random, and every figure but the speed is worthless")
    return found
