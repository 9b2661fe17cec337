"""Several gateways before the same sandboxes, which own their slots: who runs what, and how often one is sent away."""

import asyncio

from builders.judge.gateway import Time, make_pool
from builders.virtual_time import run_virtually

from evalrun_executor.api import RunReply, RunRequest
from evalrun_judge.pool.pool import SandboxPool
from evalrun_judge.sandboxes import SandboxBusyError
from evalrun_judge.sandboxes.fake import FakeSandbox, echo

REQUEST = RunRequest(language="python", code="print(input())", inputs=[b"1"])
GATEWAYS, SANDBOXES, SLOTS, PROGRAMS, SECONDS = 3, 2, 6, 200, 1.0


class Owned(FakeSandbox):
    """Runs as many as it has slots, whoever asks, and sends the others away with its free count."""

    def __init__(self) -> None:
        super().__init__(self._work, slots=SLOTS)
        self.running = self.max_running = self.sent_away = 0

    async def _work(self, request: RunRequest) -> RunReply:
        if self.running >= SLOTS:
            self.sent_away += 1
            raise SandboxBusyError("every slot is taken", 0.02, 0)
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        try:
            await asyncio.sleep(SECONDS)
        finally:
            self.running -= 1
        return echo(request)


def test_slots_are_the_sandboxes_own_and_no_gateway_starves() -> None:
    async def scene() -> None:
        sandboxes = [Owned() for _ in range(SANDBOXES)]
        clock = asyncio.get_running_loop().time
        pools = [make_pool(sandboxes, Time(), clock=clock, sleep=asyncio.sleep) for _ in range(GATEWAYS)]
        for pool in pools:
            pool.start()

        async def judged(pool: SandboxPool) -> float:
            await asyncio.gather(*(pool.run(REQUEST) for _ in range(PROGRAMS)))
            return clock()

        ends = await asyncio.gather(*map(judged, pools))
        least = GATEWAYS * PROGRAMS * SECONDS / (SANDBOXES * SLOTS)
        assert max(ends) < 1.3 * least  # slots are used
        assert min(ends) > 0.6 * least  # nobody had them for itself
        assert [sandbox.max_running for sandbox in sandboxes] == [SLOTS] * SANDBOXES
        calls = sum(len(sandbox.requests) for sandbox in sandboxes)
        sent_away = sum(sandbox.sent_away for sandbox in sandboxes)
        assert calls == GATEWAYS * PROGRAMS + sent_away
        assert sent_away < 3 * GATEWAYS * PROGRAMS  # all end and ask in lockstep here: two in three come too late
        for pool in pools:
            await pool.close()

    run_virtually(scene())
