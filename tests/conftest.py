"""Fixtures and rules of every test level."""

import logging
import os
import signal
from collections.abc import Iterator

import pytest

from evalrun_runtime.service_environment import SERVICE_ENVIRONMENT

# As the services are started: where gRPC runs threads, its fork handlers disturb children that start as another user
# (a probe of /usr/bin/python3 once ended with gRPC's complaint instead of its answer). Read when grpc is imported.
for _name, _value in SERVICE_ENVIRONMENT.items():
    os.environ.setdefault(_name, _value)

# A shell without job control lets what it starts with `&` ignore SIGINT, and children inherit that: a command under
# test then missed the Ctrl-C that came before it had set a handler.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Take away what a service's start in this process left: a handler on the captured stderr, which is closed by now.

    Each warning of a later test was then answered with a stack trace: one with thousands of them ran out of time.
    """
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    yield
    for handler in root.handlers[:]:
        if handler not in handlers:
            root.removeHandler(handler)
    root.setLevel(level)
