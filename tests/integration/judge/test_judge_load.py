"""Load changes no verdict, fills no queue beyond its bound, and makes no right program late.

Scaled down; `benchmarks/judge_load.py` is the full size.
"""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

from pathlib import Path

import pytest
from builders.judge.load import busy_request, finals, load, watched
from builders.judge.services import judge_all, services
from builders.ports import free_port

from evalrun_cli.local.processes import ServiceProcess
from evalrun_proto.judge.v1 import judge_pb2

pytestmark = pytest.mark.timeout(180)

QUEUE = 40


async def test_requests_beyond_the_queue_get_the_same_verdicts_and_the_queue_is_bounded(tmp_path: Path) -> None:
    requests, right = load(16)
    port = free_port()
    flags = ["--metrics-port", str(port), "--queue-limit", str(QUEUE)]
    async with services(tmp_path, judge_arguments=flags, sandbox_arguments=["--slots", "2"]) as (judge, _):
        async with watched(port) as watch:
            for in_flight in (16, len(requests)):  # the second is more than the queue takes: some are told to come back
                assert finals(await judge_all(judge.address, requests, in_flight=in_flight)) == right
        assert watch.samples > 0
        assert 0 < watch.max_inside <= QUEUE + 2 + 2  # the slots, and two gauges read one after the other


async def test_right_programs_beyond_the_number_of_cores_get_no_timeout(tmp_path: Path) -> None:
    """More programs of 0.3 CPU seconds than cores: each waits many times its limit on the wall."""
    requests = {str(number): busy_request(0.3, limit_seconds=1.0) for number in range(12)}
    async with services(tmp_path) as (judge, _):
        verdicts = await judge_all(judge.address, requests, in_flight=12)
    late = [name for name, verdict in verdicts.items() if verdict.final_status != judge_pb2.FINAL_STATUS_SUCCESS]
    assert late == []


async def test_sandbox_is_found_by_dns_name_and_a_repeated_program_is_cached(tmp_path: Path) -> None:
    """The real resolver, and the cache as it is by default."""
    requests, right = load(2)  # every program twice
    async with services(tmp_path) as (_, (sandbox,)):
        port = sandbox.address.rpartition(":")[2]
        flags = ["--sandbox", f"dns:///localhost:{port}"]
        judge = ServiceProcess("judge", "evalrun_judge", flags, tmp_path / "named.log")
        await judge.start()
        try:
            # What is judged before any sandbox has said what it is cannot be kept.
            await judge_all(judge.address, {"first": busy_request(0.01, limit_seconds=1.0)})
            verdicts = await judge_all(judge.address, requests, in_flight=1)
        finally:
            await judge.stop(5)
    assert finals(verdicts) == right
    assert sum(verdict.cached for verdict in verdicts.values()) == len(requests) / 2
