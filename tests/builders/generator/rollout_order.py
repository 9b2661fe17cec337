"""Run configurations of runs with replicas."""

from collections.abc import Mapping
from typing import Any

from evalrun_api.run_config import RunConfig
from evalrun_generator.rollout.order import RolloutOrder


def rollout_order(rollout: Mapping[str, Any], **spec: Any) -> RolloutOrder:
    """Return the order of a run with these replicas; `spec` adds to the spec, or replaces its fields."""
    return RolloutOrder.from_run_config(
        RunConfig.model_validate(
            {
                "run": "r",
                "created": "2026-11-21T12:00:00+00:00",
                "output_dir": "o",
                "spec": {
                    "model": {"path": "m"},
                    "datasets": [{"name": "d", "source": "builtin:demo"}],
                    "rollout": dict(rollout),
                    **spec,
                },
            }
        )
    )
