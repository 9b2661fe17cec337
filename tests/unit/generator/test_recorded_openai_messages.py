import json
from collections import Counter

import pytest

from evalrun_generator.recorded import openai_messages
from evalrun_generator.recorded.faults import Fault, Faults
from evalrun_generator.recorded.openai_messages import Reply, RequestError, read_request
from evalrun_generator.recorded.recorded_completions import RecordedAnswer

REPLY = Reply("chatcmpl-1", 1_700_000_000)


def request(*, chat: bool = True, **fields: object) -> bytes:
    content: dict[str, object] = {"messages": [{"role": "user", "content": "hi"}]} if chat else {"prompt": "hi"}
    return json.dumps({"model": "m", **content, **fields}).encode()


def test_read_request_gives_prompt_seed_choices_and_stream() -> None:
    asked = read_request(request(seed=3, n=2, stream=True, top_k=-1), chat=True, served_model="m")
    assert (asked.prompt, asked.seed, asked.choices, asked.stream) == ((("user", "hi"),), 3, 2, True)
    assert read_request(request(chat=False), chat=False, served_model="m").prompt == "hi"
    parts = [{"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}]
    assert read_request(request(messages=parts), chat=True, served_model="m").prompt == (("user", "hi"),)


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (b"{", 400, "invalid_json", None),
        (b"[]", 400, "invalid_json", None),
        (request(model="x"), 404, "model_not_found", "model"),
        (request(messages=[]), 400, "invalid_value", "messages"),
        (request(messages=[{"role": "user"}]), 400, "invalid_value", "messages[0].content"),
        (request(n=0.5), 400, "invalid_value", "n"),
        (request(n=1000), 400, "invalid_value", "n"),
        (request(seed="x"), 400, "invalid_value", "seed"),
    ],
)
def test_unusable_request_raises_status_code_and_parameter(
    body: bytes, status: int, code: str, param: str | None
) -> None:
    with pytest.raises(RequestError) as raised:
        read_request(body, chat=True, served_model="m")
    assert (raised.value.status, raised.value.code, raised.value.param) == (status, code, param)


def test_usage_is_the_recorded_one_and_approximations_are_marked() -> None:
    asked = read_request(request(), chat=True, served_model="m")
    recorded = [RecordedAnswer("four", prompt_tokens=11, output_tokens=5)]
    assert openai_messages.usage(asked, recorded) == {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
    approximated = openai_messages.usage(asked, [RecordedAnswer("eight ch")])
    assert approximated == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "approximate": True}


@pytest.mark.parametrize("chat", [True, False])
def test_streamed_pieces_make_up_the_whole(chat: bool) -> None:
    asked = read_request(
        request(chat=chat, stream=True, stream_options={"include_usage": True}), chat=chat, served_model="m"
    )
    text = "def f():\n    return 'ünïcode' # " + "x" * 50
    events = list(openai_messages.pieces(asked, [RecordedAnswer(text, "length")], REPLY))
    assert events[-1] == b"data: [DONE]\n\n"
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events[:-1]]
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    assert "".join(one["delta"].get("content", "") if chat else one["text"] for one in choices) == text
    assert [one["finish_reason"] for one in choices if one["finish_reason"]] == ["length"]
    assert chunks[-1]["usage"]["completion_tokens"] > 0
    assert chunks[-1]["choices"] == []


def test_faults_repeat_with_their_seed_and_keep_their_rate() -> None:
    kinds = [Fault.ERROR, Fault.DROP, Fault.BUSY]

    def drawn(seed: int) -> list[Fault | None]:
        faults = Faults(0.3, kinds, seed)
        return [faults.draw() for _ in range(2000)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    counted = Counter(drawn(1))
    assert 0.25 < 1 - counted[None] / 2000 < 0.35
    assert all(counted[kind] > 150 for kind in kinds)
    assert Faults(0.0, kinds, 1).draw() is None
