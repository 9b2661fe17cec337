"""EvalRun manifests for tests: a valid one, and one of each kind that must be refused, with what the user is told.

The table serves the offline check and the real API server, which must say the same.
"""

import copy
from dataclasses import dataclass
from typing import Any

from evalrun_api.cel_rules import holds
from evalrun_api.checks import apply_defaults
from evalrun_api.structural import structural_schema
from evalrun_api.v1alpha1 import EvalRun

ABSENT = object()
"""In a change: take the field away."""

LOADS_NOTHING = "loadFormat: dummy loads no weights"
MIN_ABOVE_MAX = "write minReplicas up to maxReplicas"
NOT_IN_A_POD = "a path of your machine means nothing in a pod"


def evalrun_manifest(changes: dict[str, Any] | None = None, *, rollout: bool = False) -> dict[str, Any]:
    """Return a valid manifest, in simple mode or with a rollout, after changes by path (`spec.datasets.0.name`)."""
    manifest: dict[str, Any] = {
        "apiVersion": "evalrun.dev/v1alpha1",
        "kind": "EvalRun",
        "metadata": {"name": "run"},
        "spec": {
            "model": {"path": "Qwen/Qwen2.5-Coder-7B-Instruct"},
            "datasets": [{"name": "humaneval", "source": "pvc://data/HumanEval.jsonl.gz"}],
            "output": {"retain": True},
        },
    }
    if rollout:
        manifest["spec"]["rollout"] = {"gpusPerNode": 8}
    else:
        manifest["spec"]["endpoints"] = [{"url": "http://vllm.models:8000/v1"}]
    for path, value in (changes or {}).items():
        change(manifest, path, value)
    return manifest


def change(manifest: dict[str, Any], path: str, value: object) -> None:
    """Set the field at a dotted path, making the objects on the way; `ABSENT` removes it."""
    *parents, last = path.split(".")
    target: Any = manifest
    for part in parents:
        target = target[int(part)] if isinstance(target, list) else target.setdefault(part, {})
    if value is ABSENT:
        del target[last]
    elif isinstance(target, list):
        target[int(last) : int(last) + 1] = [copy.deepcopy(value)]
    else:
        target[last] = copy.deepcopy(value)


def large_evalrun(prompt_characters: int) -> dict[str, Any]:
    """Return a manifest with all sixteen datasets, the last of which has a system prompt of three bytes per character.

    Most of the rest is lists and maps, in which the most is hidden beside the texts.
    """
    ids = [f"problem/{number}" for number in range(1000)]
    datasets = [{"name": f"set-{number}", "source": f"pvc://data/{number}.jsonl"} for number in range(16)]
    first = {**datasets[0], "excludeProblems": ids}
    last = {**datasets[15], "systemPrompt": "\u20ac" * prompt_characters}
    notes = {f"example.com/note-{number}": "x" * 500 for number in range(16)}
    placement = {
        part: {"nodeSelector": {f"{part}-{one}": "y" * 63 for one in range(16)}} for part in ("gateway", "sandbox")
    }
    return evalrun_manifest(
        {
            "spec.datasets": [first, *datasets[1:15], last],
            "spec.pods": {"annotations": notes},
            "spec.placement": placement,
        }
    )


