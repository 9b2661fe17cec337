"""/run_jupyter: each request's cells run in a live session of their own, which ends with the reply."""

import time
from collections.abc import Callable, Mapping

from evalrun_executor.contained.frames import STOPPED_OUTPUT, STOPPED_TIME
from evalrun_executor.errors import Busy, SandboxError
from evalrun_sandbox.fusion import demand
from evalrun_sandbox.fusion.answers import text
from evalrun_sandbox.fusion.files import TOO_LARGE, Files
from evalrun_sandbox.fusion.refusals import TryAgain
from evalrun_sandbox.fusion.schemas import (
    CellRunResult,
    CommandRunResult,
    CommandRunStatus,
    RunJupyterRequest,
    RunJupyterResponse,
    RunStatus,
)
from evalrun_sandbox.sessions.interpreter import Outcome
from evalrun_sandbox.sessions.sessions import Execution, Sessions, StateLost

OUTPUT_BYTES = 1 << 20
"""Maximum bytes of a cell's stdout and of its stderr, each; the cell is interrupted beyond it."""
_REMARK = "\ninterrupted by the sandbox: more output than it keeps\n"


class Notebooks:
    """Runs the cells of a request one after another."""

    def __init__(
        self, sessions: Sessions, pod_name: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sessions = sessions
        self._pod_name = pod_name
        self._clock = clock

    async def run(self, request: RunJupyterRequest, files: Files) -> tuple[RunJupyterResponse, Mapping[str, bytes]]:
        """Return the reply and the files that the request fetches.

        Raises:
            TryAgain: no session or no slot was free, or the sandbox lost the session.
        """
        started = self._clock()
        memory = request.memory_limit_MB if (request.memory_limit_MB or 0) > 0 else None
        try:
            session = await self._sessions.create(files.placed, memory)
            try:
                outcomes = await self._run_cells(session, request)
                lost = bool(outcomes) and bool(outcomes[-1].lost)
                wanted = files.wanted if not lost else []
                found = await self._sessions.fetch(session, wanted) if wanted else {}
            finally:
                self._sessions.end(session)
        except Busy as busy:
            raise TryAgain(f"no session is free: {busy}") from busy
        except (SandboxError, StateLost) as error:
            raise TryAgain(f"the sandbox lost the session: {error}") from error
        answer = response(request, outcomes, self._clock() - started, self._pod_name)
        if found is None:
            return answer.model_copy(update={"status": RunStatus.FAILED, "message": TOO_LARGE.strip()}), {}
        return answer, files.select_fetched(found)

    async def _run_cells(self, session: str, request: RunJupyterRequest) -> list[Outcome]:
        """Execute cells until the time is used up or a cell ends the session."""
        outcomes: list[Outcome] = []
        left = demand.seconds(request.total_timeout)
        for cell in request.cells:
            seconds = min(left, demand.seconds(request.cell_timeout) or left)
            if seconds <= 0:
                break
            _, outcome = await self._sessions.execute(session, Execution(cell, seconds, OUTPUT_BYTES))
            outcomes.append(outcome)
            left -= outcome.cpu_seconds
            if outcome.stopped == STOPPED_TIME or outcome.lost:
                break
        return outcomes


def response(
    request: RunJupyterRequest, outcomes: list[Outcome], seconds: float, pod_name: str | None
) -> RunJupyterResponse:
    """Return the reply without files. As in the stock server an exception in a cell is no failure."""
    lost = outcomes[-1].lost if outcomes else ""
    late = len(outcomes) < len(request.cells) or any(outcome.stopped == STOPPED_TIME for outcome in outcomes)
    late = late and not (lost and outcomes[-1].stopped != STOPPED_TIME)
    driver = CommandRunResult(
        status=CommandRunStatus.TIME_LIMIT_EXCEEDED if late else CommandRunStatus.FINISHED,
        execution_time=seconds,
        return_code=None if late else int(bool(lost)),
        stdout="",
        stderr=lost,
    )
    return RunJupyterResponse(
        status=RunStatus.FAILED if late or lost else RunStatus.SUCCESS,
        driver=driver,
        cells=[cell(outcome) for outcome in outcomes],
        executor_pod_name=pod_name,
    )


def cell(outcome: Outcome) -> CellRunResult:
    """Return the result of a cell."""
    error = outcome.error
    return CellRunResult(
        stdout=text(outcome.stdout),
        stderr=text(outcome.stderr) + (_REMARK if outcome.stopped == STOPPED_OUTPUT else ""),
        display=[{"text/plain": outcome.result}] if outcome.result else [],
        error=[]
        if error is None
        else [{"ename": error.name, "evalue": error.value, "traceback": error.traceback.splitlines()}],
    )


def make_refusal(message: str, pod_name: str | None) -> RunJupyterResponse:
    """Return the reply to a request that was not run."""
    return RunJupyterResponse(status=RunStatus.SANDBOX_ERROR, message=message, executor_pod_name=pod_name)
