"""Test suites kept by digest."""

import pytest

from evalrun_client.judge_request import suite_digest
from evalrun_judge.submission import StdioTest, StdioTests
from evalrun_judge.suites import Suites, UnknownSuiteError


def suite(text: str, number: int = 10) -> StdioTests:
    return StdioTests([StdioTest(text, text) for _ in range(number)])


def test_least_recently_used_suite_is_evicted_first_and_equal_suites_kept_once() -> None:
    suites = Suites(60)
    a, b, c = (suite(text) for text in "abc")
    for one in (a, b, c):
        suites.keep(one)
    assert suites.keep(suite("a")) is a
    suites.keep(suite("d"))
    assert suites.size == 60
    assert suites.find(a.digest) is a
    with pytest.raises(UnknownSuiteError, match=b.digest.hex()):
        suites.find(b.digest)
    suites.keep(suite("huge"))
    assert suites.size <= 60


def test_suites_without_capacity_keep_no_suite() -> None:
    suites = Suites(0)
    one = suites.keep(suite("a"))
    with pytest.raises(UnknownSuiteError):
        suites.find(one.digest)


@pytest.mark.parametrize("cases", [[("", "")], [("1 2\n", "3\n"), ("\ud800é", "ß")], [("12", "3"), ("1", "23")]])
def test_sender_and_judge_agree_on_the_digest(cases: list[tuple[str, str]]) -> None:
    tests = StdioTests([StdioTest(data, wanted) for data, wanted in cases])
    assert suite_digest([data for data, _ in cases], [wanted for _, wanted in cases]) == tests.digest
