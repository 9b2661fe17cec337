"""Reward functions for verl's `reward.custom_reward_function` (0.9.1): path pkg://evalrun_trainers.verl_reward.

`reward_kwargs` of the configuration are the options; so are EVALRUN_REWARD_* variables.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from evalrun_trainers.client import choose_reward, client_for
from evalrun_trainers.options import read_options
from evalrun_trainers.samples import make_log_entry, make_sample

_VERLS_OWN = ("reward_router_address", "reward_model_tokenizer")
"""Arguments that verl adds where a reward model is enabled."""


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,  # noqa: ANN401 - whatever the row holds
    extra_info: Mapping[str, Any] | None = None,
    **options: Any,  # noqa: ANN401 - reward_kwargs
) -> dict[str, Any]:
    """Return the reward of an answer as `score`, with the values to log.

    Raises:
        NotJudgedError: the sample was not judged, and `on_not_judged` is "raise".
        InvalidSampleError: the row holds no tests.
        RefusedError: the service refuses the caller.
    """
    asked = read_options({name: value for name, value in options.items() if name not in _VERLS_OWN})
    client = client_for(asked)
    result = client.submit(make_sample(data_source, solution_str, ground_truth, extra_info)).result()
    return make_log_entry(result, choose_reward(result, asked))


async def compute_score_async(
    data_source: str,
    solution_str: str,
    ground_truth: Any,  # noqa: ANN401 - whatever the row holds
    extra_info: Mapping[str, Any] | None = None,
    **options: Any,  # noqa: ANN401 - reward_kwargs
) -> dict[str, Any]:
    """Return the same without a thread a sample: verl awaits it."""
    asked = read_options({name: value for name, value in options.items() if name not in _VERLS_OWN})
    client = client_for(asked)
    future = client.submit(make_sample(data_source, solution_str, ground_truth, extra_info))
    result = await asyncio.wrap_future(future)
    return make_log_entry(result, choose_reward(result, asked))


def compute_score_only(
    data_source: str,
    solution_str: str,
    ground_truth: Any,  # noqa: ANN401 - whatever the row holds
    extra_info: Mapping[str, Any] | None = None,
    **options: Any,  # noqa: ANN401 - reward_kwargs
) -> float:
    """Return the bare reward, which verl's main_eval averages. Raises like `compute_score`."""
    score: float = compute_score(data_source, solution_str, ground_truth, extra_info, **options)["score"]
    return score
