"""A time limit means the same on a quiet machine, beside other work, and under a quota of CPU.

A short form of `benchmarks/time_limits.py`: programs for a tenth of their limit, half of it, and twelve times too slow.
"""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from builders.judge.disturbances import NoQuotaError, load_of, throttled
from builders.judge.services import judge_until_judged, services

from evalrun_proto.judge.v1 import judge_pb2

pytestmark = pytest.mark.timeout(300)

LIMIT_SECONDS = 1.0
WORK = """
import sys
units = int(sys.stdin.readline())
items = [(n * 7919) % 10007 for n in range(10007)]
for _ in range(units):
    table = {}
    for item in items:
        table[item] = table.get(item ^ 5, 0)
print("done")
"""


def request(units: int, limit: float) -> judge_pb2.JudgeRequest:
    asked = judge_pb2.JudgeRequest(
        submission=judge_pb2.Submission(text=WORK, mode=judge_pb2.SUBMISSION_MODE_STANDALONE, language="python"),
        limits=judge_pb2.Limits(time_seconds=limit),
    )
    asked.stdio.tests.add(input=f"{units}\n".encode(), expected_output=b"done\n")
    return asked


@pytest.mark.parametrize("disturbance", ["load", "quota"])
async def test_verdicts_under_load_or_quota_equal_those_of_a_quiet_machine(tmp_path: Path, disturbance: str) -> None:
    async with services(tmp_path) as (judge, (sandbox,)):
        (measured,) = (await judge_until_judged(judge.address, {"": request(200, 60.0)})).values()
        assert measured.accepted
        units = max(1, int(200 * LIMIT_SECONDS / measured.tests[0].cpu_time))
        requests = {
            "a tenth": request(units // 10, LIMIT_SECONDS),
            "half": request(units // 2, LIMIT_SECONDS),
            "far too slow": request(12 * units, LIMIT_SECONDS),
        }
        assert sandbox.pid is not None
        disturbed: AbstractContextManager[None] = load_of(6) if disturbance == "load" else throttled(sandbox.pid, 0.5)
        try:
            with disturbed:
                verdicts = await judge_until_judged(judge.address, requests)
        except NoQuotaError as error:
            pytest.skip(str(error))
    assert {name: (verdict.judged, verdict.accepted) for name, verdict in verdicts.items()} == {
        "a tenth": (True, True), "half": (True, True), "far too slow": (True, False),
    }  # fmt: skip
    (test,) = verdicts["far too slow"].tests
    assert test.status == judge_pb2.TEST_STATUS_TIMEOUT
