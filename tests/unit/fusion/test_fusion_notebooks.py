"""What a request's cells become in the stock server's terms."""

import pytest

from evalrun_executor.contained.frames import NOT_STOPPED, STOPPED_OUTPUT, STOPPED_TIME
from evalrun_sandbox.fusion.notebooks import response
from evalrun_sandbox.fusion.schemas import RunJupyterRequest
from evalrun_sandbox.sessions.interpreter import CodeError, Outcome


def did(*, stopped: int = NOT_STOPPED, result: str = "", error: CodeError | None = None, lost: str = "") -> Outcome:
    return Outcome(stopped, 0.1, 0.2, b"out", b"err", 3, 3, result, error, 0, 1, 9, lost)


RAISED = CodeError("ValueError", "no", "Traceback\nValueError: no\n")


@pytest.mark.parametrize(
    ("outcomes", "cells", "status", "driver"),
    [
        ([did(), did()], 2, "Success", ("Finished", 0, "")),
        ([], 0, "Success", ("Finished", 0, "")),
        ([did(error=RAISED), did()], 2, "Success", ("Finished", 0, "")),
        ([did(stopped=STOPPED_OUTPUT), did()], 2, "Success", ("Finished", 0, "")),
        ([did(), did(stopped=STOPPED_TIME)], 2, "Failed", ("TimeLimitExceeded", None, "")),
        ([did()], 2, "Failed", ("TimeLimitExceeded", None, "")),
        ([did(lost="it ended")], 2, "Failed", ("Finished", 1, "it ended")),
        ([did(stopped=STOPPED_TIME, lost="it went on")], 2, "Failed", ("TimeLimitExceeded", None, "it went on")),
    ],
)
def test_an_answer_fails_only_for_time_or_an_end(
    outcomes: list[Outcome], cells: int, status: str, driver: tuple[str, int | None, str]
) -> None:
    found = response(RunJupyterRequest(cells=["x"] * cells), outcomes, 1.5, "pod-1")
    assert found.driver is not None
    assert (found.status, found.executor_pod_name, len(found.cells)) == (status, "pod-1", len(outcomes))
    assert (found.driver.status, found.driver.return_code, found.driver.stderr) == driver


def test_a_cell_shows_its_value_or_its_error() -> None:
    (shown,) = response(RunJupyterRequest(cells=["6 * 7"]), [did(result="42")], 1.0, None).cells
    assert (shown.stdout, shown.stderr, shown.display, shown.error) == ("out", "err", [{"text/plain": "42"}], [])
    (shown,) = response(RunJupyterRequest(cells=["x"]), [did(error=RAISED, stopped=STOPPED_OUTPUT)], 1.0, None).cells
    assert shown.error == [{"ename": "ValueError", "evalue": "no", "traceback": ["Traceback", "ValueError: no"]}]
    assert shown.stderr.endswith("more output than it keeps\n")
