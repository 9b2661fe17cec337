"""Ports of loopback for programs that must be told theirs."""

import random
import socket
from collections.abc import Iterator

PORTS = range(20_000, 28_000)
"""Below what Kubernetes gives to Services (30000 to 32767) and Linux to outgoing connections (32768 to 60999), above
what Ray gives to its workers (10002 to 19999; it does not start where another of its ports lies there): nobody takes
one of these while a program that was told it is stopped and started again."""
_RANDOM = random.SystemRandom()
"""Levels of tests run at the same time; the same seed would give them the same ports."""


def free_port() -> int:
    (port,) = free_ports(1)
    return port


def free_ports(count: int) -> list[int]:
    """Return so many ports that nobody listens on, each another one."""
    free = _free()
    return [next(free) for _ in range(count)]


def _free() -> Iterator[int]:
    for port in _RANDOM.sample(PORTS, len(PORTS)):
        try:
            with socket.create_server(("127.0.0.1", port)):
                pass
        except OSError:  # somebody listens there
            continue
        yield port
