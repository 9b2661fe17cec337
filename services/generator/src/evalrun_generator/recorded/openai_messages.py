"""The OpenAI API on the server's side: parses requests, formats answers and errors. Pure."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evalrun_generator.recorded.recorded_completions import PromptKey, RecordedAnswer, approximate_tokens, join_messages

PIECE_CHARACTERS = 16
"""Length of one streamed chunk: a few tokens, as servers send them under load."""

MAX_CHOICES = 128


class RequestError(Exception):
    """Raised for a request that gets an error; its attributes are those of an OpenAI error."""

    def __init__(self, status: int, message: str, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """The fields of a request that this server uses."""

    chat: bool
    model: str
    prompt: PromptKey
    seed: int | None
    choices: int
    stream: bool
    stream_usage: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """Identifies a reply. Every chunk of the reply carries it."""

    id: str
    created: int
    """Unix seconds."""


def read_request(body: bytes, *, chat: bool, served_model: str) -> RecordedRequest:
    """Parse a request. Raises RequestError."""
    try:
        fields = json.loads(body)
    except ValueError as error:
        raise RequestError(400, f"the body is not JSON: {error}", "invalid_json") from error
    if not isinstance(fields, dict):
        raise RequestError(400, "the body is not a JSON object", "invalid_json")
    model = fields.get("model")
    if model != served_model:
        raise RequestError(404, f"The model `{model}` does not exist.", "model_not_found", "model")
    seed, choices = fields.get("seed"), fields.get("n") or 1
    if seed is not None and not isinstance(seed, int):
        raise RequestError(400, "seed is not an integer", "invalid_value", "seed")
    if not isinstance(choices, int) or not 1 <= choices <= MAX_CHOICES:
        raise RequestError(400, f"n is not between 1 and {MAX_CHOICES}", "invalid_value", "n")
    options = fields.get("stream_options")
    return RecordedRequest(
        chat=chat,
        model=served_model,
        prompt=_messages(fields.get("messages")) if chat else _prompt(fields.get("prompt")),
        seed=seed,
        choices=choices,
        stream=bool(fields.get("stream")),
        stream_usage=isinstance(options, dict) and bool(options.get("include_usage")),
    )


def _messages(value: object) -> PromptKey:
    if not isinstance(value, list) or not value:
        raise RequestError(400, "messages is not a list of at least one message", "invalid_value", "messages")
    key = []
    for index, message in enumerate(value):
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        if not isinstance(content, str):
            raise RequestError(400, "the message has no text", "invalid_value", f"messages[{index}].content")
        key.append((str(message.get("role", "")), content))
    return tuple(key)


def _prompt(value: object) -> PromptKey:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        raise RequestError(400, "prompt is not one text (lists are not served)", "invalid_value", "prompt")
    return value


def usage(asked: RecordedRequest, answers: Sequence[RecordedAnswer]) -> dict[str, object]:
    """Return the recorded token counts; missing counts are estimated and marked with `"approximate": true`."""
    recorded_prompt = answers[0].prompt_tokens
    prompt = approximate_tokens(join_messages(asked.prompt)) if recorded_prompt is None else recorded_prompt
    outputs = [approximate_tokens(a.text) if a.output_tokens is None else a.output_tokens for a in answers]
    counts: dict[str, object] = {
        "prompt_tokens": prompt,
        "completion_tokens": sum(outputs),
        "total_tokens": prompt + sum(outputs),
    }
    if recorded_prompt is None or any(answer.output_tokens is None for answer in answers):
        counts["approximate"] = True
    return counts


def output_tokens(asked: RecordedRequest, answers: Sequence[RecordedAnswer]) -> int:
    """Return the output tokens of a reply, which determine its latency."""
    return int(str(usage(asked, answers)["completion_tokens"]))


def whole(asked: RecordedRequest, answers: Sequence[RecordedAnswer], reply: Reply) -> bytes:
    """Return the body of a non-streamed reply."""
    choices: list[dict[str, object]] = []
    for index, answer in enumerate(answers):
        content: dict[str, object] = (
            {"message": {"role": "assistant", "content": answer.text}} if asked.chat else {"text": answer.text}
        )
        choices.append({"index": index, **content, "logprobs": None, "finish_reason": answer.finish_reason})
    kind = "chat.completion" if asked.chat else "text_completion"
    return _dump({**_head(asked, reply, kind), "choices": choices, "usage": usage(asked, answers)})


def pieces(asked: RecordedRequest, answers: Sequence[RecordedAnswer], reply: Reply) -> Iterator[bytes]:
    """Return a reply as server-sent events, ending with `[DONE]`."""
    head = _head(asked, reply, "chat.completion.chunk" if asked.chat else "text_completion")
    for index, answer in enumerate(answers):
        if asked.chat:
            yield _event({**head, "choices": [_delta(index, {"role": "assistant", "content": ""})]})
        for start in range(0, len(answer.text), PIECE_CHARACTERS):
            part = answer.text[start : start + PIECE_CHARACTERS]
            yield _event({**head, "choices": [_delta(index, {"content": part}) if asked.chat else _text(index, part)]})
        last = _delta(index, {}) if asked.chat else _text(index, "")
        yield _event({**head, "choices": [{**last, "finish_reason": answer.finish_reason}]})
    if asked.stream_usage:
        yield _event({**head, "choices": [], "usage": usage(asked, answers)})
    yield b"data: [DONE]\n\n"


def models(model: str, created: int) -> bytes:
    """Return the body of the list of models."""
    entry = {"id": model, "object": "model", "created": created, "owned_by": "evalrun-recorded"}
    return _dump({"object": "list", "data": [entry]})


def error(message: str, kind: str, code: str | None = None, param: str | None = None) -> bytes:
    """Return the body of an error."""
    return _dump({"error": {"message": message, "type": kind, "param": param, "code": code}})


def _head(asked: RecordedRequest, reply: Reply, kind: str) -> dict[str, object]:
    return {"id": reply.id, "object": kind, "created": reply.created, "model": asked.model}


def _delta(index: int, delta: dict[str, object]) -> dict[str, object]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}


def _text(index: int, text: str) -> dict[str, object]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": None}


def _event(chunk: dict[str, object]) -> bytes:
    return b"data: " + _dump(chunk) + b"\n\n"


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
