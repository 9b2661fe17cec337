"""The viewers of the chart: one per namespace, closed unless somebody is named, its rights where they are asked for."""

from typing import Any

import pytest
from builders.cluster.chart import VALUE_SETS, Chart, ChartRefusedError, Object, of_kind

from evalrun_cli.commands.view import view
from evalrun_cli.viewer.access import HEALTH

TOKEN = {"token": {"existingSecret": "viewer"}}


def objects_of(chart: Chart, namespace: str, values: dict[str, Any] | None = None) -> list[Object]:
    """Return the viewer's objects in a namespace."""
    return [
        item
        for item in chart.render(VALUE_SETS["viewer"] if values is None else values)
        if item["metadata"]["name"] == "evalrun-viewer" and item["metadata"]["namespace"] == namespace
    ]


def one(objects: list[Object], kind: str) -> Object:
    (found,) = of_kind(objects, kind)
    return found


def flags_of(objects: list[Object]) -> dict[str, Any]:
    """Return what the command reads of its arguments."""
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "evalrun_cli", "view"]
    given: dict[str, Any] = view.make_context("view", list(container["args"])).params
    return given


def test_no_namespace_has_a_viewer_unless_it_is_named(chart: Chart) -> None:
    assert not [item for item in chart.render() if "viewer" in item["metadata"]["name"]]


def test_viewer_of_a_volume_reads_it_and_asks_no_api_server(chart: Chart) -> None:
    objects = objects_of(chart, "team-a")
    assert {item["kind"] for item in objects} == {"Deployment", "Service", "Ingress", "NetworkPolicy"}
    flags = flags_of(objects)
    assert (flags["places"], flags["host"], flags["token_file"]) == (("/data",), "0.0.0.0", None)
    assert flags["trusted_header"] == "X-Auth-Request-User"
    assert flags["trusted_proxies"] == ("10.0.3.0/24",)
    assert flags["allowed_hosts"] == ("evalrun-viewer.team-a.svc", "a.example.com")
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "outputs", "readOnly": True}}
    assert claim in pod["volumes"]
    (container,) = pod["containers"]
    assert {"name": "data", "mountPath": "/data", "readOnly": True} in container["volumeMounts"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["http"] == flags["port"]
    assert container["readinessProbe"]["httpGet"]["path"] == HEALTH


def test_viewer_of_running_runs_has_a_role_in_its_namespace_alone(chart: Chart) -> None:
    objects = objects_of(chart, "team-b")
    flags = flags_of(objects)
    assert flags["places"] == ("s3://evaluations/b", "er/")
    assert flags["namespace"] == "team-b"
    assert one(objects, "Role")["rules"] == [
        {"apiGroups": ["evalrun.dev"], "resources": ["evalruns"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]},
    ]
    subject = {"kind": "ServiceAccount", "name": "evalrun-viewer", "namespace": "team-b"}
    assert one(objects, "RoleBinding")["subjects"] == [subject]
    assert not of_kind(objects, "ClusterRole")
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == one(objects, "ServiceAccount")["metadata"]["name"]


def test_viewers_token_is_a_file_that_others_cannot_read(chart: Chart) -> None:
    objects = objects_of(chart, "team-b")
    (secret,) = (
        volume["secret"]
        for volume in one(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
        if "secret" in volume
    )
    assert secret == {"secretName": "viewer", "defaultMode": 0o400, "items": [{"key": "tokens", "path": "token"}]}
    assert str(flags_of(objects)["token_file"]) == "/etc/evalrun/viewer/token"


def test_viewer_network_policy_admits_only_the_named_clients(chart: Chart) -> None:
    policy = one(objects_of(chart, "team-a"), "NetworkPolicy")["spec"]
    ingress = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}
    assert policy["ingress"] == [{"ports": [{"protocol": "TCP", "port": "http"}], "from": [ingress]}]
    assert "egress" not in policy  # it reads a volume, and nothing else
    alone = {"viewer": {"namespaces": {"evals": {"claim": "outputs", **TOKEN}}}}
    assert "ingress" not in one(objects_of(chart, "evals", alone), "NetworkPolicy")["spec"]


@pytest.mark.parametrize(("more", "is_open"), [({}, False), ({"metadataClients": ["aggregator"]}, True)])
def test_viewer_of_buckets_reaches_no_metadata_service_unless_aggregators_do(
    chart: Chart, more: dict[str, Any], is_open: bool
) -> None:
    values = {
        "networkPolicy": more,
        "viewer": {"namespaces": {"evals": {"places": ["s3://evaluations"], **TOKEN}}},
    }
    egress = one(objects_of(chart, "evals", values), "NetworkPolicy")["spec"]["egress"]
    assert ({} in egress) is is_open
    blocks = [peer["ipBlock"] for rule in egress for peer in rule.get("to", ()) if "ipBlock" in peer]
    assert is_open or {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]} in blocks


