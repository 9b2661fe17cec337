"""What is kept of a run: it is packed, comes out as it went in, and counts in the queue."""

import sys
from typing import Any

import pytest
from builders.operator.world import World, generating

from evalrun_operator.observation.children import trim_manifest
from evalrun_operator.reconcilers.known_runs import KnownRuns


def manifest(world: World) -> dict[str, Any]:
    wire = world.run.to_wire()
    return {**wire, "metadata": {**wire["metadata"], "managedFields": [{"manager": "kubectl"}] * 50}}


def test_known_runs_packed_manifest_is_read_back_unchanged() -> None:
    runs, key = KnownRuns(), ("evals", "run")
    world = generating()
    runs[key] = manifest(world)
    assert runs[key] == manifest(world)
    assert [one.active for one in runs.contenders().values()] == [True]
    ended = manifest(world.generate_all().judge_all().settle())
    runs[key] = ended
    assert (list(runs), len(runs), key in runs) == ([key], 1, True)
    assert runs[key] == ended
    assert runs.contenders() == {}
    assert sys.getsizeof(runs._packed[key]) < 3000
    del runs[key]
    assert runs.get(key) is None


def test_known_runs_changed_run_keeps_its_order() -> None:
    """Those that wait for a place are woken in this order."""
    runs, world = KnownRuns(), generating()
    for name in ("first", "second", "third"):
        runs["evals", name] = manifest(world)
    runs["evals", "first"] = manifest(world.tick(1).settle())
    assert [name for _, name in runs.contenders()] == ["first", "second", "third"]


def test_known_runs_unreadable_manifest_keeps_the_previous_one() -> None:
    runs, key = KnownRuns(), ("evals", "run")
    runs[key] = manifest(generating())
    with pytest.raises(KeyError):
        runs[key] = {"metadata": {}}
    assert runs[key] == manifest(generating())


def test_trimmed_manifest_of_a_hostile_user_keeps_only_the_fields_that_are_read() -> None:
    owners = [{"kind": "Pod", "name": "x" * 300, "uid": str(number)} for number in range(1000)]
    controller = {"kind": "EvalSchedule", "name": "nightly", "uid": "s", "controller": True}
    metadata = {
        "name": "run", "namespace": "evals", "uid": "u", "resourceVersion": "7", "generation": 2,
        "creationTimestamp": "2026-01-31T12:00:00Z", "managedFields": [{}] * 100, "finalizers": ["a/b"] * 1000,
        "labels": {f"a{number}": "" for number in range(50_000)}, "ownerReferences": [*owners, controller],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x" * 200_000, "evalrun.dev/trigger": "now",
                        "evalrun.dev/large": "x" * 200_000, **{f"evalrun.dev/z{one}": "" for one in range(1000)}},
    }  # fmt: skip
    kept = trim_manifest({"metadata": metadata, "spec": {"suspend": True}})
    assert kept["spec"] == {"suspend": True}
    assert kept["metadata"]["annotations"]["evalrun.dev/trigger"] == "now"
    assert kept["metadata"]["ownerReferences"] == [controller]
    assert len(str(kept)) < 1000