def largest_evalrun(max_bytes: int) -> dict[str, Any]:
    """Return a manifest whose spec has, by the rule on its size, exactly `max_bytes` or up to two less."""
    schema = structural_schema(EvalRun)
    spare = max_bytes - spec_bytes(apply_defaults(schema, large_evalrun(1)))
    return large_evalrun(1 + spare // 3)


def spec_bytes(manifest: dict[str, Any]) -> int:
    """Return what the rule on the spec's size makes of a manifest with its defaults."""
    rule = structural_schema(EvalRun)["properties"]["spec"]["x-kubernetes-validations"][-1]["rule"]
    expression, _, limit = rule.rpartition(" <= ")
    low, high = 0, 16 * int(limit)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(f"{expression} <= {middle}", manifest["spec"]) else (middle + 1, high)
    return low


@dataclass(frozen=True)
class Refused:
    """One kind of manifest that must be refused."""

    name: str
    changes: dict[str, Any]
    path: str
    """The field that is blamed."""
    says: str
    """Part of the message; of a rule, the same offline and on the API server."""
    server_says: str | None = None
    """What the API server says where it has words of its own: bounds, enums, types."""
    server_path: str | None = None
    """The field as the API server writes it where a rule stands inside a map: `placement[sandbox].labels`."""
    rollout: bool = False
    local_only: bool = False
    """The API server prunes it instead (unknown fields: kubectl asks for strict validation)."""
    cluster_only: bool = False
    """Fine on one machine."""

    @property
    def manifest(self) -> dict[str, Any]:
        return evalrun_manifest(self.changes, rollout=self.rollout)


def protocol(**fields: object) -> dict[str, object]:
    return {"spec.protocol": fields}


DATASET = "spec.datasets.0.source"
TLS_SECRETS = {part: {"name": f"{part}-tls"} for part in ("aggregator", "gateway", "sandbox", "generator", "operator")}
GATE = {"baseline": "last-good", "dataset": "humaneval"}

LARGE = {
    f"spec.datasets.0.{field}": value
    for field, value in {
        "excludeProblems": [f"{number:0>100}" for number in range(500)],
    }.items()
}

REFUSED: tuple[Refused, ...] = (
    Refused(
        "LastGood in a run",
        {"spec.gates": [{"baseline": "LastGood", "dataset": "humaneval"}]},
        "spec.gates",
        "LastGood is known to an EvalSchedule only",
    ),
    Refused(
        "LastGood in a run's gates",
        {"spec.gates": [{"baseline": "LastGood", "dataset": "humaneval"}]},
        "spec.gates",
        "LastGood is known to an EvalSchedule only",
    ),
    Refused("phase with a blank", {"spec.lineage": {"phase": "a b"}}, "spec.lineage.phase", "becomes a label"),
    Refused(
        "output on the web", {"spec.output": {"url": "http://x/y"}}, "spec.output.url", "a web server takes no results"
    ),
    Refused("spec too large", LARGE, "spec", "the spec is too large, at most 48 KiB as JSON"),
    # Protocol
    Refused("greedy with samples", protocol(samples=4), "spec.protocol.samples", "write samples: 1, or name: EVAL@k"),
    Refused("greedy at a temperature", protocol(temperature="0.8"), "spec.protocol.temperature", "EVAL@1 is greedy"),
    Refused("greedy with top_p", protocol(topP="0.9"), "spec.protocol.topP", 'write topP: "1.0"'),
    Refused(
        "samples at temperature 0",
        protocol(name="EVAL@k", samples=10, k=[1]),
        "spec.protocol.temperature",
        'write a temperature above 0, e.g. "0.8", or name: EVAL@1',
    ),
    Refused(
        "k above samples",
        protocol(name="EVAL@k", temperature="0.8", samples=5, k=[1, 10]),
        "spec.protocol.k",
        "raise samples, or list only k up to samples",
    ),
    Refused(
        "EVAL@k without k",
        protocol(name="EVAL@k", temperature="0.8", samples=5),
        "spec.protocol.k",
        "list at least one k",
    ),
    Refused("k without EVAL@k", protocol(k=[1]), "spec.protocol.k", "remove k, or write name: EVAL@k"),
    Refused(
        "k listed twice",
        protocol(name="EVAL@k", temperature="0.8", samples=5, k=[2, 2]),
        "spec.protocol.k[1]",
        "listed twice",
        server_says="Duplicate value",
    ),
    Refused(
        "EVAL@budget without budget",
        protocol(name="EVAL@budget", temperature="0.8"),
        "spec.protocol.budget",
        "EVAL@budget needs budget.outputTokensPerProblem",
    ),
    Refused(
        "budget without EVAL@budget",
        protocol(budget={"outputTokensPerProblem": 4096}),
        "spec.protocol.budget",
        "remove budget, or write name: EVAL@budget",
    ),
    Refused(
        "budget with samples",
        protocol(name="EVAL@budget", temperature="0.8", samples=3, budget={"outputTokensPerProblem": 4096}),
        "spec.protocol.samples",
        "remove samples",
    ),
    Refused(
        "log-probabilities of very long answers",
        protocol(calculateLogProbs=True, maxNewTokens=200_000),
        "spec.protocol.calculateLogProbs",
        "write maxNewTokens up to that",
    ),
    Refused(
        "budget with seeds",
        protocol(name="EVAL@budget", temperature="0.8", seeds=2, budget={"outputTokensPerProblem": 4096}),
        "spec.protocol.seeds",
        "remove seeds",
    ),
    Refused(
        "seeds of a greedy run",
        protocol(seeds=2),
        "spec.protocol.seeds",
        "write a temperature above 0",
    ),
    Refused(
        "seeds with too many samples",
        protocol(name="EVAL@k", temperature="0.8", samples=100, k=[1], seeds=11),
        "spec.protocol.seeds",
        "write fewer of either",
    ),
    Refused(
        "EVAL@turns without turns", protocol(name="EVAL@turns"), "spec.protocol.turns", "EVAL@turns needs turns.limit"
    ),
    Refused(
        "turns without EVAL@turns",
        protocol(turns={"limit": 3}),
        "spec.protocol.turns",
        "remove turns, or write name: EVAL@turns",
    ),
    Refused(
        "turns with samples that are all the same",
        protocol(name="EVAL@turns", turns={"limit": 3}, samples=2),
        "spec.protocol.temperature",
        "every sample is the same",
    ),
    Refused(
        "turns with a noise floor",
        protocol(name="EVAL@turns", turns={"limit": 3}, noiseFloorRepeats=2),
        "spec.protocol.noiseFloorRepeats",
        "repeats a greedy run",
    ),
    Refused(
        "feedback that says nothing",
        protocol(name="EVAL@turns", turns={"limit": 3, "template": "Again."}),
        "spec.protocol.turns.template",
        "write {status}, {tests} or both",
    ),
    Refused(
        "turns of a completion prompt",
        {
            **protocol(name="EVAL@turns", turns={"limit": 3}),
            "spec.datasets": [{"name": "d", "source": "s3://b/d.jsonl", "promptFormat": "Completion"}],
        },
        "spec.datasets",
        "write promptFormat: Chat",
    ),
    Refused(
        "feedback without turns",
        {"spec.datasets": [{"name": "d", "source": "s3://b/d.jsonl", "feedback": "Wrong"}]},
        "spec.datasets",
        "feedback belongs to EVAL@turns",
    ),
    Refused(
        "noise floor at a temperature",
        protocol(name="EVAL@k", temperature="0.8", samples=2, k=[1], noiseFloorRepeats=2),
        "spec.protocol.noiseFloorRepeats",
        "noiseFloorRepeats repeats a greedy run",
    ),
    Refused(
        "temperature too high",
        protocol(name="EVAL@k", temperature="2.5", samples=2, k=[1]),
        "spec.protocol.temperature",
        'write a temperature from "0.0" to "2.0"',
    ),
    Refused(
        "temperature without quotes",
        protocol(temperature=0.5),
        "spec.protocol.temperature",
        'write it in quotes, "0.5"',
        server_says="must be of type string",
    ),
    Refused(
        "temperature in words",
        protocol(temperature="warm"),
        "spec.protocol.temperature",
        '"warm" does not match',
        server_says="should match",
    ),
    Refused(
        "top_p of nothing",
        protocol(name="EVAL@k", temperature="0.8", samples=2, k=[1], topP="0.0"),
        "spec.protocol.topP",
        'write a fraction above "0.0" and up to "1.0"',
    ),
    Refused(
        "no samples",
        protocol(samples=0),
        "spec.protocol.samples",
        "0 is out of bounds: write 1 to 1000",
        server_says="should be greater than or equal to 1",
    ),
    Refused(
        "unknown protocol",
        protocol(name="EVAL@2"),
        "spec.protocol.name",
        "Write one of EVAL@1, EVAL@k, EVAL@budget, EVAL@turns",
        server_says='supported values: "EVAL@1", "EVAL@k", "EVAL@budget", "EVAL@turns"',
    ),
    Refused(
        "snake_case field",
        protocol(max_new_tokens=100),
        "spec.protocol.max_new_tokens",
        "did you mean maxNewTokens?",
        server_says='unknown field "spec.protocol.max_new_tokens"',
        local_only=True,
    ),
    # Model and datasets
    Refused("no model", {"spec.model": ABSENT}, "spec.model", "is missing", server_says="Required value"),
    Refused(
        "revision of a checkpoint",
        {"spec.model": {"path": "s3://bucket/step_1", "revision": "main"}},
        "spec.model.revision",
        "remove revision",
    ),
    Refused(
        "model on my machine", {"spec.model.path": "/models/x"}, "spec.model.path", NOT_IN_A_POD, cluster_only=True
    ),
    Refused("model on a bad claim", {"spec.model.path": "pvc://claim"}, "spec.model.path", "write pvc://CLAIM/PATH"),
    Refused(
        "adapter on my machine",
        {"spec.model.adapter": "/adapters/x"},
        "spec.model.adapter",
        "a directory that a pod can read",
        rollout=True,
        cluster_only=True,
    ),
    Refused(
        "adapter on itself",
        {"spec.model": {"path": "s3://t/step_1", "adapter": "s3://t/step_1"}},
        "spec.model.adapter",
        "name its base model in path",
        rollout=True,
    ),
    Refused("adapter on servers", {"spec.model.adapter": "s3://t/step_1"}, "spec.model.adapter", "endpoints[].model"),
    Refused(
        "adapter with sglang",
        {"spec.model.adapter": "s3://t/step_1", "spec.rollout.engine": "sglang"},
        "spec.model.adapter",
        "write rollout with engine: vllm",
        rollout=True,
    ),
    Refused("no datasets", {"spec.datasets": []}, "spec.datasets", "list at least one dataset"),
    Refused(
        "dataset twice",
        {
            "spec.datasets": [
                {"name": "mbpp_reg", "source": "pvc://data/a"},
                {"name": "mbpp_reg", "source": "pvc://data/b"},
            ]
        },
        "spec.datasets",
        "two datasets have the same name",
    ),
    Refused(
        "too many datasets",
        {"spec.datasets": [{"name": f"d{index}", "source": "pvc://data/a"} for index in range(17)]},
        "spec.datasets",
        "has 17 items: write at most 16",
        server_says="must have at most 16 items",
    ),
    Refused(
        "dataset on my machine",
        {"spec.datasets.0.source": "data/HumanEval.jsonl.gz"},
        "spec.datasets[0].source",
        NOT_IN_A_POD,
        cluster_only=True,
    ),
    Refused(
        "unknown builtin",
        {"spec.datasets.0.source": "builtin:humaneval"},
        "spec.datasets[0].source",
        "the only builtin dataset is builtin:demo",
    ),
    Refused(
        "dataset name with blanks",
        {"spec.datasets.0.name": "human eval"},
        "spec.datasets[0].name",
        "does not match",
        server_says="should match",
    ),
    Refused(
        "tolerance without tokens",
        {"spec.datasets.0.comparator": {"name": "exact", "rel": "1e-6"}},
        "spec.datasets[0].comparator",
        "write name: tokens, or remove them",
    ),
    Refused(
        "comparator with Submit",
        {"spec.datasets.0.comparator": {"name": "exact"}, "spec.datasets.0.judgeMode": "Submit"},
        "spec.datasets[0].comparator",
        "remove comparator, or write judgeMode: RunCode",
    ),
    Refused(
        "grader with Submit",
        {"spec.datasets.0.grader": {"path": "pvc://data/g.py"}, "spec.datasets.0.judgeMode": "Submit"},
        "spec.datasets[0].grader",
        "remove grader, or write judgeMode: RunCode",
    ),
    Refused(
        "comparator beside a grader",
        {"spec.datasets.0.grader": {"path": "pvc://data/g.py"}, "spec.datasets.0.comparator": {"name": "exact"}},
        "spec.datasets[0].comparator",
        "remove comparator, or remove grader",
    ),
    Refused(
        "unknown builtin grader",
        {"spec.datasets.0.grader": {"path": "builtin:trl"}},
        "spec.datasets[0].grader.path",
        "the only builtin grader is builtin:verl",
    ),
    Refused(
        "verl's grader by another name",
        {"spec.datasets.0.grader": {"path": "builtin:verl", "name": "mine"}},
        "spec.datasets[0].grader.name",
        "remove name",
    ),
    Refused(
        "grader of this machine",
        {"spec.datasets.0.grader": {"path": "graders/mine.py"}},
        "spec.datasets[0].grader.path",
        NOT_IN_A_POD,
        cluster_only=True,
    ),
    Refused(
        "unknown test group",
        {"spec.datasets.0.tests": ["public", "secret"]},
        "spec.datasets[0].tests[1]",
        "Write one of public, private, generated",
        server_says='supported values: "public", "private", "generated"',
    ),
    Refused(
        "manifest that is ignored",
        {"spec.datasets.0.manifest": "pvc://data/data_manifests/a.jsonl", "spec.datasets.0.auditPolicy": "Ignore"},
        "spec.datasets[0].auditPolicy",
        "remove manifest, or write auditPolicy: Warn",
    ),
    Refused(
        "manifest on my machine",
        {"spec.datasets.0.manifest": "data_manifests/a.jsonl"},
        "spec.datasets[0].manifest",
        NOT_IN_A_POD,
        cluster_only=True,
    ),
    Refused(
        "training data",
        {"spec.datasets.0.role": "train"},
        "spec.datasets[0].role",
        "training data is never evaluated",
    ),
    Refused(
        "gate on data that is sampled for training",
        {"spec.gates": [GATE], "spec.datasets.0.role": "train", "spec.datasets.0.purpose": "Sampling"},
        "spec.gates",
        "purpose: Sampling has no figures",
    ),
    Refused(
        "gate on test data",
        {"spec.gates": [GATE], "spec.datasets.0.role": "test"},
        "spec.gates",
        "gate a dev dataset, or list it in allowTestRole",
    ),
    Refused(
        "time limit without bounds",
        {"spec.datasets.0.limits": {"timeSeconds": 100_000}},
        "spec.datasets[0].limits.timeSeconds",
        "write 1 to 600",
        server_says="should be less than or equal to 600",
    ),
    Refused(
        "a system prompt without a chat",
        {"spec.datasets.0.systemPrompt": "Be brief.", "spec.datasets.0.promptFormat": "Completion"},
        "spec.datasets[0].systemPrompt",
        "a completion prompt has no system message",
    ),
    Refused(
        "no penalty at all",
        {"spec.protocol.repetitionPenalty": "0.0"},
        "spec.protocol.repetitionPenalty",
        'write a penalty above "0.0"',
    ),
    Refused(
        "two time limits",
        {"spec.datasets.0.limits": {"timeSeconds": 2, "timeMilliseconds": 2500}},
        "spec.datasets[0].limits.timeMilliseconds",
        "timeSeconds and timeMilliseconds say the same",
    ),
    # Who answers
    Refused("rollout and endpoints", {"spec.rollout": {"gpusPerNode": 8}}, "spec", "write exactly one of rollout"),
    Refused("neither rollout nor endpoints", {"spec.endpoints": ABSENT}, "spec", "write exactly one of rollout"),
    Refused(
        "no endpoints",
        {"spec.endpoints": []},
        "spec.endpoints",
        "has 0 items: write 1 to 64",
        server_says="should have at least 1 items",
    ),
    Refused(
        "endpoint without scheme",
        {"spec.endpoints.0.url": "vllm.models:8000/v1"},
        "spec.endpoints[0].url",
        "write a base URL with its scheme",
    ),
    Refused(
        "endpoint with the call's path",
        {"spec.endpoints.0.url": "http://vllm:8000/v1/chat/completions"},
        "spec.endpoints[0].url",
        "write the base URL up to /v1",
    ),
    Refused(
        "key in an endpoint's URL",
        {"spec.endpoints.0.url": "https://me:secret@vllm:8000/v1"},
        "spec.endpoints[0].url",
        "put them into a Secret and name it here",
    ),
    Refused(
        "endpoint twice",
        {"spec.endpoints": [{"url": "http://a:1/v1"}, {"url": "http://a:1/v1"}]},
        "spec.endpoints",
        "list each server once",
    ),
    Refused(
        "dummy weights", {"spec.rollout.loadFormat": "dummy"}, "spec.rollout.loadFormat", LOADS_NOTHING, rollout=True
    ),
    Refused(
        "gate on dummy weights",
        {"spec.rollout.loadFormat": "dummy", "spec.rollout.allowDummyWeights": True, "spec.gates": [GATE]},
        "spec.gates",
        "remove gates, or write loadFormat: auto",
        rollout=True,
    ),
    Refused(
        "GPUs that do not fit",
        {"spec.rollout": {"gpusPerNode": 8, "tensorParallel": 3}},
        "spec.rollout.gpusPerNode",
        "make gpusPerNode a multiple of",
        rollout=True,
    ),
    Refused(
        "replicas across nodes that do not fit",
        {"spec.rollout": {"gpusPerNode": 4, "tensorParallel": 2, "dataParallel": 3}},
        "spec.rollout.gpusPerNode",
        "make gpusPerNode a multiple of",
        rollout=True,
    ),
    Refused(
        "pipeline parallel",
        {"spec.rollout.pipelineParallel": 2},
        "spec.rollout.pipelineParallel",
        "write pipelineParallel: 1, and a larger tensorParallel",
        rollout=True,
    ),
    Refused(
        "a number of workers that changes under Kueue",
        {"spec.rollout.queueName": "evals", "spec.rollout.minReplicas": 1, "spec.rollout.maxReplicas": 2},
        "spec.rollout.queueName",
        "write replicas instead of minReplicas and maxReplicas, or remove queueName",
        rollout=True,
    ),
    Refused(
        "rollout's min above max",
        {"spec.rollout.minReplicas": 4, "spec.rollout.maxReplicas": 2},
        "spec.rollout.minReplicas",
        MIN_ABOVE_MAX,
        rollout=True,
    ),
    Refused(
        "min without max",
        {"spec.rollout.minReplicas": 4},
        "spec.rollout",
        "write both minReplicas and maxReplicas, or neither",
        rollout=True,
    ),
    Refused(
        "replicas above max",
        {"spec.rollout.replicas": 5, "spec.rollout.minReplicas": 1, "spec.rollout.maxReplicas": 2},
        "spec.rollout.replicas",
        "write a number from minReplicas to maxReplicas",
        rollout=True,
    ),
    Refused(
        "a step smaller than its sequences",
        {"spec.rollout.maxNumBatchedTokens": 128},
        "spec.rollout.maxNumBatchedTokens",
        "at least as large as maxNumSeqs",
        rollout=True,
    ),
    Refused(
        "turns beyond the prompt of the replicas",
        protocol(name="EVAL@turns", turns={"limit": 3, "maxPromptTokens": 8192}),
        "spec.protocol.turns.maxPromptTokens",
        "raise promptLength",
        rollout=True,
    ),
    Refused(
        "a step smaller than a prompt",
        {"spec.rollout.enableChunkedPrefill": False, "spec.rollout.maxNumBatchedTokens": 4096},
        "spec.rollout.maxNumBatchedTokens",
        "enableChunkedPrefill: true",
        rollout=True,
    ),
    Refused(
        "GPUs among the resources",
        {"spec.rollout.resources.limits": {"nvidia.com/gpu": "8"}},
        "spec.rollout.resources",
        "GPUs of a worker are gpusPerNode of gpuResource",
        rollout=True,
    ),
    Refused(
        "GPUs of another vendor among the resources",
        {"spec.rollout.gpuResource": "amd.com/gpu", "spec.rollout.resources.requests": {"amd.com/gpu": "8"}},
        "spec.rollout.resources",
        "remove them from resources",
        rollout=True,
    ),
    Refused(
        "a part that no run has",
        {"spec.placement": {"judge": {"nodeSelector": {"pool": "x"}}}},
        "spec.placement",
        "unknown part of a run: write one of sandbox, gateway, aggregator, generator, rayHead, rayWorkers",
    ),
    Refused(
        "a label of ours on one part",
        {"spec.placement": {"sandbox": {"labels": {"evalrun.dev/run": "x"}}}},
        "spec.placement.sandbox.labels",
        "select the run's own pods",
        server_path="spec.placement[sandbox].labels",
    ),
    Refused(
        "workers that are placed twice",
        {"spec.rollout.nodeSelector": {"gpu": "a"}, "spec.placement": {"rayWorkers": {"nodeSelector": {"gpu": "b"}}}},
        "spec.placement",
        "write each field in one of them",
        rollout=True,
    ),
    Refused(
        "a quantity in words",
        {"spec.rollout.resources.limits": {"memory": "a lot"}},
        "spec.rollout.resources.limits.memory",
        "does not match",
        server_says="should match",
        rollout=True,
    ),
    Refused(
        "memory utilization above all",
        {"spec.rollout.gpuMemoryUtilization": "1.5"},
        "spec.rollout.gpuMemoryUtilization",
        'write a fraction above "0.0" and up to "1.0"',
        rollout=True,
    ),
    Refused(
        "unknown engine",
        {"spec.rollout.engine": "vLLM"},
        "spec.rollout.engine",
        "did you mean vllm?",
        server_says='supported values: "vllm", "sglang"',
        rollout=True,
    ),
    Refused(
        "toleration of any value with a value",
        {"spec.rollout.tolerations": [{"key": "gpu", "operator": "Exists", "value": "yes"}]},
        "spec.rollout.tolerations[0].value",
        "remove value, or write operator: Equal",
        rollout=True,
    ),
    Refused(
        "toleration of no key",
        {"spec.rollout.tolerations": [{"value": "yes"}]},
        "spec.rollout.tolerations[0].key",
        "write key, or operator: Exists",
        rollout=True,
    ),
    Refused(
        "node affinity whose condition lacks values",
        {
            "spec.placement": {
                "sandbox": {
                    "affinity": {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In"}]}]
                            }
                        }
                    }
                }
            }
        },
        "spec.placement.sandbox.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        ".nodeSelectorTerms[0].matchExpressions[0].values",
        "all others need at least one",
        server_path="spec.placement[sandbox].affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        ".nodeSelectorTerms[0].matchExpressions[0].values",
    ),
    Refused(
        "affinity by a field that is not Kubernetes'",
        {"spec.placement": {"sandbox": {"affinity": {"nodeAfinity": {}}}}},
        "spec.placement.sandbox.affinity.nodeAfinity",
        "nodeAffinity",
        server_says="unknown field",
        local_only=True,
    ),
    Refused(
        "endpoint twice, with and without a slash",
        {"spec.endpoints": [{"url": "http://a:1/v1"}, {"url": "http://a:1/v1/"}]},
        "spec.endpoints",
        "'/' and '/v1' at the end make no other",
    ),
    Refused(
        "endpoint twice, with and without its version",
        {"spec.endpoints": [{"url": "http://a:1/v1"}, {"url": "http://a:1"}]},
        "spec.endpoints",
        "'/' and '/v1' at the end make no other",
    ),
    *(
        Refused(f"endpoint {name}", {"spec.endpoints.0.url": url}, "spec.endpoints[0].url", "is not a valid URL")
        for name, url in (
            ("with a blank", "http://vllm models:8000/v1"),
            ("with a line break", "http://vllm.models:8000/v1\n"),
            ("with a line break in its path", "http://vllm.models:8000/v\n1"),
            ("at port 0", "http://vllm.models:0/v1"),
            ("at port 65536", "http://vllm.models:65536/v1"),
            ("at a port in words", "http://vllm.models:http/v1"),
            ("with a query", "http://vllm.models:8000/v1?key=secret"),
        )
    ),
    Refused(
        "API key without its key",
        {"spec.endpoints.0.apiKeySecretRef": {"name": "vllm"}},
        "spec.endpoints[0].apiKeySecretRef.key",
        "is missing",
        server_says="Required value",
    ),
    # Where files are
    Refused(
        "baseline outside of its volume",
        {"spec.gates": [{"baseline": "pvc://r/../x", "dataset": "humaneval"}]},
        "spec.gates[0].baseline",
        "'..' leads out of the volume",
    ),
    *(
        Refused(f"{name} outside of its volume", {path: url}, field, "'..' leads out of the volume")
        for name, path, field, url in (
            ("dataset", DATASET, "spec.datasets[0].source", "pvc://problems/../../../etc/passwd"),
            ("dataset at the end", DATASET, "spec.datasets[0].source", "pvc://problems/a/.."),
            ("model", "spec.model.path", "spec.model.path", "pvc://models/../../x"),
            ("output", "spec.output.url", "spec.output.url", "pvc://results/../ledger"),
        )
    ),
    *(
        Refused(f"{name} with a line break", {path: url}, field, "holds a line break")
        for name, path, field, url in (
            ("dataset", DATASET, "spec.datasets[0].source", "s3://data/a\nb.jsonl"),
            ("model", "spec.model.path", "spec.model.path", "Qwen/Qwen2.5\n--trust-remote-code"),
            ("output", "spec.output.url", "spec.output.url", "s3://bucket/a\nb"),
        )
    ),
    *(
        Refused(f"{name} without bucket", {path: url}, field, "names no bucket or host")
        for name, path, field, url in (
            ("dataset", DATASET, "spec.datasets[0].source", "s3://"),
            ("model", "spec.model.path", "spec.model.path", "gs:///step_1"),
            ("output", "spec.output.url", "spec.output.url", "s3:///runs"),
        )
    ),
    *(
        Refused(f"{name} by ftp", {path: url}, field, "unsupported kind of store", cluster_only=True)
        for name, path, field, url in (
            ("dataset", DATASET, "spec.datasets[0].source", "ftp://files/a.jsonl"),
            ("chained dataset", DATASET, "spec.datasets[0].source", "simplecache::file:///etc/passwd"),
            ("dataset chained behind a bucket", DATASET, "spec.datasets[0].source", "s3://b/x::file:///etc/passwd"),
            ("model", "spec.model.path", "spec.model.path", "ftp://files/step_1"),
            ("output", "spec.output.url", "spec.output.url", "ftp://files/runs"),
        )
    ),
    *(
        Refused(
            f"image {name}",
            {"spec.judge.gateway.image": image},
            "spec.judge.gateway.image",
            "does not match",
            server_says="should match",
        )
        for name, image in (
            ("with a blank", "my image:1"),
            ("in capitals", "registry.example.com/Team/judge"),
            ("with two tags", "judge:1:2"),
            ("with a cut digest", "judge@sha256:abc"),
            ("with a line break", "judge:1\n"),
        )
    ),
    Refused(
        "generator beside a rollout",
        {"spec.generator": {}},
        "spec.generator",
        "write rollout.headResources",
        rollout=True,
    ),
    *(
        Refused(
            f"a volume of {size}",
            {"spec.aggregator.storage": {"size": size}},
            "spec.aggregator.storage.size",
            "a volume of nothing holds no ledger",
        )
        for size in ("0", "0Gi", "0.0")
    ),
    Refused(
        "pod label that selects",
        {"spec.pods.labels": {"evalrun.dev/run-uid": "x"}},
        "spec.pods.labels",
        "select the run's own pods",
    ),
    Refused(
        "pod label with a blank",
        {"spec.pods.labels": {"a b": "x"}},
        "spec.pods.labels",
        "a label's key is a name of at most 63 characters",
    ),
    Refused(
        "pod label value with a blank",
        {"spec.pods.labels": {"team": "a b"}},
        "spec.pods.labels.team",
        "does not match",
        server_says="should match",
    ),
    Refused(
        "pod annotation of the operator's",
        {"spec.pods.annotations": {"evalrun.dev/applied": "x"}},
        "spec.pods.annotations",
        "are the operator's own",
    ),
    # Who judges
    Refused(
        "judge and judgeRef",
        {"spec.judge": {}, "spec.judgeRef": {"name": "shared"}},
        "spec.judgeRef",
        "write either judge (the run's own) or judgeRef",
    ),
    Refused(
        "gateway's min above max",
        {"spec.judge.gateway": {"minReplicas": 5, "maxReplicas": 2}},
        "spec.judge.gateway.minReplicas",
        MIN_ABOVE_MAX,
    ),
    Refused(
        "packages of a stock server",
        {"spec.judge.sandbox": {"backend": "SandboxFusion", "packages": ["/opt/packages"]}},
        "spec.judge.sandbox.packages",
        "remove packages, or write backend: Evalrun",
    ),
    Refused(
        "a relative directory of packages",
        {"spec.judge.sandbox.packages": ["packages"]},
        "spec.judge.sandbox.packages[0]",
        "does not match",
        server_says="should match",
    ),
    Refused(
        "sandbox's min above max",
        {"spec.judge.sandbox": {"minReplicas": 5, "maxReplicas": 2}},
        "spec.judge.sandbox.minReplicas",
        MIN_ABOVE_MAX,
    ),
    # Results
    Refused(
        "results that would be lost",
        {"spec.output": ABSENT},
        "spec.output",
        "write output.url (s3://..., gs://..., pvc://CLAIM/DIR), or output.retain: true",
        cluster_only=True,
    ),
    Refused(
        "output on my machine", {"spec.output": {"url": "./out"}}, "spec.output.url", NOT_IN_A_POD, cluster_only=True
    ),
    Refused(
        "key in the output's URL",
        {"spec.output.url": "s3://key:secret@bucket/runs"},
        "spec.output.url",
        "put them into a Secret and name it here",
    ),
    Refused(
        "gate on a directory of my machine",
        {"spec.gates": [{**GATE, "baseline": "outputs/last_good"}]},
        "spec.gates[0].baseline",
        "write the name of an EvalRun of this namespace, or the URL of its outputs",
        cluster_only=True,
    ),
    Refused(
        "newline at a name's end",
        {"spec.datasets.0.name": "humaneval\n"},
        "spec.datasets[0].name",
        "does not match",
        server_says="should match",
    ),
    Refused(
        "wandb without its key",
        {"spec.exports.wandb": {"project": "evals"}},
        "spec.exports.wandb.secretRef",
        "write secretRef, or mode: offline",
        cluster_only=True,
    ),
    Refused(
        "mlflow without scheme",
        {"spec.exports.mlflow": {"trackingURI": "mlflow.tools:5000"}},
        "spec.exports.mlflow.trackingURI",
        "write the server's URL",
    ),
    Refused(
        "mlflow in a directory",
        {"spec.exports.mlflow": {"trackingURI": "file:///mlruns"}},
        "spec.exports.mlflow.trackingURI",
        "a directory is kept on one machine only: write the server's URL",
        cluster_only=True,
    ),
    Refused(
        "gate on another dataset",
        {"spec.gates": [{**GATE, "dataset": "mbpp_reg"}]},
        "spec.gates",
        "write the name of one of datasets",
    ),
    Refused(
        "gate on forgeable results",
        {"spec.gates": [GATE], "spec.datasets.0.judgeMode": "Submit"},
        "spec.gates",
        "results of judgeMode: Submit can be forged and feed no gate",
    ),
    Refused(
        "gate on an unknown metric",
        {"spec.gates": [{**GATE, "metric": "avg_gen_time"}]},
        "spec.gates[0].metric",
        "write a metric that should rise",
    ),
    Refused(
        "gate of earlier releases",
        {"spec.gate": GATE},
        "spec.gate",
        "is no field; did you mean gates? It is a list",
        server_says='unknown field "spec.gate"',
        local_only=True,
    ),
    Refused(
        "gates with several runs as baselines",
        {"spec.gates": [{**GATE, "baseline": "one"}, {**GATE, "baseline": "other"}]},
        "spec.gates",
        "name one, and the others by the URL of their outputs",
    ),
    Refused(
        "gates of which one is on another dataset",
        {"spec.gates": [GATE, {**GATE, "dataset": "mbpp_reg"}]},
        "spec.gates",
        "write the name of one of datasets",
    ),
    Refused(
        "gate without a baseline",
        {"spec.gates": [{"dataset": "humaneval"}]},
        "spec.gates[0].baseline",
        "write exactly one of baseline (an earlier run) and anchor (a fixed figure)",
    ),
    Refused(
        "gate on a dataset and on several",
        {"spec.gates": [{**GATE, "datasets": [{"name": "humaneval"}]}]},
        "spec.gates[0].dataset",
        "write exactly one of dataset (one) and datasets (several",
    ),
    Refused(
        "gate on several datasets of which one is not evaluated",
        {"spec.gates": [{"baseline": "last-good", "datasets": [{"name": "humaneval"}, {"name": "mbpp_reg"}]}]},
        "spec.gates",
        "write the name of one of datasets",
    ),
    Refused(
        "gate with a weight for some",
        {
            "spec.gates": [
                {
                    "baseline": "last-good",
                    "datasets": [{"name": "humaneval", "weight": "1"}, {"name": "mbpp_reg"}],
                }
            ],
            "spec.datasets": [
                {"name": "humaneval", "source": "builtin:demo"},
                {"name": "mbpp_reg", "source": "builtin:demo"},
            ],
        },
        "spec.gates[0].datasets",
        "give each one a weight, or none",
    ),
    Refused(
        "gate with no weight at all",
        {"spec.gates": [{"baseline": "last-good", "datasets": [{"name": "humaneval", "weight": "0"}]}]},
        "spec.gates[0].datasets[0].weight",
        'write a weight above "0"',
    ),
    Refused(
        "gate that allows a loss and asks for a gain",
        {"spec.gates": [{**GATE, "maxRegression": "0.1", "minImprovement": "0.1"}]},
        "spec.gates[0].minImprovement",
        "write one of them",
    ),
    Refused(
        "a gate that keeps what passes and stops nothing",
        {"spec.gates": [{**GATE, "keepPassing": True}]},
        "spec.gates[0].keepPassing",
        "write sequential: true, or remove keepPassing",
    ),
    Refused(
        "sequential gate on several datasets",
        {"spec.gates": [{"baseline": "last-good", "datasets": [{"name": "humaneval"}], "sequential": True}]},
        "spec.gates[0].sequential",
        "write a gate for each, or sequential: false",
    ),
    Refused(
        "gate that expects nothing",
        {"spec.gates": [{**GATE, "expectedRange": {"low": "0.5", "high": "0.5"}}]},
        "spec.gates[0].expectedRange.low",
        "write a low below the high",
    ),
    Refused(
        "gate on a k that is not measured",
        {"spec.gates": [{**GATE, "metric": "pass_at_10"}]},
        "spec.gates",
        "write protocol.name: EVAL@k or another metric",
    ),
    Refused(
        "gate on a budget that is not measured",
        {"spec.gates": [{**GATE, "metric": "solved_within_budget"}]},
        "spec.gates",
        "write protocol.name: EVAL@budget or another metric",
    ),
    Refused(
        "gate on turns that are not measured",
        {"spec.gates": [{**GATE, "metric": "accepted_by_turn_2"}]},
        "spec.gates",
        "write protocol.name: EVAL@turns or another metric",
    ),
    Refused(
        "sequential gate on turns",
        {
            **protocol(name="EVAL@turns", turns={"limit": 3}),
            "spec.gates": [{**GATE, "metric": "recovery_rate", "sequential": True}],
        },
        "spec.gates",
        "write sequential: false",
    ),
    Refused(
        "gate that lets everything pass",
        {"spec.gates": [{**GATE, "maxRegression": "2"}]},
        "spec.gates[0].maxRegression",
        'write a fraction from "0.0" to "1.0"',
    ),
    Refused(
        "gate at no confidence",
        {"spec.gates": [{**GATE, "confidence": "1.0"}]},
        "spec.gates[0].confidence",
        'write a confidence from "0.5" to "0.999"',
    ),
    Refused(
        "cost without a price",
        {"spec.cost": {"currency": "EUR"}},
        "spec.cost",
        "write a price: gpuHour, cpuHour, or both",
    ),
    Refused(
        "currency in small letters",
        {"spec.cost": {"gpuHour": "2.50", "currency": "usd"}},
        "spec.cost.currency",
        "does not match",
        server_says="should match",
    ),
    Refused(
        "certificates of one's own and the operator's",
        {"spec.tls": "Issued", "spec.tlsSecretRefs": TLS_SECRETS},
        "spec.tlsSecretRefs",
        "write either tls or tlsSecretRefs",
    ),
    Refused(
        "certificates for all but the sandboxes",
        {"spec.tlsSecretRefs": {part: one for part, one in TLS_SECRETS.items() if part != "sandbox"}},
        "spec.tlsSecretRefs",
        "name gateway and sandbox where the run has a judge of its own",
    ),
    Refused(
        "certificates for gateways of a shared judge",
        {"spec.judgeRef": {"name": "shared"}, "spec.tlsSecretRefs": TLS_SECRETS},
        "spec.tlsSecretRefs",
        "neither with judgeRef",
    ),
    Refused(
        "negative backoff limit",
        {"spec.backoffLimit": -1},
        "spec.backoffLimit",
        "write 0 to 100",
        server_says="should be greater than or equal to 0",
    ),
    # The object itself
    Refused("long name", {"metadata.name": "a" * 31}, "metadata.name", "write at most 30 characters"),
    Refused("name with a dot", {"metadata.name": "run.1"}, "metadata.name", "a letter first, no dots"),
    Refused("name that starts with a digit", {"metadata.name": "7b"}, "metadata.name", "a letter first, no dots"),
    Refused("no spec", {"spec": ABSENT}, "spec", "is missing", server_says="Required value"),
)

