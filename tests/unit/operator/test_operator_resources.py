"""The objects of a run: restricted, fitting their names, and understood by the services that they start."""

import importlib.util
import ipaddress
import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.operator.evalruns import TLS_SECRETS
from builders.operator.world import evalrun, operator_settings
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from evalrun_aggregator.settings import AggregatorSettings
from evalrun_api.replica_count import count_wanted_replicas
from evalrun_api.run_config import read_run_config
from evalrun_api.v1alpha1 import EvalRun, Rollout
from evalrun_cluster.objects import Object
from evalrun_generator.rollout.engine import engine_plan
from evalrun_generator.rollout.order import read_rollout_order
from evalrun_generator.rollout.settings import RolloutSettings
from evalrun_generator.settings import GeneratorSettings
from evalrun_judge.settings import JudgeSettings
from evalrun_operator import resources
from evalrun_operator.certificates.run_certificates import new_certificates
from evalrun_operator.lifecycle.situation import make_identity
from evalrun_operator.policies.worker_count import WorkerPod, Workers, plan_workers
from evalrun_operator.resources import RunPlan
from evalrun_operator.resources.autoscaling import BEHAVIOR, FALLBACK_AFTER
from evalrun_operator.resources.images import ray_image
from evalrun_operator.resources.run_tokens import new_tokens
from evalrun_runtime.settings import ServiceSettings, load_settings
from evalrun_sandbox.settings import SandboxSettings
from evalrun_sandbox.slot_proxy.settings import SlotProxySettings

TOKEN = "the-run's-own-token"
LONGEST = "a" * 30


def plan_of(run: EvalRun, **settings: Any) -> RunPlan:
    return RunPlan(make_identity(run), run.spec, operator_settings(**settings), TOKEN)


def objects(plan: RunPlan) -> list[Object]:
    spec, tokens = plan.spec, new_tokens(plan.token, per_hop=plan.hop_tokens)
    made = [
        resources.ledger_claim(plan), resources.order_config_map(plan), resources.token_secret(plan, tokens),
        resources.aggregator_service(plan), resources.aggregator_stateful_set(plan), *resources.network_policies(plan),
    ]  # fmt: skip
    judge = spec.own_judge
    if judge is not None:
        made += [
            resources.judge_service(plan), resources.judge_disruption_budget(plan),
            resources.judge_deployment(plan, judge, None), resources.sandbox_service(plan),
            resources.sandbox_deployment(plan, judge, None),
        ]  # fmt: skip
        made += [scaler for part in ("judge", "sandbox") if (scaler := resources.autoscaler(plan, part, 1, 4, 8))]
    if spec.rollout is not None:
        made.append(resources.ray_cluster(plan, spec.rollout, 99, Workers(spec.rollout.worker_pods(4))))
        made.append(resources.generator_ray_job(plan, 99, made[-1]["metadata"]["name"], "uid-1"))
    else:
        made.append(resources.generator_job(plan, spec.endpoints or [], 99))
    return made


def pods(made: list[Object]) -> Iterator[tuple[str, Object]]:
    """Return every pod spec in some objects, with what it belongs to."""
    for item in made:
        spec, name = item.get("spec", {}), f"{item['kind']}/{item['metadata']['name']}"
        if "template" in spec:
            yield name, spec["template"]["spec"]
        if item["kind"] == "RayCluster":
            yield f"{name} head", spec["headGroupSpec"]["template"]["spec"]
            yield f"{name} worker", spec["workerGroupSpecs"][0]["template"]["spec"]


def container_of(made: list[Object], name: str) -> Object:
    found: Object = next(
        container for _, pod in pods(made) for container in pod["containers"] if container["name"] == name
    )
    return found


def of_kind(made: list[Object], kind: str) -> Object:
    return next(item for item in made if item["kind"] == kind)


def test_run_without_scraping_has_no_metrics_port_or_annotation() -> None:
    made = objects(plan_of(evalrun({"spec.exports": {"prometheus": False}})))
    opened = [port["port"] for policy in policies(made).values() for rule in policy["ingress"] for port in
              rule.get("ports", ())]  # fmt: skip
    assert sorted(opened) == [8080, 8265, 50051, 50051]
    assert "prometheus.io" not in json.dumps(made)
    services = [item for item in made if item["kind"] == "Service"]
    assert {port["name"] for service in services for port in service["spec"]["ports"]} == {"grpc", "http"}


@pytest.mark.parametrize("backend", ["Evalrun", "SandboxFusion"])
def test_every_part_that_shows_metrics_asks_its_scrapers_for_a_token(backend: str) -> None:
    digest = "ab" * 32
    run = evalrun({"spec.judge": {"sandbox": {"backend": backend}}}, rollout=False)
    for digests, wanted in ((digest, [f"--metrics-token-sha256={digest}"]), (None, [])):
        made = objects(plan_of(run, scrape_token_sha256=digests))
        shown = [container["args"] for _, pod in pods(made) for container in pod["containers"]
                 if any(port["name"] == "metrics" for port in container.get("ports", ()))]  # fmt: skip
        assert len(shown) == 4
        assert all([arg for arg in args if arg.startswith("--metrics-token")] == wanted for args in shown)


def test_metrics_ports_are_open_to_the_configured_scrapers_only() -> None:
    def callers(**settings: Any) -> list[object]:
        walled = policies(objects(plan_of(evalrun(rollout=False), **settings)))
        rules = [rule for policy in walled.values() for rule in policy["ingress"]]
        return [rule.get("from") for rule in rules if [port["port"] for port in rule.get("ports", ())] == [9090]]

    monitoring = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    assert callers() == [monitoring] * 4
    peers = [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]
    assert callers(metrics_clients=peers) == [peers] * 4
    assert callers(metrics_clients=[]) == [None] * 4


@pytest.mark.parametrize("rollout", [True, False])
def test_every_pod_is_restricted_and_has_no_service_account_token(rollout: bool) -> None:
    for name, pod in pods(objects(plan_of(evalrun(rollout=rollout)))):
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security["runAsUser"] > 0, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(), name
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            }, name  # fmt: skip
            assert container["resources"]["limits"]["memory"], name
        volumes = {kind for volume in pod["volumes"] for kind in volume if kind != "name"}
        assert volumes <= {"emptyDir", "configMap", "persistentVolumeClaim", "projected"}, name
        projected = [source for volume in pod["volumes"] for source in volume.get("projected", {}).get("sources", ())]
        assert all(source.keys() == {"secret"} for source in projected), name


def test_object_names_of_the_longest_run_name_stay_within_their_limits() -> None:
    limits = {"RayCluster": 53, "RayJob": 47, "StatefulSet": 52, "Service": 63}
    for rollout in (True, False):
        for item in objects(plan_of(evalrun({"metadata.name": LONGEST}, rollout=rollout))):
            assert len(item["metadata"]["name"]) <= limits.get(item["kind"], 63), item["metadata"]["name"]
            assert all(len(value) <= 63 for value in item["metadata"]["labels"].values())


def test_everything_is_owned_but_a_volume_that_is_retained() -> None:
    plan = plan_of(evalrun())
    owners = {item["kind"]: item["metadata"].get("ownerReferences") for item in objects(plan)}
    assert owners.pop("PersistentVolumeClaim") is None  # output.retain
    assert all(references and references[0]["uid"] == plan.run.uid for references in owners.values())
    given = plan_of(evalrun({"spec.output": {"url": "s3://bucket/x"}}))
    assert of_kind(objects(given), "PersistentVolumeClaim")["metadata"]["ownerReferences"]


