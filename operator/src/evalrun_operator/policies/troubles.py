"""Classifies troubles of a run's pods and workloads by how they end. Pure."""

from dataclasses import dataclass
from enum import Enum, auto

from evalrun_operator.policies.kube_scheduler_texts import fits_no_node, lacks_room


class TroubleKind(Enum):
    """Kind of a trouble, by the way in which it ends."""

    ROOM = auto()
    """The pod waits for room in the cluster, which may take a minute or a night."""
    NO_NODE = auto()
    """The pod fits none of the existing nodes. A node autoscaler may add a node; nothing else ends the wait."""
    STARTING = auto()
    """A container is not up yet, for minutes on a busy node. The kubelet kills and restarts a container that never
    comes up, which is a trouble of its own (CrashLoopBackOff)."""
    LASTING = auto()
    """Somebody must fix the cause: a missing Secret, claim or image, a refusal, a crash."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Obstacle that keeps an object from coming up."""

    text: str
    """Reason and message, for people."""
    kind: TroubleKind = TroubleKind.LASTING


UNPLACED = frozenset({"Unschedulable", "FailedScheduling"})
"""Reasons of the scheduler, in the condition PodScheduled and in its event. Only the message names what is missing."""
PREEMPTED = frozenset({"Preempting", "Preempted"})
"""Reasons of the kubelet and the scheduler about a pod that gave its room to a pod of higher priority."""
UNHEALTHY = "Unhealthy"
"""Reason of the kubelet's event about a probe that failed."""


def classify_trouble(reason: str, message: str) -> Trouble:
    """Return the trouble that Kubernetes reports by a reason and a message."""
    text = " ".join(f"{reason}: {message}".split())[:500].strip(": ")
    if reason in UNPLACED and fits_no_node(message):
        return Trouble(text, TroubleKind.NO_NODE)
    if reason in PREEMPTED or (reason in UNPLACED and lacks_room(message)):
        return Trouble(text, TroubleKind.ROOM)
    return Trouble(text, TroubleKind.STARTING if reason == UNHEALTHY else TroubleKind.LASTING)