_KEY, _VALUE = "is not allowed: write at most 63 characters", "is not allowed: write at most 63 characters"
BAD_METADATA: tuple[Refused, ...] = (
    *(
        Refused(f"{field} key {key[:20]!r}", {f"metadata.{field}": {key: "x"}}, f"metadata.{field}", _KEY, server_says)
        for field in ("labels", "annotations")
        for key, server_says in (
            ("a b", "name part must consist of"),
            ("-a", "name part must consist of"),
            ("a" * 64, "must be no more than 63"),
            ("x/y/z", "a valid label key must consist of"),
            ("-x.y/a", "prefix part"),
        )
    ),
    Refused(
        "label key in a domain in capitals", {"metadata.labels": {"X.Y/a": "x"}}, "metadata.labels", _KEY, "prefix"
    ),
    *(
        Refused(
            f"label {value[:9]!r}", {"metadata.labels": {"team": value}}, "metadata.labels.team", _VALUE, server_says
        )
        for value, server_says in (
            ("a b", "a valid label must be"),
            ("-a", "a valid label must be"),
            ("x" * 64, "must be no more than 63"),
            ("a\n", "a valid label must be"),
        )
    ),
)
"""Labels and annotations that Kubernetes refuses of any object."""

GOOD_METADATA: tuple[dict[str, dict[str, str]], ...] = (
    {"labels": {"team": "", "example.com/Step_1.a": "A-1_b.c"}},
    {"annotations": {"team": "any text,\nlines too", "X.Y/a": "x"}},
)

