"""Converts the messages of OpenRLHF's remote reward model: `{query, prompts, labels}`, `{rewards, scores, extra_logs}`.

Pure. The format is that of openrlhf 0.11.2 (openrlhf/utils/agent.py, SingleTurnAgentExecutor).
"""

import re
from collections.abc import Sequence

import msgspec

from evalrun_reward.wire import OpenRlhfRequest, OpenRlhfResponse, Outcome, Result, Sample
from evalrun_runtime.exits import BadInputError

_SPECIAL_AT_END = re.compile(r"(?:<\|[^<>|]{1,64}\|>|</s>|<eos>|<end_of_turn>|<\uff5c[^<>\uff5c]{1,64}\uff5c>)\Z")
"""Matches a special token at the end, such as <|im_end|>: a query is decoded with its special tokens."""
_MAX_TOKEN = 68


def read_samples(request: OpenRlhfRequest) -> list[Sample]:
    """Return the samples of a request. Raises BadInputError if its lists have different lengths."""
    counts = len(request.query), len(request.prompts), len(request.labels)
    if len(set(counts)) != 1:
        raise BadInputError(
            f"query, prompts and labels have {counts[0]}, {counts[1]} and {counts[2]} entries: not one each"
        )
    return [
        Sample(
            response=extract_answer(query, prompt),
            id=str(number),
            ground_truth=msgspec.Raw(msgspec.json.encode(label)),
        )
        for number, (query, prompt, label) in enumerate(
            zip(request.query, request.prompts, request.labels, strict=True)
        )
    ]


def extract_answer(query: str, prompt: str) -> str:
    """Return the part of a query after the prompt, without special tokens at the end.

    A tokenizer may add a token before the prompt, so the first occurrence counts: an answer may hold the prompt
    again. A prompt that was cut, or decoded to another text, is not found: then the whole query is the answer.
    """
    start = query.find(prompt) if prompt else -1
    answer = query if start < 0 else query[start + len(prompt) :]
    return strip_special_tokens(answer)


def strip_special_tokens(text: str) -> str:
    """Return a text without the special tokens at its end. Takes time linear in its length: a model writes anything."""
    end = len(text)
    while True:
        last = end
        while last and text[last - 1].isspace():
            last -= 1
        found = _SPECIAL_AT_END.search(text, max(0, last - _MAX_TOKEN), last)
        if found is None:
            return text[:end]
        end = found.start()


def make_response(results: Sequence[Result], not_judged_reward: float | None) -> OpenRlhfResponse | Result:
    """Return the reply, or the first result without a reward if no number is configured for such results.

    Args:
        results: one result per query.
        not_judged_reward: the number for a result without a reward; None: there is no such number. An invalid result
            never gets a number.
    """
    for result in results:
        if result.outcome is Outcome.INVALID or (result.reward is None and not_judged_reward is None):
            return result
    rewards = [result.reward if result.reward is not None else not_judged_reward or 0.0 for result in results]
    logs = {
        "judged": [float(result.outcome is Outcome.JUDGED) for result in results],
        "accepted": [float(bool(result.accepted)) for result in results],
        "assumed_timeouts": [float(result.assumed_timeouts) for result in results],
    }
    return OpenRlhfResponse(rewards, rewards, logs)
