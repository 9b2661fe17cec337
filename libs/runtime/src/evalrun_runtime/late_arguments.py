"""Arguments that a process reads from stdin, once its imports are done.

Most of a start is imports. A process that needs another one's address can import while that one starts, and before the
command that launches it knows where its log will be.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FLAG: Final = "--arguments-on-stdin"


def line_of(arguments: Sequence[str], log: Path) -> bytes:
    """Return the line that a process started with `FLAG` waits for: its arguments, and the file for its stderr."""
    return json.dumps([str(log), *arguments]).encode() + b"\n"


def complete(arguments: Sequence[str]) -> list[str]:
    """Return the arguments, with those on stdin in place of `FLAG`, and send stderr to its log.

    Call it after the imports.

    Raises:
        SystemExit: stdin ended before they came: whoever started this process no longer needs it.
    """
    if FLAG not in arguments:
        return [*arguments]
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        raise SystemExit(0)
    log, *more = json.loads(line)
    with Path(log).open("ab") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    return [*(argument for argument in arguments if argument != FLAG), *more]
