"""The OpenAI API on the wire: a work item to a request, an answer to a completion. Pure.

What counts as the answer: `message.content` (chat) or `text` (completions), as it came. A reasoning model behind a
server with a reasoning parser sends its thoughts apart (`reasoning_content`, or `reasoning` with newer vLLM); they are
not part of the answer and are dropped, as text up to a closing `</think>` is when the code is extracted. An answer that
ran out of tokens while still thinking is therefore an empty text with finish_reason "length", not a failure.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from evalrun.ledger.v1 import ledger_pb2 as ledger
from evalrun_generator.retry import error_message

CHAT_PATH = "/v1/chat/completions"
COMPLETION_PATH = "/v1/completions"
MODELS_PATH = "/v1/models"

UNFINISHED = frozenset({"abort", "error"})
"""vLLM's finish reasons for an answer that it gave up on (a lost connection, an engine error): not a completion."""

LARGEST_COUNT = 2**32 - 1


class MalformedAnswerError(Exception):
    """A 200 that holds no completion. Another attempt may succeed."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request, ready to be sent to any endpoint as often as it takes: the same bytes, hence the same seed."""

    path: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server made of it."""

    text: str
    finish_reason: str
    """As the server said; empty where it said nothing."""
    prompt_tokens: int | None
    output_tokens: int | None
    model: str


def request_for(item: ledger.WorkItem, model: str) -> ModelRequest:
    """Make the request of a work item: one sample, not streamed. Raises ValueError where its format is not known."""
    sampling = item.sampling
    body: dict[str, object] = {
        "model": model,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "n": 1,
        "stream": False,
    }
    if sampling.HasField("seed"):
        body["seed"] = sampling.seed
    if item.format == ledger.PROMPT_FORMAT_CHAT:
        path = CHAT_PATH
        body["messages"] = [{"role": message.role, "content": message.content} for message in item.messages]
    elif item.format == ledger.PROMPT_FORMAT_COMPLETION:
        path = COMPLETION_PATH
        if len(item.messages) != 1:
            raise ValueError(f"a completion prompt is one message, this item has {len(item.messages)}")
        body["prompt"] = item.messages[0].content
    else:
        raise ValueError(f"unknown prompt format {item.format}")
    return ModelRequest(path, json.dumps(body, ensure_ascii=False).encode())


def read_answer(body: bytes, asked_model: str) -> Answer:
    """Read the body of a 200. Raises MalformedAnswerError where it holds no finished completion."""
    try:
        parsed = json.loads(body)
    except ValueError as error:
        raise MalformedAnswerError(f"not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise MalformedAnswerError("not a JSON object")
    if parsed.get("error"):  # some proxies answer 200 and put the upstream's error inside
        raise MalformedAnswerError(error_message(body))
    choices = parsed.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise MalformedAnswerError("no choices")
    choice = choices[0]
    finish_reason = choice.get("finish_reason") or ""
    if finish_reason in UNFINISHED:
        raise MalformedAnswerError(f"the server gave it up: finish_reason {finish_reason!r}")
    text = encodable(_text_of(choice))
    prompt_tokens, output_tokens = _usage(parsed.get("usage"), has_text=bool(text))
    model = parsed.get("model")
    return Answer(
        text=text,
        finish_reason=str(finish_reason),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        model=model if isinstance(model, str) and model else asked_model,
    )


def model_ids(body: bytes) -> list[str]:
    """Read the ids that /v1/models lists. Raises MalformedAnswerError where it is no such list."""
    try:
        listed = json.loads(body)["data"]
        return [str(entry["id"]) for entry in listed]
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedAnswerError("the answer is not a list of models") from error


def encodable(text: str) -> str:
    """Replace lone surrogates, which JSON can spell and UTF-8, hence protobuf, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _text_of(choice: Mapping[str, object]) -> str:
    message = choice.get("message")
    if isinstance(message, dict):
        content = message.get("content")
        if content is None:  # an answer without text: thoughts only, or a tool call
            return ""
    elif "text" in choice:
        content = choice["text"]
    else:
        raise MalformedAnswerError("the choice has neither message nor text")
    if isinstance(content, str):
        return content
    if isinstance(content, list):  # the parts form, which some servers use in answers, too
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    raise MalformedAnswerError(f"the content is of type {type(content).__name__}")


def _usage(usage: object, *, has_text: bool) -> tuple[int | None, int | None]:
    """Give (prompt, output) tokens; None for what is absent or cannot be true. Counting words is no substitute."""
    if not isinstance(usage, dict):
        return None, None
    prompt, output = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    # Servers that do not count send zeros.
    return prompt or None, None if output == 0 and has_text else output


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_COUNT:
        return None
    return value
