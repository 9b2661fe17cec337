"""Arguments that a process reads from stdin, once its imports are done.

Most of a start is imports. A process that needs another one's address can import while that one starts.
"""

import json
import sys
from collections.abc import Sequence
from typing import Final

FLAG: Final = "--arguments-on-stdin"


def line_of(arguments: Sequence[str]) -> bytes:
    """Return the line that a process started with `FLAG` waits for."""
    return json.dumps([*arguments]).encode() + b"\n"


def complete(arguments: Sequence[str]) -> list[str]:
    """Return the arguments, with those on stdin in place of `FLAG`. Call it after the imports.

    Raises:
        SystemExit: stdin ended before they came: whoever started this process no longer needs it.
    """
    if FLAG not in arguments:
        return [*arguments]
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        raise SystemExit(0)
    return [*(argument for argument in arguments if argument != FLAG), *json.loads(line)]
