"""How the chart's objects hang together: selectors, Services, policies, roles, scalers, secrets."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from builders.cluster.chart import VALUE_SETS, Chart, ChartRefusedError, Object, environment, named, of_kind, workloads
from builders.operator.world import evalrun, operator_settings

from evalrun_api.names import GRPC_PORT
from evalrun_operator import resources
from evalrun_operator.lifecycle.situation import make_identity
from evalrun_operator.rbac import shared_token_rules
from evalrun_operator.resources import RunPlan
from evalrun_operator.resources.network import METADATA
from evalrun_operator.resources.network import dns as dns_rule
from evalrun_operator.settings import SharedJudge

MONITORS = ("operator", "judge", "live", "reward", "sandbox")
SELECTOR_OF: dict[str, Callable[[Object], dict[str, str]]] = {
    "Deployment": lambda spec: spec["selector"]["matchLabels"],
    "NetworkPolicy": lambda spec: spec["podSelector"]["matchLabels"],
    "PodDisruptionBudget": lambda spec: spec["selector"]["matchLabels"],
    "Service": lambda spec: spec["selector"],
    "StatefulSet": lambda spec: spec["selector"]["matchLabels"],
}
"""From a spec of that kind the labels of the pods that it is about."""


DIGEST_OF_A_JOB = re.compile(r"-[0-9a-f]{8}$")
"""A Job cannot be changed, so its name tells its content."""


@pytest.fixture(params=VALUE_SETS, scope="module")
def values(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def objects(values: str, chart: Chart) -> list[Object]:
    return chart.render(VALUE_SETS[values])


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return bool(selector) and selector.items() <= labels.items()


def test_no_two_objects_have_one_name(objects: list[Object]) -> None:
    keys = [(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in objects]
    assert len(set(keys)) == len(keys)


def test_every_object_has_the_labels_of_the_release(objects: list[Object]) -> None:
    for item in objects:
        if item["kind"] != "CustomResourceDefinition":
            labels = item["metadata"]["labels"]
            assert labels["app.kubernetes.io/name"] == "evalrun"
            assert labels["app.kubernetes.io/instance"] == "evalrun"
            assert labels["app.kubernetes.io/managed-by"] == "Helm"
            assert labels["helm.sh/chart"].startswith("evalrun-")


def test_selectors_select_the_pods_of_one_workload(objects: list[Object]) -> None:
    pods = {name: template["metadata"]["labels"] for name, template in workloads(objects)}
    for item in objects:
        if item["kind"] in SELECTOR_OF:
            selector = SELECTOR_OF[item["kind"]](item["spec"])
            (pod,) = (pod for pod, labels in pods.items() if selects(selector, labels))
            assert DIGEST_OF_A_JOB.sub("", pod) == item["metadata"]["name"]


def test_service_target_ports_exist_in_their_pods(objects: list[Object]) -> None:
    ports = {
        name: {port["name"]: port["containerPort"] for port in template["spec"]["containers"][0].get("ports", ())}
        for name, template in workloads(objects)
    }
    for service in of_kind(objects, "Service"):
        for port in service["spec"]["ports"]:
            assert ports[service["metadata"]["name"]][port["targetPort"]] == port["port"]


def test_crds_are_kept_when_the_release_is_uninstalled(chart: Chart) -> None:
    crds = of_kind(chart.render(), "CustomResourceDefinition")
    assert {crd["metadata"]["annotations"]["helm.sh/resource-policy"] for crd in crds} == {"keep"}
    assert len(crds) == 2


def test_crds_create_false_renders_no_crd(chart: Chart) -> None:
    assert not of_kind(chart.render({"crds": {"create": False}}), "CustomResourceDefinition")


def test_a_namespaced_installation_holds_no_cluster_scoped_object(chart: Chart) -> None:
    values = {
        "operator": {"watchNamespaces": ["evals"]},
        "crds": {"create": False},
        "rbac": {"aggregateToUserRoles": False},
    }
    objects = chart.render(values)
    assert {item["metadata"].get("namespace") for item in objects} == {"evals", "evalrun-system"}
    assert not [
        item["kind"] for item in objects if item["kind"].startswith(("Cluster", "CustomResource", "Validating"))
    ]
    outside = [item for item in of_kind(objects, "Role") if item["metadata"]["namespace"] != "evals"]
    lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    assert [role["rules"] for role in outside] == [
        [{**lease, "verbs": ["create"]}, {**lease, "verbs": ["get", "update"], "resourceNames": ["evalrun-operator"]}]
    ]


def test_gateway_and_sandbox_services_are_headless(chart: Chart) -> None:
    objects = chart.render(VALUE_SETS["shared-judge"], namespace="judging")
    for name in ("evalrun-judge", "evalrun-sandbox"):
        assert named(objects, "Service", name)["spec"]["clusterIP"] == "None"
    gateway = named(objects, "Deployment", "evalrun-judge")["spec"]["template"]["spec"]["containers"][0]
    assert "--sandbox=dns:///evalrun-sandbox.judging.svc:8080" in gateway["args"]


def test_the_operator_reaches_aggregators_and_the_api_server_and_no_metadata_service(chart: Chart) -> None:
    egress = named(chart.render(), "NetworkPolicy", "evalrun-operator")["spec"]["egress"]
    aggregators, dns, servers = egress
    plan = RunPlan(make_identity(run := evalrun()), run.spec, operator_settings(), "token")
    pod = resources.aggregator_stateful_set(plan)["spec"]["template"]["metadata"]["labels"]
    (source,) = aggregators["to"]
    assert selects(source["podSelector"]["matchLabels"], pod)
    assert [port["port"] for port in aggregators["ports"]] == [GRPC_PORT]
    assert dns == dns_rule(operator_settings())
    blocks = {peer["ipBlock"]["cidr"]: peer["ipBlock"]["except"] for peer in servers["to"] if "ipBlock" in peer}
    assert blocks == {cidr: list(hidden) for cidr, hidden in METADATA.items()}
    there = [{"ipBlock": {"cidr": "10.0.0.1/32"}}]
    *_, servers = named(chart.render({"networkPolicy": {"apiServer": there}}), "NetworkPolicy", "evalrun-operator")[
        "spec"
    ]["egress"]
    assert servers == {"to": there}


def test_the_data_job_reaches_no_metadata_service_unless_aggregators_do(chart: Chart) -> None:
    objects = chart.render(VALUE_SETS["prepare-data"])
    policy = named(objects, "NetworkPolicy", "evalrun-prepare-data")["spec"]
    (job,) = of_kind(objects, "Job")
    assert selects(policy["podSelector"]["matchLabels"], job["spec"]["template"]["metadata"]["labels"])
    assert {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]} in [
        to.get("ipBlock") for rule in policy["egress"] for to in rule.get("to", ())
    ]
    assert (policy["policyTypes"], "ingress" in policy) == (["Ingress", "Egress"], False)
    values = {**VALUE_SETS["prepare-data"], "networkPolicy": {"metadataClients": ["aggregator"]}}
    assert named(chart.render(values), "NetworkPolicy", "evalrun-prepare-data")["spec"]["egress"] == [{}]


def test_a_sandbox_reaches_nothing_and_is_reached_by_gateways_alone(chart: Chart) -> None:
    objects = chart.render(VALUE_SETS["shared-judge"])
    policy = named(objects, "NetworkPolicy", "evalrun-sandbox")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["egress"] == []
    programs, metrics = policy["ingress"]
    assert [port["port"] for port in programs["ports"]] == ["http"]
    gateways = named(objects, "Deployment", "evalrun-judge")["spec"]["template"]["metadata"]["labels"]
    (source,) = programs["from"]
    assert selects(source["podSelector"]["matchLabels"], gateways)
    assert "namespaceSelector" not in source
    assert [port["port"] for port in metrics["ports"]] == ["metrics"]


def test_gateway_reaches_only_sandboxes_and_dns(chart: Chart) -> None:
    objects = chart.render(VALUE_SETS["shared-judge"])
    sandboxes, names = named(objects, "NetworkPolicy", "evalrun-judge")["spec"]["egress"]
    labels = named(objects, "Deployment", "evalrun-sandbox")["spec"]["template"]["metadata"]["labels"]
    assert selects(sandboxes["to"][0]["podSelector"]["matchLabels"], labels)
    assert names == dns_rule(operator_settings())


@pytest.mark.parametrize(("where", "port"), [("http://collector.tracing:14317", 14317), ("https://spans", 4317)])
def test_a_gateway_reaches_the_collector_of_its_spans(chart: Chart, where: str, port: int) -> None:
    objects = chart.render({**VALUE_SETS["shared-judge"], "runDefaults": {"otlpEndpoint": where}})
    *_, spans = named(objects, "NetworkPolicy", "evalrun-judge")["spec"]["egress"]
    assert spans == {"ports": [{"protocol": "TCP", "port": port}]}
    assert named(objects, "NetworkPolicy", "evalrun-sandbox")["spec"]["egress"] == []


def test_gateway_that_watches_endpoint_slices_may_read_only_endpoint_slices(chart: Chart) -> None:
    objects = chart.render(VALUE_SETS["endpoint-slices"], namespace="judging")
    pod = named(objects, "Deployment", "evalrun-judge")["spec"]["template"]["spec"]
    assert "--sandbox=k8s:///judging/evalrun-sandbox:http" in pod["containers"][0]["args"]
    service = named(objects, "Service", "evalrun-sandbox")
    assert "http" in [port["name"] for port in service["spec"]["ports"]]
    binding = named(objects, "RoleBinding", "evalrun-judge")
    (subject,) = binding["subjects"]
    assert (subject["name"], subject["namespace"]) == (pod["serviceAccountName"], "judging")
    assert named(objects, "ServiceAccount", subject["name"])["automountServiceAccountToken"] is False
    assert named(objects, binding["roleRef"]["kind"], binding["roleRef"]["name"])["rules"] == [
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
    ]
    assert not [item for item in of_kind(objects, "ClusterRoleBinding") if item["metadata"]["name"] == "evalrun-judge"]
    *_, servers = named(objects, "NetworkPolicy", "evalrun-judge")["spec"]["egress"]
    assert {port["port"] for port in servers["ports"]} == {443, 6443}
    # An API server that is named may listen on any port, and so it is for the operator.
    there = [{"ipBlock": {"cidr": "10.0.0.1/32"}}]
    named_there = {**VALUE_SETS["endpoint-slices"], "networkPolicy": {"apiServer": there}}
    *_, servers = named(chart.render(named_there), "NetworkPolicy", "evalrun-judge")["spec"]["egress"]
    assert servers == {"to": there}


def test_metrics_token_digests_reach_the_services_and_monitors_send_the_token(chart: Chart) -> None:
    digests = ["ab" * 32, "cd" * 32]
    monitored = VALUE_SETS["monitored"]
    metrics = {**monitored["metrics"], "tokenSha256": digests}
    metrics["serviceMonitor"] = {**metrics["serviceMonitor"], "tokenSecret": "scraper"}
    objects = chart.render({**monitored, "metrics": metrics})
    for name in ("evalrun-judge", "evalrun-sandbox", "evalrun-reward"):
        (container,) = named(objects, "Deployment", name)["spec"]["template"]["spec"]["containers"]
        assert f"--metrics-token-sha256={','.join(digests)}" in container["args"]
    (operator,) = named(objects, "Deployment", "evalrun-operator")["spec"]["template"]["spec"]["containers"]
    given = environment(operator)
    assert given["EVALRUN_OPERATOR_METRICS_TOKEN_SHA256"] == ",".join(digests)
    assert given["EVALRUN_OPERATOR_SCRAPE_TOKEN_SHA256"] == ",".join(digests)
    monitors = of_kind(objects, "ServiceMonitor")
    assert len(monitors) == 2
    for monitor in monitors:
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["authorization"] == {"credentials": {"name": "scraper", "key": "token"}}


def test_metrics_ports_admit_only_the_named_scrapers(chart: Chart) -> None:
    objects = chart.render(VALUE_SETS["monitored"])
    for part in MONITORS:
        rules = named(objects, "NetworkPolicy", f"evalrun-{part}")["spec"]["ingress"]
        (rule,) = [rule for rule in rules if [port["port"] for port in rule["ports"]] == ["metrics"]]
        assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]


def test_monitors_find_the_charts_services_and_those_of_the_runs(chart: Chart) -> None:
    objects = chart.render(VALUE_SETS["monitored"])
    own = named(objects, "ServiceMonitor", "evalrun")
    assert own["metadata"]["labels"]["release"] == "prometheus"
    found = [
        service["metadata"]["name"]
        for service in of_kind(objects, "Service")
        if selects(own["spec"]["selector"]["matchLabels"], service["metadata"]["labels"])
        and any(port["name"] == own["spec"]["endpoints"][0]["port"] for port in service["spec"]["ports"])
    ]
    assert sorted(found) == [f"evalrun-{part}" for part in sorted(MONITORS)]
    assert named(objects, "ServiceMonitor", "evalrun-runs")["spec"]["namespaceSelector"] == {"any": True}
    for _, template in workloads(objects):
        assert "annotations" not in template["metadata"]


def test_pods_are_marked_for_scraping_by_default(chart: Chart) -> None:
    for _, template in workloads(chart.render(VALUE_SETS["shared-judge"])):
        notes = template["metadata"]["annotations"]
        metrics = {port["name"]: port["containerPort"] for port in template["spec"]["containers"][0]["ports"]}[
            "metrics"
        ]
        assert notes == {"prometheus.io/scrape": "true", "prometheus.io/port": str(metrics)}


def test_watched_namespaces_get_roles_instead_of_a_cluster_role(chart: Chart) -> None:
    whole = chart.render()
    release = named(whole, "Deployment", "evalrun-operator")["metadata"]["namespace"]
    assert [role["metadata"]["namespace"] for role in of_kind(whole, "Role")] == [release]  # the Lease's
    some = chart.render(VALUE_SETS["namespaces"])
    assert [role["metadata"]["namespace"] for role in of_kind(some, "Role")] == ["team-a", "team-b", release]
    assert {role["metadata"]["name"] for role in of_kind(some, "ClusterRole")} == {"evalrun-view", "evalrun-edit"}


def test_two_operators_share_one_lease_of_the_release(chart: Chart) -> None:
    objects = chart.render()
    deployment = named(objects, "Deployment", "evalrun-operator")
    assert deployment["spec"]["replicas"] == 2
    variables = environment(deployment["spec"]["template"]["spec"]["containers"][0])
    assert variables["EVALRUN_OPERATOR_LEASE"] == f"{deployment['metadata']['namespace']}/evalrun-operator"
    assert "EVALRUN_OPERATOR_OPERATOR_CLASS" not in variables
    assert "strategy" not in deployment["spec"] or "type" not in deployment["spec"]["strategy"]


@pytest.mark.parametrize("values", ["defaults", "namespaces"])
def test_roles_are_bound_to_the_operators_account(chart: Chart, values: str) -> None:
    objects = chart.render(VALUE_SETS[values])
    account = named(objects, "ServiceAccount", "evalrun-operator")["metadata"]
    pod = named(objects, "Deployment", "evalrun-operator")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["name"]
    for binding in [*of_kind(objects, "RoleBinding"), *of_kind(objects, "ClusterRoleBinding")]:
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
        role = named(
            [item for item in objects if item["metadata"].get("namespace") == binding["metadata"].get("namespace")],
            binding["roleRef"]["kind"],
            binding["roleRef"]["name"],
        )
        assert role["rules"]


def test_all_options_off_renders_only_the_operator(chart: Chart) -> None:
    kinds = {item["kind"] for item in chart.render(VALUE_SETS["bare"])}
    assert kinds == {"Deployment", "Secret", "Service"}


def test_a_drain_leaves_one_of_two_operators(chart: Chart) -> None:
    budget = named(chart.render(), "PodDisruptionBudget", "evalrun-operator")["spec"]
    assert budget["maxUnavailable"] == 1
    assert selects(budget["selector"]["matchLabels"], pods_of(chart.render(), "evalrun-operator"))


def test_rendering_twice_gives_the_same_objects(chart: Chart, objects: list[Object], values: str) -> None:
    """What GitOps compares: a token that changed with each rendering would refuse callers with each synchronization."""
    assert chart.render(VALUE_SETS[values]) == objects


def test_the_operator_fills_each_secret_that_the_user_does_not_name(chart: Chart) -> None:
    objects = chart.render(VALUE_SETS["reward"], namespace="judging")
    tokens = [f"evalrun-{part}-token" for part in ("judge", "sandbox", "reward")]
    issued = [f"evalrun-{part}-tls" for part in ("judge", "sandbox", "judge-caller")]
    filled = [*tokens, "evalrun-judge-authority", *issued]
    assert {secret["metadata"]["name"]: secret.get("data") for secret in of_kind(objects, "Secret")} == dict.fromkeys(
        filled
    )
    operator = named(objects, "Deployment", "evalrun-operator")["spec"]["template"]["spec"]["containers"][0]
    judge = SharedJudge.model_validate_json(environment(operator)["EVALRUN_OPERATOR_SHARED_JUDGE"])
    assert [judge.gateway_secret, judge.sandbox_secret, judge.caller_secret] == issued
    assert {judge.gateway, judge.sandbox} <= {one["metadata"]["name"] for one in of_kind(objects, "Service")}
    assert held_tokens(objects) == {
        "evalrun-judge": {"evalrun-judge-token": "token", "evalrun-sandbox-token": "token"},
        "evalrun-live": {"evalrun-sandbox-token": "token"},
        "evalrun-reward": {f"evalrun-{part}-token": "token" for part in ("judge", "reward", "sandbox")},
        "evalrun-sandbox": {"evalrun-sandbox-token": "token"},
    }
    written = written_tokens(objects)
    assert written == [*(f"judging/{name}/token" for name in tokens), f"judging/{judge.authority_secret}/seed"]
    (rule,) = named(objects, "Role", "evalrun-operator-tokens")["rules"]
    assert rule == {**shared_token_rules()[0], "resourceNames": filled}
    assert named(objects, "RoleBinding", "evalrun-operator-tokens")["metadata"]["namespace"] == "judging"


def written_tokens(objects: list[Object]) -> list[str]:
    operator = named(objects, "Deployment", "evalrun-operator")["spec"]["template"]["spec"]["containers"][0]
    found: list[str] = json.loads(environment(operator).get("EVALRUN_OPERATOR_SHARED_TOKEN", "[]"))
    return found


def test_existing_token_secrets_are_used_and_none_is_created(chart: Chart) -> None:
    named_ones = {**VALUE_SETS["gvisor"]["sharedJudge"], "tls": {"gatewaySecret": "a", "sandboxSecret": "b"}}
    objects = chart.render({"sharedJudge": named_ones})
    assert not of_kind(objects, "Secret")
    assert written_tokens(objects) == []
    assert not [role for role in of_kind(objects, "Role") if role["metadata"]["name"].endswith("-tokens")]
    assert held_tokens(objects) == {
        "evalrun-judge": {"judge-token": "secret", "sandbox-token": "other"},
        "evalrun-sandbox": {"sandbox-token": "other"},
    }


def held_tokens(objects: list[Object]) -> dict[str, dict[str, str]]:
    """Return by workload the Secrets, and their keys, that its pods hold as files of tokens."""
    held = {
        name: {
            source["secret"]["name"]: source["secret"]["items"][0]["key"]
            for volume in template["spec"]["volumes"]
            for source in volume.get("projected", {}).get("sources", [])
        }
        for name, template in workloads(objects)
        if "volumes" in template["spec"]
    }
    return {name: secrets for name, secrets in held.items() if secrets}


@pytest.mark.parametrize("values", ["shared-judge-cpu", "shared-judge-custom", "shared-judge-keda"])
def test_deployment_with_an_autoscaler_sets_no_replicas(chart: Chart, values: str) -> None:
    objects = chart.render(VALUE_SETS[values])
    scalers = of_kind(objects, "ScaledObject") or of_kind(objects, "HorizontalPodAutoscaler")
    assert sorted(item["spec"]["scaleTargetRef"]["name"] for item in scalers) == ["evalrun-judge", "evalrun-sandbox"]
    for item in scalers:
        assert "replicas" not in named(objects, "Deployment", item["spec"]["scaleTargetRef"]["name"])["spec"]


def test_autoscaler_threshold_is_four_fifths_of_the_slots(chart: Chart) -> None:
    values = {"sharedJudge": {"enabled": True, "autoscaling": "keda", "sandbox": {"slots": 10, "maxReplicas": 8}}}
    objects = chart.render(values)
    thresholds = {
        item["metadata"]["name"]: item["spec"]["triggers"][0]["metadata"]["threshold"]
        for item in of_kind(objects, "ScaledObject")
    }
    assert thresholds == {"evalrun-sandbox": "8", "evalrun-judge": "16"}  # 8 sandboxes, 4 gateways: 20 slots each
    query = of_kind(objects, "ScaledObject")[0]["spec"]["triggers"][0]["metadata"]["query"]
    assert "evalrun_judge_queue_depth" in query
    assert "evalrun_judge_inflight" in query


def test_shared_judge_at_zero_replicas_scales_up_for_generated_answers(chart: Chart) -> None:
    objects = chart.render({"sharedJudge": {"enabled": True, "autoscaling": "keda", "gateway": {"minReplicas": 0}}})
    for part in ("judge", "sandbox"):
        (trigger,) = named(objects, "ScaledObject", f"evalrun-{part}")["spec"]["triggers"]
        terms = trigger["metadata"]["query"].split(" + ")
        assert terms[-1] == '(max(evalrun_problems{state="generated"} > bool 0) or vector(0))'
        assert all(term.endswith(" or vector(0))") for term in terms)


def test_gateway_without_an_autoscaler_runs_min_replicas(chart: Chart) -> None:
    objects = chart.render({"sharedJudge": {"enabled": True, "gateway": {"minReplicas": 3}}})
    assert named(objects, "Deployment", "evalrun-judge")["spec"]["replicas"] == 3


@pytest.mark.parametrize(
    ("judge", "advice"),
    [
        ({"autoscaling": "cpu", "sandbox": {"minReplicas": 0}}, "minReplicas: 0 needs KEDA"),
        ({"gateway": {"minReplicas": 0}}, "minReplicas: 0 needs KEDA"),  # nothing would ever start it
        (
            {"autoscaling": "keda", "gateway": {"minReplicas": 9}},
            "sharedJudge.gateway: minReplicas is above maxReplicas",
        ),
    ],
)
def test_unusable_autoscaler_values_are_refused(chart: Chart, judge: dict[str, Any], advice: str) -> None:
    with pytest.raises(ChartRefusedError, match=advice):
        chart.render({"sharedJudge": {"enabled": True, **judge}})


def test_reward_pods_reach_only_gateways_and_dns(chart: Chart) -> None:
    objects = chart.render({"sharedJudge": {"enabled": True}, "reward": {"enabled": True}})
    policy = named(objects, "NetworkPolicy", "evalrun-reward")["spec"]
    to_judge, names_only = policy["egress"]
    labels = pods_of(objects, "evalrun-judge")
    (peer,) = to_judge["to"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()
    assert names_only == dns_rule(operator_settings())
    assert "from" not in policy["ingress"][0]  # whoever has the token
    (calls, _) = named(objects, "NetworkPolicy", "evalrun-judge")["spec"]["ingress"]
    own = pods_of(objects, "evalrun-reward")
    assert any(
        "namespaceSelector" not in peer and peer["podSelector"]["matchLabels"].items() <= own.items()
        for peer in calls["from"]
    )
    some = chart.render(
        {
            "sharedJudge": {"enabled": True},
            "reward": {"enabled": True},
            "networkPolicy": {"rewardClients": [{"podSelector": {"matchLabels": {"team": "rl"}}}]},
        }
    )
    ingress = named(some, "NetworkPolicy", "evalrun-reward")["spec"]["ingress"]
    assert ingress[0]["from"] == [{"podSelector": {"matchLabels": {"team": "rl"}}}]


def test_reward_sessions_are_stored_in_the_named_redis(chart: Chart) -> None:
    sessions = {"redisSecret": "sessions", "key": "address", "port": 6380, "maxSessions": 50, "idleSeconds": 1200}
    objects = chart.render({"sharedJudge": {"enabled": True}, "reward": {"enabled": True, "sessions": sessions}})
    container = named(objects, "Deployment", "evalrun-reward")["spec"]["template"]["spec"]["containers"][0]
    variables = {one["name"]: one["valueFrom"]["secretKeyRef"] for one in container["env"] if "valueFrom" in one}
    assert variables["EVALRUN_REWARD_SESSION_STORE"] == {"name": "sessions", "key": "address"}
    assert {"--max-sessions=50", "--session-idle-seconds=1200"} <= set(container["args"])
    egress = named(objects, "NetworkPolicy", "evalrun-reward")["spec"]["egress"]
    assert [{"protocol": "TCP", "port": 6380}] in [rule["ports"] for rule in egress]
    without = chart.render({"sharedJudge": {"enabled": True}, "reward": {"enabled": True}})
    container = named(without, "Deployment", "evalrun-reward")["spec"]["template"]["spec"]["containers"][0]
    assert not [one for one in container["env"] if one["name"] == "EVALRUN_REWARD_SESSION_STORE"]


def test_live_sandbox_is_reached_only_by_reward_pods_and_reaches_nothing(chart: Chart) -> None:
    objects = chart.render(VALUE_SETS["reward"])
    pods = dict(workloads(objects))
    live, rewards = (pods[f"evalrun-{name}"]["metadata"]["labels"] for name in ("live", "reward"))
    policy = named(objects, "NetworkPolicy", "evalrun-live")["spec"]
    (peer,) = policy["ingress"][0]["from"]
    assert selects(peer["podSelector"]["matchLabels"], rewards)
    assert policy["egress"] == []
    out = [
        peer
        for rule in named(objects, "NetworkPolicy", "evalrun-reward")["spec"]["egress"]
        for peer in rule.get("to", ())
    ]
    assert any(selects(peer.get("podSelector", {}).get("matchLabels", {}), live) for peer in out)
    judging = named(objects, "NetworkPolicy", "evalrun-judge")["spec"]["egress"]
    asked = [peer for rule in judging for peer in rule.get("to", ())]
    assert not any(selects(peer.get("podSelector", {}).get("matchLabels", {}), live) for peer in asked)


def test_default_reward_values_render_no_live_sandbox(chart: Chart) -> None:
    objects = chart.render({"sharedJudge": {"enabled": True}, "reward": {"enabled": True}})
    assert not of_kind(objects, "StatefulSet")
    assert not [item for item in objects if item["metadata"]["name"] == "evalrun-live"]


def test_shares_reach_gateway_and_rewards_but_callers_reach_only_rewards(chart: Chart) -> None:
    objects = chart.render(
        {
            "sharedJudge": {
                "enabled": True,
                "shares": {"grpo-7b": 3, "eval/nightly": 0.5},
                "priorities": {"grpo-7b": "low"},
            },
            "reward": {"enabled": True, "callers": {"secret": "trainers", "key": "lines"}},
        }
    )
    for name in ("evalrun-judge", "evalrun-reward"):
        arguments = named(objects, "Deployment", name)["spec"]["template"]["spec"]["containers"][0]["args"]
        assert {"--share=grpo-7b=3", "--share=eval/nightly=0.5", "--priority=grpo-7b=low"} <= set(arguments)
    pod = named(objects, "Deployment", "evalrun-reward")["spec"]["template"]["spec"]
    assert {"name": "EVALRUN_REWARD_CALLERS_FILE", "value": "/etc/evalrun/identity/callers"} in pod["containers"][0][
        "env"
    ]
    assert held_tokens(objects)["evalrun-reward"]["trainers"] == "lines"
    assert "trainers" not in held_tokens(objects)["evalrun-judge"]


def test_reward_pods_have_a_separate_token_and_a_disruption_budget(chart: Chart) -> None:
    objects = chart.render({"sharedJudge": {"enabled": True}, "reward": {"enabled": True}})
    assert named(objects, "PodDisruptionBudget", "evalrun-reward")["spec"]["maxUnavailable"] == 1
    given = {
        "enabled": True,
        "token": {"existingSecret": "mine", "key": "k"},
        "podDisruptionBudget": {"enabled": False},
    }
    objects = chart.render({"sharedJudge": {"enabled": True}, "reward": given})
    assert not [one for one in objects if one["metadata"]["name"] == "evalrun-reward-token"]
    assert not [one for one in written_tokens(objects) if "reward" in one]
    assert not [one for one in of_kind(objects, "PodDisruptionBudget") if one["metadata"]["name"].endswith("-reward")]
    assert held_tokens(objects)["evalrun-reward"] == {"mine": "k", "evalrun-judge-token": "token"}


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        ({"reward": {"enabled": True}}, "write sharedJudge.enabled: true"),
        (
            {"sharedJudge": {"enabled": True}, "reward": {"enabled": True, "graders": {"*": "grader.py"}}},
            "reward.problems.claim",
        ),
        (
            {"sharedJudge": {"enabled": True}, "reward": {"enabled": True, "problems": {"files": ["a"]}}},
            "reward.problems.claim",
        ),
        (
            {"sharedJudge": {"enabled": True}, "reward": {"enabled": True, "sessions": {"live": {"replicas": 1}}}},
            "reward.sessions.redisSecret",
        ),
    ],
)
def test_unusable_reward_values_are_refused(chart: Chart, values: dict[str, Any], advice: str) -> None:
    with pytest.raises(ChartRefusedError, match=advice):
        chart.render(values)


def pods_of(objects: list[Object], deployment: str) -> dict[str, str]:
    labels: dict[str, str] = named(objects, "Deployment", deployment)["spec"]["template"]["metadata"]["labels"]
    return labels