CHANGES_ONCE_STARTED: tuple[tuple[str, str, object], ...] = (
    ("model", "spec.model.path", "another/model"),
    ("datasets", "spec.datasets.0.maxProblems", 5),
    ("protocol", "spec.protocol.maxNewTokens", 512),
    ("endpoints", "spec.endpoints.0.url", "http://other:8000/v1"),
    ("generator", "spec.generator", {"resources": {"limits": {"cpu": "1"}}}),
    ("pods", "spec.pods.labels", {"team": "evals"}),
    ("judge", "spec.judge.sandbox.slots", 3),
    ("aggregator", "spec.aggregator.storage.size", "99Gi"),
    ("output", "spec.output.url", "s3://bucket/run"),
    ("exports", "spec.exports.prometheus", False),
    ("gates", "spec.gates", [GATE]),
    ("cost", "spec.cost", {"gpuHour": "2"}),
    ("activeDeadlineSeconds", "spec.activeDeadlineSeconds", 60),
    ("tlsSecretRefs", "spec.tlsSecretRefs", TLS_SECRETS),
    ("serviceAccountName", "spec.serviceAccountName", "robot"),
    ("imagePullSecrets", "spec.imagePullSecrets", [{"name": "pull"}]),
)
"""Field of the spec, path and value of a change that is refused once the run has started."""

CHANGES_AT_ANY_TIME: tuple[tuple[str, object], ...] = (
    ("spec.suspend", True),
    ("spec.ttlSecondsAfterFinished", 60),
    ("spec.backoffLimit", 7),
)
