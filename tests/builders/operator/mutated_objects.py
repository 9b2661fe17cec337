"""EvalRuns and EvalSchedules as a hostile user may write them: valid ones with random mutations."""

import copy
import random
from typing import Any

from builders.operator.evalruns import evalrun_manifest
from builders.operator.evalschedules import evalschedule_manifest

ODD_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 1e308, "", " ", "\u0000", "\U0001f600" * 50, "x" * 5000, [], {}, [[]] * 50, {"a": {}},
    "../../etc/passwd", "{{ 1 }}", "$(id)", "-1Gi", "9" * 400,
)  # fmt: skip


def nested(depth: int) -> Any:
    value: Any = {}
    for level in range(depth):
        value = {"a": value} if level % 3 else [value]
    return value


def mutated_object(chance: random.Random, namespace: str, number: int) -> dict[str, Any]:
    schedule = chance.random() < 0.25
    manifest = evalschedule_manifest() if schedule else evalrun_manifest(rollout=chance.random() < 0.3)
    manifest["metadata"] = {"name": f"m{number}", "namespace": namespace}
    if chance.random() < 0.9:
        manifest["spec"]["suspend"] = True
    for _ in range(chance.randrange(4)):
        _replace_something(chance, manifest["spec"])
    for _ in range(chance.randrange(3)):
        chance.choice([_nest, _label, _own, _annotate, _finalize, _pretend])(chance, manifest)
    return manifest


def _replace_something(chance: random.Random, spec: dict[str, Any]) -> None:
    target: Any = spec
    while True:
        if isinstance(target, list):
            key: Any = chance.randrange(len(target))
        else:
            key = chance.choice([*target, "unknown"])
        inside = target[key] if not isinstance(target, dict) or key in target else None
        if isinstance(inside, dict | list) and inside and chance.random() < 0.7:
            target = inside
            continue
        target[key] = copy.deepcopy(chance.choice(ODD_VALUES))
        return


def _nest(chance: random.Random, manifest: dict[str, Any]) -> None:
    template = manifest["spec"].get("template")
    fields = template if isinstance(template, dict) else manifest["spec"]  # a template may be another value by now
    deep = nested(chance.choice([50, 400, 2000]))
    fields["placement"] = {"aggregator": {"affinity": {"a": deep}, "nodeSelector": chance.choice([{}, deep])}}


def _label(chance: random.Random, manifest: dict[str, Any]) -> None:
    count = chance.choice([1, 100, 5000])
    ours = {"evalrun.dev/run": "other", "evalrun.dev/run-uid": "0", "evalrun.dev/schedule": "nightly"}
    manifest["metadata"]["labels"] = ours | {f"l{number}": "v" for number in range(count)}


def _own(chance: random.Random, manifest: dict[str, Any]) -> None:
    owner = {
        "apiVersion": "evalrun.dev/v1alpha1",
        "kind": "EvalSchedule",
        "name": "nightly",
        "uid": "0",
        "controller": True,
    }
    others = [{**owner, "uid": str(number), "controller": False} for number in range(1, chance.choice([1, 500]))]
    manifest["metadata"]["ownerReferences"] = [owner, *others]


def _annotate(chance: random.Random, manifest: dict[str, Any]) -> None:
    step = chance.choice(["999999999", "-1", "\U0001f600", "9" * 5000])
    manifest["metadata"]["annotations"] = {
        "evalrun.dev/checkpoint-digest": "f" * 32, "evalrun.dev/scheduled-at": step, "evalrun.dev/trigger": step,
        "other": "x" * chance.choice([1, 200_000]),
    }  # fmt: skip


def _finalize(chance: random.Random, manifest: dict[str, Any]) -> None:
    manifest["metadata"]["generateName"] = "x" * chance.choice([1, 200])


def _pretend(chance: random.Random, manifest: dict[str, Any]) -> None:
    manifest["status"] = {"phase": "Succeeded", "conditions": chance.choice(ODD_VALUES), "settings": nested(50)}
