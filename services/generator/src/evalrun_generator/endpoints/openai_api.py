"""Converts work items to OpenAI requests and replies to completions. Pure.

The completion is `message.content` (chat) or `text` (completions), unchanged. Servers with a reasoning parser send the
reasoning separately (`reasoning_content`, or `reasoning` with newer vLLM); it is dropped, just as extraction drops the
text up to a closing `</think>`. A completion that ran out of tokens during reasoning is therefore an empty text with
finish_reason "length", not a failure.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from evalrun_generator.endpoints.retry import error_message
from evalrun_proto.ledger.v1 import ledger_pb2 as ledger
from evalrun_registry.limits import MAX_LOG_PROBS
from evalrun_runtime.unicode_text import replace_surrogates

CHAT_PATH = "/v1/chat/completions"
COMPLETION_PATH = "/v1/completions"
MODELS_PATH = "/v1/models"
VERSION_PATH = "/version"
"""Path of the version in vLLM and servers like it: `{"version": "0.11.0"}`."""

PROPS_PATH = "/props"
"""Path of llama.cpp's server and servers like it, whose reply contains the chat template."""

UNFINISHED = frozenset({"abort", "error"})
"""vLLM's finish reasons of an aborted request (lost connection, engine error), which has no completion."""

MAX_COUNT = 2**32 - 1
MAX_LOG_PROB = 1e30
"""Largest absolute value of a log-probability; NaN and infinity are not below it. vLLM writes -9999 for infinity."""

MAX_VERSION_LENGTH = 200


class MalformedAnswerError(Exception):
    """A reply with status 200 that contains no completion. A retry may succeed."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request that can be sent to any endpoint and retried: the same bytes, hence the same seed."""

    path: str
    body: bytes


@dataclass(frozen=True, slots=True)
class CompletionAnswer:
    """A completion as the server returned it."""

    text: str
    finish_reason: str
    """As reported by the server; empty if it reported none."""
    prompt_tokens: int | None
    output_tokens: int | None
    model: str
    weights_version: str = ""
    """Version of the weights of the replica; empty if unknown."""
    log_probs: tuple[float, ...] = ()
    """Log-probability of each token, if requested and returned."""


def request_for(item: ledger.WorkItem, model: str) -> ModelRequest:
    """Return the request for a work item: one sample, not streamed. Raises ValueError if its format is unknown."""
    sampling = item.sampling
    body: dict[str, object] = {
        "model": model,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "n": 1,
        "stream": False,
    }
    for name in ("seed", "top_k", "min_p", "repetition_penalty"):
        if sampling.HasField(name):
            body[name] = getattr(sampling, name)
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.ignore_eos:
        body["ignore_eos"] = True
    if sampling.log_probs:
        # OpenAI's older API takes a number of alternatives here. The number is 1, because servers differ in whether 0
        # means none.
        body["logprobs"] = True if item.format == ledger.PROMPT_FORMAT_CHAT else 1
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


def read_answer(body: bytes, asked_model: str) -> CompletionAnswer:
    """Parse the body of a 200. Raises MalformedAnswerError if it contains no finished completion."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedAnswerError(f"not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise MalformedAnswerError("not a JSON object")
    # Some proxies return 200 with the upstream's error inside.
    if parsed.get("error"):
        raise MalformedAnswerError(error_message(body))
    choices = parsed.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise MalformedAnswerError("no choices")
    choice = choices[0]
    finish_reason = choice.get("finish_reason") or ""
    if finish_reason in UNFINISHED:
        raise MalformedAnswerError(f"the server aborted the request: finish_reason {finish_reason!r}")
    text = replace_surrogates(_read_text(choice))
    prompt_tokens, output_tokens = _usage(parsed.get("usage"), has_text=bool(text))
    model = parsed.get("model")
    return CompletionAnswer(
        text=text,
        finish_reason=replace_surrogates(str(finish_reason)),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        model=replace_surrogates(model) if isinstance(model, str) and model else asked_model,
        log_probs=_log_probs(choice.get("logprobs")),
    )


def model_ids(body: bytes) -> list[str]:
    """Parse the model ids from /v1/models. Raises MalformedAnswerError if the body is not such a list."""
    try:
        listed = json.loads(body)["data"]
        return [replace_surrogates(str(entry["id"])) for entry in listed]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedAnswerError("the answer is not a list of models") from error


def server_version(body: bytes) -> str:
    """Parse the version from /version; empty if the body holds none."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    version = parsed.get("version") if isinstance(parsed, dict) else None
    return replace_surrogates(version)[:MAX_VERSION_LENGTH] if isinstance(version, str) else ""


def chat_template(body: bytes) -> str:
    """Parse the chat template from /props; empty if the body holds none."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    template = parsed.get("chat_template") if isinstance(parsed, dict) else None
    return replace_surrogates(template) if isinstance(template, str) else ""


def _read_text(choice: Mapping[str, object]) -> str:
    message = choice.get("message")
    if isinstance(message, dict):
        content = message.get("content")
        # The reply has no text: reasoning only, or a tool call.
        if content is None:
            return ""
    elif "text" in choice:
        content = choice["text"]
    else:
        raise MalformedAnswerError("the choice has neither message nor text")
    if isinstance(content, str):
        return content
    # Some servers use the list-of-parts form in replies too.
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    raise MalformedAnswerError(f"the content is of type {type(content).__name__}")


def _log_probs(given: object) -> tuple[float, ...]:
    """Return the log-probabilities of a choice, chat's or completions'; empty unless every token has one."""
    if not isinstance(given, dict):
        return ()
    tokens, values = given.get("content"), given.get("token_logprobs")
    if isinstance(tokens, list):
        values = [token.get("logprob") if isinstance(token, dict) else None for token in tokens]
    if not isinstance(values, list) or len(values) > MAX_LOG_PROBS:
        return ()
    numbers = [
        float(value)
        for value in values
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_LOG_PROB
    ]
    return tuple(numbers) if len(numbers) == len(values) else ()


def _usage(usage: object, *, has_text: bool) -> tuple[int | None, int | None]:
    """Return (prompt, output) tokens; None for an absent or implausible count. Words are never counted instead."""
    if not isinstance(usage, dict):
        return None, None
    prompt, output = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    # Servers that do not count tokens send zeros.
    return prompt or None, None if output == 0 and has_text else output


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        return None
    return value
