"""EvalRun manifests for tests: a valid one, and one of each kind that must be refused, with what the user is told.

The table serves the offline check and the real API server, which must say the same.
"""

import copy
from dataclasses import dataclass
from typing import Any

ABSENT = object()
"""In a change: take the field away."""

LOADS_NOTHING = "loadFormat: dummy loads no weights"
MIN_ABOVE_MAX = "write minReplicas up to maxReplicas"
NOT_IN_A_POD = "a path of your machine means nothing in a pod"


def evalrun_manifest(changes: dict[str, Any] | None = None, *, rollout: bool = False) -> dict[str, Any]:
    """Give a valid manifest, in simple mode or with a rollout, after changes by path (`spec.datasets.0.name`)."""
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
    rollout: bool = False
    local_only: bool = False
    """The API server prunes it instead (unknown fields: kubectl asks for strict validation)."""
    cluster_only: bool = False
    """Fine on one machine."""

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest."""
        return evalrun_manifest(self.changes, rollout=self.rollout)


def protocol(**fields: object) -> dict[str, object]:
    return {"spec.protocol": fields}


GATE = {"baseline": "last-good", "dataset": "humaneval"}

REFUSED: tuple[Refused, ...] = (
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
        "Write one of EVAL@1, EVAL@k, EVAL@budget",
        server_says='supported values: "EVAL@1", "EVAL@k", "EVAL@budget"',
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
        "unknown test group",
        {"spec.datasets.0.tests": ["public", "secret"]},
        "spec.datasets[0].tests[1]",
        "Write one of public, private, generated",
        server_says='supported values: "public", "private", "generated"',
    ),
    Refused(
        "time limit without bounds",
        {"spec.datasets.0.limits": {"timeSeconds": 100_000}},
        "spec.datasets[0].limits.timeSeconds",
        "write 1 to 600",
        server_says="should be less than or equal to 600",
    ),
    # Who answers
    Refused("rollout and endpoints", {"spec.rollout": {"gpusPerNode": 8}}, "spec", "write either rollout"),
    Refused("neither rollout nor endpoints", {"spec.endpoints": ABSENT}, "spec", "write either rollout"),
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
        {"spec.rollout.loadFormat": "dummy", "spec.rollout.allowDummyWeights": True, "spec.gate": GATE},
        "spec.gate",
        "remove gate, or write loadFormat: auto",
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
        "remove nvidia.com/gpu from resources",
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
        "gate on a folder of my machine",
        {"spec.gate": {**GATE, "baseline": "outputs/last_good"}},
        "spec.gate.baseline",
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
        "mlflow in a folder",
        {"spec.exports.mlflow": {"trackingURI": "file:///mlruns"}},
        "spec.exports.mlflow.trackingURI",
        "a folder is kept on one machine only: write the server's URL",
        cluster_only=True,
    ),
    Refused(
        "gate on another dataset",
        {"spec.gate": {**GATE, "dataset": "mbpp_reg"}},
        "spec.gate.dataset",
        "write the name of one of datasets",
    ),
    Refused(
        "gate on forgeable results",
        {"spec.gate": GATE, "spec.datasets.0.judgeMode": "Submit"},
        "spec.gate.dataset",
        "write judgeMode: RunCode for this dataset",
    ),
    Refused(
        "gate on an unknown metric",
        {"spec.gate": {**GATE, "metric": "timeout_rate"}},
        "spec.gate.metric",
        "write a metric whose rise is good",
    ),
    Refused(
        "gate on a k that is not measured",
        {"spec.gate": {**GATE, "metric": "pass_at_10"}},
        "spec.gate.metric",
        "write protocol.name: EVAL@k or another metric",
    ),
    Refused(
        "gate on a budget that is not measured",
        {"spec.gate": {**GATE, "metric": "solved_within_budget"}},
        "spec.gate.metric",
        "write protocol.name: EVAL@budget or another metric",
    ),
    Refused(
        "gate that lets everything pass",
        {"spec.gate": {**GATE, "maxRegression": "2"}},
        "spec.gate.maxRegression",
        'write a fraction from "0.0" to "1.0"',
    ),
    Refused(
        "gate at no confidence",
        {"spec.gate": {**GATE, "confidence": "1.0"}},
        "spec.gate.confidence",
        'write a confidence from "0.5" to "0.999"',
    ),
    Refused(
        "currency in small letters",
        {"spec.cost": {"gpuHour": "2.50", "currency": "usd"}},
        "spec.cost.currency",
        "does not match",
        server_says="should match",
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

CHANGES_ONCE_STARTED: tuple[tuple[str, str, object], ...] = (
    ("model", "spec.model.path", "another/model"),
    ("datasets", "spec.datasets.0.maxProblems", 5),
    ("protocol", "spec.protocol.maxNewTokens", 512),
    ("endpoints", "spec.endpoints.0.url", "http://other:8000/v1"),
    ("judge", "spec.judge.sandbox.slots", 3),
    ("aggregator", "spec.aggregator.storage.size", "99Gi"),
    ("output", "spec.output.url", "s3://bucket/run"),
    ("exports", "spec.exports.prometheus", False),
    ("gate", "spec.gate", GATE),
    ("cost", "spec.cost", {"gpuHour": "2"}),
    ("activeDeadlineSeconds", "spec.activeDeadlineSeconds", 60),
    ("serviceAccountName", "spec.serviceAccountName", "robot"),
    ("imagePullSecrets", "spec.imagePullSecrets", [{"name": "pull"}]),
)
"""Field of the spec, path and value of a change that is refused once the run has started."""

CHANGES_AT_ANY_TIME: tuple[tuple[str, object], ...] = (
    ("spec.suspend", True),
    ("spec.ttlSecondsAfterFinished", 60),
    ("spec.backoffLimit", 7),
)
