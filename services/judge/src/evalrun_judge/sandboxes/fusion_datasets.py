"""A SandboxFusion server's own datasets: lists them, and has completions judged by them."""

import logging
from dataclasses import replace

import msgspec

from evalrun_executor.api import Level
from evalrun_executor.slots import Slots
from evalrun_judge.sandboxes import (
    RunRefusedError,
    SandboxFailedError,
    SandboxTimeoutError,
    SubmitCall,
    SubmitReply,
    fusion_submit,
)
from evalrun_judge.sandboxes.fusion_http import FusionServer

logger = logging.getLogger(__name__)

LIST_SECONDS = 30.0
SUBMIT_SECONDS = 600.0
"""Seconds after which a call counts as hung, plus twice the limit of a test. Only the server knows the number of
tests: the longest problem of the stock samples has 331, which it runs three at a time."""
CONFIRM_WAIT_SECONDS = 60.0
"""Seconds that a program which ran out of time, or nearly, waits for a moment without other calls of ours."""


class FusionDatasets:
    """The datasets of a server."""

    def __init__(self, server: FusionServer) -> None:
        self._server = server
        self._names: frozenset[str] = frozenset()

    async def submit(self, call: SubmitCall, turns: Slots | None, level: Level) -> SubmitReply:
        """Judge a completion; see `DatasetServer.submit`.

        By default the server stops at the first failed case. If it runs all cases, a program that never ends takes the
        time of every case. All cases are therefore requested only after a case has failed by something else than a
        timeout, or if the call asks for the tests after a timeout.

        Args:
            call: the call.
            turns: turns of a stock server. Its timeouts measure wall time, so they are repeated without other calls of
                ours. None: timeouts stand.
            level: containment level of the server's programs.
        """
        await self._check_listed(call.dataset)
        reply = await self._call(call, turns, level)
        if turns is not None and _has_timeout(reply):
            reply = await self._confirm_timeouts(reply, call, turns, level)
        if reply.complete or (_has_timeout(reply) and not call.after_timeouts):
            return reply
        try:
            whole = await self._call(call, turns, level, all_cases=True)
        except SandboxTimeoutError as error:
            logger.info("%s: how many cases pass is not known: %s", self._server.address, error)
            return reply
        # A completion that failed once is not accepted, whatever another run does.
        return reply if whole.accepted else whole

    async def _check_listed(self, dataset: str) -> None:
        """Refuse a dataset that the server does not list. Raises RunRefusedError, SandboxError."""
        if dataset in self._names:
            return
        status, answer = await self._server.call("GET", "/list_datasets", LIST_SECONDS)
        if status == 404:
            raise RunRefusedError(
                f"{self._server.address} serves no datasets (status 404 at /list_datasets); an evalrun-sandbox does "
                "with --fusion-datasets DIR"
            )
        self._server.check(status, answer)
        try:
            self._names = frozenset(msgspec.json.decode(answer, type=list[str]))
        except (msgspec.DecodeError, RecursionError) as error:
            raise SandboxFailedError(f"{self._server.address}: no answer of /list_datasets: {error}") from error
        if dataset not in self._names:
            known = ", ".join(sorted(self._names)[:20]) or "none"
            raise RunRefusedError(f"dataset {dataset!r} is none of the server's /list_datasets: {known}")

    async def _call(
        self, call: SubmitCall, turns: Slots | None, level: Level, *, all_cases: bool = False
    ) -> SubmitReply:
        if turns is None:
            return await self._submit(call, level, all_cases=all_cases)
        turn = await turns.take(1)
        try:
            return await self._submit(call, level, all_cases=all_cases)
        finally:
            turns.give_back(turn)

    async def _confirm_timeouts(self, first: SubmitReply, call: SubmitCall, turns: Slots, level: Level) -> SubmitReply:
        """Judge timeouts again while no other call of ours is on the server. The second result decides."""
        async with turns.take_all(CONFIRM_WAIT_SECONDS) as free:
            if not free:
                address = self._server.address
                logger.warning("%s: no moment without another call in %.0f s", address, CONFIRM_WAIT_SECONDS)
                return first
            reply = await self._submit(call, level, all_cases=False)
        confirmed = tuple(
            replace(test, run=msgspec.structs.replace(test.run, confirmed=True)) if test.run is not None else test
            for test in reply.tests
        )
        return replace(reply, tests=confirmed)

    async def _submit(self, call: SubmitCall, level: Level, *, all_cases: bool) -> SubmitReply:
        max_seconds = SUBMIT_SECONDS + 2 * call.time_seconds
        body = fusion_submit.body(call, all_cases=all_cases)
        status, answer = await self._server.call("POST", "/submit", max_seconds, body)
        if status != 200:
            refused = fusion_submit.refusal(status, answer, call)
            if refused is not None:
                raise refused
            self._server.check(status, answer)
        try:
            return fusion_submit.read(answer, call, all_cases=all_cases, level=level)
        except SandboxFailedError as error:
            raise SandboxFailedError(f"{self._server.address}: {error}") from error


def _has_timeout(reply: SubmitReply) -> bool:
    return any(not test.passed and test.run is not None and test.run.end == "timeout" for test in reply.tests)
