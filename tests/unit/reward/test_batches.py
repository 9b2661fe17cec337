"""The body of a request, read so that each sample stands alone."""

import json
from typing import Any

import msgspec
import pytest

from evalrun_reward.batches import UnreadableSample, read_batch, read_remote
from evalrun_reward.wire import Sample
from evalrun_runtime.exits import BadInputError

GOOD = {"response": "a", "id": "good", "ground_truth": {"inputs": [], "outputs": []}}

ODD: list[tuple[str, Any, str]] = [
    ("null", None, "samples sample 1: expected an object, got None"),
    ("a text", "x" * 1000, "samples sample 1: expected an object, got 'xxx"),
    ("no response", {"id": "odd"}, "samples sample 1: Object missing required field `response`"),
    ("a response of null", {"response": None, "id": "odd"}, "samples sample 1: Expected `str`, got `null`"),
    ("an unknown field", {"response": "a", "answer": 1}, "samples sample 1: Object contains unknown field `answer`"),
    ("an id that is a number", {"response": "a", "id": 1}, "samples sample 1: Expected `str`, got `int`"),
]


def body_of(*samples: object, **fields: object) -> bytes:
    return json.dumps({"samples": samples, **fields}).encode()


@pytest.mark.parametrize(("odd", "reason"), [row[1:] for row in ODD], ids=[row[0] for row in ODD])
def test_read_batch_with_an_odd_sample_reads_the_others(odd: object, reason: str) -> None:
    batch = read_batch(body_of(GOOD, odd, GOOD, run="r", shape="sparse"))
    assert (batch.run, batch.shape, len(batch.samples)) == ("r", "sparse", 3)
    for sample in (batch.samples[0], batch.samples[2]):
        assert isinstance(sample, Sample)
        assert (sample.response, sample.id) == ("a", "good")
        assert msgspec.json.decode(sample.ground_truth) == GOOD["ground_truth"]  # type: ignore[arg-type]
    assert isinstance(batch.samples[1], UnreadableSample)
    assert batch.samples[1].reason.startswith(reason)


def test_read_batch_with_lone_surrogates_replaces_them() -> None:
    odd = {"response": "\ud800", "id": "\udfff", "extra_info": {"\ud800": ["\ud83d\ude00"]}}
    first, second = read_batch(body_of(odd, GOOD)).samples
    assert isinstance(first, Sample)
    assert (first.response, first.id, first.extra_info) == ("\ufffd", "\ufffd", {"\ufffd": ["\U0001f600"]})
    assert isinstance(second, Sample)


@pytest.mark.parametrize("truth", [float("nan"), {"inputs": ["\ud800"], "outputs": ["1"]}])
def test_read_batch_with_an_unreadable_ground_truth_keeps_the_sample(truth: object) -> None:
    odd, good = read_batch(body_of({"response": "a", "ground_truth": truth}, GOOD)).samples
    assert isinstance(odd, Sample)
    assert isinstance(good, Sample)
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(odd.ground_truth)  # type: ignore[arg-type]


@pytest.mark.parametrize("odd", [{"response": 77777}, {"response": "a", "extra_info": {"a": [77777]}}])
def test_read_batch_with_a_huge_integer_reads_the_others(odd: dict[str, object]) -> None:
    body = body_of(GOOD, {**odd, "id": "odd"}).replace(b"77777", b"9" * 5000)
    good, bad = read_batch(body).samples
    assert isinstance(good, Sample)
    assert bad == UnreadableSample("odd", "samples sample 1: it holds an integer of over 4300 digits")


def test_read_batch_with_bytes_that_are_no_utf8_replaces_them() -> None:
    body = body_of({"response": "ab"}, GOOD).replace(b"ab", b"\xed\xa0\x80")
    sample = read_batch(body).samples[0]
    assert isinstance(sample, Sample)
    assert set(sample.response) == {"\ufffd"}


@pytest.mark.parametrize("body", [b'{"samples": [{"answer": 1}]}', b'{"samples": 1}', b"[]", b'{"samples": [NaN]}'])
def test_read_batch_without_a_readable_sample_refuses_the_request(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_batch(body)


@pytest.mark.parametrize("body", [b"{", b"", b'{"samples": [' + b"9" * 5000 + b"]} {"])
def test_read_batch_without_json_refuses_the_request(body: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, BadInputError)):
        read_batch(body)


def test_read_batch_with_a_bad_shape_refuses_the_request() -> None:
    with pytest.raises(msgspec.ValidationError, match="shape"):
        read_batch(body_of(GOOD, None, shape="triangular"))


def test_read_remote_with_lone_surrogates_replaces_them() -> None:
    request = read_remote(json.dumps({"query": ["\ud800"], "prompts": [""], "labels": [1]}).encode())
    assert request.query == ["\ufffd"]
