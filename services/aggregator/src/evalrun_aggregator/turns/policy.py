"""Decides whether a sample gets another turn, and builds its messages. Pure.

A turn opens once the completion before it was judged and failed, with the feedback on that completion, which is stored
with its verdict in a single transaction. After a restart the stored feedback opens the turn and is sent to the model,
so a kill between turns changes nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from evalrun_aggregator.ledger.entries import Exchange, StoredCompletion
from evalrun_aggregator.turns.feedback import DEFAULT_TEMPLATE, FeedbackOptions, feedback_text
from evalrun_api.run_config import Dataset, EvalRunSpec
from evalrun_data.records import Message, Problem
from evalrun_proto.judge.v1 import judge_pb2

DEFAULT_PROMPT_TOKENS: Final = 4096
"""Assumed prompt length of endpoints if the spec names none: the default of a rollout."""
FRAME_TOKENS: Final = 16
"""Tokens of a chat template around the completion and the feedback."""
THINK_START, THINK_END = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class TurnPolicy:
    """The turn rules of a dataset."""

    limit: int
    """Turns of a sample, the first completion included."""
    max_prompt_tokens: int
    """Longest prompt that the model takes."""
    feedback: FeedbackOptions = field(default_factory=FeedbackOptions)

    def next_feedback(
        self,
        turn: int,
        problem: Problem,
        completion: StoredCompletion,
        verdict: judge_pb2.Verdict,
        *,
        ours: bool = True,
    ) -> str:
        """Return the feedback that opens the next turn; empty if no turn follows.

        No turn opens after an accepted completion, after a completion that could not be judged (nobody knows whether it
        failed), after the last turn, and if the conversation would exceed the model's prompt.
        """
        if turn + 1 >= self.limit or not verdict.judged or verdict.accepted:
            return ""
        text = feedback_text(problem, verdict, self.feedback, ours=ours)
        return text if self.has_room(completion, text) else ""

    def has_room(self, completion: StoredCompletion, feedback: str) -> bool:
        """Return whether the conversation so far, this completion and the feedback fit into a prompt.

        A token is at least a byte, so the feedback's bytes bound its tokens. If a server counts no tokens, the length
        is unknown, and the turn opens.
        """
        if completion.prompt_tokens is None or completion.output_tokens is None:
            return True
        spoken = completion.prompt_tokens + completion.output_tokens
        return spoken + len(feedback.encode("utf-8", "replace")) + FRAME_TOKENS <= self.max_prompt_tokens


def make_turn_policy(spec: EvalRunSpec, dataset: Dataset) -> TurnPolicy | None:
    """Return the rules of a dataset; None if the protocol has a single turn."""
    turns = spec.protocol.turns
    if turns is None:
        return None
    prompt = DEFAULT_PROMPT_TOKENS if spec.rollout is None else spec.rollout.prompt_length
    options = FeedbackOptions(
        template=DEFAULT_TEMPLATE if turns.template is None else turns.template,
        shown_tests=turns.shown_tests,
        shown_characters=turns.shown_characters,
        only_wrong=dataset.feedback == "Wrong",
    )
    return TurnPolicy(turns.limit, turns.max_prompt_tokens or prompt, options)


def conversation(prompt: Sequence[Message], exchanges: Iterable[Exchange]) -> list[Message]:
    """Return the chat of a later turn: the prompt, then each earlier completion with its feedback.

    The thoughts before a completion are left out, as chat templates of reasoning models do.
    """
    messages = list(prompt)
    for each in exchanges:
        messages.append(Message("assistant", _strip_thoughts(each.answer)))
        messages.append(Message("user", each.feedback))
    return messages


def _strip_thoughts(answer: str) -> str:
    """Return the text after the thought. A mark inside code belongs to the program."""
    thought, mark, rest = answer.partition(THINK_END)
    is_thought = mark and (thought.lstrip().startswith(THINK_START) or "```" not in thought)
    return rest.lstrip("\n") if is_thought else answer
