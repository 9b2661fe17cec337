"""Every pod of the chart, under every set of values: restricted, probed, bounded, its images pinned."""

import re
from typing import Any

import pytest
from builders.cluster.chart import PLACED, VALUE_SETS, Chart, Object, named, workloads

from evalrun_operator.resources.pods import LOST_NODE

IMAGE = re.compile(r"^[a-zA-Z0-9._:/-]+(:[A-Za-z0-9_][A-Za-z0-9._-]*|@sha256:[0-9a-f]{64})$")

VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}


@pytest.fixture(params=VALUE_SETS, scope="module")
def templates(request: pytest.FixtureRequest, chart: Chart) -> list[tuple[str, Object]]:
    return list(workloads(chart.render(VALUE_SETS[request.param])))


def test_every_value_set_renders_an_operator(templates: list[tuple[str, Object]]) -> None:
    assert any(name.endswith("-operator") for name, _ in templates)


def test_pods_satisfy_the_restricted_standard(templates: list[tuple[str, Object]]) -> None:
    for name, template in templates:
        pod = template["spec"]
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security["runAsUser"] == security["runAsGroup"] == security["fsGroup"] == 10001, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(), name
        assert {kind for volume in pod["volumes"] for kind in volume if kind != "name"} <= VOLUMES, name
        projected = [source for volume in pod["volumes"] for source in volume.get("projected", {}).get("sources", ())]
        assert all(source.keys() == {"secret"} for source in projected), name
        for container in pod["containers"]:
            inner = container["securityContext"]
            assert inner["allowPrivilegeEscalation"] is False, name
            assert inner["readOnlyRootFilesystem"] is True, name
            assert inner["capabilities"] == {"drop": ["ALL"]}, name
            assert not any("hostPort" in port for port in container.get("ports", ())), name


def test_scratch_space_is_bounded(templates: list[tuple[str, Object]]) -> None:
    for name, template in templates:
        for volume in template["spec"]["volumes"]:
            assert "sizeLimit" in volume.get("emptyDir", {"sizeLimit": "no scratch space"}), name


def test_only_pods_that_use_the_api_server_mount_a_service_account_token(
    templates: list[tuple[str, Object]],
) -> None:
    for name, template in templates:
        pod = template["spec"]
        asks = any("k8s:///" in each or each == "er/" for each in pod["containers"][0].get("args", ()))
        assert pod["automountServiceAccountToken"] is (name.endswith("-operator") or asks)
        assert pod["enableServiceLinks"] is False
        assert ("serviceAccountName" in pod) is (name.endswith("-operator") or asks)


def test_every_container_has_probes_and_bounds(templates: list[tuple[str, Object]]) -> None:
    for name, template in templates:
        for container in template["spec"]["containers"]:
            resources = container["resources"]
            assert {"cpu", "memory"} <= resources["requests"].keys(), name
            assert "memory" in resources["limits"], name
            if template["spec"].get("restartPolicy") == "Never":  # a Job serves nobody
                continue
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys(), name
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert probed_port(container[kind]) in {*ports, *ports.values()}, (name, kind)


def probed_port(probe: dict[str, Any]) -> str | int:
    (check,) = (probe[kind] for kind in ("grpc", "httpGet", "tcpSocket") if kind in probe)
    port: str | int = check["port"]
    return port


def test_images_are_pinned(templates: list[tuple[str, Object]]) -> None:
    for name, template in templates:
        for container in template["spec"]["containers"]:
            assert IMAGE.match(container["image"]), (name, container["image"])
            assert not container["image"].endswith(":latest"), name


def test_images_use_the_configured_registry_and_tag(chart: Chart) -> None:
    objects = chart.render(VALUE_SETS["own-registry"])
    images = {name: template["spec"]["containers"][0]["image"] for name, template in workloads(objects)}
    assert images == {
        "evalrun-operator": "registry.test/team/evalrun-operator:1.2.3",
        "evalrun-judge": "registry.test/team/evalrun-judge@sha256:" + "a" * 64,
        "evalrun-sandbox": "registry.test/team/evalrun-sandbox:1.2.3",
    }
    for _, template in workloads(objects):
        assert template["spec"]["imagePullSecrets"] == [{"name": "registry"}]


def test_operator_pod_user_additions_are_rendered(chart: Chart) -> None:
    objects = chart.render(VALUE_SETS["renamed"])
    template = named(objects, "Deployment", "evaluations-operator")["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "quality"
    assert template["metadata"]["annotations"]["prometheus.io/scrape"] == "false"
    own, *lost = template["spec"]["tolerations"]
    assert own == {"key": "dedicated", "operator": "Exists"}
    assert lost == list(LOST_NODE)
    assert {"name": "HTTPS_PROXY", "value": "http://proxy:3128"} in template["spec"]["containers"][0]["env"]


def test_placement_values_apply_to_every_pod(chart: Chart) -> None:
    pods = {name: template["spec"] for name, template in workloads(chart.render(VALUE_SETS["placed"]))}
    assert len(pods) == 7
    for name, pod in pods.items():
        assert {field: pod[field] for field in PLACED if field != "topologySpread"} == {
            field: value for field, value in PLACED.items() if field != "topologySpread"
        }, name
        spread = [
            {key: value for key, value in one.items() if key != "labelSelector"}
            for one in pod.get("topologySpreadConstraints", ())
        ]
        is_job = (
            "data" in name or "retention" in name or "viewer" in name
        )  # one pod at a time: there is nothing to spread
        wanted = [] if is_job else [{**one, "maxSkew": 1} for one in PLACED["topologySpread"]]
        assert spread == wanted, name


def test_gvisor_runtime_lowers_the_required_containment_level(chart: Chart) -> None:
    objects = chart.render(VALUE_SETS["gvisor"])
    pod = named(objects, "Deployment", "evalrun-sandbox")["spec"]["template"]["spec"]
    assert pod["runtimeClassName"] == "gvisor"
    assert pod["nodeSelector"] == {"pool": "sandbox"}
    assert "--required-level=seccomp" in pod["containers"][0]["args"]
    gateway = named(objects, "Deployment", "evalrun-judge")["spec"]["template"]["spec"]["containers"][0]
    assert "--required-level=seccomp" in gateway["args"]


def test_sandbox_has_one_cpu_and_the_memory_of_a_test_per_slot(chart: Chart) -> None:
    container = named(chart.render(VALUE_SETS["gvisor"]), "Deployment", "evalrun-sandbox")["spec"]["template"]["spec"][
        "containers"
    ][0]
    assert "--slots=16" in container["args"]
    assert container["resources"]["limits"] == {"cpu": "16", "memory": f"{16 * 1280}Mi"}
    assert container["resources"]["requests"] == container["resources"]["limits"]


def test_sandbox_slots_may_request_less_than_one_cpu(chart: Chart) -> None:
    pod = named(chart.render(VALUE_SETS["endpoint-slices"]), "Deployment", "evalrun-sandbox")["spec"]["template"][
        "spec"
    ]
    resources = pod["containers"][0]["resources"]
    assert (resources["requests"]["cpu"], resources["limits"]["cpu"]) == ("300m", "3")
