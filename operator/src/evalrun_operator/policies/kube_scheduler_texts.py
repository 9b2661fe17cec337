"""Texts of kube-scheduler about a pod without a node. Pure.

The condition has the single reason `Unschedulable` for a full cluster and for a claim that does not exist: only the
message tells them apart. The texts are those of kube-scheduler 1.36, and tests/cluster/test_kubernetes_texts.py asks
that version for them.
"""

import re

NO_ROOM = re.compile(
    r"Insufficient |untolerated taint|didn't match Pod's node affinity|Too many pods|no nodes available|Preempt"
)
NOT_BY_PREEMPTION = re.compile(r"preemption: 0/(\d+) nodes are available: (\d+) Preemption is not helpful")
"""Matches the number of all nodes, and the number of nodes on which the pod would not fit even if nothing else ran
there: it requests more than they have, does not tolerate their taints, or does not select them."""


def fits_no_node(message: str) -> bool:
    """Return whether a pod fits none of the existing nodes, even if other pods end."""
    found = NOT_BY_PREEMPTION.search(message)
    return found is not None and found[1] == found[2]


def lacks_room(message: str) -> bool:
    """Return whether a pod waits for room: another node, or the end of another pod, would help."""
    return NO_ROOM.search(message) is not None
