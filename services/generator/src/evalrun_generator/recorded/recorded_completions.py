"""Finds the recorded completion for a prompt. Pure.

A prompt must match word for word. The request's seed selects among the samples recorded for it, `(seed - base_seed) mod
recorded`, because a run requests sample s with seed = seed + s. Without a seed, or in a greedy run with its single
seed, that is the first sample. An unknown prompt may continue a conversation: if the prompt without its last
completions and the user's replies to them is known, the sample's completion of that turn follows, whatever the replies
are. Model, temperature and `max_tokens` are ignored: a recorded completion is returned unchanged.
"""

from collections.abc import Sequence
from dataclasses import dataclass

PromptKey = tuple[tuple[str, str], ...] | str
"""Chat: (role, content) of each message. Completions: the prompt."""

BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """A recorded completion."""

    text: str
    finish_reason: str = "stop"
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    """Number counted by the server that generated it; None if not recorded."""
    later: tuple["RecordedAnswer", ...] = ()
    """The same sample's completions of later turns."""


class PromptUnknownError(Exception):
    """No completion is recorded for a prompt."""


class RecordedCompletions:
    """Recorded completions by prompt."""

    def __init__(self, base_seed: int = 0) -> None:
        self._base_seed = base_seed
        self._samples: dict[PromptKey, Sequence[RecordedAnswer]] = {}
        self._labels: dict[PromptKey, str] = {}

    def __len__(self) -> int:
        return len(self._labels)

    def add(self, label: str, prompts: Sequence[PromptKey], samples: Sequence[RecordedAnswer]) -> str | None:
        """Record the samples of a problem under each form of its prompt.

        Args:
            label: the problem, for messages.
            prompts: the forms in which it may be asked.
            samples: in order; empty if the problem is known but was never answered.

        Returns:
            The label of the problem that already has this prompt and keeps it, or None if the prompt is new.
        """
        for prompt in prompts:
            if prompt in self._labels:
                return self._labels[prompt]
        for prompt in prompts:
            self._labels[prompt] = label
            self._samples[prompt] = samples
        return None

    def find(self, prompt: PromptKey, seed: int | None, choice: int = 0) -> RecordedAnswer:
        """Return the completion for a prompt; `choice` numbers the completions if a request asks for several.

        Raises:
            PromptUnknownError: the message names the problem without completions, or shows the prompt's beginning.
        """
        asked = prompt
        prompt, turn = self._find_beginning(prompt)
        label = self._labels.get(prompt)
        if label is None:
            raise PromptUnknownError(f"nothing is recorded for this prompt: {_shorten_prompt(asked)!r}")
        samples = self._samples[prompt]
        if not samples:
            raise PromptUnknownError(f"no completion is recorded for problem {label}")
        first = 0 if seed is None else seed - self._base_seed
        answer = samples[(first + choice) % len(samples)]
        if turn > len(answer.later):
            raise PromptUnknownError(f"no completion is recorded for turn {turn} of problem {label}")
        return answer.later[turn - 1] if turn else answer

    def _find_beginning(self, prompt: PromptKey) -> tuple[PromptKey, int]:
        """Return the known prompt with which a conversation began, and the number of completions after it."""
        beginning, turn = prompt, 0
        while beginning not in self._labels and isinstance(beginning, tuple) and is_continued(beginning):
            beginning, turn = beginning[:-2], turn + 1
        return (beginning, turn) if beginning in self._labels else (prompt, 0)


class EchoCompletions:
    """Completes every prompt with the same number of words, for load tests."""

    def __init__(self, tokens: int) -> None:
        self._answer = RecordedAnswer("word " * tokens, output_tokens=tokens)

    def find(self, prompt: PromptKey, seed: int | None, choice: int = 0) -> RecordedAnswer:
        """Return the same words for every prompt. Each word counts as a token."""
        del prompt, seed, choice
        return self._answer


def is_continued(chat: tuple[tuple[str, str], ...]) -> bool:
    """Return whether a chat ends with a completion and a reply to it."""
    return len(chat) > 2 and (chat[-2][0], chat[-1][0]) == ("assistant", "user")


def approximate_tokens(text: str) -> int:
    """Estimate tokens as UTF-8 bytes / 4, rounded up. Replies that use the estimate are marked as approximate."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def join_messages(prompt: PromptKey) -> str:
    """Return a prompt's text, with all messages joined."""
    return prompt if isinstance(prompt, str) else "\n".join(content for _, content in prompt)


def _shorten_prompt(prompt: PromptKey) -> str:
    text = " ".join(join_messages(prompt).split())
    return text if len(text) <= 120 else text[:119] + "…"
