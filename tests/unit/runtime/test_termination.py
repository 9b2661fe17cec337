"""The record that a process leaves of its end, in its container's termination message."""

import json
from pathlib import Path

import pytest

from evalrun_data.governance.run_audit import AuditFailedError
from evalrun_runtime.exits import BadInputError, EndCause, ExitCode
from evalrun_runtime.termination import TerminationMessage, end_with, parse_termination_message


@pytest.mark.parametrize(
    ("error", "code", "cause"),
    [
        (BadInputError("datasets.0: no such file"), ExitCode.BAD_INPUT, EndCause.BAD_INPUT),
        (AuditFailedError("AuditFailed: dataset 'x': leaks"), ExitCode.BAD_INPUT, EndCause.AUDIT_FAILED),
        (OSError("no port"), ExitCode.BAD_INPUT, EndCause.BAD_INPUT),
        (OSError("no disk"), ExitCode.FAILED, EndCause.FAILED),
    ],
)
def test_end_with_an_error_writes_its_line_and_its_record(
    error: Exception, code: ExitCode, cause: EndCause, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "termination-log"
    log.write_text("what another process of the container wrote before, which is longer than the record" * 9)
    assert end_with(error, code, log=log) is code
    assert capsys.readouterr().err == f"evalrun: {error}\n"
    assert parse_termination_message(log.read_text()) == TerminationMessage(cause, str(error))


def test_end_with_outside_of_a_container_writes_no_file(tmp_path: Path) -> None:
    end_with(OSError("no disk"), ExitCode.FAILED, log=tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["a" * 9000, '"' * 9000, "\\\\" * 9000, "\U0001f600" * 9000, "\x00\x1b" * 9000, "\udcff" * 9000]
)
def test_to_json_of_any_long_text_fits_into_a_termination_message(text: str) -> None:
    message = TerminationMessage(EndCause.AUDIT_FAILED, text).to_json()
    assert len(message.encode()) <= 4096
    known = parse_termination_message(message)
    assert known is not None
    assert known.cause is EndCause.AUDIT_FAILED


def test_to_json_puts_the_text_on_one_line() -> None:
    assert json.loads(TerminationMessage(EndCause.FAILED, "two\n  lines").to_json())["text"] == "two lines"


@pytest.mark.parametrize(
    "message",
    [
        "", "evalrun: AuditFailed: dataset 'x': leaks", "7", '["AuditFailed", "x"]', '{"cause": "AuditFailed"}',
        '{"cause": "OfANewerRelease", "text": "x"}', '{"cause": "AuditFailed", "text": "cut of',
    ],
)  # fmt: skip
def test_parse_termination_message_of_anything_else_returns_none(message: str) -> None:
    assert parse_termination_message(message) is None
