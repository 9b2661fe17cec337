"""Which recorded completion answers a prompt. Pure.

A prompt is known by its messages, word for word. Of the samples recorded for it, the request's seed chooses:
`(seed - base_seed) mod recorded`, as a run asks for sample s with seed = seed + s. Without a seed, or for a greedy run
with its one seed, that is the first one. Which model, temperature or limit was asked for makes no difference: a
recording is what it is, and is not cut at `max_tokens` either.
"""

from collections.abc import Sequence
from dataclasses import dataclass

PromptKey = tuple[tuple[str, str], ...] | str
"""Chat: (role, content) of each message. Completions: the prompt."""

BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """One recorded completion."""

    text: str
    finish_reason: str = "stop"
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    """As counted by the server that wrote it; None where the recording does not say."""


class PromptUnknownError(Exception):
    """Nothing is recorded for a prompt."""


class Recording:
    """Prompts and what was answered to them."""

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
            samples: in order; none where the problem is known and was never answered.

        Returns:
            The label of the problem that has this prompt already and keeps it; None where it is new.
        """
        for prompt in prompts:
            if prompt in self._labels:
                return self._labels[prompt]
        for prompt in prompts:
            self._labels[prompt] = label
            self._samples[prompt] = samples
        return None

    def find(self, prompt: PromptKey, seed: int | None, choice: int = 0) -> RecordedAnswer:
        """Give the answer to a prompt; `choice` counts on where a request asks for several.

        Raises:
            PromptUnknownError: the message says which problem has no answer, or shows the prompt's beginning.
        """
        label = self._labels.get(prompt)
        if label is None:
            raise PromptUnknownError(f"nothing is recorded for this prompt: {_beginning(prompt)!r}")
        samples = self._samples[prompt]
        if not samples:
            raise PromptUnknownError(f"no completion is recorded for problem {label}")
        first = 0 if seed is None else seed - self._base_seed
        return samples[(first + choice) % len(samples)]


class Echo:
    """Answers every prompt with the same number of words, for load."""

    def __init__(self, tokens: int) -> None:
        self._answer = RecordedAnswer("word " * tokens, output_tokens=tokens)

    def find(self, prompt: PromptKey, seed: int | None, choice: int = 0) -> RecordedAnswer:
        """Give the words; each counts as one token."""
        del prompt, seed, choice
        return self._answer


def approximate_tokens(text: str) -> int:
    """Count one token for each 4 bytes of UTF-8, rounded up: a stand-in, and marked as one wherever it is sent."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def text_of(prompt: PromptKey) -> str:
    """Give a prompt's text, all messages together."""
    return prompt if isinstance(prompt, str) else "\n".join(content for _, content in prompt)


def _beginning(prompt: PromptKey) -> str:
    text = " ".join(text_of(prompt).split())
    return text if len(text) <= 120 else text[:119] + "…"
