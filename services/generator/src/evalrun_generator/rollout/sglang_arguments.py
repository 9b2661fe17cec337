"""Translates a run configuration into the arguments of SGLang's server that verl 0.9.1 does not pass on. Pure."""

import json
from collections.abc import Mapping
from typing import Final

from evalrun_generator.rollout.order import RolloutOrder
from evalrun_runtime.exits import BadInputError

KEY_VARIABLE: Final = "EVALRUN_SGLANG_KEY"
"""Environment variable with the server's key: an argument would be written to SGLang's log."""
TUNING_VARIABLE: Final = "EVALRUN_SGLANG_ARGUMENTS"
"""Names more arguments of SGLang's server, as a JSON object."""
TUNING_ARGUMENTS: Final = frozenset({
    "attention_backend", "cuda_graph_backend_prefill", "cuda_graph_max_bs_decode", "decode_attention_backend",
    "disable_overlap_schedule", "disable_prefill_cuda_graph", "log_level", "max_prefill_tokens",
    "num_continuous_decode_steps", "page_size", "prefill_attention_backend", "sampling_backend",
    "schedule_conservativeness", "watchdog_timeout",
})  # fmt: skip
"""Arguments that change only how fast a server replies. Arguments that change the completions are fields of
spec.rollout."""


def sglang_arguments(order: RolloutOrder, environment: Mapping[str, str]) -> dict[str, object]:
    """Return the arguments of SGLang's server beyond those of verl.

    Args:
        order: the run's run configuration.
        environment: environment of the engine's processes.

    Raises:
        BadInputError: data parallelism, or arguments in the environment that cannot be used.
    """
    rollout, protocol = order.rollout, order.spec.protocol
    if rollout.data_parallel > 1:
        raise BadInputError(
            f"spec.rollout.dataParallel: {rollout.data_parallel} is not available with sglang: write 1 and "
            f"replicas: {rollout.data_parallel}"
        )
    return {
        "context_length": rollout.prompt_length + protocol.max_new_tokens,
        "chunked_prefill_size": rollout.max_num_batched_tokens if rollout.enable_chunked_prefill else -1,
        "disable_radix_cache": not rollout.enable_prefix_caching,
        "enable_deterministic_inference": protocol.deterministic,
        # verl makes the server load the library that gives memory back between two steps of a training.
        "enable_memory_saver": False,
        "enable_metrics": True,
        "log_level": "info",
        "random_seed": protocol.seed,
        # verl's trainer sends token ids; a run's prompts are text.
        "skip_tokenizer_init": False,
        **_read_tuning(environment.get(TUNING_VARIABLE, "{}")),
    }


def _read_tuning(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadInputError(
            f"{TUNING_VARIABLE}: {text!r} is no JSON object: write one such as "
            '{"attention_backend": "triton", "sampling_backend": "pytorch"}'
        )
    if unknown := sorted(found.keys() - TUNING_ARGUMENTS):
        raise BadInputError(
            f"{TUNING_VARIABLE}: {', '.join(unknown)}: write only {', '.join(sorted(TUNING_ARGUMENTS))}; "
            "what changes the answers is a field of spec.rollout"
        )
    return found
