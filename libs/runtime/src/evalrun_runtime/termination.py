"""Reports the end of a process twice: a line on stderr for people, and a record for the operator.

The record is JSON in the container's termination message, which Kubernetes shows in the pod's status:
`{"cause": "BadInput", "text": "datasets.0: no such file"}`. Programs decide by `cause` and the exit code. The text is
for people, and decides nothing.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evalrun_runtime.exits import BadInputError, EndCause, ExitCode

TERMINATION_LOG: Final = Path("/dev/termination-log")
"""The kubelet mounts this file into each container; anywhere else there is none."""
MAX_TEXT_BYTES: Final = 1900
"""Kubernetes cuts a termination message at 4,096 bytes, and JSON at most doubles the size of printable text."""


@dataclass(frozen=True, slots=True)
class TerminationMessage:
    """Record of a process's end."""

    cause: EndCause
    text: str
    """Text for people, on one line."""

    def to_json(self) -> str:
        """Return the record as JSON that fits into a termination message."""
        line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(self.text.split()))
        text = line.encode()[:MAX_TEXT_BYTES].decode(errors="ignore")
        return json.dumps({"cause": self.cause, "text": text}, ensure_ascii=False)


def parse_termination_message(message: str) -> TerminationMessage | None:
    """Return the record that a termination message holds.

    None for plain text: the process was killed, its image is older than the record, or the program is not ours. None
    also for a cause that this release does not know.
    """
    try:
        match json.loads(message):
            case {"cause": str(cause), "text": str(text)}:
                return TerminationMessage(EndCause(cause), text)
    except ValueError:
        pass
    return None


def end_with(
    error: Exception,
    code: ExitCode,
    *,
    cause: EndCause | None = None,
    text: str = "",
    program: str = "evalrun",
    log: Path = TERMINATION_LOG,
) -> ExitCode:
    """Report why this process ends, and return its exit code.

    Args:
        error: the reason.
        code: the exit code.
        cause: for the operator; None takes the cause of a BadInputError, and derives that of other errors from the exit
            code.
        text: the message; empty for the error's own message.
        program: begins the line on stderr.
        log: the container's termination message; not written where there is no such file.
    """
    text = text or str(error)
    sys.stderr.write(f"{program}: {text}\n")
    other = EndCause.BAD_INPUT if code is ExitCode.BAD_INPUT else EndCause.FAILED
    cause = cause or (error.cause if isinstance(error, BadInputError) else other)
    try:
        with log.open("r+", encoding="utf-8") as file:
            file.write(TerminationMessage(cause, text).to_json())
            file.truncate()
    except OSError:
        # There is no kubelet, and stderr already has the text.
        return code
    return code
