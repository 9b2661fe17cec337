"""A reward manager for verl's `reward.reward_manager` (0.9.1, source importlib).

verl calls `run_single` once a sample, many at a time; the client makes batches of them.
"""

import asyncio
from typing import Any

from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from evalrun_trainers.client import choose_reward, client_for
from evalrun_trainers.options import read_options
from evalrun_trainers.samples import make_log_entry, make_sample


class EvalrunRewardManager(RewardManagerBase):  # type: ignore[misc]  # verl has no types
    """Rewards from evalrun's judge. `reward.reward_kwargs` are its options, as are EVALRUN_REWARD_* variables."""

    def __init__(
        self,
        config: Any,  # noqa: ANN401 - OmegaConf's
        tokenizer: Any,  # noqa: ANN401 - the model's
        compute_score: Any = None,  # noqa: ANN401 - verl's own default, which is not used
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,  # noqa: ANN401 - of a reward model
    ) -> None:
        super().__init__(config, tokenizer, compute_score)
        del reward_router_address, reward_model_tokenizer
        self._options = read_options(dict(config.reward.get("reward_kwargs") or {}))

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Return the reward of the last sequence of a sample. Raises as `verl_reward.compute_score` does."""
        item = data[-1:][0]
        ids = item.batch["responses"]
        longest = ids.shape[-1]
        length = int(item.batch["attention_mask"][-longest:].sum())
        response = await asyncio.get_running_loop().run_in_executor(
            None, lambda: self.tokenizer.decode(ids[:length], skip_special_tokens=True)
        )
        row = item.non_tensor_batch
        extra = dict(row.get("extra_info") or {})
        if length == longest and int(ids[-1]) != getattr(self.tokenizer, "eos_token_id", None):
            extra["truncated"] = True
        sample = make_sample(row["data_source"], response, row["reward_model"]["ground_truth"], extra)
        result = await asyncio.wrap_future(client_for(self._options).submit(sample))
        score = choose_reward(result, self._options)
        return {"reward_score": score, "reward_extra_info": make_log_entry(result, score)}
