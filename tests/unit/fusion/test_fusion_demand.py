import math

import pytest

from evalrun_executor.api import Limits
from evalrun_sandbox.fusion import demand
from evalrun_sandbox.fusion.schemas import RunCodeRequest


def wanted(**fields: object) -> RunCodeRequest:
    return RunCodeRequest.model_validate({"code": "", "language": "python", **fields})


def test_defaults_equal_those_of_the_stock_server() -> None:
    request = wanted()
    assert (request.compile_timeout, request.run_timeout, request.memory_limit_MB) == (10, 10, -1)
    assert (request.stdin, request.files, request.fetch_files) == (None, {}, [])


def test_numbers_may_be_texts_and_unknown_fields_are_ignored() -> None:
    request = wanted(run_timeout="2.5", memory_limit_MB="64", who="cares")
    assert demand.make_run_request(request).limits == Limits(2.5, 64, 64 * 1024)


def test_stdin_and_code_are_sent_unchanged() -> None:
    request = demand.make_run_request(wanted(code="print(input())", stdin="é\r\n", language="cpp"))
    assert (request.language, request.code, request.inputs) == ("cpp", "print(input())", ["é\r\n".encode()])


@pytest.mark.parametrize(
    ("asked", "given"), [(None, 1024), (-1, 1024), (0, 1024), (1, 16), (64, 64), (4096, 4096), (10**9, 1 << 20)]
)
def test_memory_is_the_requested_amount_within_bounds(asked: int | None, given: int) -> None:
    assert demand.memory_mib(asked) == given


@pytest.mark.parametrize(
    ("timeout", "given"), [(0.0, 0.0), (-1.0, 0.0), (math.nan, 0.0), (0.5, 0.5), (math.inf, 3600.0), (1e6, 3600.0)]
)
def test_time_is_the_requested_amount_within_bounds(timeout: float, given: float) -> None:
    assert demand.seconds(timeout) == given


@pytest.mark.parametrize("timeout", [1, 2, 5, 10, 30, 60])
def test_a_request_waits_as_long_as_an_answer_can_still_be_in_time_for_verl(timeout: float) -> None:
    patience = demand.patience_seconds(timeout, timeout)
    gives_up = 2 * timeout + 10
    assert patience >= 5
    assert patience + 1.2 * timeout < gives_up  # a program stopped at its CPU limit is still answered
    assert patience > gives_up - 1.2 * timeout - 4  # and no attempt is given away early


def test_patience_of_a_request_without_time_is_at_least_5_seconds() -> None:
    assert demand.patience_seconds(0, 3600) == 5
    assert demand.patience_seconds(math.nan, 1) == 7
