"""Requests the judges' descriptions while the judges run: at a run's end they may be scaled to zero."""

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import cast

from google.protobuf.json_format import MessageToDict

from evalrun_aggregator.ledger.errors import LedgerFullError
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_client.judge_client import JudgeAddress, JudgeError, JudgeRefusedError
from evalrun_proto.judge.v1 import judge_pb2

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
RETRY_SECONDS = 2.0
REFRESH_SECONDS = 2.0
"""Seconds for which a run's end waits for a judge that may be gone."""


class JudgeDescriptions:
    """Stores each judge's own description in the ledger.

    Args:
        judges: the judges.
        ledger: stores the descriptions.
        known: the ledger's fact `judges` from an earlier start; empty if there is none.
        submits: the run needs judges whose sandboxes have the tests (judgeMode: Submit).
    """

    def __init__(
        self, judges: Sequence[JudgeAddress], ledger: Ledger, known: str = "", *, submits: bool = False
    ) -> None:
        self._judges = judges
        self._ledger = ledger
        self.descriptions: dict[str, dict[str, object]] = json.loads(known) if known else {}
        """`DescribeResponse` as JSON, by address."""
        self._submits = submits
        self._trouble: str | None = None
        self.suitable = asyncio.Event()
        """Set once a judge has reported that it can judge this run, or if any judge can."""
        if not submits:
            self.suitable.set()

    @property
    def trouble(self) -> str | None:
        """Reason why no judge has confirmed yet that it can judge this run; None without such a reason."""
        return None if self.suitable.is_set() else self._trouble

    @property
    def containment_levels(self) -> list[str]:
        """Every level that a judge reported."""
        return sorted({str(said.get("containment_level", "")) for said in self.descriptions.values()} - {""})

    @property
    def languages(self) -> list[list[str]]:
        """Languages that each judge reported."""
        return [list(map(str, cast(list[object], said.get("languages", [])))) for said in self.descriptions.values()]

    async def run(self) -> None:
        """Ask each judge until it replies.

        Raises:
            LedgerBrokenError: the disk failed.
            JudgeRefusedError: a judge cannot judge this run, or refuses this caller before anything is sent to it.
        """
        await asyncio.gather(*(self._ask(judge) for judge in self._judges))

    async def refresh(self) -> None:
        """Ask each judge once more at a run's end, when the slowness of its machines is known."""
        asked = (self._fetch_description(judge, REFRESH_SECONDS) for judge in self._judges)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for judge, answer in zip(self._judges, answers, strict=True):
            # The judge was scaled away. Its earlier description stays.
            if isinstance(answer, JudgeError):
                logger.debug("%s says no more: %s", judge.address, answer)
            elif isinstance(answer, BaseException):
                raise answer

    async def _fetch_description(
        self, judge: JudgeAddress, seconds: float = ANSWER_SECONDS
    ) -> judge_pb2.DescribeResponse:
        said = await judge.describe(seconds)
        self.descriptions[judge.address] = MessageToDict(said, preserving_proto_field_name=True)
        return said

    async def _ask(self, judge: JudgeAddress) -> None:
        while True:
            try:
                said = await self._fetch_description(judge)
                await self._ledger.set_facts(judges=json.dumps(self.descriptions))
            except (JudgeError, LedgerFullError) as error:
                if self._submits and isinstance(error, JudgeRefusedError):
                    raise
                self._trouble = str(error)
                logger.debug("no description yet: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                break
        if self._submits and not said.submits:
            raise JudgeRefusedError(
                f"judge {judge.address}: its backend {said.backend or 'of unknown kind'} has no datasets of its own, "
                "which judgeMode: Submit needs: judge through SandboxFusion (judge.sandbox.backend: SandboxFusion; on "
                "one machine --sandbox-fusion URL), or write judgeMode: RunCode"
            )
        self.suitable.set()
