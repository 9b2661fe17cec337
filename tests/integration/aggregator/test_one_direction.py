"""No part of a running aggregator holds the part that holds it."""

import functools
import gc
import types
from pathlib import Path

from builders.aggregator.process import MemoryJudge, write_run_config
from prometheus_client import CollectorRegistry

from evalrun_aggregator.app import Aggregator
from evalrun_aggregator.settings import AggregatorSettings

FOLLOWED = (dict, list, tuple, set, types.MethodType, types.CellType, functools.partial)


def parts_held_by(part: object) -> list[object]:
    """Return the aggregator's objects that a part holds, also through containers, bound methods and closures."""
    found, seen, todo = [], set[int](), gc.get_referents(part)
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, type | types.ModuleType):
            continue
        seen.add(id(each))
        if type(each).__module__.startswith("evalrun_aggregator"):
            found.append(each)
        elif isinstance(each, types.FunctionType):
            todo += each.__closure__ or ()
        elif isinstance(each, FOLLOWED):
            todo += gc.get_referents(each)
    return found


def graph_from(root: object) -> dict[int, tuple[object, list[object]]]:
    """Return every part that a root leads to, with the parts that it holds, by identity."""
    graph: dict[int, tuple[object, list[object]]] = {}
    todo = [root]
    while todo:
        part = todo.pop()
        if id(part) not in graph:
            graph[id(part)] = (part, parts_held_by(part))
            todo += graph[id(part)][1]
    return graph


async def test_aggregator_parts_of_a_started_run_hold_no_reference_to_their_owner(tmp_path: Path) -> None:
    settings = AggregatorSettings(
        work_order=write_run_config(tmp_path), ledger=tmp_path / "l.sqlite3", judge=["memory"], port=0
    )
    aggregator = Aggregator(settings, open_judge=lambda *_: MemoryJudge(), registry=CollectorRegistry())
    await aggregator.start()
    try:
        graph = graph_from(aggregator)
    finally:
        await aggregator.stop(1.0)
    names = {type(part).__name__ for part, _ in graph.values()}
    assert {"Dispatcher", "StreamWorker", "RunDriver", "Intake", "StatusReport", "Finisher", "Telemetry"} <= names
    for part, _ in graph.values():
        reached, todo = set[int](), [*graph[id(part)][1]]
        while todo:
            each = todo.pop()
            if id(each) not in reached:
                reached.add(id(each))
                todo += graph[id(each)][1]
        assert id(part) not in reached, f"{type(part).__name__} leads back to itself"
