"""What the judges say of themselves, and what a run that needs to know waits for."""

import asyncio
from pathlib import Path

import pytest
from builders.aggregator.process import MemoryJudge

from evalrun_aggregator.judging.judge_descriptions import JudgeDescriptions
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_client.judge_client import JudgeLostError, JudgeRefusedError
from evalrun_proto.judge.v1 import judge_pb2


class Failing(MemoryJudge):
    """Raises what it is given, one by one, before it describes itself."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__(submits=True)
        self.errors = list(errors)
        self.asked_what_it_is = asyncio.Event()

    async def describe(self, seconds: float) -> judge_pb2.DescribeResponse:
        if self.errors:
            self.asked_what_it_is.set()
            raise self.errors.pop(0)
        return await super().describe(seconds)


async def test_a_judge_that_refuses_ends_a_run_that_waits_for_its_description(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        judges = JudgeDescriptions([Failing(JudgeRefusedError("judge: UNAUTHENTICATED"))], ledger, submits=True)
        with pytest.raises(JudgeRefusedError, match="UNAUTHENTICATED"):
            await judges.run()


@pytest.mark.parametrize("submits", [True, False])
async def test_wait_for_a_judge_is_reported_while_it_lasts(tmp_path: Path, *, submits: bool) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        judge = Failing(JudgeLostError("judge: UNAVAILABLE: no sandbox has answered yet"))
        judges = JudgeDescriptions([judge], ledger, submits=submits)
        running = asyncio.create_task(judges.run())
        await judge.asked_what_it_is.wait()
        await asyncio.sleep(0)
        assert judges.trouble == ("judge: UNAVAILABLE: no sandbox has answered yet" if submits else None)
        await running
        assert (judges.trouble, judges.suitable.is_set()) == (None, True)
