"""The values: each one commented and in the schema; what is wrong is refused with a message that names it."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from builders.cluster.chart import CHART, VALUE_SETS, Chart, ChartRefusedError

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"operater": {}}, "additional properties 'operater' not allowed"),
    ({"operator": {"replica": 2}}, "at '/operator': additional properties 'replica' not allowed"),
    ({"operator": {"replicas": 0}}, "at '/operator/replicas': minimum"),
    ({"operator": {"operatorClass": "Team A"}}, "at '/operator/operatorClass'"),
    ({"operator": {"workers": 0}}, "at '/operator/workers': minimum: got 0, want 1"),
    ({"operator": {"workers": "many"}}, "at '/operator/workers': got string, want integer"),
    ({"operator": {"autoscaling": "vpa"}}, "at '/operator/autoscaling': value must be one of 'cpu', 'custom', 'keda'"),
    ({"operator": {"watchNamespaces": "team"}}, "at '/operator/watchNamespaces': got string, want array"),
    ({"operator": {"watchNamespaces": ["Team"]}}, "at '/operator/watchNamespaces/0': 'Team' does not match pattern"),
    ({"operator": {"kedaPrometheus": "prometheus:9090"}}, "at '/operator/kedaPrometheus'"),
    ({"operator": {"logLevel": "trace"}}, "at '/operator/logLevel'"),
    ({"operator": {"resources": {"limit": {}}}}, "at '/operator/resources': additional properties 'limit' not allowed"),
    ({"operator": {"podLabels": {"team": 1}}}, "at '/operator/podLabels/team': got number, want string"),
    ({"images": {"pullPolicy": "Sometimes"}}, "'Always', 'IfNotPresent', 'Never'"),
    ({"images": {"judge": "evalrun-judge:1"}}, "at '/images/judge': got string, want object"),
    ({"images": {"judge": {"digest": "sha256:abc"}}}, "at '/images/judge/digest'"),
    ({"images": {"pullSecrets": ["registry"]}}, "at '/images/pullSecrets/0': got string, want object"),
    (
        {"operator": {"extraEnv": [{"name": "X", "value": 1}]}},
        "at '/operator/extraEnv/0/value': got number, want string",
    ),
    ({"operator": {"rayVersion": "2.49.1"}}, "Ray 2.49.1 knows no token (2.52 does): write operator.rayAuth: disabled"),
    ({"operator": {"rayAuth": "none"}}, "at '/operator/rayAuth': value must be one of 'token', 'disabled'"),
    ({"runDefaults": {"modelCacheClaim": "Models"}}, "at '/runDefaults/modelCacheClaim'"),
    ({"runDefaults": {"headMemory": "16 GB"}}, "at '/runDefaults/headMemory'"),
    ({"runDefaults": {"sandboxSlots": 0}}, "at '/runDefaults/sandboxSlots': minimum"),
    (
        {"runDefaults": {"placement": {"judge": {}}}},
        "at '/runDefaults/placement': additional properties 'judge' not allowed",
    ),
    ({"runDefaults": {"placement": {"sandbox": {"tolerations": [{"keys": "x"}]}}}}, "additional properties 'keys' not"),
    ({"runDefaults": {"gpuResource": "gpu"}}, "at '/runDefaults/gpuResource'"),
    ({"sharedJudge": {"enabled": "yes"}}, "at '/sharedJudge/enabled': got string, want boolean"),
    ({"sharedJudge": {"sandbox": {"slots": 2.5}}}, "at '/sharedJudge/sandbox/slots': got number, want integer"),
    ({"sharedJudge": {"gateway": {"maxReplicas": 101}}}, "at '/sharedJudge/gateway/maxReplicas': maximum"),
    ({"sharedJudge": {"token": {"key": "a b"}}}, "at '/sharedJudge/token/key'"),
    ({"sharedJudge": {"gateway": {"discovery": "k8s"}}}, "must be one of 'dns', 'endpointSlices'"),
    ({"metrics": {"serviceMonitor": {"interval": "often"}}}, "at '/metrics/serviceMonitor/interval'"),
    ({"fullnameOverride": "Evaluations"}, "at '/fullnameOverride'"),
]
NUMBERS: dict[str, Any] = {
    "operator": {"operatorClass": "7", "priorityClassName": "1e3"},
    "runDefaults": {"modelCacheClaim": "0x10"},
    "sharedJudge": {
        "enabled": True, "token": {"existingSecret": "12", "key": "1"}, "sandboxToken": {"key": "2"},
        "sandbox": {"runtimeClassName": "3"},
    },
    "reward": {
        "enabled": True, "token": {"key": "4"}, "problems": {"claim": "5", "files": ["a.jsonl"]},
        "sessions": {"redisSecret": "6", "key": "true"},
    },
    "prepareData": {"enabled": True, "claim": "8", "credentialsSecret": "9", "plan": {"datasets": [{"name": "a"}]}},
}  # fmt: skip
"""Names that Kubernetes allows, and YAML takes for something else."""
FREE = (
    "placement",
    "gatewayResources",
    "generatorResources",
    "aggregatorResources",
    "nodeSelector",
    "affinity",
    "podLabels",
    "podAnnotations",
    "annotations",
    "labels",
    "resources",
)
"""Values that are handed on to Kubernetes: their keys are not ours."""


@pytest.mark.parametrize(("values", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_wrong_values_are_refused_by_name(chart: Chart, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ChartRefusedError) as refused:
        chart.render(values)
    assert message in str(refused.value)


@pytest.mark.parametrize("values", VALUE_SETS)
def test_helm_lint_reports_no_warning(chart: Chart, values: str) -> None:
    said = chart.lint(VALUE_SETS[values])
    assert "1 chart(s) linted, 0 chart(s) failed" in said
    assert not re.search(r"\[(WARNING|ERROR)\]", said)


def paths(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict) and key not in FREE:
            yield from paths(value, f"{prefix}{key}.")


def schema_paths(schema: dict[str, Any], definitions: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, inner in schema.get("properties", {}).items():
        resolved = definitions[inner["$ref"].rpartition("/")[2]] if "$ref" in inner else inner
        yield f"{prefix}{key}"
        if key not in FREE and resolved.get("type") == "object":
            yield from schema_paths(resolved, definitions, f"{prefix}{key}.")


def test_schema_and_values_have_the_same_paths() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(schema_paths(schema, schema["definitions"])) - {"global"} == set(paths(values))


def test_every_value_has_a_comment() -> None:
    """A comment above it or on its line; two values under one comment stand directly below each other."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    bare = []
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        above = lines[number - 1]
        if not re.match(r"\s*[a-zA-Z]+:", line) or "#" in line or above.lstrip().startswith("#"):
            continue
        inside_resources = line.strip().startswith(("requests:", "limits:"))
        if not (inside_resources or (above.strip() and indent == len(above) - len(above.lstrip()) and "{" in line)):
            bare.append(line)
    assert not bare


def strings(item: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(item, dict):
        for key, value in item.items():
            yield f"{path}.<key>", key
            yield from strings(value, f"{path}.{key}")
    elif isinstance(item, list):
        for value in item:
            yield from strings(value, path)
    elif path.rpartition(".")[2] in {"name", "key", "value", "claimName", "priorityClassName", "runtimeClassName"}:
        yield path, item


def test_names_that_look_like_numbers_stay_text(chart: Chart) -> None:
    found = [
        (item["kind"], path, value)
        for item in chart.render(NUMBERS)
        if item["kind"] not in {"CustomResourceDefinition"}
        for path, value in strings(item)
        if not isinstance(value, str)
    ]
    assert found == []
