"""Ends a process that is told to end (SIGTERM or SIGINT) before it serves. Imports nothing that takes time.

As process 1 of a container a program without a handler does not even see SIGTERM: the kernel drops it, and the pod
stays for its whole grace period, which is ten minutes for a gateway. Imports alone take seconds on a busy node.
"""

import os
import signal
import types


def end_on_signal() -> None:
    """End with success at SIGTERM or SIGINT, until `process.run_service` sets handlers of its own."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)


def _end(number: int, frame: types.FrameType | None) -> None:
    """End at once: nothing is open yet, and a module being imported might swallow an exception."""
    del number, frame
    os._exit(0)
