"""Stores what the watches reported: the objects of each run, and the EvalRuns of this operator's class."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from evalrun_api import names
from evalrun_operator.observation.record_parser import UnreadableObjectError, parse_record
from evalrun_operator.observation.records import ObjectKey, ObservedObject

logger = logging.getLogger(__name__)

MAX_NAMED = 1000
"""Maximum number of skipped objects that are remembered, so that each is logged once."""

Key = tuple[str, str]
"""Namespace and name of an EvalRun."""
RunUid = tuple[str, str]
"""Namespace and uid of an EvalRun. Objects of another namespace never belong to the run, whatever their labels say."""
Known = tuple[RunUid, ObjectKey, Key, str]
"""An object of a run: the run's uid, the object's key, the run to wake, and the object's own uid."""
OF_SCHEDULE = "EvalSchedule/"
"""Prefix of a schedule's name in a `Key`: events of kept replicas wake the schedule instead of a run."""


class Children:
    """The observed objects of all runs, by run, and of the replicas that schedules keep, by schedule.

    Args:
        wake: called with the key of a run whose objects have changed.
        skipped: called with the kind of an object that cannot be read.
        wake_schedule: called with the key of a schedule whose kept replicas have changed.
    """

    def __init__(
        self,
        wake: Callable[[Key], None],
        skipped: Callable[[str], None] = lambda _: None,
        wake_schedule: Callable[[Key], None] = lambda _: None,
    ) -> None:
        self._wake_run = wake
        self._wake_schedule = wake_schedule
        self._skipped = skipped
        self._by_run: dict[RunUid, dict[ObjectKey, ObservedObject]] = {}
        self._named: set[tuple[str, ObjectKey]] = set()
        self.missing_kinds: set[str] = set()
        """Kinds that the cluster does not serve."""
        self.missing_groups: set[str] = set()
        """API groups that autoscalers need for their metrics and that the cluster does not serve."""

    def find_for_run(self, namespace: str, uid: str) -> list[ObservedObject]:
        """Return the objects in a namespace that carry a run's uid."""
        return list(self._by_run.get((namespace, uid), {}).values())

    def put(self, manifest: dict[str, Any]) -> Known | None:
        """Store the state of an object. An unreadable object is skipped, logged and counted."""
        metadata = manifest["metadata"]
        namespace, labels = metadata["namespace"], metadata.get("labels") or {}
        schedule = f"{OF_SCHEDULE}{labels.get(names.SCHEDULE_LABEL, '')}"
        run, key = (namespace, labels.get(names.RUN_UID_LABEL, "")), (namespace, labels.get(names.RUN_LABEL, schedule))
        try:
            seen = parse_record(manifest)
        except UnreadableObjectError as error:
            self._skip(namespace, ObjectKey(manifest["kind"], metadata["name"]), error)
            return None
        known = self._by_run.setdefault(run, {})
        if known.get(seen.ref) != seen:
            known[seen.ref] = seen
            self._wake(key)
        return run, seen.ref, key, seen.uid

    def drop(self, known: Known) -> None:
        """Forget a deleted object, but not a new object of the same name."""
        run, ref, key, uid = known
        objects = self._by_run.get(run, {})
        if ref in objects and objects[ref].uid == uid:
            del objects[ref]
            self._wake(key)
        if not objects:
            self._by_run.pop(run, None)

    def _wake(self, key: Key) -> None:
        namespace, name = key
        if name.startswith(OF_SCHEDULE):
            self._wake_schedule((namespace, name.removeprefix(OF_SCHEDULE)))
        else:
            self._wake_run(key)

    def _skip(self, namespace: str, ref: ObjectKey, error: UnreadableObjectError) -> None:
        self._skipped(ref.kind)
        if (namespace, ref) in self._named:
            return
        if len(self._named) >= MAX_NAMED:
            self._named.clear()
        self._named.add((namespace, ref))
        logger.warning("skipped %s %s/%s, which has our label: %s", ref.kind, namespace, ref.name, error)


class Manifests:
    """Passes on EvalRuns or EvalSchedules, except those of another operator class.

    Args:
        saw: called with an observed object, and whether it is gone.
        operator_class: value that `operatorClass` must have; empty: absent.
        below: fields of the spec that lead to `operatorClass`.
    """

    def __init__(
        self, saw: Callable[[dict[str, Any], bool], None], operator_class: str = "", below: Sequence[str] = ()
    ) -> None:
        self._saw = saw
        self._operator_class = operator_class
        self._below = below

    def put(self, manifest: dict[str, Any]) -> tuple[str, str, str] | None:
        """Pass on an object, stripped of the metadata that no part of the operator reads."""
        fields = manifest.get("spec") or {}
        for name in self._below:
            fields = fields.get(name) or {}
        if (fields.get("operatorClass") or "") != self._operator_class:
            return None
        metadata = manifest["metadata"]
        self._saw(trim_manifest(manifest), False)  # noqa: FBT003 - it is not gone
        return metadata["namespace"], metadata["name"], metadata["uid"]

    def drop(self, known: tuple[str, str, str]) -> None:
        """Forget an object that is gone."""
        namespace, name, uid = known
        self._saw({"metadata": {"namespace": namespace, "name": name, "uid": uid}}, True)  # noqa: FBT003 - gone


KEPT_METADATA = (
    "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
)  # fmt: skip
MAX_NOTES, MAX_NOTE_CHARACTERS = 16, 4096
"""Maximum number of our annotations, and maximum length of each; the longest that is read is a URL."""


def trim_manifest(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return an EvalRun or EvalSchedule with only the metadata that is read: identity, our annotations, controller.

    The API server bounds labels, finalizers, owners and managedFields only by the size of the whole object, 1.5 MB.
    """
    given = manifest["metadata"]
    metadata = {field: given[field] for field in KEPT_METADATA if field in given}
    notes = given.get("annotations") or {}
    ours = {
        key: value
        for key, value in notes.items()
        if key.startswith(f"{names.PREFIX}/") and len(key) + len(value) <= MAX_NOTE_CHARACTERS
    }
    owner = next((one for one in given.get("ownerReferences") or () if one.get("controller")), None)
    if ours:
        metadata["annotations"] = dict(sorted(ours.items())[:MAX_NOTES])
    if owner is not None and len(str(owner)) <= MAX_NOTE_CHARACTERS:
        metadata["ownerReferences"] = [owner]
    return {**manifest, "metadata": metadata}
