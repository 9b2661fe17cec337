"""The chart and the code say the same: settings, flags, ports, labels, roles, versions, and the plain manifest."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.cluster.chart import (
    CHART,
    ROOT,
    VALUE_SETS,
    Chart,
    ChartRefusedError,
    Object,
    Values,
    environment,
    named,
    of_kind,
    workloads,
)
from pydantic import SecretStr

from evalrun_api import names
from evalrun_judge.settings import JudgeSettings
from evalrun_operator.rbac import lease_rules, role_rules
from evalrun_operator.resources.autoscaling import BEHAVIOR, FALLBACK_AFTER, cpu_metric
from evalrun_operator.resources.pods import USER
from evalrun_operator.settings import AutoscalingMode, OperatorSettings
from evalrun_reward.settings import RewardSettings
from evalrun_runtime.settings import ServiceSettings, load_settings
from evalrun_sandbox.settings import SandboxSettings

VALUES: dict[str, Any] = {
    "sharedJudge": {"enabled": True},
    "operator": {
        "watchNamespaces": ["team-a", "team-b"],
        "operatorClass": "nightly",
        "autoscaling": "keda",
        "kedaPrometheus": "http://prom:9090",
        "rayVersion": "2.61.0",
        "rayAuth": "disabled",
        "workers": 32,
        "pollSeconds": 2.5,
        "resyncSeconds": 1200,
        "logLevel": "debug",
    },
    "images": {"registry": "registry.test", "tag": "7", "pullPolicy": "Always"},
    "networkPolicy": {"metadataClients": ["aggregator", "rayWorkers"], "dns": [{"podSelector": {}}]},
    "runDefaults": {
        "sandboxSlots": 8,
        "sandboxSlotMemoryMib": 1048576,
        "sandboxSlotMilliCpu": 250,
        "gatewayCpu": "2",
        "generatorCpu": "100m",
        "headCpu": "500m",
        "headMemory": "8Gi",
        "workerMemoryGibPerGpu": 96,
        "modelCacheClaim": "models",
        "otlpEndpoint": "http://collector:4317",
        "placement": {
            "sandbox": {
                "nodeSelector": {"pool": "untrusted"},
                "tolerations": [{"key": "untrusted", "operator": "Exists"}],
                "topologySpread": [{"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}],
                "affinity": {"podAntiAffinity": {}},
                "priorityClassName": "low",
                "schedulerName": "packer",
                "labels": {"tier": "hostile"},
                "annotations": {"note": "x"},
            }
        },
        "gpuResource": "amd.com/gpu",
    },
}


def container_of(objects: list[Object], name: str) -> Object:
    container: Object = pod_of(objects, name)["containers"][0]
    return container


def pod_of(objects: list[Object], name: str) -> Object:
    pod: Object = dict(workloads(objects))[name]["spec"]
    return pod


def test_operator_settings_parse_every_variable_of_the_chart(chart: Chart, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = environment(container_of(chart.render(VALUES), "evalrun-operator"))
    fields = {f"EVALRUN_OPERATOR_{name.upper()}" for name in OperatorSettings.model_fields}
    assert set(variables) <= fields
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = load_settings(OperatorSettings, [], program="evalrun-operator")
    assert settings.namespace == ["team-a", "team-b"]
    tokens = [f"evalrun-system/evalrun-{part}-token/token" for part in ("judge", "sandbox")]
    assert settings.shared_token == [*tokens, f"evalrun-system/evalrun-judge-authority/{names.SEED_KEY}"]
    assert settings.shared_judge is not None
    assert (settings.shared_judge.namespace, settings.shared_judge.gateway) == ("evalrun-system", "evalrun-judge")
    assert settings.autoscaling == "keda"
    assert settings.keda_prometheus == "http://prom:9090"
    assert (settings.ray_version, settings.ray_auth) == ("2.61.0", "disabled")
    assert (settings.workers, settings.poll_seconds, settings.resync_seconds) == (32, 2.5, 1200)
    assert (settings.log_level, settings.log_format) == ("debug", "json")
    assert settings.judge_image == "registry.test/evalrun-judge:7"
    assert settings.sandbox_image == "registry.test/evalrun-sandbox:7"
    assert settings.sandbox_graders_image == "registry.test/evalrun-sandbox-graders:7"
    assert settings.aggregator_image == "registry.test/evalrun-aggregator:7"
    assert settings.generator_image == settings.aggregator_image
    assert settings.ray_image == "registry.test/evalrun-gen:7"
    assert settings.ray_sglang_image == "registry.test/evalrun-gen-sglang:7"
    assert settings.sandbox_fusion_image == "volcengine/sandbox-fusion:server-20250609"
    assert settings.image_pull_policy == "Always"
    assert (settings.sandbox_slots, settings.sandbox_slot_memory_mib) == (8, 1048576)
    assert (settings.sandbox_slot_milli_cpu, settings.gateway_cpu, settings.generator_cpu) == (250, "2", "100m")
    assert (settings.head_cpu, settings.head_memory, settings.worker_memory_gib_per_gpu) == ("500m", "8Gi", 96)
    assert settings.model_cache_claim == "models"
    placement = settings.placement["sandbox"].to_wire()
    given = VALUES["runDefaults"]["placement"]["sandbox"]
    assert placement == given
    assert settings.gpu_resource == "amd.com/gpu"
    assert settings.metadata_clients == ["aggregator", "rayWorkers"]
    assert settings.dns_peers == VALUES["networkPolicy"]["dns"]
    assert settings.otlp_endpoint == "http://collector:4317"


def test_chart_defaults_equal_the_operator_defaults(chart: Chart, monkeypatch: pytest.MonkeyPatch) -> None:
    own = OperatorSettings()
    for name, value in environment(container_of(chart.render(), "evalrun-operator")).items():
        monkeypatch.setenv(name, value)
    given = load_settings(OperatorSettings, [], program="evalrun-operator")
    differing = {name for name in OperatorSettings.model_fields if getattr(own, name) != getattr(given, name)}
    deployed = {"host", "port", "metrics_port", "log_format", "lease", "allowed"}
    images = {name for name in OperatorSettings.model_fields if name.endswith("_image")} - {"sandbox_fusion_image"}
    assert differing == deployed | images


def test_operator_has_the_policys_lists_with_and_without_a_policy(chart: Chart) -> None:
    values: Values = {
        "images": {"registry": "registry.test/team"},
        "admission": {"allowed": {"claims": ["data"]}, "namespaces": {"team-a": {"images": ["registry.test/other/"]}}},
    }
    policy = named(chart.render(values), "ValidatingAdmissionPolicy", "evalrun-runs")
    (lists,) = (one["expression"] for one in policy["spec"]["variables"] if one["name"] == "lists")
    without = {**values, "operator": {"watchNamespaces": ["team-a"]}}
    assert not of_kind(chart.render(without), "ValidatingAdmissionPolicy")
    for given in (values, without):
        allowed = environment(container_of(chart.render(given), "evalrun-operator"))["EVALRUN_OPERATOR_ALLOWED"]
        assert json.loads(allowed) == json.loads(lists)
    assert json.loads(lists)["team-a"]["images"] == ["registry.test/team/", "registry.test/other/"]
    off = chart.render({"admission": {"enabled": False}})
    assert "EVALRUN_OPERATOR_ALLOWED" not in environment(container_of(off, "evalrun-operator"))


@pytest.mark.parametrize("mode", ["cpu", "custom", "keda"])
def test_operator_roles_have_exactly_the_rules_of_the_code(chart: Chart, mode: AutoscalingMode) -> None:
    wanted = role_rules(mode)
    everywhere = chart.render({"operator": {"autoscaling": mode}})
    assert named(everywhere, "ClusterRole", "evalrun-operator")["rules"] == wanted
    assert not [role for role in of_kind(everywhere, "Role") if role["metadata"]["name"].endswith("-tokens")]
    some = chart.render({"operator": {"autoscaling": mode, "watchNamespaces": ["team-a", "team-b"]}})
    assert [role["rules"] for role in of_kind(some, "Role")] == [wanted, wanted, lease_rules("evalrun-operator")]
    assert named(everywhere, "Role", "evalrun-operator-lease")["rules"] == lease_rules("evalrun-operator")


@pytest.mark.parametrize("mode", ["cpu", "custom"])
def test_shared_judge_autoscalers_equal_those_of_a_run(chart: Chart, mode: AutoscalingMode) -> None:
    judge = {"enabled": True, "autoscaling": mode, "sandbox": {"slots": 2}}
    scalers = of_kind(chart.render({"sharedJudge": judge}), "HorizontalPodAutoscaler")
    specs = {item["metadata"]["name"]: item["spec"] for item in scalers}
    assert specs.keys() == {"evalrun-judge", "evalrun-sandbox"}
    for name, cpus in (("evalrun-judge", 1), ("evalrun-sandbox", 2)):
        assert specs[name]["behavior"] == BEHAVIOR
        assert mode != "cpu" or specs[name]["metrics"] == [cpu_metric(cpus)]


def test_shared_judge_under_keda_has_the_scaling_behavior_of_a_run(chart: Chart) -> None:
    asleep = {"gateway": {"minReplicas": 0}, "sandbox": {"minReplicas": 0}}
    values = {"sharedJudge": {"enabled": True, "autoscaling": "keda", **asleep}}
    scalers = of_kind(chart.render(values), "ScaledObject")
    paces = [item["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] for item in scalers]
    assert paces == [BEHAVIOR, BEHAVIOR]
    fallback = {"failureThreshold": FALLBACK_AFTER, "replicas": 1, "behavior": "currentReplicasIfHigher"}
    assert [item["spec"]["fallback"] for item in scalers] == [fallback, fallback]


def test_operator_container_ports_equal_the_ports_of_its_settings(chart: Chart) -> None:
    container = container_of(chart.render(), "evalrun-operator")
    variables = environment(container)
    ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    assert ports == {
        "health": variables["EVALRUN_OPERATOR_PORT"],
        "metrics": variables["EVALRUN_OPERATOR_METRICS_PORT"],
    }


@pytest.mark.parametrize("values", ["shared-judge", "gvisor"])
def test_gateway_and_sandbox_settings_parse_the_flags_of_the_chart(
    chart: Chart, values: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = chart.render(VALUE_SETS[values])
    for name in ("evalrun-judge", "evalrun-sandbox"):
        for variable, file in token_files(objects, name).items():
            monkeypatch.setenv(variable, str(file))
    gateway = load_settings(JudgeSettings, container_of(objects, "evalrun-judge")["args"], program="judge")
    assert (gateway.host, gateway.port, gateway.metrics_port) == ("0.0.0.0", names.GRPC_PORT, names.METRICS_PORT)
    sandbox = load_settings(SandboxSettings, container_of(objects, "evalrun-sandbox")["args"], program="sandbox")
    assert (sandbox.host, sandbox.port, sandbox.metrics_port) == ("0.0.0.0", names.SANDBOX_PORT, names.METRICS_PORT)
    assert gateway.required_level == sandbox.required_level
    assert gateway.sandbox_token_file == sandbox.token_file
    assert gateway.token_file not in {None, sandbox.token_file}
    (url,) = gateway.sandbox
    assert url.endswith(f":{sandbox.port}")


NAMED = {"judge": "gateway-tls", "sandbox": "sandbox-tls", "live": "sandbox-tls", "reward": "reward-tls"}
ISSUED = {
    "judge": "evalrun-judge-tls",
    "sandbox": "evalrun-sandbox-tls",
    "live": "evalrun-sandbox-tls",
    "reward": "evalrun-judge-caller-tls",
}


@pytest.mark.parametrize("discovery", ["dns", "endpointSlices"])
@pytest.mark.parametrize("held", [NAMED, ISSUED], ids=["named", "issued"])
def test_tls_enabled_every_part_gets_its_directories_and_is_probed_on_a_plain_port(
    chart: Chart, discovery: str, held: dict[str, str]
) -> None:
    judge: dict[str, Any] = {"enabled": True, "gateway": {"discovery": discovery}}
    values = {**VALUE_SETS["reward"], "sharedJudge": judge}
    if held is NAMED:
        judge["tls"] = {"gatewaySecret": NAMED["judge"], "sandboxSecret": NAMED["sandbox"]}
        values["reward"] = {**values["reward"], "judgeTlsSecret": NAMED["reward"]}
    objects = chart.render(values)
    secrets = {}
    for name, settings_type, directories in (
        ("judge", JudgeSettings, {"tls_folder", "sandbox_tls_folder"}),
        ("sandbox", SandboxSettings, {"tls_folder"}),
        ("live", SandboxSettings, {"tls_folder"}),
        ("reward", RewardSettings, {"judge_tls_folder"}),
    ):
        container = container_of(objects, f"evalrun-{name}")
        flags = dict(flag.removeprefix("--").partition("=")[::2] for flag in container["args"])
        given = {key.replace("-", "_"): value for key, value in flags.items() if "tls-folder" in key}
        assert given == dict.fromkeys(directories, "/etc/evalrun/tls")
        assert directories <= settings_type.model_fields.keys()
        (mount,) = (one for one in container["volumeMounts"] if one["mountPath"] == "/etc/evalrun/tls")
        pod = pod_of(objects, f"evalrun-{name}")
        (volume,) = (one for one in pod["volumes"] if one["name"] == mount["name"])
        secrets[name] = volume["secret"]["secretName"]
        assert [one["path"] for one in volume["secret"]["items"]] == list(names.TLS_FILES)
        probes = [container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        asked = [probe[how]["port"] for probe in probes for how in ("grpc", "httpGet", "tcpSocket") if how in probe]
        probed = {ports.get(port, port) for port in asked}
        assert probed == ({int(flags["health-port"])} if "tls-folder" in flags else {8090})
    assert secrets == held
    issued = environment(container_of(objects, "evalrun-operator")).get("EVALRUN_OPERATOR_SHARED_JUDGE")
    assert (issued is not None) == (held is ISSUED)


def test_tls_disabled_renders_no_tls_flag_and_issues_no_certificate(chart: Chart) -> None:
    values = {**VALUE_SETS["reward"], "sharedJudge": {"enabled": True, "tls": {"mode": "disabled"}}}
    objects = chart.render(values)
    for name in ("judge", "sandbox", "live", "reward"):
        assert not [flag for flag in container_of(objects, f"evalrun-{name}")["args"] if "tls" in flag]
    assert (
        "--live-sandbox=http://evalrun-live-0.evalrun-live.evalrun-system.svc:8080"
        in container_of(objects, "evalrun-reward")["args"]
    )
    assert {one["metadata"]["name"] for one in of_kind(objects, "Secret")} == {
        f"evalrun-{part}-token" for part in ("judge", "sandbox", "reward")
    }
    assert "EVALRUN_OPERATOR_SHARED_JUDGE" not in environment(container_of(objects, "evalrun-operator"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sharedJudge": {"enabled": True, "tls": {"gatewaySecret": "a"}}}, "write both, or neither"),
        ({"sharedJudge": {"enabled": True}, "reward": {"enabled": True, "judgeTlsSecret": "a"}}, "judgeTlsSecret"),
        (
            {"sharedJudge": {"enabled": True, "tls": {"mode": "disabled", "gatewaySecret": "a", "sandboxSecret": "b"}}},
            "write one of them",
        ),
    ],
)
def test_incomplete_or_contradictory_tls_values_are_refused(chart: Chart, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ChartRefusedError, match=message):
        chart.render(values)


def test_reward_settings_parse_the_flags_of_the_chart(chart: Chart, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = chart.render(VALUE_SETS["reward"])
    container = container_of(objects, "evalrun-reward")
    secrets = [one["name"] for one in container["env"] if "valueFrom" in one]
    for name in secrets:
        monkeypatch.setenv(name, "secret")
    for name, file in token_files(objects, "evalrun-reward").items():
        monkeypatch.setenv(name, str(file))
    settings = load_settings(RewardSettings, container["args"], program="reward")
    assert (settings.host, settings.metrics_port) == ("0.0.0.0", names.METRICS_PORT)
    assert settings.judge == f"dns:///evalrun-judge.evalrun-system.svc:{names.GRPC_PORT}"
    assert settings.problems == ["/data/train.parquet"]
    assert settings.grader == ["*=builtin:verl", "openai/gsm8k=/data/graders/gsm8k.py"]
    assert None not in {settings.token_file, settings.judge_token_file}
    assert settings.token_file != settings.judge_token_file
    assert (settings.in_flight, settings.queue_limit) == (256, 16384)
    assert (settings.max_sessions, settings.session_idle_seconds) == (10_000, 3600)
    assert settings.session_store == SecretStr("secret")
    pods = [f"evalrun-live-{number}.evalrun-live.evalrun-system.svc" for number in range(2)]
    assert settings.live_sandbox == [f"https://{pod}:{names.SANDBOX_PORT}" for pod in pods]
    assert settings.live_sandbox_tls_name == "evalrun-sandbox.evalrun-system.svc"
    assert settings.live_sandbox_token_file is not None
    ports = {port["name"]: port["port"] for port in named(objects, "Service", "evalrun-reward")["spec"]["ports"]}
    assert ports == {"http": settings.port, "metrics": names.METRICS_PORT}


def test_live_sandbox_parses_its_flags_and_has_memory_for_slots_and_sessions(
    chart: Chart, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = chart.render(VALUE_SETS["reward"])
    stateful = named(objects, "StatefulSet", "evalrun-live")["spec"]
    assert (stateful["replicas"], stateful["serviceName"]) == (2, "evalrun-live")
    for name, file in token_files(objects, "evalrun-live").items():
        monkeypatch.setenv(name, str(file))
    container = container_of(objects, "evalrun-live")
    settings = load_settings(SandboxSettings, container["args"], program="sandbox")
    assert (settings.max_sessions, settings.slots, settings.required_level) == (200, 4, "full")
    held = settings.slots * settings.session_memory_mib + settings.session_budget_mib
    assert container["resources"]["limits"] == {"cpu": "4", "memory": f"{held + 512}Mi"}


def token_files(objects: list[Object], workload: str) -> dict[str, Path]:
    """Return by variable the files of tokens that a container reads; its pod's volumes hold them."""
    container = container_of(objects, workload)
    files = {one["name"]: Path(one["value"]) for one in container["env"] if one["name"].endswith("_TOKEN_FILE")}
    pod = pod_of(objects, workload)
    directories = {mount["name"]: Path(mount["mountPath"]) for mount in container["volumeMounts"]}
    held = {
        directories[volume["name"]] / item["path"]
        for volume in pod["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
        for item in source["secret"]["items"]
    }
    assert set(files.values()) == held
    return files


def test_pod_grace_period_exceeds_the_drain_time_of_its_service(chart: Chart) -> None:
    drains: dict[str, type[ServiceSettings]] = {
        "judge": JudgeSettings,
        "reward": RewardSettings,
        "sandbox": SandboxSettings,
    }
    pods = dict(workloads(chart.render(VALUE_SETS["reward"])))
    for part, settings in drains.items():
        longest = settings.model_fields["drain_seconds"].default
        assert pods[f"evalrun-{part}"]["spec"]["terminationGracePeriodSeconds"] > longest, part


def test_judge_service_has_the_ports_that_judge_ref_uses(chart: Chart) -> None:
    service = named(chart.render(VALUE_SETS["shared-judge"]), "Service", "evalrun-judge")
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    assert ports == {"grpc": names.GRPC_PORT, "metrics": names.METRICS_PORT}


def test_chart_pods_run_as_the_same_user_as_run_pods(chart: Chart) -> None:
    for _, template in workloads(chart.render(VALUE_SETS["shared-judge"])):
        assert template["spec"]["securityContext"]["runAsUser"] == USER


def test_component_labels_equal_those_of_the_operator(chart: Chart) -> None:
    components = {
        template["metadata"]["labels"][names.COMPONENT_LABEL]
        for _, template in workloads(chart.render(VALUE_SETS["shared-judge"]))
    }
    assert components == {"operator", names.JUDGE, names.SANDBOX}


def test_shared_gateway_network_policy_admits_the_aggregators_of_the_operator(chart: Chart) -> None:
    policy = named(chart.render(VALUE_SETS["shared-judge"]), "NetworkPolicy", "evalrun-judge")
    (source,) = policy["spec"]["ingress"][0]["from"]
    wanted = source["podSelector"]["matchLabels"]
    assert wanted == {names.COMPONENT_LABEL: names.AGGREGATOR, "app.kubernetes.io/name": "evalrun"}


def test_service_monitor_of_runs_selects_the_services_of_the_operator(chart: Chart) -> None:
    monitor = named(chart.render(VALUE_SETS["monitored"]), "ServiceMonitor", "evalrun-runs")
    assert monitor["spec"]["selector"]["matchLabels"] == {"app.kubernetes.io/managed-by": names.FIELD_MANAGER}
    (endpoint,) = monitor["spec"]["endpoints"]
    # What Prometheus makes of a Service's label: everything but letters and digits becomes an underscore.
    label = "__meta_kubernetes_service_label_" + re.sub(r"\W", "_", names.RUN_LABEL)
    assert endpoint["relabelings"] == [{"sourceLabels": [label], "targetLabel": "run"}]
    assert endpoint["honorLabels"] is True


def test_user_roles_cover_exactly_the_installed_crds(chart: Chart) -> None:
    objects = chart.render()
    crds = of_kind(objects, "CustomResourceDefinition")
    plurals = {crd["spec"]["names"]["plural"] for crd in crds}
    for role in ("evalrun-view", "evalrun-edit"):
        for rule in named(objects, "ClusterRole", role)["rules"]:
            assert rule["apiGroups"] == ["evalrun.dev"]
            assert {resource.partition("/")[0] for resource in rule["resources"]} == plurals


def test_chart_images_and_distribution_have_one_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == version
    for dockerfile in ("Dockerfile.judge", "Dockerfile.gen"):
        assert f"ARG VERSION={version}\n" in (ROOT / dockerfile).read_text()


def test_ray_version_is_the_same_in_chart_image_and_operator() -> None:
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    ray = values["operator"]["rayVersion"]
    assert f"ARG RAY_VERSION={ray}\n" in (ROOT / "Dockerfile.gen").read_text()
    assert OperatorSettings.model_fields["ray_version"].default == ray


def test_plain_manifest_equals_the_rendered_chart(chart: Chart) -> None:
    tool = ROOT / "tools" / "generate_manifests.py"
    environ = {"KUBEBUILDER_ASSETS": str(chart.helm.parent), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, str(tool), "--check"], env=environ, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_deleting_the_plain_manifest_deletes_no_run() -> None:
    items = list(yaml.safe_load_all((ROOT / "k8s" / "install.yaml").read_text()))
    assert "CustomResourceDefinition" not in {item["kind"] for item in items}
    crds = list(yaml.safe_load_all((ROOT / "k8s" / "crd.yaml").read_text()))
    assert {item["kind"] for item in crds} == {"CustomResourceDefinition"}


def test_plain_manifest_has_no_helm_labels() -> None:
    text = Path(ROOT / "k8s" / "install.yaml").read_text()
    assert "managed-by: Helm" not in text
    assert "helm.sh" not in text
    first, *_ = yaml.safe_load_all(text)
    assert first["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
