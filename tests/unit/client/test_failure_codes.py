"""The codes of the judge's failures."""

import grpc
import pytest

from evalrun_client.failure_codes import FailureCode as Code
from evalrun_client.failure_codes import to_failure_code
from evalrun_proto.judge.v1 import judge_pb2


def test_failure_codes_are_those_of_grpc() -> None:
    assert {code.name: code.value for code in Code} == {code.name: code.value[0] for code in grpc.StatusCode}


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (5, Code.NOT_FOUND),
        (16, Code.UNAUTHENTICATED),
        (17, Code.UNKNOWN),
        (-1, Code.UNKNOWN),
    ],
)
def test_code_of_number_returns_its_code(number: int, code: Code) -> None:
    assert to_failure_code(judge_pb2.StreamFailure(code=number)) is code
