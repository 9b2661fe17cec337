"""The chart as objects: rendered by the real helm, parsed, ready to be asserted on."""

import copy
import functools
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "evalrun"
KUBERNETES = "1.36.3"
"""What is rendered for: a helm built from its module knows no version of its own."""

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser where PyYAML was built with it

Object = dict[str, Any]
Values = Mapping[str, Any]

PLACED: Values = {
    "nodeSelector": {"pool": "evaluations"},
    "topologySpread": [{"topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "priorityClassName": "batch",
    "schedulerName": "packer",
}
"""Of each part of the chart that has pods."""

VALUE_SETS: dict[str, Values] = {
    "defaults": {},
    "shared-judge": {"sharedJudge": {"enabled": True}},
    "shared-judge-keda": {
        "sharedJudge": {
            "enabled": True,
            "autoscaling": "keda",
            "gateway": {"minReplicas": 0},
            "sandbox": {"minReplicas": 0},
        }
    },
    "shared-judge-cpu": {"sharedJudge": {"enabled": True, "autoscaling": "cpu"}},
    "shared-judge-custom": {"sharedJudge": {"enabled": True, "autoscaling": "custom"}},
    "endpoint-slices": {
        "sharedJudge": {
            "enabled": True,
            "gateway": {"discovery": "endpointSlices"},
            "sandbox": {"slots": 3, "slotMilliCpu": 100},
        }
    },
    "gvisor": {
        "sharedJudge": {
            "enabled": True,
            "token": {"existingSecret": "judge-token", "key": "secret"},
            "sandboxToken": {"existingSecret": "sandbox-token", "key": "other"},
            "sandbox": {"runtimeClassName": "gvisor", "slots": 16, "nodeSelector": {"pool": "sandbox"}},
        }
    },
    "prepare-data": {
        "prepareData": {
            "enabled": True,
            "claim": "eval-data",
            "plan": {"datasets": [{"name": "mbpp_reg", "source": "s3://sources/mbpp.jsonl"}]},
            "credentialsSecret": "sources-bucket",
        }
    },
    "reward": {
        "sharedJudge": {"enabled": True},
        "reward": {
            "enabled": True,
            "problems": {"claim": "eval-data", "files": ["train.parquet"]},
            "graders": {"openai/gsm8k": "graders/gsm8k.py", "*": "builtin:verl"},
            "sessions": {"redisSecret": "sessions", "live": {"replicas": 2}},
        },
        "runDefaults": {"otlpEndpoint": "http://collector:4317"},
    },
    "viewer": {
        "viewer": {
            "proxy": {"header": "X-Auth-Request-User", "addresses": ["10.0.3.0/24"]},
            "clients": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}],
            "namespaces": {
                "team-a": {
                    "hosts": ["a.example.com"],
                    "claim": "outputs",
                    "ingress": {
                        "enabled": True,
                        "className": "nginx",
                        "annotations": {"note": "1"},
                        "tlsSecret": "a-tls",
                    },
                    "podAnnotations": {"note": "1"},
                    "podLabels": {"team": "a"},
                },
                "team-b": {
                    "hosts": ["b.example.com"],
                    "places": ["s3://evaluations/b"],
                    "credentialsSecret": "bucket",
                    "live": True,
                    "token": {"existingSecret": "viewer", "key": "tokens"},
                    "httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}]},
                },
            },
        }
    },
    "namespaces": {"operator": {"watchNamespaces": ["team-a", "team-b"]}},
    "own-registry": {
        "images": {
            "registry": "registry.test/team",
            "tag": "1.2.3",
            "judge": {"digest": "sha256:" + "a" * 64},
            "pullSecrets": [{"name": "registry"}],
        },
        "sharedJudge": {"enabled": True},
    },
    "monitored": {
        "metrics": {
            "annotations": False,
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
            "dashboards": {"enabled": True, "annotations": {"grafana_folder": "evalrun"}},
        },
        "networkPolicy": {"metricsClients": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]},
        "sharedJudge": {"enabled": True},
        "reward": {"enabled": True, "sessions": {"redisSecret": "sessions", "live": {"replicas": 1}}},
    },
    "placed": {
        "runDefaults": {
            "placement": {
                "sandbox": {
                    "nodeSelector": {"pool": "untrusted"},
                    "tolerations": [{"key": "untrusted", "operator": "Exists"}],
                    "topologySpread": [{"topologyKey": "topology.kubernetes.io/zone"}],
                },
                "rayWorkers": {"priorityClassName": "gpu", "schedulerName": "packer", "labels": {"team": "a"}},
            },
            "gpuResource": "amd.com/gpu",
        },
        "operator": dict(PLACED),
        "sharedJudge": {"enabled": True, "gateway": dict(PLACED), "sandbox": dict(PLACED)},
        "reward": {"enabled": True, **PLACED},
        "prepareData": {
            "enabled": True,
            "claim": "eval-data",
            **{key: value for key, value in PLACED.items() if key != "topologySpread"},
        },
        "retention": {
            "enabled": True,
            "places": ["/data"],
            "claim": "runs",
            "days": 90,
            "credentialsSecret": "bucket",
            **{key: value for key, value in PLACED.items() if key != "topologySpread"},
        },
        "viewer": {
            "namespaces": {"team-a": {"claim": "runs", "token": {"existingSecret": "viewer"}}},
            **{key: value for key, value in PLACED.items() if key != "topologySpread"},
        },
    },
    "bare": {
        "crds": {"create": False},
        "admission": {"enabled": False},
        "rbac": {"create": False, "aggregateToUserRoles": False},
        "networkPolicy": {"enabled": False},
        "operator": {
            "serviceAccount": {"create": False, "name": "operator"},
            "podDisruptionBudget": {"enabled": False},
        },
        "sharedJudge": {"enabled": True, "podDisruptionBudget": {"enabled": False}},
    },
    "renamed": {
        "fullnameOverride": "evaluations",
        "operator": {
            "podLabels": {"team": "quality"},
            "podAnnotations": {"prometheus.io/scrape": "false"},
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
            "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        },
    },
}
"""Values that between them reach every branch of the templates."""


