"""Tells a run whether it has its turn on the replicas that its schedule keeps, according to the schedule's status."""

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import ValidationError

from evalrun_api import names
from evalrun_api.v1alpha1 import EvalRun, EvalSchedule, Rollout
from evalrun_api.v1alpha1 import KeptReplicas as KeptStatus
from evalrun_cluster.objects import Object
from evalrun_operator.observation.children import Key
from evalrun_operator.observation.records import KeptReplicas
from evalrun_operator.schedules.kept_objects import kept_rollout
from evalrun_operator.schedules.runs import find_schedule


@dataclass(frozen=True)
class _Known:
    uid: str
    rollout: Rollout | None
    """None: the schedule keeps no replicas."""
    state: KeptStatus


class KeptTurns:
    """The known schedules that keep replicas.

    Args:
        wake: requests a reconciliation of a run whose turn has begun or is over.
    """

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._known: dict[Key, _Known] = {}

    def saw(self, manifest: Object, *, gone: bool) -> None:
        """Store the state of an EvalSchedule."""
        key = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        if gone:
            self._known.pop(key, None)
            return
        before = self._known.get(key)
        try:
            schedule = EvalSchedule.from_wire(dict(manifest))
        except ValidationError:
            # The schedule was written by another release, which its own reconciliation reports. The last known state
            # stays, so that the holder keeps its generator.
            return
        state = (None if schedule.status is None else schedule.status.replicas) or KeptStatus()
        self._known[key] = _Known(schedule.metadata.uid or "", kept_rollout(schedule), state)
        holders = {state.holder, None if before is None else before.state.holder}
        if before is None or before.state.holder_uid != state.holder_uid or before.state.leaving != state.leaving:
            for holder in filter(None, holders):
                self._wake((key[0], holder))

    def find_for_run(self, run: EvalRun, manifest: Object) -> KeptReplicas | None:
        """Return the kept replicas that a run uses; None if it starts its own."""
        owner = find_schedule(manifest)
        if owner is None or run.spec.rollout is None or names.KEPT_ANNOTATION not in run.metadata.annotations:
            return None
        known = self._known.get((run.metadata.namespace or "", owner[0]))
        if known is None or known.uid != owner[1]:
            return KeptReplicas(owner[1], "", "", f"EvalSchedule {owner[0]}, which keeps the replicas, is not there.")
        state = known.state
        if state.holder_uid == run.metadata.uid and state.cluster is not None and state.leaving is None:
            return KeptReplicas(known.uid, state.cluster, state.image or "", "", state.auth or "", state.crashed or "")
        if known.rollout != run.spec.rollout:
            # No replicas are kept any more, or the run was created from another template.
            return None
        now = "they are not up yet" if state.holder is None else f"{state.holder} has its turn"
        message = f"EvalSchedule {owner[0]} keeps the replicas, and {now}: see its condition ReplicasReady."
        return KeptReplicas(known.uid, "", "", message, crashed=state.crashed or "")
