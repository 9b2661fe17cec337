"""The run configuration of a run that launches replicas."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from evalrun_api.run_config import EvalRunSpec, Rollout, RunConfig, read_run_config
from evalrun_runtime.exits import BadInputError


@dataclass(frozen=True)
class RolloutOrder:
    """The run configuration of a run with `spec.rollout`."""

    order: RunConfig
    rollout: Rollout

    @classmethod
    def from_run_config(cls, order: RunConfig) -> Self:
        """Return the order of a run with replicas. Raises BadInputError if it has no spec.rollout."""
        if order.spec.rollout is None:
            raise BadInputError(
                "run configuration: spec.rollout is missing, so this run needs no replicas: start "
                "`python -m evalrun_generator` instead, or add spec.rollout"
            )
        return cls(order, order.spec.rollout)

    @property
    def spec(self) -> EvalRunSpec:
        return self.order.spec

    @property
    def place(self) -> tuple[int, str]:
        """Position among runs that wait for the same replicas: by training step, then by age."""
        lineage = self.spec.lineage
        return (0 if lineage is None or lineage.step is None else lineage.step, self.order.created.isoformat())

    @property
    def identity(self) -> str:
        """Unique per run, also among runs of the same name."""
        order = self.order
        return hashlib.sha256(f"{order.namespace}/{order.run}/{order.created.isoformat()}".encode()).hexdigest()[:12]


def read_rollout_order(path: Path) -> RolloutOrder:
    """Load the run configuration of a run with replicas. Raises BadInputError naming the field."""
    return RolloutOrder.from_run_config(read_run_config(path))
