"""Specs beyond the chart's allow-lists, and within: the API server's policy and the operator decide alike."""

from typing import Any

from builders.operator.evalruns import evalrun_manifest

REGISTRY = "registry.test/team"
ALLOWED = {"buckets": ["s3://evaluations"], "claims": ["data", "results"]}
"""Lists that differ from the chart's."""
TRUSTED = {"priorityClasses": ["batch"], "tolerations": ["*"]}
"""Lists of one namespace."""
OUTPUT = {"url": "s3://evaluations/runs"}
BEYOND: list[tuple[dict[str, Any], str]] = [
        ({"spec.placement": {"aggregator": {"priorityClassName": "system-node-critical"}}}, "priorityClasses"),
        ({"spec.placement": {"sandbox": {"tolerations": [{"operator": "Exists"}]}}}, "tolerations"),
        ({"spec.rollout.tolerations": [{"key": "other", "operator": "Exists"}]}, "tolerations"),
        ({"spec.placement": {"gateway": {"nodeSelector": {"node-role.kubernetes.io/master": ""}}}}, "nodeLabels"),
        ({"spec.rollout.nodeSelector": {"kubernetes.io/hostname": "a"}}, "nodeLabels"),
        (
            {"spec.placement": {"rayHead": {"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}]}}}}}},
            "nodeLabels",
        ),
        ({"spec.judge": {"sandbox": {"image": "docker.io/library/anything:1"}}}, "images"),
        ({"spec.rollout.image": "registry.test/teammate/gen:1"}, "images"),
        ({"spec.judge": {"sandbox": {"backend": "SandboxFusion"}}}, "backends"),
        ({"spec.judge": {"sandbox": {"runtimeClassName": "host"}}}, "runtimeClasses"),
        ({"spec.serviceAccountName": "cluster-admin"}, "serviceAccounts"),
        ({"spec.output": {"url": "pvc://others/dir"}}, "claims"),
        ({"spec.datasets.0.source": "pvc://data2/x.jsonl"}, "claims"),
        ({"spec.output": {"url": "s3://evaluations-of-others/x"}}, "buckets"),
        ({"spec.model.path": "gs://models/a"}, "buckets"),
    ]  # fmt: skip
"""Changes to a spec, and the list that refuses it."""
WITHIN: list[dict[str, Any]] = [
    {},
    {"spec.rollout.image": "registry.test/team/gen:1", "spec.rollout.nodeSelector": {"pool": "gpu"}},
    {"spec.judge": {"sandbox": {"backend": "Evalrun", "runtimeClassName": "gvisor"}}},
    {"spec.output": {"url": "pvc://results/dir"}, "spec.datasets.0.source": "pvc://data/x.jsonl"},
    {"spec.output": {"url": "s3://evaluations"}},
]


def run_of(changes: dict[str, Any]) -> dict[str, Any]:
    """Return an EvalRun that keeps to the lists but for the changes."""
    return evalrun_manifest({"spec.output": OUTPUT, **changes}, rollout=not any("endpoints" in key for key in changes))
