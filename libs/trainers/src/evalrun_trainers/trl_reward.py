"""Reward functions for TRL: `GRPOTrainer(reward_funcs=[code_reward], ...)`.

The dataset's column `ground_truth` holds the tests, or names a problem of the service; verl's column `reward_model`
serves too. EVALRUN_REWARD_* variables are the options.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

from evalrun_trainers.client import InvalidSampleError, Result, Sample, choose_reward, client_for
from evalrun_trainers.options import Options, read_options
from evalrun_trainers.samples import make_sample


def code_reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:  # noqa: ANN401
    """Return a reward per completion, None where `on_not_judged` or `on_invalid` is nan: TRL excludes samples without a
    reward.

    Raises:
        NotJudgedError: a sample was not judged, and `on_not_judged` is "raise".
        InvalidSampleError: a row cannot be judged as it is written, and `on_invalid` is "raise".
        RefusedError: the service refuses the caller.
    """
    options = read_options({})
    samples = make_samples(prompts, completions, columns)
    return _rewards(client_for(options).results(samples), options, columns)


async def code_reward_async(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    **columns: Any,  # noqa: ANN401 - of the dataset
) -> list[float | None]:
    """Return the same while other reward functions run."""
    options = read_options({})
    client = client_for(options)
    futures = [asyncio.wrap_future(client.submit(sample)) for sample in make_samples(prompts, completions, columns)]
    return _rewards(await asyncio.gather(*futures), options, columns)


def make_samples(prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any]) -> list[Sample]:
    """Return the samples of a batch as TRL passes it. Raises InvalidSampleError if no column holds tests."""
    truths = columns.get("ground_truth")
    if truths is None:
        models = columns.get("reward_model")
        if models is None:
            raise InvalidSampleError("the dataset has no column ground_truth (nor verl's reward_model): add one")
        truths = [model.get("ground_truth") if isinstance(model, Mapping) else None for model in models]
    sources = columns.get("data_source") or [""] * len(completions)
    infos = columns.get("extra_info") or [None] * len(completions)
    samples = []
    for prompt, completion, truth, source, info in zip(prompts, completions, truths, sources, infos, strict=True):
        if (info is None or isinstance(info, Mapping)) and isinstance(prompt, str):
            info = {"problem_prompt": prompt, **(info or {})}
        samples.append(make_sample(source, extract_text(completion), truth, info))
    return samples


def extract_text(completion: Any) -> Any:  # noqa: ANN401 - a text or a chat
    """Return a completion's text: of a chat the last message's content. What is neither is returned as it is.

    The service then refuses only that sample. An empty text instead would get a reward of 0.
    """
    if not isinstance(completion, list | tuple):
        return completion
    if not completion:
        return ""
    last = completion[-1]
    if not isinstance(last, Mapping):
        return completion
    return "" if last.get("content") is None else last["content"]


def _rewards(results: Sequence[Result], options: Options, columns: Mapping[str, Any]) -> list[float | None]:
    rewards = [choose_reward(result, options) for result in results]
    log = columns.get("log_metric")
    if log is not None and results:
        unknown = sum(result.get("reward") is None for result in results)
        log("evalrun/not_judged", unknown / len(results))
    return [None if math.isnan(reward) else reward for reward in rewards]
