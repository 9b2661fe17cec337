"""EvalSchedule manifests for tests: a valid one, and one of each kind that must be refused, with what is said.

The table serves the offline check and the real API server, which must say the same.
"""

from dataclasses import dataclass
from typing import Any

from builders.operator.evalruns import ABSENT, change


def evalschedule_manifest(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a valid manifest after changes by path (`spec.template.datasets.0.name`)."""
    manifest: dict[str, Any] = {
        "apiVersion": "evalrun.dev/v1alpha1",
        "kind": "EvalSchedule",
        "metadata": {"name": "nightly"},
        "spec": {
            "schedule": "0 3 * * *",
            "timeZone": "Europe/Berlin",
            "checkpoints": {"url": "s3://training/grpo", "pattern": "global_step_*"},
            "template": {
                "datasets": [{"name": "mbpp_reg", "source": "pvc://data/mbpp.jsonl", "role": "dev"}],
                "rollout": {"gpusPerNode": 8},
                "output": {"url": "s3://evaluations/grpo"},
            },
        },
    }
    for path, value in (changes or {}).items():
        change(manifest, path, value)
    return manifest


@dataclass(frozen=True)
class RefusedSchedule:
    """One kind of manifest that must be refused."""

    name: str
    changes: dict[str, Any]
    path: str
    """The field that is blamed."""
    says: str
    """Part of the rule's message."""

    @property
    def manifest(self) -> dict[str, Any]:
        return evalschedule_manifest(self.changes)


RACE = {"dataset": "mbpp_reg"}
KEPT = {"spec.checkpoints.url": "pvc://training/grpo", "spec.replicas": {"keep": {}}}
"""Changes after which the schedule keeps its replicas."""
REFUSED_SCHEDULES = [
    RefusedSchedule(
        "kept without replicas", {**KEPT, "spec.template.rollout": ABSENT}, "spec.replicas", "write template.rollout"
    ),
    RefusedSchedule(
        "kept from a bucket",
        {"spec.replicas": {"keep": {}}},
        "spec.replicas",
        "write pvc://CLAIM/DIR for checkpoints.url",
    ),
    RefusedSchedule(
        "kept from a cache in a bucket",
        {**KEPT, "spec.merge": {"cache": "s3://models/merged"}},
        "spec.replicas",
        "and for merge.cache",
    ),
    RefusedSchedule(
        "kept with SGLang", {**KEPT, "spec.template.rollout.engine": "sglang"}, "spec.template.rollout", "engine: vllm"
    ),
    RefusedSchedule(
        "kept with streamed weights",
        {**KEPT, "spec.template.rollout.loadFormat": "runai_streamer"},
        "spec.template.rollout",
        "loadFormat: auto",
    ),
    RefusedSchedule(
        "kept in varying number",
        {**KEPT, "spec.template.rollout.minReplicas": 1, "spec.template.rollout.maxReplicas": 2},
        "spec.template.rollout",
        "write replicas instead of minReplicas",
    ),
    RefusedSchedule(
        "kept in a queue",
        {**KEPT, "spec.template.rollout.queueName": "team"},
        "spec.template.rollout.queueName",
        "remove queueName",
    ),
    RefusedSchedule(
        "kept adapters", {**KEPT, "spec.template.model": {"base": "Qwen/x"}}, "spec.template.model", "remove base"
    ),
    RefusedSchedule(
        "kept beside code of a checkpoint",
        {**KEPT, "spec.template.model": {"trustRemoteCode": True}},
        "spec.template.model",
        "trustRemoteCode, or spec.replicas",
    ),
    RefusedSchedule(
        "kept within a budget", {**KEPT, "spec.budget": {"gpuHoursPerDay": "64"}}, "spec.budget", "remove budget"
    ),
    RefusedSchedule(
        "kept for ever", {**KEPT, "spec.replicas.keep.idleSeconds": 90_000}, "spec.replicas.keep.idleSeconds", "86400"
    ),
    RefusedSchedule(
        "too large",
        {"spec.template.datasets.0.excludeProblems": [f"{number:0>140}" for number in range(500)]},
        "spec",
        "the spec is too large, at most 64 KiB as JSON",
    ),
    RefusedSchedule("long name", {"metadata.name": "a" * 20}, "metadata.name", "write at most 19"),
    RefusedSchedule("dotted name", {"metadata.name": "n.1"}, "metadata.name", "a letter first, no dots"),
    RefusedSchedule("macro", {"spec.schedule": "@daily...."}, "spec.schedule", "write five fields"),
    RefusedSchedule("seconds", {"spec.schedule": "0 0 3 * * *"}, "spec.schedule", "write five fields"),
    RefusedSchedule("zone", {"spec.timeZone": "Local"}, "spec.timeZone", "IANA time zone database"),
    RefusedSchedule("zone path", {"spec.timeZone": "../UTC"}, "spec.timeZone", "IANA time zone database"),
    RefusedSchedule("a path", {"spec.checkpoints.url": "/mnt/x"}, "spec.checkpoints.url", "means nothing in a pod"),
    RefusedSchedule(
        "a web page", {"spec.checkpoints.url": "https://h/x"}, "spec.checkpoints.url", "lists no directories"
    ),
    RefusedSchedule("deep pattern", {"spec.checkpoints.pattern": "a/*"}, "spec.checkpoints.pattern", "without '/'"),
    RefusedSchedule("a bell", {"spec.checkpoints.pattern": "a\a"}, "spec.checkpoints.pattern", "a control char"),
    RefusedSchedule(
        "marker outside", {"spec.checkpoints.readyMarker": "../DONE"}, "spec.checkpoints.readyMarker", "inside the"
    ),
    RefusedSchedule(
        "endpoints",
        {"spec.template.rollout": ABSENT, "spec.template.endpoints": [{"url": "http://vllm.models:8000/v1"}]},
        "spec.template.endpoints",
        "not the checkpoint: write rollout",
    ),
    RefusedSchedule(
        "base on a machine", {"spec.template.model": {"base": "/m"}}, "spec.template.model.base", "in a pod"
    ),
    RefusedSchedule(
        "lineage.step", {"spec.template.lineage": {"step": 1}}, "spec.template.lineage", "write lineage.phase alone"
    ),
    RefusedSchedule(
        "phase with a blank", {"spec.template.lineage": {"phase": "a b"}}, "spec.template.lineage.phase", "a label"
    ),
    RefusedSchedule(
        "race on a dataset that is not there", {"spec.race": {"dataset": "other"}}, "spec.race.dataset", "name of one"
    ),
    RefusedSchedule(
        "race without outputs that stay",
        {"spec.race": RACE, "spec.template.output": {"retain": True}},
        "spec.race",
        "write template.output.url",
    ),
    RefusedSchedule(
        "race of several at once",
        {"spec.race": RACE, "spec.checkpoints.policy": "EveryNew"},
        "spec.race",
        "checkpoints.maxPerTick: 1",
    ),
    RefusedSchedule(
        "race beside an earlier start",
        {"spec.race": RACE, "spec.concurrencyPolicy": "Allow"},
        "spec.race",
        "write concurrencyPolicy: Forbid",
    ),
    RefusedSchedule(
        "race with random weights",
        {"spec.race": RACE, "spec.template.rollout.loadFormat": "dummy"},
        "spec.race",
        "remove race",
    ),
    RefusedSchedule(
        "race beside a gate",
        {"spec.race": RACE, "spec.template.gates": [{"anchor": "0.5", "dataset": "mbpp_reg"}]},
        "spec.race",
        "remove template.gates, or race",
    ),
    RefusedSchedule(
        "race by verdicts of a server",
        {"spec.race": RACE, "spec.template.datasets.0.judgeMode": "Submit"},
        "spec.race.dataset",
        "write judgeMode: RunCode",
    ),
    RefusedSchedule(
        "race by turns",
        {
            "spec.race": RACE,
            "spec.template.protocol": {"name": "EVAL@turns", "turns": {"limit": 2}},
            "spec.template.datasets.0.promptFormat": "Chat",
        },
        "spec.race",
        "EVAL@turns is about later ones",
    ),
    RefusedSchedule(
        "test data",
        {"spec.template.datasets.0.role": "test"},
        "spec.template.datasets",
        "list the name in allowTest",
    ),
    RefusedSchedule("a cache on a web server", {"spec.merge": {"cache": "https://h/x"}}, "spec.merge.cache", "written"),
    RefusedSchedule("no output", {"spec.template.output": {}}, "spec.template.output", "the results would be lost"),
    RefusedSchedule(
        "results nobody finds",
        {"spec.template.output": {"retain": True}, "spec.successfulRunsHistoryLimit": 0},
        "spec.template.output",
        "which nobody finds",
    ),
]
