import json

import pytest
from builders.generator.work import completion_body, work_item

from evalrun_generator.endpoints.openai_api import MalformedAnswerError, model_ids, read_answer, request_for
from evalrun_proto.ledger.v1 import ledger_pb2 as ledger
from evalrun_registry.limits import MAX_LOG_PROBS

NESTED = b"[" * 100_000 + b"]" * 100_000
"""JSON that Python's reader gives up with a RecursionError."""


def test_chat_request_has_messages_sampling_and_seed() -> None:
    request = request_for(work_item(prompt="héllo", seed=7, max_tokens=2048, temperature=0.5), "org/model")
    assert request.path == "/v1/chat/completions"
    assert json.loads(request.body) == {
        "model": "org/model",
        "messages": [{"role": "user", "content": "héllo"}],
        "temperature": 0.5,
        "top_p": 1.0,
        "max_tokens": 2048,
        "n": 1,
        "stream": False,
        "seed": 7,
    }


def test_completion_request_without_a_seed_has_a_prompt_only() -> None:
    request = request_for(work_item(prompt="def f():", chat=False), "m")
    assert request.path == "/v1/completions"
    body = json.loads(request.body)
    assert body["prompt"] == "def f():"
    assert "messages" not in body
    assert "seed" not in body


def test_sampling_options_of_the_engines_are_sent_only_if_set() -> None:
    item = work_item()
    sampling = {"top_k": 20, "min_p": 0.05, "repetition_penalty": 1.05, "stop": ["```\n"], "ignore_eos": True}
    more = ledger.Sampling(top_k=20, min_p=0.05, repetition_penalty=1.05, stop=["```\n"], ignore_eos=True)
    item.sampling.MergeFrom(more)
    body = json.loads(request_for(item, "m").body)
    assert {name: body[name] for name in sampling} == sampling
    assert not sampling.keys() & json.loads(request_for(work_item(), "m").body).keys()  # any server takes it


def test_seed_zero_is_a_seed() -> None:
    assert json.loads(request_for(work_item(seed=0), "m").body)["seed"] == 0


@pytest.mark.parametrize(("is_chat", "asked"), [(True, True), (False, 1)])
def test_request_for_log_probs_uses_the_form_of_its_endpoint(is_chat: bool, asked: object) -> None:
    item = work_item(chat=is_chat)
    assert "logprobs" not in json.loads(request_for(item, "m").body)
    item.sampling.log_probs = True
    assert json.loads(request_for(item, "m").body)["logprobs"] == asked


LOG_PROBS = [{"token": "a", "logprob": -0.25, "bytes": [97], "top_logprobs": []}, {"token": "b", "logprob": -9999.0}]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"content": LOG_PROBS}, (-0.25, -9999.0)),
        ({"content": []}, ()),
        ({"content": [*LOG_PROBS, {"token": "c"}]}, ()),
        ({"content": [*LOG_PROBS, "c"]}, ()),
        ({"token_logprobs": [-1, -0.5], "tokens": ["a", "b"]}, (-1.0, -0.5)),
        ({"token_logprobs": [None, -0.5]}, ()),
        ({"token_logprobs": [float("nan"), -0.5]}, ()),
        ({"token_logprobs": [-0.5] * (MAX_LOG_PROBS + 1)}, ()),
        ({}, ()),
        ([-0.5], ()),
        (None, ()),
    ],
)
def test_log_probs_are_kept_if_every_token_has_one(given: object, kept: tuple[float, ...]) -> None:
    choice = {"message": {"content": "ab"}, "finish_reason": "stop", "logprobs": given}
    assert read_answer(completion_body(choices=[choice]), "m").log_probs == kept


def test_item_without_a_matching_request_form_raises_value_error() -> None:
    no_format = work_item()
    no_format.format = ledger.PROMPT_FORMAT_UNSPECIFIED
    with pytest.raises(ValueError, match="unknown prompt format"):
        request_for(no_format, "m")
    two_messages = work_item(chat=False)
    two_messages.messages.append(two_messages.messages[0])
    with pytest.raises(ValueError, match="one message, this item has 2"):
        request_for(two_messages, "m")


def test_read_answer_gives_text_finish_reason_and_token_counts() -> None:
    answer = read_answer(completion_body("code", model="served"), "asked")
    assert (answer.text, answer.finish_reason, answer.prompt_tokens, answer.output_tokens, answer.model) == (
        "code", "stop", 7, 3, "served",
    )  # fmt: skip


def chat(message: object, finish_reason: str | None = "stop") -> list[object]:
    return [{"index": 0, "message": message, "finish_reason": finish_reason}]


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ([{"text": "def f", "finish_reason": "stop"}], "def f"),
        (chat({"content": ""}), ""),
        (chat({"content": "  as it was\r\n "}), "  as it was\r\n "),
        (chat({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}), "ab"),
        (chat({"content": "answer", "reasoning_content": "thoughts"}), "answer"),
        (chat({"content": None, "reasoning_content": "thoughts"}, "length"), ""),
        (chat({"content": "half \ud83d"}), "half \ufffd"),
    ],
)
def test_read_answer_finds_the_text_of_each_form(choices: list[object], text: str) -> None:
    assert read_answer(completion_body(choices=choices), "m").text == text


@pytest.mark.parametrize(("said", "kept"), [("length", "length"), ("content_filter", "content_filter"), (None, "")])
def test_read_answer_keeps_the_finish_reason(said: str | None, kept: str) -> None:
    assert read_answer(completion_body(choices=chat({"content": "x"}, said)), "m").finish_reason == kept


@pytest.mark.parametrize(
    ("usage", "prompt", "output"),
    [
        (None, None, None),
        ({}, None, None),
        ({"prompt_tokens": 5, "completion_tokens": 9}, 5, 9),
        ({"prompt_tokens": 0, "completion_tokens": 0}, None, None),
        ({"prompt_tokens": "5", "completion_tokens": -1}, None, None),
        ({"prompt_tokens": True, "completion_tokens": 2**40}, None, None),
        ("many", None, None),
    ],
)
def test_token_counts_come_from_usage_else_are_none(usage: object, prompt: int | None, output: int | None) -> None:
    answer = read_answer(completion_body("some words here", usage=usage), "m")
    assert (answer.prompt_tokens, answer.output_tokens) == (prompt, output)


def test_an_empty_answer_of_no_tokens() -> None:
    assert read_answer(completion_body("", usage={"prompt_tokens": 4, "completion_tokens": 0}), "m").output_tokens == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [null]}',
        b'{"choices": [{"finish_reason": "stop"}]}',
        b'{"choices": [{"message": {"content": 5}}]}',
        b'{"error": {"message": "upstream is gone"}}',
        b'{"choices": ' + NESTED + b"}",
        completion_body(choices=chat({"content": "half"}, "abort")),
    ],
)
def test_malformed_answer_raises(body: bytes) -> None:
    with pytest.raises(MalformedAnswerError):
        read_answer(body, "m")


def test_model_ids_lists_the_served_models_and_refuses_other_bodies() -> None:
    assert model_ids(b'{"object":"list","data":[{"id":"a"},{"id":"b"}]}') == ["a", "b"]
    for body in (b"", b"{}", b"[]", b'{"data":[{}]}', b'{"data":null}', NESTED):
        with pytest.raises(MalformedAnswerError):
            model_ids(body)