class ChartRefusedError(Exception):
    """Helm refused the values; the message is what it printed."""


@dataclass(frozen=True)
class Chart:
    """The chart, and the helm that renders it."""

    helm: Path

    def render(
        self, values: Values | None = None, *, release: str = "evalrun", namespace: str = "evalrun-system"
    ) -> list[Object]:
        """Return the objects that these values make.

        Raises:
            ChartRefusedError: the schema or a template refuses the values.
        """
        return copy.deepcopy(_rendered(self, json.dumps(values or {}), release, namespace))

    def lint(self, values: Values | None = None) -> str:
        """Return what `helm lint --strict` says.

        Raises:
            ChartRefusedError: it found something.
        """
        arguments = ["lint", str(CHART), "--strict", "--kube-version", KUBERNETES, "--values", "-"]
        return self.run(arguments, json.dumps(values or {}))

    def run(self, arguments: Sequence[str], values: str) -> str:
        """Run helm with the values, JSON, on its standard input; return what it printed."""
        command = [str(self.helm), *arguments]
        done = subprocess.run(command, input=values, check=False, capture_output=True, text=True, timeout=50)
        if done.returncode != 0:
            raise ChartRefusedError(done.stdout + done.stderr)
        return done.stdout


@functools.cache
def _rendered(chart: Chart, values: str, release: str, namespace: str) -> list[Object]:
    """Return the objects of a chart, rendered once: 300 tests ask for some 100 sets of values.

    Most of them are the CRD, which PyYAML's own parser takes half a second for, libyaml's a tenth.
    """
    flags = ["--namespace", namespace, "--kube-version", KUBERNETES, "--values", "-"]
    text = chart.run(["template", release, str(CHART), *flags], values)
    return [item for item in yaml.load_all(text, LOADER) if item]


def named(objects: Sequence[Object], kind: str, name: str) -> Object:
    (found,) = [item for item in objects if item["kind"] == kind and item["metadata"]["name"] == name]
    return found


def of_kind(objects: Sequence[Object], kind: str) -> list[Object]:
    return [item for item in objects if item["kind"] == kind]


def workloads(objects: Sequence[Object]) -> Iterator[tuple[str, Object]]:
    for item in objects:
        spec = item.get("spec", {})
        template = spec["jobTemplate"]["spec"]["template"] if item["kind"] == "CronJob" else spec.get("template")
        if isinstance(template, dict) and "containers" in template.get("spec", {}):
            yield item["metadata"]["name"], template


def environment(container: Object) -> dict[str, str]:
    return {item["name"]: item["value"] for item in container["env"] if "value" in item}
