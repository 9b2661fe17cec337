"""A reward for slime (0.3): `--custom-rm-path evalrun_trainers.slime_reward.judged_reward`.

A sample's `label` holds its tests, or names a problem of the service; `data_source` and `language` of its `metadata`
serve too. EVALRUN_REWARD_* variables are the options. With EVALRUN_REWARD_ON_NOT_JUDGED=nan add
`--dynamic-sampling-filter-path evalrun_trainers.slime_reward.keep_judged_group`.
"""

import asyncio
import math
from collections.abc import Iterator, Sequence
from typing import Any, overload

from slime.rollout.filter_hub.base_types import DynamicFilterOutput
from slime.utils.types import Sample as SlimeSample

from evalrun_trainers.client import Sample, choose_reward, client_for
from evalrun_trainers.options import read_options
from evalrun_trainers.samples import make_sample


@overload
async def judged_reward(args: object, sample: Sequence[Any], **others: object) -> list[float]: ...
@overload
async def judged_reward(args: object, sample: SlimeSample, **others: object) -> float: ...
async def judged_reward(args: object, sample: Any, **others: object) -> float | list[float]:
    """Return the reward of a sample, or the rewards of a list of samples, which slime passes with `--group-rm`.

    Raises:
        NotJudgedError: there is no verdict, and `on_not_judged` names no number.
        InvalidSampleError: a label holds no tests, and `on_invalid` names no number.
    """
    del args, others
    options = read_options({})
    client = client_for(options)
    samples = sample if isinstance(sample, list) else [sample]
    results = await asyncio.gather(*(asyncio.wrap_future(client.submit(_make_sample(each))) for each in samples))
    rewards = [choose_reward(result, options) for result in results]
    return rewards if isinstance(sample, list) else rewards[0]


def keep_judged_group(args: Any, samples: Sequence[Any], **others: object) -> DynamicFilterOutput:  # noqa: ANN401
    """Drop a group with a sample that has no verdict, so that slime generates another group in its place."""
    del others
    has_all = not any(math.isnan(sample.get_reward_value(args)) for sample in _iter_samples(samples))
    return DynamicFilterOutput(keep=has_all, reason=None if has_all else "not_judged")


def _iter_samples(samples: Sequence[Any]) -> Iterator[Any]:
    """Yield the samples of a group, in which a rollout of several turns is a list of its own."""
    for sample in samples:
        yield from sample if isinstance(sample, list) else [sample]


def _make_sample(sample: Any) -> Sample:  # noqa: ANN401 - slime's
    row = sample.metadata if isinstance(sample.metadata, dict) else {}
    extra = {**row, "truncated": sample.status == SlimeSample.Status.TRUNCATED}
    if isinstance(sample.prompt, str):
        extra.setdefault("problem_prompt", sample.prompt)
    return make_sample(row.get("data_source", ""), sample.response, sample.label, extra)
