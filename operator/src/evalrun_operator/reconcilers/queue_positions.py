"""Remembers which runs hold a queue position. `policies.admission` decides."""

from collections.abc import Callable, Mapping

from evalrun_api.v1alpha1 import EvalRunStatus
from evalrun_operator.lifecycle.situation import holds_queue_position
from evalrun_operator.observation.children import Key
from evalrun_operator.policies.admission import QueuedRun, QueuePosition, find_position


class QueuePositions:
    """Remembers admitted runs from the decision on, because a run's status shows the admission only once it is written.

    Args:
        max_active: maximum number of active runs; 0: no maximum.
        contenders: the last seen runs that hold a position or wait for one.
        wake: requests a reconciliation of a run before all others.
    """

    def __init__(self, max_active: int, contenders: Mapping[Key, QueuedRun], wake: Callable[[Key], None]) -> None:
        self._max_active = max_active
        self._contenders = contenders
        self._wake = wake
        self._admitted: set[str] = set()

    def find_for_run(self, uid: str) -> QueuePosition:
        """Return a run's position in the queue."""
        if self._max_active == 0 or uid in self._admitted:
            return QueuePosition()
        return find_position(uid, self._contenders.values(), self._max_active, self._admitted)

    def take(self, uid: str, status: EvalRunStatus) -> None:
        """Record that a run holds a position, if its status shows one."""
        if self._max_active and holds_queue_position(status):
            self._admitted.add(uid)

    def free(self, uid: str) -> None:
        """Release a run's position, if it has one, and wake the waiting runs."""
        if uid not in self._admitted:
            return
        self._admitted.discard(uid)
        for key in [key for key, one in self._contenders.items() if not one.active and not one.stalled]:
            self._wake(key)
