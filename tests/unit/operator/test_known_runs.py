"""What is kept of a run: an ended one is packed, and comes out as it went in."""

import sys
from typing import Any

from builders.operator.world import World, generating

from evalrun_operator.passes.known_runs import KnownRuns


def manifest(world: World) -> dict[str, Any]:
    wire = world.run.to_wire()
    return {**wire, "metadata": {**wire["metadata"], "managedFields": [{"manager": "kubectl"}] * 50}}


def plain(manifest: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "managedFields"}
    return {**manifest, "metadata": metadata}


def test_an_ended_run_is_packed_and_comes_out_as_it_went_in() -> None:
    runs, key = KnownRuns(), ("evals", "run")
    world = generating()
    runs[key] = manifest(world)
    assert list(runs.unended()) == [key]
    assert runs[key] == plain(manifest(world))  # nobody reads managedFields
    ended = manifest(world.generate_all().judge_all().settle())
    runs[key] = ended
    assert runs.unended() == {}
    assert (list(runs), len(runs), key in runs) == ([key], 1, True)
    assert runs[key] == plain(ended)
    assert sys.getsizeof(runs._ended[key]) < 3000
    del runs[key]
    assert runs.get(key) is None


def test_a_run_that_is_being_deleted_is_at_hand() -> None:
    world = generating().generate_all().judge_all().settle()
    leaving = manifest(world)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
    runs = KnownRuns()
    runs["evals", "run"] = leaving
    assert list(runs.unended()) == [("evals", "run")]


def test_runs_keep_their_order_whatever_changes_in_them() -> None:
    """Those that wait for a place are woken in this order."""
    runs, world = KnownRuns(), generating()
    for name in ("first", "second", "third"):
        runs["evals", name] = manifest(world)
    runs["evals", "first"] = manifest(world.tick(1).settle())
    assert [name for _, name in runs.unended()] == ["first", "second", "third"]
