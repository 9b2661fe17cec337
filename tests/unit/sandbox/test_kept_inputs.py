"""Inputs kept by digest."""

import pytest

from evalrun_executor.api import RunRequest, digest_inputs
from evalrun_executor.errors import RequestRefused
from evalrun_sandbox.kept_inputs import INPUT_BYTES, KeptInputs, UnknownInputs

SIZE = 2 * (10 + INPUT_BYTES)


def inputs(letter: str) -> list[bytes]:
    return [letter.encode() * 10] * 2


def whole(letter: str) -> RunRequest:
    return RunRequest("python", "", inputs(letter), inputs_digest=digest_inputs(inputs(letter)))


def named(letter: str) -> RunRequest:
    return RunRequest("python", "pass", [], stop_after_timeouts=3, inputs_digest=digest_inputs(inputs(letter)))


def test_inputs_received_once_are_found_by_their_digest() -> None:
    kept = KeptInputs(SIZE)
    with pytest.raises(UnknownInputs, match=digest_inputs(inputs("a")).hex()):
        kept.whole(named("a"))
    assert kept.whole(whole("a")) == whole("a")
    found = kept.whole(named("a"))
    assert (found.code, found.inputs, found.stop_after_timeouts) == ("pass", inputs("a"), 3)


def test_least_recently_used_inputs_are_evicted_first_and_equal_inputs_kept_once() -> None:
    kept = KeptInputs(3 * SIZE)
    for letter in "abc":
        kept.whole(whole(letter))
    kept.whole(whole("a"))
    kept.whole(named("b"))
    assert kept.size == 3 * SIZE
    kept.whole(whole("d"))
    assert kept.size == 3 * SIZE
    with pytest.raises(UnknownInputs):
        kept.whole(named("c"))
    for letter in "abd":
        assert kept.whole(named(letter)).inputs == inputs(letter)


@pytest.mark.parametrize("capacity", [0, SIZE - 1])
def test_inputs_above_the_capacity_are_run_and_not_kept(capacity: int) -> None:
    kept = KeptInputs(capacity)
    assert kept.whole(whole("a")).inputs == inputs("a")
    assert kept.size == 0
    with pytest.raises(UnknownInputs):
        kept.whole(named("a"))


def test_inputs_under_another_digest_are_refused() -> None:
    kept = KeptInputs(10 * SIZE)
    wrong = RunRequest("python", "", inputs("a"), inputs_digest=digest_inputs(inputs("b")))
    with pytest.raises(RequestRefused, match="inputs_digest"):
        kept.whole(wrong)
    with pytest.raises(UnknownInputs):
        kept.whole(named("b"))


def test_inputs_without_a_digest_are_not_kept() -> None:
    kept = KeptInputs(10 * SIZE)
    request = RunRequest("python", "", inputs("a"))
    assert kept.whole(request) is request
    assert kept.size == 0


def test_digest_depends_on_where_each_input_ends() -> None:
    assert len({digest_inputs(case) for case in ([b"12", b"3"], [b"1", b"23"], [b"123"], [b"123", b""], [])}) == 5
