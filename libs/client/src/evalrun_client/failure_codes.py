"""Codes of the judge's failures, the same as google.rpc.Code and gRPC's status codes. Pure, without gRPC itself."""

from enum import IntEnum

from evalrun_proto.judge.v1 import judge_pb2


class FailureCode(IntEnum):
    """Number of `StreamFailure.code`; the names are those of `grpc.StatusCode`."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


def to_failure_code(failure: judge_pb2.StreamFailure) -> FailureCode:
    """Return the code of a failure; UNKNOWN for a number that is no code."""
    return FailureCode(failure.code) if 0 <= failure.code < len(FailureCode) else FailureCode.UNKNOWN
