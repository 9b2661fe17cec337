"""Starts the reward service for the examples of rewards. In a training it is a service of its own (docs/rewards.md)."""

import subprocess
from contextlib import contextmanager


@contextmanager
def start_reward_service(*options):
    """Start `evalrun serve reward` on a free port, and stop it at the end; the value is its address."""
    command = ["evalrun", "serve", "reward", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            address = next(line.split()[-1] for line in service.stdout if " ready on " in line)
            yield address if "://" in address else f"http://{address}"
        finally:
            service.terminate()
