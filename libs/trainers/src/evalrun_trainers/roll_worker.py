"""A reward worker for ROLL (0.3). In the configuration of its RLVR pipeline:

    rewards:
      code: {worker_cls: evalrun_trainers.roll_worker.EvalrunRewardWorker, world_size: 1, ...}

A row's `ground_truth` holds its tests, or names a problem of the service; `data_source`, `language` and `truncated`
serve too. EVALRUN_REWARD_* variables of the worker
(`system_envs` of the same entry) are the options.
"""

from collections.abc import Mapping
from typing import Any

from roll.distributed.executor.worker import Worker
from roll.distributed.scheduler.decorator import Dispatch, register
from roll.distributed.scheduler.protocol import DataProto
from roll.models.model_providers import default_tokenizer_provider

from evalrun_trainers.client import Sample, choose_reward, client_for
from evalrun_trainers.options import read_options
from evalrun_trainers.samples import FROM_EXTRA_INFO, make_sample


class EvalrunRewardWorker(Worker):  # type: ignore[misc] # absent where types are checked
    """Asks for the rewards of its share of a batch together."""

    def __init__(self, worker_config: Any) -> None:  # noqa: ANN401 - ROLL's RewardConfig
        super().__init__(worker_config=worker_config)
        self.tokenizer = default_tokenizer_provider(model_args=worker_config.model_args)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    def initialize(self, pipeline_config: object) -> None:
        """Do nothing: ROLL calls it on every worker."""

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False)  # type: ignore[untyped-decorator]
    def compute_rewards(self, data: DataProto) -> DataProto:
        """Return the rewards of a batch, in the layout of ROLL's own workers.

        Raises:
            NotJudgedError: there is no verdict for a sample, and `on_not_judged` names no number.
            InvalidSampleError: a row holds no tests, and `on_invalid` names no number.
        """
        options, rows = read_options({}), data.non_tensor_batch
        responses = self.tokenizer.batch_decode(data.batch["responses"], skip_special_tokens=True)
        prompts = self.tokenizer.batch_decode(data.batch["prompts"], skip_special_tokens=True)
        samples = [
            _make_sample({name: column[number] for name, column in rows.items()}, response, prompt)
            for number, (response, prompt) in enumerate(zip(responses, prompts, strict=True))
        ]
        rewards = [choose_reward(result, options) for result in client_for(options).results(samples)]
        # ROLL puts the batches of all its reward workers together: theirs are float16.
        of_tokens = data.batch["responses"].new_zeros(data.batch["responses"].shape).half()
        scores = of_tokens.new_tensor(rewards)
        return DataProto.from_dict(
            tensors={
                "token_level_rewards": of_tokens,
                "response_level_rewards": scores,
                "scores": scores.clone(),
            }
        )


def _make_sample(row: Mapping[str, Any], response: str, prompt: str) -> Sample:
    extra = {"problem_prompt": prompt, **{name: row[name] for name in FROM_EXTRA_INFO if name in row}}
    return make_sample(row.get("data_source", ""), response, row["ground_truth"], extra)