def test_tokens_are_in_the_secret_only() -> None:
    made = objects(plan_of(evalrun()))
    tokens = {line for value in of_kind(made, "Secret")["stringData"].values() for line in value.splitlines()}
    assert len(tokens) == 5
    for item in made:
        assert [token for token in tokens if token in json.dumps(item)] == (
            [] if item["kind"] != "Secret" else list(tokens)
        )


def held_by(pod: Object) -> dict[str, dict[str, str]]:
    """Return by Secret the keys that a pod's volume of tokens holds, with the names of their files."""
    return {
        source["secret"]["name"]: {item["key"]: item["path"] for item in source["secret"]["items"]}
        for volume in pod["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
    }


def test_each_part_holds_the_tokens_of_its_own_hops_and_no_other() -> None:
    simple = objects(plan_of(evalrun(rollout=False)))
    made = [*objects(plan_of(evalrun())), of_kind(simple, "Job")]
    held = {}
    for _, pod in pods(made):
        own = held_by(pod).get("run-token", {})
        tokens_held = {key for key, path in own.items() if not path.startswith("tls/")}
        assert all(own[key] == key for key in tokens_held)
        held[pod["containers"][0]["name"]] = tokens_held
        assert not [
            variable
            for one in pod["containers"]
            for variable in one.get("env", ())
            if variable.get("valueFrom", {}).get("secretKeyRef", {}).get("name") == "run-token"
        ]
    assert held == {
        "aggregator": {"ledger-token", "operator-token", "gateway-token"},
        "judge": {"gateway-token", "sandbox-token"},
        "sandbox": {"sandbox-token"},
        "generator": {"ledger-token"},
        "ray-head": {"ledger-token"},
        "ray-worker": set(),
    }
    tokens = {key: value.splitlines() for key, value in of_kind(made, "Secret")["stringData"].items()}
    assert all(len(line) >= 43 and line != TOKEN for lines in tokens.values() for line in lines)
    assert len({lines[0] for lines in tokens.values()}) == 5
    assert tokens["operator-token"][1:] == tokens["token"]  # what an earlier release sends after a rollback
    assert all(len(lines) == 1 for key, lines in tokens.items() if key != "operator-token")


def test_beside_a_stock_server_only_the_proxy_holds_a_token() -> None:
    made = objects(plan_of(evalrun({"spec.judge.sandbox.backend": "SandboxFusion"})))
    (pod,) = (pod for name, pod in pods(made) if name == "Deployment/run-sandbox")
    with_tokens = [one["name"] for one in pod["containers"] if "identity" in {m["name"] for m in one["volumeMounts"]}]
    assert with_tokens == ["slot-proxy"]


def test_run_started_with_one_token_keeps_the_token() -> None:
    made = objects(replace(plan_of(evalrun()), hop_tokens=False))
    assert of_kind(made, "Secret")["stringData"] == {"token": TOKEN}
    variables = {
        variable["name"]
        for _, pod in pods(made)
        for one in pod["containers"]
        for variable in one.get("env", ())
        if variable.get("valueFrom", {}).get("secretKeyRef") == {"name": "run-token", "key": "token"}
    }
    assert variables == {
        "EVALRUN_AGGREGATOR_TOKEN", "EVALRUN_AGGREGATOR_JUDGE_TOKEN", "EVALRUN_JUDGE_TOKEN",
        "EVALRUN_JUDGE_SANDBOX_TOKEN", "EVALRUN_SANDBOX_TOKEN", "EVALRUN_GENERATOR_LEDGER_TOKEN",
    }  # fmt: skip
    assert not any(held_by(pod) for _, pod in pods(made))


def test_the_sandbox_reaches_nobody_and_is_reached_by_the_gateway_alone() -> None:
    made = objects(plan_of(evalrun()))
    policy = policies(made)["sandbox"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["egress"] == []
    programs, metrics = policy["ingress"]
    assert [port["port"] for rule in (programs, metrics) for port in rule["ports"]] == [8080, 9090]
    (source,) = programs["from"]
    assert source["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "judge"
    deployments = {item["metadata"]["name"]: item["spec"] for item in made if item["kind"] == "Deployment"}
    labels = deployments["run-sandbox"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()


def policies(made: list[Object]) -> dict[str, Object]:
    """Return the spec of each NetworkPolicy, by the component whose pods it selects."""
    found = [item["spec"] for item in made if item["kind"] == "NetworkPolicy"]
    return {spec["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: spec for spec in found}


def reaches(policy: Object, address: str, port: int = 80) -> bool:
    wanted = ipaddress.ip_address(address)

    def covers(peer: Object) -> bool:
        block = peer.get("ipBlock")
        if block is None:
            return False
        hidden = [ipaddress.ip_network(one) for one in block.get("except", ())]
        return wanted in ipaddress.ip_network(block["cidr"]) and not any(wanted in one for one in hidden)

    return any(
        ("to" not in rule or any(covers(peer) for peer in rule["to"]))
        and ("ports" not in rule or port in [one["port"] for one in rule["ports"]])
        for rule in policy["egress"]
    )


@pytest.mark.parametrize("rollout", [True, False])
def test_every_part_has_a_policy_that_selects_its_pods(rollout: bool) -> None:
    made = objects(plan_of(evalrun(rollout=rollout)))
    walled = policies(made)
    templates = [item["spec"]["template"] for item in made if "template" in item.get("spec", {})]
    if rollout:
        spec = of_kind(made, "RayCluster")["spec"]
        templates += [spec["headGroupSpec"]["template"], spec["workerGroupSpecs"][0]["template"]]
    components = {template["metadata"]["labels"]["app.kubernetes.io/component"] for template in templates}
    assert components == walled.keys()
    for template in templates:
        labels = template["metadata"]["labels"]
        selector = walled[labels["app.kubernetes.io/component"]]["podSelector"]["matchLabels"]
        assert selector.items() <= labels.items()
    assert all(policy["policyTypes"] == ["Ingress", "Egress"] for policy in walled.values())


METADATA_SERVICES = ("169.254.169.254", "169.254.169.252", "169.254.170.2", "fd00:ec2::254")


@pytest.mark.parametrize("rollout", [True, False])
def test_no_part_reaches_the_metadata_service_and_those_that_must_reach_the_world(rollout: bool) -> None:
    walled = policies(objects(plan_of(evalrun(rollout=rollout))))
    assert {name for name, policy in walled.items() if reaches(policy, "203.0.113.7", 443)} == {
        "aggregator", "ray" if rollout else "generator",
    }  # fmt: skip
    for name, policy in walled.items():
        assert not [address for address in METADATA_SERVICES if reaches(policy, address)], name
    assert reaches(walled["aggregator"], "2001:db8::1")
    assert reaches(walled["aggregator"], "169.254.20.10", 53)  # NodeLocal DNSCache


@pytest.mark.parametrize(
    ("part", "component", "rollout"),
    [("aggregator", "aggregator", True), ("rayWorkers", "ray", True), ("generator", "generator", False)],
)
def test_a_part_that_is_named_reaches_the_metadata_service_alone(part: str, component: str, rollout: bool) -> None:
    walled = policies(objects(plan_of(evalrun(rollout=rollout), metadata_clients=[part])))
    assert {name for name, policy in walled.items() if reaches(policy, METADATA_SERVICES[0])} == {component}


def test_network_policies_admit_only_the_callers_of_ledger_and_gateway() -> None:
    made = objects(plan_of(evalrun(rollout=False), otlp_endpoint="https://spans.example:4318"))
    walled = policies(made)

    def callers(component: str) -> list[str]:
        (rule, _metrics) = walled[component]["ingress"]
        return [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in rule["from"]]

    assert callers("aggregator") == ["generator", "ray", "operator"]
    assert callers("judge") == ["aggregator"]
    assert [[port["port"] for port in rule["ports"]] for rule in walled["judge"]["egress"]] == [
        [8080],
        [53, 53, 5353, 5353],
        [4318],
    ]
    (peer,) = walled["judge"]["egress"][0]["to"]
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "sandbox"


def test_network_policies_dns_is_reached_by_peer_also_where_its_pods_listen_elsewhere() -> None:
    """Enforcers see a packet after its Service was translated: with 53 alone no gateway resolved a name."""
    (own,) = [rule for rule in policies(objects(plan_of(evalrun())))["judge"]["egress"] if "ipBlock" in rule["to"][-1]]
    assert [peer.get("namespaceSelector") for peer in own["to"]] == [
        {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        {"matchLabels": {"kubernetes.io/metadata.name": "openshift-dns"}},
        None,
    ]
    assert own["to"][0]["podSelector"] == {"matchLabels": {"k8s-app": "kube-dns"}}
    assert {(port["protocol"], port["port"]) for port in own["ports"]} == {
        (protocol, port) for protocol in ("TCP", "UDP") for port in (53, 5353)
    }
    peers: list[Object] = [{"podSelector": {"matchLabels": {"app": "dns"}}}]
    for component in ("aggregator", "judge", "ray"):
        policy = policies(objects(plan_of(evalrun(), dns_peers=peers)))[component]
        assert [
            rule["to"] for rule in policy["egress"] if 5353 in [port["port"] for port in rule.get("ports", ())]
        ] == [peers]


def test_network_policies_aggregator_is_reached_by_the_operators_own_namespace_alone() -> None:
    def operators(lease: str) -> Object:
        rule, _metrics = policies(objects(plan_of(evalrun(), lease=lease)))["aggregator"]["ingress"]
        peer: Object = rule["from"][-1]
        assert peer["podSelector"] == {"matchLabels": {"app.kubernetes.io/component": "operator"}}
        return peer["namespaceSelector"]  # type: ignore[no-any-return]

    assert operators("evalrun-system/lease") == {"matchLabels": {"kubernetes.io/metadata.name": "evalrun-system"}}
    assert operators("") == {}  # started by hand, perhaps outside the cluster


def test_ray_is_reached_by_its_own_pods_and_its_dashboard_by_kuberay() -> None:
    own, kuberay = policies(objects(plan_of(evalrun())))["ray"]["ingress"]
    assert "ports" not in own
    assert own["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "ray"
    assert [port["port"] for port in kuberay["ports"]] == [8265]  # it asks for the cluster's token


def test_the_aggregator_understands_its_run_config(tmp_path: Path) -> None:
    run = evalrun({"spec.output": {"url": "pvc://results/phase0"}, "spec.datasets.0.source": "pvc://data/a/b.jsonl"})
    data = of_kind(objects(plan_of(run)), "ConfigMap")["data"]
    file = tmp_path / "work-order.json"
    file.write_text(data["work-order.json"])
    order = read_run_config(file)
    assert order.run == "run"
    assert order.spec.datasets[0].source == "/mnt/claims/data/a/b.jsonl"
    assert order.output_dir == "/mnt/claims/results/phase0/run_20260131_120000"
    pod = of_kind(objects(plan_of(run)), "StatefulSet")["spec"]["template"]["spec"]
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts["/mnt/claims/data"] is True
    assert mounts["/mnt/claims/results"] is False


STOCK = {"sandbox": {"backend": "SandboxFusion"}}
OWN_IMAGES = {"sandbox": {"image": f"their/sandbox@sha256:{12:064}"}, "gateway": {"image": "their/judge:3"}}
VERLS = {"spec.datasets.0.grader": {"path": "builtin:verl"}}


@pytest.mark.parametrize(
    ("change", "rollout"),
    [({}, False), ({"spec.judge": STOCK}, False), ({"spec.judge": OWN_IMAGES}, False), ({}, True)],
)
def test_the_run_config_names_the_image_of_each_part_for_the_audit(change: dict[str, Any], rollout: bool) -> None:
    made = objects(plan_of(evalrun(change, rollout=rollout)))
    order = json.loads(of_kind(made, "ConfigMap")["data"]["work-order.json"])
    used = {container["image"] for _, pod in pods(made) for container in pod["containers"]}
    besides = {"evalrun-sandbox:latest"} if change.get("spec.judge") == STOCK else set()  # the slot proxy's
    assert set(order["images"]) == {"aggregator", "generator", "judge", "sandbox"}
    assert set(order["images"].values()) | besides == used


@pytest.mark.parametrize(
    ("change", "settings", "image"),
    [
        ({}, {"sandbox_graders_image": "graders:1"}, "evalrun-sandbox:latest"),
        (VERLS, {"sandbox_graders_image": "graders:1"}, "graders:1"),
        (VERLS, {}, "evalrun-sandbox:latest"),
        (VERLS | {"spec.judge": OWN_IMAGES}, {"sandbox_graders_image": "graders:1"}, OWN_IMAGES["sandbox"]["image"]),
        ({"spec.datasets.0.grader": {"path": "pvc://data/g.py"}}, {"sandbox_graders_image": "graders:1"},
         "evalrun-sandbox:latest"),
    ],
)  # fmt: skip
def test_verls_grader_gets_the_sandbox_that_has_its_scorers(
    change: dict[str, Any], settings: dict[str, str], image: str
) -> None:
    assert container_of(objects(plan_of(evalrun(change), **settings)), "sandbox")["image"] == image


def test_run_config_excludes_fields_that_may_change_during_a_run() -> None:
    before = of_kind(objects(plan_of(evalrun())), "ConfigMap")
    changed = evalrun({"spec.suspend": True, "spec.backoffLimit": 9, "spec.ttlSecondsAfterFinished": 5})
    assert of_kind(objects(plan_of(changed)), "ConfigMap") == before


@pytest.mark.parametrize(
    ("container", "settings", "rollout"),
    [
        ("aggregator", AggregatorSettings, True),
        ("judge", JudgeSettings, True),
        ("sandbox", SandboxSettings, True),
        ("generator", GeneratorSettings, False),
    ],
)
def test_each_service_takes_the_flags_and_variables_that_it_is_given(
    container: str, settings: type[ServiceSettings], rollout: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = container_of(objects(plan_of(evalrun(rollout=rollout))), container)
    variables = {entry["name"] for entry in found["env"]}
    for name in variables:
        monkeypatch.setenv(name, TOKEN)
    read = load_settings(settings, found["args"], program=container)
    prefix = str(settings.model_config["env_prefix"])
    for name in variables:
        field = name.removeprefix(prefix).lower()
        assert getattr(read, field) == Path(TOKEN)
    assert read.host == "0.0.0.0"
    assert read.metrics_port == 9090


@pytest.mark.parametrize(
    ("part", "settings"), [("aggregator", AggregatorSettings), ("judge", JudgeSettings), ("sandbox", SandboxSettings)]
)
def test_a_service_is_watched_and_gets_the_time_to_drain(part: str, settings: type[ServiceSettings]) -> None:
    made = objects(plan_of(evalrun()))
    pod = next(pod for name, pod in pods(made) if name.endswith(f"/run-{part}"))
    assert pod["terminationGracePeriodSeconds"] > settings.model_fields["drain_seconds"].default
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= pod["containers"][0].keys()
    assert pod["volumes"][0]["emptyDir"]["sizeLimit"]  # programs cannot fill the node's disk
    assert f"--metrics-port={pod['containers'][0]['ports'][-1]['containerPort']}" in pod["containers"][0]["args"]


def test_aggregator_pods_are_managed_in_parallel_so_that_a_broken_one_is_replaced() -> None:
    (workload,) = (item for item in objects(plan_of(evalrun())) if item["kind"] == "StatefulSet")
    assert workload["spec"]["podManagementPolicy"] == "Parallel"  # in order, the broken pod would be waited for


def test_a_gateway_that_never_came_up_is_not_waited_for_as_one_that_judges() -> None:
    """A slow start cost 10.5 minutes: the probe gave up after 2, and the pod's grace is that of a drain."""
    pod = next(pod for name, pod in pods(objects(plan_of(evalrun()))) if name.endswith("/run-judge"))
    probe = pod["containers"][0]["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 600
    assert probe["terminationGracePeriodSeconds"] == 30
    assert pod["terminationGracePeriodSeconds"] == 630


def test_requests_can_be_lowered_for_a_small_cluster() -> None:
    small = {"gateway_cpu": "50m", "generator_cpu": "60m", "sandbox_slot_milli_cpu": 250, "sandbox_slots": 2}
    made = objects(plan_of(evalrun(rollout=False), **small))
    asked = {part: container_of(made, part)["resources"] for part in ("judge", "generator", "sandbox")}
    assert {part: amounts["requests"]["cpu"] for part, amounts in asked.items()} == {
        "judge": "50m", "generator": "60m", "sandbox": "500m",
    }  # fmt: skip
    assert asked["sandbox"]["limits"] == {"cpu": "2", "memory": "2560Mi"}
    whole = container_of(objects(plan_of(evalrun(), sandbox_slots=3)), "sandbox")["resources"]
    assert whole["requests"] == whole["limits"]


def test_every_part_except_the_sandbox_sends_spans_to_the_configured_endpoint() -> None:
    def sends(run: EvalRun, **settings: str) -> set[str]:
        found = set()
        for name, pod in pods(objects(plan_of(run, **settings))):
            variables = {variable["name"] for variable in pod["containers"][0].get("env", [])}
            if "OTEL_EXPORTER_OTLP_ENDPOINT" in variables:
                found.add(name.rpartition("/")[2].removeprefix("run").strip("-") or name)
        return found

    where = {"otlp_endpoint": "http://collector:4317"}
    assert sends(evalrun(rollout=False)) == set()
    assert sends(evalrun(rollout=False), **where) == {"aggregator", "judge", "0f3b2-gen-99"}
    assert {"aggregator", "judge"} < sends(evalrun(), **where)
    assert "sandbox" not in sends(evalrun(), **where)


def test_ray_cluster_has_the_fields_that_verl_and_kuberay_need() -> None:
    run = evalrun({"spec.rollout.queueName": "evals", "spec.rollout.gpusPerNode": 4})
    cluster = of_kind(objects(plan_of(run)), "RayCluster")
    spec = cluster["spec"]
    assert cluster["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "evals"
    assert "suspend" not in spec  # Kueue's field
    assert spec["enableInTreeAutoscaling"] is False
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    head = spec["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert "nvidia.com/gpu" not in head["resources"]["limits"]
    (group,) = spec["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (2, 2, 2)  # 4 replicas of 2 GPUs
    assert int(group["rayStartParams"]["num-cpus"]) >= 2 * 4 + 2
    worker = group["template"]["spec"]
    assert worker["restartPolicy"] == "Never"
    limits, requests = (worker["containers"][0]["resources"][part] for part in ("limits", "requests"))
    assert limits["nvidia.com/gpu"] == requests["nvidia.com/gpu"] == "4"
    assert limits["memory"] == requests["memory"]


@pytest.mark.parametrize(
    ("engine", "own", "sglang", "image"),
    [
        ("vllm", None, "sglang:1", "gen:1"),
        ("sglang", None, "sglang:1", "sglang:1"),
        ("sglang", None, "", "gen:1"),
        ("sglang", "mine:1", "sglang:1", "mine:1"),
    ],
)
def test_ray_image_is_that_of_the_engine_unless_the_run_names_one(
    engine: str, own: str | None, sglang: str, image: str
) -> None:
    changes = {"spec.rollout.engine": engine, **({} if own is None else {"spec.rollout.image": own})}
    plan = plan_of(evalrun(changes), ray_image="gen:1", ray_sglang_image=sglang)
    assert plan.spec.rollout is not None
    assert ray_image(plan, plan.spec.rollout) == image


def test_ray_runs_as_the_user_of_its_image() -> None:
    text = (Path(__file__).parents[3] / "Dockerfile.gen").read_text(encoding="utf-8")
    pod = worker_of(evalrun())
    user = pod["securityContext"]["runAsUser"]
    assert f"\nUSER {user}:{user}\n" in text
    assert {"name": "USER", "value": "evalrun"} in pod["containers"][0]["env"]


def test_ray_worker_has_the_engines_environment_of_the_founding_plan() -> None:
    given = worker_of(evalrun())["containers"][0]["env"]
    wanted = [{"name": "TOKENIZERS_PARALLELISM", "value": "true"}, {"name": "NCCL_DEBUG", "value": "WARN"}]
    assert [entry for entry in wanted if entry not in given] == []


def test_few_cpus_in_the_spec_do_not_keep_ray_from_placing_replicas() -> None:
    resources_given = {"limits": {"cpu": "8", "memory": "64Gi"}, "requests": {"cpu": "4"}}
    run = evalrun({"spec.rollout.resources": resources_given})
    (group,) = of_kind(objects(plan_of(run)), "RayCluster")["spec"]["workerGroupSpecs"]
    assert group["rayStartParams"]["num-cpus"] == "18"
    amounts = group["template"]["spec"]["containers"][0]["resources"]
    assert (amounts["limits"]["cpu"], amounts["requests"]["cpu"]) == ("8", "4")


def test_requests_above_the_default_limits_raise_the_limits() -> None:
    run = evalrun({"spec.rollout.resources": {"requests": {"cpu": "40", "memory": "900Gi"}}})
    (group,) = of_kind(objects(plan_of(run)), "RayCluster")["spec"]["workerGroupSpecs"]
    amounts = group["template"]["spec"]["containers"][0]["resources"]
    assert amounts["requests"] == amounts["limits"]
    assert amounts["limits"] == {"cpu": "40", "memory": "900Gi", "ephemeral-storage": "256Gi", "nvidia.com/gpu": "8"}


def test_ray_requires_a_token_unless_ray_auth_is_disabled() -> None:
    assert of_kind(objects(plan_of(evalrun())), "RayCluster")["spec"]["authOptions"] == {"mode": "token"}
    old = of_kind(objects(plan_of(evalrun(), ray_auth="disabled")), "RayCluster")
    assert "authOptions" not in old["spec"]


def worker_of(run: EvalRun, **settings: Any) -> Object:
    cluster = of_kind(objects(plan_of(run, **settings)), "RayCluster")
    pod: Object = cluster["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    return pod


@pytest.mark.parametrize("path", ["s3://checkpoints/coder/step_7", "gs://checkpoints/coder/step_7"])
def test_a_model_in_a_bucket_is_fetched_before_ray_starts_and_keeps_its_name(path: str, tmp_path: Path) -> None:
    changes = {"spec.model.path": path, "spec.output": {"url": "s3://out/x", "credentialsSecretRef": {"name": "b"}}}
    made = objects(plan_of(evalrun(changes)))
    pod = worker_of(evalrun(changes))
    (fetch,) = pod["initContainers"]
    assert fetch["image"] == operator_settings().aggregator_image  # it has the stores' packages
    python, flag, module = fetch["command"]
    assert (python, flag) == ("python", "-m")
    assert importlib.util.find_spec(module) is not None
    source, directory = fetch["args"]
    assert source == path
    assert fetch["envFrom"] == [{"secretRef": {"name": "b"}}]
    assert fetch["securityContext"] == pod["containers"][0]["securityContext"]
    (mount,) = (mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "scratch")
    assert mount in fetch["volumeMounts"]
    assert directory.startswith(f"{mount['mountPath']}/")
    settings = load_settings(
        RolloutSettings, shlex.split(of_kind(made, "RayJob")["spec"]["entrypoint"])[3:], program="r"
    )
    file = tmp_path / "order.json"
    file.write_text(of_kind(made, "ConfigMap")["data"]["work-order.json"])
    plan = engine_plan(read_rollout_order(file), settings.environment, settings.model_folder)
    assert plan.model_config["path"] == directory
    assert plan.served_model == path  # as results name it


@pytest.mark.parametrize("path", ["org/base", "s3://models/base"])
def test_an_adapter_in_a_bucket_is_fetched_as_well_and_answers(path: str, tmp_path: Path) -> None:
    run = evalrun({"spec.model": {"path": path, "adapter": "s3://training/step_7"}, "spec.output": {"url": "s3://o/x"}})
    made = objects(plan_of(run))
    (fetch,) = worker_of(run)["initContainers"]
    assert fetch["args"][-3:] == ["--adapter", "s3://training/step_7", "/scratch/adapter"]
    assert fetch["args"][:-3] == ([] if path == "org/base" else [path, "/scratch/checkpoint"])
    entrypoint = shlex.split(of_kind(made, "RayJob")["spec"]["entrypoint"])
    settings = load_settings(RolloutSettings, entrypoint[3:], program="r")
    file = tmp_path / "order.json"
    file.write_text(of_kind(made, "ConfigMap")["data"]["work-order.json"])
    directories = (settings.model_folder, settings.adapter_folder)
    plan = engine_plan(read_rollout_order(file), settings.environment, *directories)
    assert (plan.adapter, plan.served_model) == ("/scratch/adapter", "s3://training/step_7")


def test_an_adapter_on_a_volume_is_read_where_it_is() -> None:
    run = evalrun({"spec.model": {"path": "pvc://models/base", "adapter": "pvc://training/grpo/step_7"}})
    pod = worker_of(run)
    assert "initContainers" not in pod
    mounts = {mount["mountPath"]: mount.get("readOnly") for mount in pod["containers"][0]["volumeMounts"]}
    assert (mounts["/mnt/claims/models"], mounts["/mnt/claims/training"]) == (True, True)
    order = json.loads(of_kind(objects(plan_of(run)), "ConfigMap")["data"]["work-order.json"])
    assert order["spec"]["model"]["adapter"] == "/mnt/claims/training/grpo/step_7"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"spec.model.path": "pvc://models/coder"},
        {"spec.model.path": "s3://checkpoints/coder", "spec.rollout.loadFormat": "runai_streamer"},
    ],
)
def test_model_that_the_engine_reads_itself_is_not_fetched(changes: dict[str, Any]) -> None:
    run = evalrun(changes)
    assert "initContainers" not in worker_of(run)
    assert "--model-folder" not in of_kind(objects(plan_of(run)), "RayJob")["spec"]["entrypoint"]


def test_models_of_the_hub_are_kept_between_runs_on_a_claim_that_is_named() -> None:
    def hub_home(pod: Object) -> str:
        return next(str(entry["value"]) for entry in pod["containers"][0]["env"] if entry["name"] == "HF_HOME")

    own, shared = worker_of(evalrun()), worker_of(evalrun(), model_cache_claim="models")
    mounts = {mount["name"]: mount["mountPath"] for mount in shared["containers"][0]["volumeMounts"]}
    assert hub_home(own).startswith(f"{mounts['scratch']}/")
    assert hub_home(shared) == mounts["model-cache"]
    claims = [volume for volume in shared["volumes"] if "persistentVolumeClaim" in volume]
    assert claims == [{"name": "model-cache", "persistentVolumeClaim": {"claimName": "models"}}]
    assert not [volume for volume in own["volumes"] if "persistentVolumeClaim" in volume]


def test_models_of_buckets_are_fetched_into_the_claim_that_caches_models_and_cannot_be_changed_there() -> None:
    spec = {"spec.model": {"path": "s3://models/base", "adapter": "s3://training/step_7"}}
    pod = worker_of(evalrun(spec), model_cache_claim="models")
    (fetch,) = pod["initContainers"]
    assert fetch["args"][:4] == ["--cache", "/model-cache/checkpoints", "s3://models/base", "/scratch/checkpoint"]
    assert {"name": "model-cache", "mountPath": "/model-cache"} in fetch["volumeMounts"]
    (main,) = pod["containers"]
    assert {"name": "model-cache", "mountPath": "/model-cache", "readOnly": True} in main["volumeMounts"]
    assert {"name": "HF_HOME", "value": "/scratch/huggingface"} in main["env"]
    # The hub's base is fetched by the engine, which needs the claim for that.
    pod = worker_of(
        evalrun({"spec.model": {"path": "org/base", "adapter": "s3://training/step_7"}}), model_cache_claim="models"
    )
    assert pod["initContainers"][0]["args"][:3] == ["--cache", "/model-cache/checkpoints", "--adapter"]
    assert {"name": "model-cache", "mountPath": "/model-cache"} in pod["containers"][0]["volumeMounts"]


def test_run_from_before_weights_on_claims_keeps_fetching_into_scratch() -> None:
    run = evalrun({"spec.model.path": "s3://models/base"})
    plan = replace(plan_of(run, model_cache_claim="models"), weights_on_claim=False)
    (group,) = of_kind(objects(plan), "RayCluster")["spec"]["workerGroupSpecs"]
    pod = group["template"]["spec"]
    assert pod["initContainers"][0]["args"] == ["s3://models/base", "/scratch/checkpoint"]
    assert pod["containers"][0]["resources"]["limits"]["ephemeral-storage"] == "256Gi"


@pytest.mark.parametrize(
    ("changes", "settings", "disk"),
    [
        ({}, {}, "256Gi"),  # the hub's weights, of 8 GPUs
        ({}, {"model_cache_claim": "models"}, "16Gi"),
        ({"spec.model.path": "s3://checkpoints/coder"}, {"worker_memory_gib_per_gpu": 48}, "384Gi"),
        ({"spec.model.path": "s3://checkpoints/coder"}, {"model_cache_claim": "models"}, "16Gi"),
        ({"spec.model.path": "pvc://models/coder"}, {}, "16Gi"),
        ({"spec.rollout.resources": {"limits": {"ephemeral-storage": "1Ti"}}}, {}, "1Ti"),
    ],
)
def test_the_disk_that_ray_may_fill_is_asked_for_and_bounded(
    changes: dict[str, Any], settings: dict[str, Any], disk: str
) -> None:
    made = objects(plan_of(evalrun(changes), **settings))
    for name, pod in pods(made):
        if name.startswith("RayCluster"):
            wanted = "16Gi" if name.endswith(" head") else disk
            amounts = pod["containers"][0]["resources"]
            assert amounts["requests"]["ephemeral-storage"] == amounts["limits"]["ephemeral-storage"] == wanted
            bounds = {volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"] if "emptyDir" in volume}
            assert bounds == {wanted}


SHARED = {
    "spec.datasets.0.source": "pvc://shared/a.jsonl",
    "spec.model.path": "pvc://shared/model",
    "spec.output": {"url": "pvc://shared/out"},
}


def test_pods_of_a_shared_claim_have_one_fs_group() -> None:
    """It changes the group of every file of a volume that is not read-only, at each pod's start."""
    groups: dict[str, set[int]] = {}
    readers = []
    for name, pod in pods(objects(plan_of(evalrun(SHARED), model_cache_claim="models"))):
        for volume in pod["volumes"]:
            claim = volume.get("persistentVolumeClaim", {})
            if claim.get("readOnly"):
                readers.append(name)
            elif claim:
                groups.setdefault(claim["claimName"], set()).add(pod["securityContext"]["fsGroup"])
    assert groups.keys() >= {"shared", "models"}
    assert {claim: len(some) for claim, some in groups.items()} == dict.fromkeys(groups, 1)
    assert len(readers) == 2  # Ray's pods, of whose group the results are not


def test_a_claim_that_is_read_is_read_only_in_the_volume_too() -> None:
    for _, pod in pods(objects(plan_of(evalrun({"spec.model.path": "pvc://models/qwen"})))):
        volumes = {volume["name"]: volume.get("persistentVolumeClaim", {}) for volume in pod["volumes"]}
        for mount in (mount for one in pod["containers"] for mount in one["volumeMounts"]):
            if volumes[mount["name"]]:
                assert volumes[mount["name"]].get("readOnly", False) == mount.get("readOnly", False), mount


def test_a_ray_job_runs_on_its_cluster_and_neither_retries_nor_deletes() -> None:
    job = of_kind(objects(plan_of(evalrun())), "RayJob")
    assert job["spec"]["clusterSelector"] == {"ray.io/cluster": "run-0f3b2-ray-99"}
    assert job["spec"]["submissionMode"] == "HTTPMode"
    assert not {"backoffLimit", "suspend", "rayClusterSpec", "deletionStrategy"} & job["spec"].keys()


def test_the_rollout_understands_its_entrypoint_its_order_and_the_heads_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = objects(plan_of(evalrun({"spec.rollout.minReplicas": 2, "spec.rollout.maxReplicas": 6})))
    python, flag, module, *flags = shlex.split(of_kind(made, "RayJob")["spec"]["entrypoint"])
    assert (python, flag) == ("python", "-m")
    assert importlib.util.find_spec(f"{module}.__main__") is not None
    head = of_kind(made, "RayCluster")["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    for entry in head["env"]:
        if "TOKEN" in entry["name"] and "value" in entry:
            monkeypatch.setenv(entry["name"], entry["value"])
    settings = load_settings(RolloutSettings, flags, program="rollout")
    assert settings.ledger_token_file == Path("/etc/evalrun/identity/ledger-token")
    assert settings.ledger == "dns:///run-aggregator.evals.svc:50051"
    assert str(settings.work_order) == "/etc/evalrun/order/work-order.json"
    assert settings.worker_id == "run"
    file = tmp_path / "order.json"
    file.write_text(of_kind(made, "ConfigMap")["data"]["work-order.json"])
    order = read_rollout_order(file)
    assert (order.rollout.min_replicas, order.rollout.max_replicas) == (2, 6)


def test_a_shared_judge_is_used_and_none_is_made() -> None:
    changes = {
        "spec.judgeRef": {"name": "shared", "namespace": "judges", "tokenSecretRef": {"name": "judge", "key": "token"}}
    }
    made = objects(plan_of(evalrun(changes)))
    assert not [item for item in made if item["kind"] == "Deployment"]
    aggregator = container_of(made, "aggregator")
    assert "--judge=dns:///shared.judges.svc:50051" in aggregator["args"]
    (token,) = (entry for entry in aggregator["env"] if entry["name"] == "EVALRUN_AGGREGATOR_JUDGE_TOKEN_FILE")
    pod = of_kind(made, "StatefulSet")["spec"]["template"]["spec"]
    assert {"judge": {"token": Path(token["value"]).name}}.items() <= held_by(pod).items()


def test_a_shared_judge_is_called_with_the_certificate_that_is_named_for_it() -> None:
    changes = {"spec.judgeRef": {"name": "shared", "namespace": "judges", "tlsSecretRef": {"name": "judge-client"}}}
    for tls, directories in (("Disabled", {"JUDGE_TLS"}), ("Issued", {"JUDGE_TLS", "TLS"})):
        made = objects(plan_of(evalrun({**changes, "spec.tls": tls})))
        env = {one["name"]: one["value"] for one in container_of(made, "aggregator")["env"] if "TLS" in one["name"]}
        assert env.keys() == {f"EVALRUN_AGGREGATOR_{directory}_FOLDER" for directory in directories}
        mounts = {one["mountPath"]: one["name"] for one in container_of(made, "aggregator")["volumeMounts"]}
        volumes = {one["name"]: one for one in of_kind(made, "StatefulSet")["spec"]["template"]["spec"]["volumes"]}
        mounted = volumes[mounts[env["EVALRUN_AGGREGATOR_JUDGE_TLS_FOLDER"]]]
        assert mounted["secret"]["secretName"] == "judge-client"
    in_plain_text = objects(plan_of(evalrun({"spec.judgeRef": {"name": "shared", "namespace": "judges"}})))
    named = {one["name"] for one in container_of(in_plain_text, "aggregator")["env"]}
    assert {name for name in named if "TLS" in name} == {"EVALRUN_AGGREGATOR_TLS_FOLDER"}


def test_a_runtime_class_isolates_where_landlock_may_be_missing() -> None:
    made = objects(plan_of(evalrun({"spec.judge.sandbox.runtimeClassName": "gvisor"})))
    assert "--required-level=seccomp" in container_of(made, "sandbox")["args"]
    assert "--required-level=seccomp" in container_of(made, "judge")["args"]
    sandbox = next(pod for name, pod in pods(made) if name == "Deployment/run-sandbox")
    assert sandbox["runtimeClassName"] == "gvisor"


def test_packages_are_named_to_sandbox_and_gateway_alike() -> None:
    made = objects(plan_of(evalrun({"spec.judge.sandbox.packages": ["/opt/numpy", "/opt/more"]})))
    for part in ("sandbox", "judge"):
        arguments = container_of(made, part)["args"]
        assert arguments[-2:] == ["--package-dirs=/opt/numpy", "--package-dirs=/opt/more"]


def test_stock_sandbox_fusion_is_reached_through_our_slot_proxy_only() -> None:
    made = objects(plan_of(evalrun({"spec.judge.sandbox.backend": "SandboxFusion", "spec.judge.sandbox.slots": 6})))
    sandbox = next(pod for name, pod in pods(made) if name == "Deployment/run-sandbox")
    exposed = {container["name"]: container.get("ports", []) for container in sandbox["containers"]}
    assert exposed["sandbox-fusion"] == []
    assert [port["containerPort"] for port in exposed["slot-proxy"]] == [8080, 9090]
    proxy = load_settings(SlotProxySettings, [*container_of(made, "slot-proxy")["args"], "--token=t"], program="proxy")
    assert (proxy.slots, proxy.port, proxy.metrics_port, proxy.upstream) == (6, 8080, 9090, "http://127.0.0.1:8081")
    template = next(item for item in made if item["metadata"]["name"] == "run-sandbox" and item["kind"] == "Deployment")
    assert template["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == "9090"
    assert "--backend=SandboxFusion" in container_of(made, "judge")["args"]
    proxy = container_of(made, "slot-proxy")["securityContext"]
    assert (proxy["runAsNonRoot"], proxy["capabilities"]) == (True, {"drop": ["ALL"]})
    limits = container_of(made, "sandbox-fusion")["securityContext"]["capabilities"]
    assert limits == {"drop": ["ALL"], "add": ["SETGID", "SETUID"]}, "or the harness cannot leave root: level seccomp"


@pytest.mark.parametrize(
    ("mode", "kind", "says"),
    [
        ("cpu", "HorizontalPodAutoscaler", '"averageValue": "500m"'),
        ("custom", "HorizontalPodAutoscaler", '"name": "evalrun_judge_load"'),
        ("keda", "ScaledObject", "sum(evalrun_judge_queue_depth"),
    ],
)
def test_autoscaler_kind_follows_from_the_operators_mode(mode: str, kind: str, says: str) -> None:
    made = objects(plan_of(evalrun(), autoscaling=mode))
    scaler = of_kind(made, kind)
    assert says in json.dumps(scaler)
    behaves = scaler["spec"] if kind != "ScaledObject" else scaler["spec"]["advanced"]["horizontalPodAutoscalerConfig"]
    assert behaves["behavior"] == BEHAVIOR
    if kind == "ScaledObject":  # without measurements the size stays, and a judge at zero gets one pod
        fallback = {"failureThreshold": FALLBACK_AFTER, "replicas": 1, "behavior": "currentReplicasIfHigher"}
        assert scaler["spec"]["fallback"] == fallback
    for item in made:
        if item["kind"] == "Deployment":
            assert "replicas" not in item["spec"]  # the scaler's


def test_equal_minimum_and_maximum_get_no_autoscaler() -> None:
    assert resources.autoscaler(plan_of(evalrun()), "judge", 2, 2, 8) is None


def test_object_changes_only_if_its_inputs_change() -> None:
    plan = plan_of(evalrun())
    assert objects(plan) == objects(plan_of(evalrun()))
    other = RunPlan(plan.run, plan.spec, plan.settings, "another")
    changed = {item["kind"] for one, item in zip(objects(plan), objects(other), strict=True) if one != item}
    assert changed == {"Secret", "StatefulSet", "Deployment", "RayCluster"}


@pytest.mark.parametrize(
    ("changes", "pending", "replicas"),
    [
        ({}, 10_000, 4),
        ({"spec.rollout.replicas": 3}, 10_000, 3),
        ({"spec.rollout.minReplicas": 2, "spec.rollout.maxReplicas": 8}, 10_000, 8),
        ({"spec.rollout.minReplicas": 2, "spec.rollout.maxReplicas": 8}, 1, 2),
        ({"spec.rollout.minReplicas": 2, "spec.rollout.maxReplicas": 8}, 1000, 4),
        ({"spec.rollout.minReplicas": 2, "spec.rollout.maxReplicas": 8}, None, 4),
    ],
)
def test_replicas_follow_the_pending_work(changes: dict[str, Any], pending: int | None, replicas: int) -> None:
    rollout = evalrun(changes).spec.rollout
    assert isinstance(rollout, Rollout)
    assert count_wanted_replicas(rollout, pending) == replicas


ELASTIC = {"spec.rollout.minReplicas": 1, "spec.rollout.maxReplicas": 8, "spec.rollout.gpusPerNode": 2}
A, B, C = WorkerPod("a", "10.0.0.1"), WorkerPod("b", "10.0.0.2"), WorkerPod("c", "10.0.0.3")
UNPLACED, GOING = WorkerPod("c", ""), WorkerPod("c", "10.0.0.3", deleting=True)
THREE = Workers(3)


@pytest.mark.parametrize(
    ("pending", "group", "pods", "busy", "wanted"),
    [
        pytest.param(600, None, [], None, Workers(1), id="a new cluster: those of the minimum"),
        pytest.param(600, Workers(1, begun=False), [A], None, Workers(1), id="no more before all have run at once"),
        pytest.param(600, Workers(3, begun=False), [A, UNPLACED], None, Workers(1), id="fewer, as one has no node"),
        pytest.param(None, None, [], None, Workers(1), id="a new cluster, the ledger is away"),
        pytest.param(600, Workers(2), [A, B], ["10.0.0.1"], Workers(3), id="more work"),
        pytest.param(200, THREE, [A, B, C], ["10.0.0.2"], Workers(1, ("a", "c")), id="idle ones go"),
        pytest.param(400, THREE, [A, B, C], ["10.0.0.2"], Workers(2, ("a",)), id="no more than are too many"),
        pytest.param(200, THREE, [A, B, C], ["10.0.0.1", "10.0.0.2"], Workers(2, ("c",)), id="busy ones stay"),
        pytest.param(200, THREE, [A, B, UNPLACED], ["10.0.0.2"], Workers(1, ("a", "c")), id="one without a node"),
        pytest.param(400, THREE, [A, B, UNPLACED], [], Workers(2, ("c",)), id="one without a node first"),
        pytest.param(200, THREE, [A, B, C], ["10.0.0.1", ""], THREE, id="one starts, nobody knows where"),
        pytest.param(200, THREE, [A, B, C], None, THREE, id="no report yet"),
        pytest.param(None, THREE, [A, B, C], [], THREE, id="the ledger is away"),
        pytest.param(None, Workers(1), [A], None, Workers(1), id="the ledger is away: no more either"),
        pytest.param(200, THREE, [A, B, GOING], ["10.0.0.1", "10.0.0.2"], THREE, id="KubeRay replaces one"),
        pytest.param(200, Workers(1, ("a", "c")), [A, B, GOING], ["10.0.0.2"], Workers(1, ("a", "c")), id="going"),
        pytest.param(200, Workers(1, ("a", "c")), [B, GOING], ["10.0.0.2"], Workers(1, ("c",)), id="one has gone"),
        pytest.param(200, Workers(1, ("a", "c")), [B], ["10.0.0.2"], Workers(1), id="all have gone"),
        pytest.param(None, Workers(1, ("a",)), [A, B], None, Workers(1, ("a",)), id="going while the ledger is away"),
        pytest.param(600, Workers(1, ("a",)), [A, B], [], Workers(3, ("a",)), id="going, and more work"),
    ],
)
def test_only_idle_workers_are_taken_away(
    pending: int | None, group: Workers | None, pods: list[WorkerPod], busy: list[str] | None, wanted: Workers
) -> None:
    rollout = evalrun({**ELASTIC, "spec.rollout.maxNumSeqs": 200}).spec.rollout
    assert isinstance(rollout, Rollout)
    assert rollout.gpus_per_replica == 2
    assert plan_workers(rollout, pending, group, pods, busy) == wanted


def test_workers_of_replicas_that_span_pods_stay() -> None:
    """Such a replica names its first pod only."""
    rollout = evalrun({**ELASTIC, "spec.rollout.gpusPerNode": 1, "spec.rollout.maxNumSeqs": 200}).spec.rollout
    assert isinstance(rollout, Rollout)
    assert plan_workers(rollout, 200, THREE, [A, B, C], ["10.0.0.2"]) == THREE


def test_pods_to_delete_are_named_to_kuberay() -> None:
    plan = plan_of(evalrun(ELASTIC))
    assert plan.spec.rollout is not None
    (group,) = resources.ray_cluster(plan, plan.spec.rollout, 1, Workers(2, ("a", "c")))["spec"]["workerGroupSpecs"]
    assert (group["replicas"], group["scaleStrategy"]) == (2, {"workersToDelete": ["a", "c"]})


def test_a_model_on_a_volume_is_mounted_into_the_ray_pods() -> None:
    for name, pod in pods(objects(plan_of(evalrun({"spec.model.path": "pvc://models/qwen"})))):
        if name.startswith("RayCluster"):
            assert "/mnt/claims/models" in [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]


def test_one_busy_program_does_not_trigger_scaling_even_with_small_cpu_requests() -> None:
    made = objects(plan_of(evalrun(), autoscaling="cpu", sandbox_slot_milli_cpu=25, gateway_cpu="100m"))
    scalers = {item["metadata"]["name"]: item["spec"] for item in made if item["kind"] == "HorizontalPodAutoscaler"}
    targets = {name: spec["metrics"][0]["resource"]["target"] for name, spec in scalers.items()}
    assert targets["run-judge"] == {"type": "AverageValue", "averageValue": "500m"}
    assert targets["run-sandbox"]["type"] == "AverageValue"
    for spec in scalers.values():
        assert spec["behavior"]["scaleUp"]["policies"] == [{"type": "Percent", "value": 100, "periodSeconds": 60}]
        assert spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 300


def test_only_pods_that_would_lose_work_are_kept_from_the_cluster_autoscaler() -> None:
    kept = {
        item["metadata"]["name"]
        for item in objects(plan_of(evalrun(rollout=False)))
        if "cluster-autoscaler.kubernetes.io/safe-to-evict" in str(item.get("spec", {}).get("template", {}))
    }
    assert kept == {"run-aggregator", "run-0f3b2-gen-99"}


TLS_PARTS: dict[str, tuple[str, type[ServiceSettings], set[str]]] = {
    "sandbox": ("sandbox", SandboxSettings, {"tls_folder"}),
    "judge": ("judge", JudgeSettings, {"tls_folder", "sandbox_tls_folder"}),
    "aggregator": ("aggregator", AggregatorSettings, {"tls_folder", "judge_tls_folder"}),
    "generator": ("generator", GeneratorSettings, {"ledger_tls_folder"}),
    "ray-head": ("generator", GeneratorSettings, {"ledger_tls_folder"}),
    "slot-proxy": ("sandbox", SlotProxySettings, {"tls_folder"}),
}
"""By container: whose certificate it has, and the settings that name its directory."""


def tls_runs() -> list[list[Object]]:
    changes: list[dict[str, Any]] = [
        {},
        {"spec.judge.sandbox.backend": "SandboxFusion", "spec.judge.sandbox.image": "i"},
    ]
    runs = [evalrun(more, rollout=rollout) for more in changes for rollout in (True, False)]
    return [objects(plan_of(run)) for run in runs]


def test_with_tls_every_part_has_its_own_certificate_and_no_others() -> None:
    seen = set()
    for made in tls_runs():
        for _, pod in pods(made):
            files = {
                item["key"]: item["path"]
                for volume in pod["volumes"]
                for source in volume.get("projected", {}).get("sources", ())
                for item in source["secret"]["items"]
            }
            for container in pod["containers"]:
                if container["name"] not in TLS_PARTS:
                    assert "TLS_DIRECTORY" not in str(container["env"]), container["name"]
                    continue
                seen.add(container["name"])
                part, settings, fields = TLS_PARTS[container["name"]]
                prefix = settings.model_config["env_prefix"]
                directories = {
                    one["name"]: one["value"] for one in container["env"] if one["name"].endswith("_TLS_FOLDER")
                }
                assert directories == {f"{prefix}{field.upper()}": "/etc/evalrun/identity/tls" for field in fields}
                certificates = {key: path for key, path in files.items() if not key.endswith("token")}
                assert certificates == {
                    f"{part}.crt": "tls/tls.crt", f"{part}.key": "tls/tls.key", "ca.crt": "tls/ca.crt",
                }  # fmt: skip
    assert seen == TLS_PARTS.keys()


def test_with_tls_probes_use_the_health_port_and_no_policy_opens_the_port() -> None:
    for made in tls_runs():
        for _, pod in pods(made):
            for container in pod["containers"]:
                probes = [value for key, value in container.items() if key.endswith("Probe")]
                ports = {next(iter(set(p) & {"grpc", "httpGet", "tcpSocket"})): p for p in probes}
                asked = {probe[how]["port"] for how, probe in ports.items()}
                assert asked <= {9091}, container["name"]
                assert bool(asked) == ("--health-port=9091" in container.get("args", ())), container["name"]
        assert "9091" not in json.dumps([item for item in made if item["kind"] == "NetworkPolicy"])


def test_part_mounts_only_its_named_tls_secret() -> None:
    for rollout in (True, False):
        made = objects(plan_of(evalrun({"spec.tlsSecretRefs": TLS_SECRETS}, rollout=rollout)))
        held = {}
        for _, pod in pods(made):
            secrets = {secret: keys for secret, keys in held_by(pod).items() if secret != "run-token"}
            assert all(
                keys == {file: f"tls/{file}" for file in ("tls.crt", "tls.key", "ca.crt")} for keys in secrets.values()
            )
            held[pod["containers"][0]["name"]] = set(secrets)
            assert not [key for key in held_by(pod).get("run-token", {}) if key.endswith((".crt", ".key"))]
        generator = (
            {"ray-head": {"generator-tls"}, "ray-worker": set()} if rollout else {"generator": {"generator-tls"}}
        )
        assert held == {
            "aggregator": {"aggregator-tls"}, "judge": {"gateway-tls"}, "sandbox": {"sandbox-tls"}, **generator,
        }  # fmt: skip
        assert "EVALRUN_SANDBOX_TLS_FOLDER" in {one["name"] for one in container_of(made, "sandbox")["env"]}


def test_without_tls_no_part_has_a_certificate() -> None:
    for plan in (
        plan_of(evalrun({"spec.tls": "Disabled"})),
        replace(plan_of(evalrun()), tls_unless_disabled=False),
        replace(plan_of(evalrun({"spec.tls": "Issued"})), hop_tokens=False),
    ):
        made = json.dumps(objects(plan))
        assert "TLS_DIRECTORY" not in made
        assert "9091" not in made


def test_a_sandbox_has_a_certificate_that_no_server_takes_and_the_operator_one_that_no_client_does() -> None:
    held = new_certificates(plan_of(evalrun()).run, "seed")
    parsed = {key: x509.load_pem_x509_certificate(text.encode()) for key, text in held.items() if key.endswith(".crt")}
    purposes = {
        key: set(one.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
        for key, one in parsed.items()
        if key != "ca.crt"
    }
    serves, calls = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
    assert purposes == {
        "sandbox.crt": {serves}, "judge.crt": {serves, calls}, "aggregator.crt": {serves, calls},
        "generator.crt": {calls}, "operator.crt": {calls},
    }  # fmt: skip
    names = parsed["judge.crt"].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["run-judge.evals.svc"]
    assert held == new_certificates(plan_of(evalrun()).run, "seed")
    assert not {"ca.key", "authority.key"} & held.keys()
