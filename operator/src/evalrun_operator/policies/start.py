"""Decides when a run that cannot start fails: which obstacles do not resolve themselves, and how long they may last.

Pure.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from evalrun_operator.policies.troubles import Trouble, TroubleKind

CRAMPED = (
    "It waits for room in the cluster. Runs that wait for each other's room never end: operator.maxActiveRuns bounds "
    "how many are active at a time."
)
UNFIT = "It fits none of the nodes: lower its resources, or correct its nodeSelector, affinity or tolerations"
NO_KUBERAY = "KubeRay is not installed: this cluster serves no RayCluster. Install it, or use endpoints"
RAY_KINDS = frozenset({"RayCluster", "RayJob"})


def obstacles(troubles: Iterable[Trouble]) -> list[str]:
    """Return the texts of the troubles that last until somebody fixes them."""
    lasting = {TroubleKind.LASTING: "", TroubleKind.NO_NODE: f" {UNFIT}"}
    return [f"{trouble.text}{lasting[trouble.kind]}" for trouble in troubles if trouble.kind in lasting]


def gives_up_at(stalled_since: datetime, seconds: float) -> datetime | None:
    """Return when a run that cannot start fails; None if it may wait without end.

    Args:
        stalled_since: first time at which the run could not start.
        seconds: maximum duration of the stall; 0: without end.
    """
    return stalled_since + timedelta(seconds=seconds) if seconds else None