@pytest.mark.parametrize(
    ("servers", "rule"),
    [
        ([{"ipBlock": {"cidr": "10.0.0.1/32"}}], {"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}),
        ([], {"ports": [{"protocol": "TCP", "port": 443}, {"protocol": "TCP", "port": 6443}]}),
    ],
)
def test_viewer_of_running_runs_reaches_only_dns_and_the_api_server(
    chart: Chart, servers: list[Object], rule: Object
) -> None:
    values = {
        "networkPolicy": {"apiServer": servers},
        "viewer": {"namespaces": {"evals": {"live": True, **TOKEN}}},
    }
    dns, last = one(objects_of(chart, "evals", values), "NetworkPolicy")["spec"]["egress"]
    assert last == rule
    assert dns["ports"][0]["port"] == 53


def test_ingress_and_route_lead_to_the_service_under_its_hosts(chart: Chart) -> None:
    (rule,) = one(objects_of(chart, "team-a"), "Ingress")["spec"]["rules"]
    assert rule["host"] == "a.example.com"
    assert rule["http"]["paths"][0]["backend"]["service"] == {"name": "evalrun-viewer", "port": {"name": "http"}}
    route = one(objects_of(chart, "team-b"), "HTTPRoute")["spec"]
    assert route["hostnames"] == ["b.example.com"]
    assert route["parentRefs"] == [{"name": "public"}]
    (service,) = one(objects_of(chart, "team-b"), "Service")["spec"]["ports"]
    assert route["rules"] == [{"backendRefs": [{"name": "evalrun-viewer", "port": service["port"]}]}]


@pytest.mark.parametrize(
    ("own", "advice"),
    [
        ({"claim": "outputs"}, "viewer.namespaces.evals: anyone could read every answer: name a Secret"),
        ({"claim": "outputs", "proxy": {"header": "X-User"}}, "viewer.namespaces.evals.proxy: one of header and"),
        ({**TOKEN}, "viewer.namespaces.evals: it has nothing to show: write claim, places or live"),
        (
            {"claim": "outputs", **TOKEN, "ingress": {"enabled": True}, "httpRoute": {"enabled": True}},
            "viewer.namespaces.evals: ingress and httpRoute are both enabled: disable one of them",
        ),
        ({"claim": "outputs", **TOKEN, "ingress": {"enabled": True}}, "viewer.namespaces.evals.hosts: name the host"),
        (
            {"claim": "outputs", **TOKEN, "hosts": ["a.example.com"], "ingress": {"enabled": True}},
            "viewer.namespaces.evals.clients: nobody may connect to it",
        ),
        (
            {
                "claim": "outputs", **TOKEN, "hosts": ["a.example.com"], "clients": [{"podSelector": {}}],
                "httpRoute": {"enabled": True},
            },
            "viewer.namespaces.evals.httpRoute.parentRefs: name the Gateway",
        ),
        ({"claim": "outputs", **TOKEN, "namespaces": {}}, "at '/viewer/namespaces/evals'"),
        ({"places": ["/data"], **TOKEN}, "at '/viewer/namespaces/evals/places/0'"),
        ({"claims": "outputs", **TOKEN}, "additional properties 'claims' not allowed"),
    ],
)  # fmt: skip
def test_unusable_or_unprotected_viewer_values_are_refused(chart: Chart, own: dict[str, Any], advice: str) -> None:
    with pytest.raises(ChartRefusedError) as refused:
        chart.render({"viewer": {"namespaces": {"evals": own}}})
    assert advice in str(refused.value)
