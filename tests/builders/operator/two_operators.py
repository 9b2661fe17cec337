"""Several operators at once: one works, and that one can be killed."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from builders.cluster.controlplane import ControlPlane
from builders.operator.running_operator import LEASE, OperatorProcess
from builders.operator.simulated_aggregators import SIMULATED_OPERATOR
from builders.ports import free_ports


class Operators:
    """Operators on one control plane; their ledgers are simulated and outlive them.

    Args:
        plane: the control plane.
        account: a kubeconfig with the operator's rights.
        ledger_seconds: that generating takes in each ledger, and judging.
        flags: of each operator.
        count: how many. Several follow a Lease.
        interpreter: Python, with flags of its own.
    """

    def __init__(
        self,
        plane: ControlPlane,
        account: Path,
        ledger_seconds: float,
        flags: Sequence[str],
        *,
        count: int = 2,
        interpreter: Sequence[str] = (sys.executable,),
    ) -> None:
        ledgers = plane.directory / f"ledgers-{time.time_ns()}"
        ledgers.mkdir()
        ports = iter(free_ports(2 * count))
        lease = [f"--lease={LEASE}"] if count > 1 else []
        self.processes = [
            OperatorProcess(
                plane, account, "unused", plane.directory / f"operator-{number}.log", next(ports), next(ports),
                flags=[*flags, *lease], interpreter=interpreter,
                program=(*SIMULATED_OPERATOR, f"{ledger_seconds}@{ledgers}"),
            )
            for number in range(count)
        ]  # fmt: skip
        self.kills: list[float] = []
        """When the one that worked was killed; Unix seconds."""

    def start(self) -> None:
        """Start them, one after the other."""
        for one in self.processes:
            one.start()

    def pids(self) -> list[int]:
        return [one.process.pid for one in self.processes if one.process is not None]

    def leader(self) -> OperatorProcess | None:
        """Return the one that works; None while none does."""
        return next((one for one in self.processes if "evalrun_operator_leads 1.0" in one.metrics()), None)

    def kill_leader(self, last_look: Callable[[int], None] = lambda _: None) -> None:
        """Kill the one that works, if one does, as the kernel does (SIGKILL), and start it again.

        Args:
            last_look: called with its process id before.
        """
        leader = self.leader()
        if leader is None or leader.process is None:
            return
        last_look(leader.process.pid)
        leader.kill()
        self.kills.append(time.time())
        leader.start()

    def kill(self) -> None:
        for one in self.processes:
            one.kill()

    def stop(self) -> None:
        for one in self.processes:
            one.stop()
