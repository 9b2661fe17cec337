"""Measures the phases of a run with its own replicas. Pure: the time is an argument."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from evalrun_cli.local.pace import duration
from evalrun_proto.ledger.v1 import ledger_pb2

PARTS: Final = ("weights_seconds", "compile_seconds", "graphs_seconds")
"""Parts of an engine's start whose times it reports."""


@dataclass
class PartTimes:
    """Measures loading, generating and judging from a run's statuses."""

    _loading_at: float | None = None
    _serving_at: float | None = None
    _generated_at: float | None = None
    _engine: dict[str, float] = field(default_factory=dict)
    _said: set[tuple[str, float, bool]] = field(default_factory=set)

    def read(self, status: ledger_pb2.GetStatusResponse, now: float) -> Iterator[str]:
        """Process a status. Yield news about replicas, one line each.

        Args:
            status: the newest status.
            now: seconds since the command began.
        """
        launched = [replica for replica in status.replicas if replica.gpus]
        if launched and self._loading_at is None:
            self._loading_at = now
        for replica in launched:
            if not replica.released_at:
                yield from self._news(replica)
            if replica.up and self._serving_at is None:
                self._serving_at = now
            for name in PARTS:
                if name in replica.engine:
                    self._engine[name] = max(self._engine.get(name, 0.0), float(replica.engine[name]))
        if (
            self._generated_at is None
            and status.datasets
            and all(one.generated >= one.total for one in status.datasets)
        ):
            self._generated_at = now

    def _news(self, replica: ledger_pb2.Replica) -> Iterator[str]:
        key = (replica.name, replica.started_at, replica.up)
        if key in self._said:
            return
        self._said.add(key)
        gpus = f"{replica.gpus} GPU{'s' * (replica.gpus != 1)}"
        yield f"{replica.name} serves" if replica.up else f"{replica.name} is loading the model on {gpus}"

    def line(self, host: Mapping[str, float], ended_at: float) -> str:
        """Return a line with the time of each phase and the total.

        Args:
            host: times that the process which starts Ray reported, in seconds by name.
            ended_at: seconds since the command began.
        """
        parts = [
            f"{name} {duration(host[key])}" for name, key in (("download", "download_seconds"), ("Ray", "ray_seconds"))
            if key in host
        ]  # fmt: skip
        if self._loading_at is not None and self._serving_at is not None:
            inside = [
                f"{name.removesuffix('_seconds')} {duration(self._engine[name])}"
                for name in PARTS
                if name in self._engine
            ]
            load = f"load {duration(self._serving_at - self._loading_at)}"
            parts.append(load + (f" (of it {', '.join(inside)})" if inside else ""))
        if self._serving_at is not None and self._generated_at is not None:
            parts.append(f"generate {duration(self._generated_at - self._serving_at)}")
        if self._generated_at is not None:
            parts.append(f"judge after the last answer {duration(ended_at - self._generated_at)}")
        return f"times: {', '.join([*parts, f'in all {duration(ended_at)}'])}"
