"""Arguments that a process reads from stdin, once its imports are done.

Most of a start is imports. A process can import before the command that launches it knows where its log will be. Values
that become known later, such as another process's address, can follow as another line.
"""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FLAG: Final = "--arguments-on-stdin"
ON_STDIN: Final = "stdin:"
"""An address that follows on stdin."""


def render_line(arguments: Sequence[str], log: Path) -> bytes:
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
    # The file is unbuffered, since more lines may follow.
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        line = stdin.readline()
    if not line.endswith(b"\n"):
        raise SystemExit(0)
    log, *more = json.loads(line)
    with Path(log).open("ab") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    return [*(argument for argument in arguments if argument != FLAG), *more]


async def next_line() -> str:
    """Return the next line of stdin, a pipe, without its end; an empty text if stdin ends before the line does."""
    reader = asyncio.StreamReader()
    stdin = os.fdopen(os.dup(0), "rb", 0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), stdin
    )
    try:
        line = await reader.readline()
    finally:
        transport.close()
    return line[:-1].decode() if line.endswith(b"\n") else ""
