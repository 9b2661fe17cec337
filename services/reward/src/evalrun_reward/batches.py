"""Parses the body of a request sample by sample, so that an invalid sample does not invalidate others. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from evalrun_reward.wire import BatchRequest, OpenRlhfRequest, Sample, Shape
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.unicode_text import replace_surrogates, replace_surrogates_within

_BATCHES = msgspec.json.Decoder(BatchRequest)
_REMOTE = msgspec.json.Decoder(OpenRlhfRequest)
_MAX_DIGITS = 4300
"""Maximum digits of an integer. Python parses no longer integer by default, because the time grows quadratically."""
_HUGE = object()
"""Replaces a longer integer. JSON cannot encode this object, so the sample is refused."""


@dataclass(frozen=True, slots=True)
class UnreadableSample:
    """A sample that does not match the API's schema."""

    id: str
    reason: str


GivenSample = Sample | UnreadableSample


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples of a request, as far as each can be read."""

    samples: Sequence[GivenSample]
    run: str
    shape: Shape


def read_batch(body: bytes) -> Batch:
    """Read a batch of samples.

    Lone surrogates become U+FFFD. In `ground_truth` they stay, like NaN: that field's own reader refuses them.

    Raises:
        msgspec.DecodeError: the body is no batch, or none of its samples can be read.
        BadInputError: the body is no JSON.
    """
    try:
        batch = _BATCHES.decode(body)
        return Batch(batch.samples, batch.run, batch.shape)
    except (msgspec.DecodeError, UnicodeDecodeError):
        given = _parse_json(body)
        if not isinstance(given, dict) or not isinstance(rows := given.get("samples"), list):
            raise
        rest = msgspec.convert(replace_surrogates_within({**given, "samples": []}), BatchRequest)
        samples = [_read_sample(row, number) for number, row in enumerate(rows)]
        if samples and not any(isinstance(sample, Sample) for sample in samples):
            raise
        return Batch(samples, rest.run, rest.shape)


def read_remote(body: bytes) -> OpenRlhfRequest:
    """Read OpenRLHF's request; lone surrogates become U+FFFD.

    Raises:
        msgspec.DecodeError: the body is no such request.
        BadInputError: the body is no JSON.
    """
    try:
        return _REMOTE.decode(body)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.convert(replace_surrogates_within(_parse_json(body)), OpenRlhfRequest)


def _parse_json(body: bytes) -> object:
    """Parse JSON as Python's own encoder writes it: with NaN, and with lone surrogates. Raises BadInputError.

    An integer of too many digits becomes `_HUGE`, so that only its sample is refused.
    """
    try:
        parsed: object = json.loads(body.decode("utf-8", "replace"), parse_int=_parse_int)
    except ValueError as error:
        raise BadInputError(str(error)) from error
    return parsed


def _parse_int(digits: str) -> object:
    return int(digits) if len(digits) <= _MAX_DIGITS else _HUGE


def _read_sample(row: object, number: int) -> GivenSample:
    if not isinstance(row, Mapping):
        return UnreadableSample("", f"samples sample {number}: expected an object, got {row!r:.100}")
    name = row.get("id")
    id_ = replace_surrogates(name) if isinstance(name, str) else ""
    try:
        json.dumps(row)
    except TypeError:
        return UnreadableSample(id_, f"samples sample {number}: it holds an integer of over {_MAX_DIGITS} digits")
    fields = {
        name: msgspec.Raw(json.dumps(value).encode()) if name == "ground_truth" else replace_surrogates_within(value)
        for name, value in row.items()
    }
    try:
        return msgspec.convert(fields, Sample)
    except msgspec.ValidationError as error:
        return UnreadableSample(id_, f"samples sample {number}: {error}")
