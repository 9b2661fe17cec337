"""Allowed connections between a run's pods: a NetworkPolicy for each part.

Ports that require a token are open to the parts that need them. Egress is bounded where possible: sandboxes reach
nobody, gateways only their sandboxes. Endpoints, hubs and buckets may be anywhere, so the other parts reach everything
but the cloud's metadata service, which gives the node's credentials to any caller.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

from evalrun_api import names
from evalrun_api.v1alpha1 import Part
from evalrun_cluster.objects import Object
from evalrun_operator.resources.plan import RunPlan
from evalrun_operator.settings import OperatorSettings

METADATA = {"0.0.0.0/0": ("169.254.0.0/16",), "::/0": ("fd00:ec2::254/128", "fe80::/10")}
"""Addresses of metadata services (link-local, and EC2's own for IPv6), by the range of all IPv4 or IPv6 addresses."""
ANY_POD: Object = {"namespaceSelector": {}}
"""Added to the addresses, because some enforcers apply addresses only outside of the cluster."""
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""The API server sets this label on each namespace, so nobody can give a namespace the name of another."""
DNS_PORTS = (53, 5353)
"""Ports of the Service, and of pods that listen elsewhere: enforcers see a packet after its translation."""
RAY_DASHBOARD_PORT = 8265
OTLP_PORT = 4317


def network_policies(plan: RunPlan) -> list[Object]:
    """Return the policies of all parts that the run has."""
    judge = [_gateway(plan), _sandbox(plan)] if plan.spec.own_judge is not None else []
    own_replicas = plan.spec.rollout is not None and not plan.kept_by
    generator = _ray(plan) if own_replicas else _generator(plan)
    return [_aggregator(plan), generator, *judge]


def _sandbox(plan: RunPlan) -> Object:
    """Return the sandbox's policy: no egress at all, not even DNS; programs come from the run's gateways only."""
    calls = {"from": [_pods(plan, names.JUDGE)], "ports": [_port(names.SANDBOX_PORT)]}
    return _policy(plan, names.SANDBOX, [calls], [])


def _gateway(plan: RunPlan) -> Object:
    calls = {"from": [_pods(plan, names.AGGREGATOR)], "ports": [_port(names.GRPC_PORT)]}
    programs = {"to": [_pods(plan, names.SANDBOX)], "ports": [_port(names.SANDBOX_PORT)]}
    spans = (
        [] if plan.settings.otlp_endpoint is None else [{"ports": [_port(_parse_port(plan.settings.otlp_endpoint))]}]
    )
    return _policy(plan, names.JUDGE, [calls], [programs, dns(plan.settings), *spans])


def _aggregator(plan: RunPlan) -> Object:
    callers = [_pods(plan, names.GENERATOR), _pods(plan, names.RAY), _operator(plan.settings)]
    calls = {"from": callers, "ports": [_port(names.GRPC_PORT)]}
    return _policy(plan, names.AGGREGATOR, [calls], outside(plan.settings, "aggregator"))


def _generator(plan: RunPlan) -> Object:
    """Return the generator's policy.

    Beside kept replicas the generator is a node of their Ray cluster, whose nodes call it.
    """
    kept = {"matchLabels": {names.RUN_UID_LABEL: plan.kept_by, names.COMPONENT_LABEL: names.RAY}}
    ingress = [{"from": [{"podSelector": kept}]}] if plan.kept_by else []
    return _policy(plan, names.GENERATOR, ingress, outside(plan.settings, "generator"), scraped=not plan.kept_by)


def kept_replicas_policy(plan: RunPlan) -> Object:
    """Return the policy of a schedule's kept replicas: its runs' generators are nodes of their Ray cluster."""
    generators = {"matchLabels": {names.KEPT_LABEL: plan.run.uid, names.COMPONENT_LABEL: names.GENERATOR}}
    return plan.make_object(
        "NetworkPolicy",
        names.component(plan.run.name, names.KEPT),
        names.RAY,
        spec={
            "podSelector": {"matchLabels": plan.selector(names.RAY)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {"from": [_pods(plan, names.RAY), {"podSelector": generators}]},
                {"from": [ANY_POD], "ports": [_port(RAY_DASHBOARD_PORT)]},
            ],
            "egress": outside(plan.settings, "rayHead", "rayWorkers"),
        },
    )


def _ray(plan: RunPlan) -> Object:
    """Return the policy of Ray's pods. They use ports of Ray's choice, and KubeRay's operator calls the dashboard."""
    ingress = [{"from": [_pods(plan, names.RAY)]}, {"from": [ANY_POD], "ports": [_port(RAY_DASHBOARD_PORT)]}]
    return _policy(plan, names.RAY, ingress, outside(plan.settings, "rayHead", "rayWorkers"), scraped=False)


def outside(settings: OperatorSettings, *parts: Part) -> list[Object]:
    """Return the egress rules of parts that reach everything but the metadata service.

    If one of the parts is among the setting `metadata_clients`, the metadata service is reachable too.
    """
    if set(parts) & set(settings.metadata_clients):
        return [{}]
    blocks = [{"ipBlock": {"cidr": cidr, "except": list(hidden)}} for cidr, hidden in METADATA.items()]
    # DNS has a rule of its own, because NodeLocal DNSCache listens on a link-local address.
    return [{"to": [ANY_POD, *blocks]}, dns(settings)]


def dns(settings: OperatorSettings) -> Object:
    """Return the rule that lets pods ask the cluster's DNS."""
    ports = [{"protocol": protocol, "port": port} for port in DNS_PORTS for protocol in ("UDP", "TCP")]
    return {"to": settings.dns_peers, "ports": ports}


def _operator(settings: OperatorSettings) -> Object:
    """Return the operator's pods. Without a Lease the operator is not the chart's, and its namespace is unknown."""
    namespace, _, _ = settings.lease.partition("/")
    where = {"namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: namespace}}} if namespace else ANY_POD
    return {**where, "podSelector": {"matchLabels": {names.COMPONENT_LABEL: names.OPERATOR}}}


def _policy(
    plan: RunPlan, component: str, ingress: Sequence[Object], egress: Sequence[Object], *, scraped: bool = True
) -> Object:
    """Return a component's policy. The metrics port is open to scrapers if the run is scraped."""
    scrapers = {"from": plan.settings.metrics_clients} if plan.settings.metrics_clients else {}
    metrics = [{**scrapers, "ports": [_port(names.METRICS_PORT)]}] if scraped and plan.spec.exports.prometheus else []
    return plan.make_object(
        "NetworkPolicy",
        names.component(plan.run.name, component),
        component,
        spec={
            "podSelector": {"matchLabels": plan.selector(component)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [*ingress, *metrics],
            "egress": list(egress),
        },
    )


def _pods(plan: RunPlan, component: str) -> Object:
    return {"podSelector": {"matchLabels": plan.selector(component)}}


def _port(number: int) -> Object:
    return {"protocol": "TCP", "port": number}


def _parse_port(url: str) -> int:
    return urlsplit(url if "://" in url else f"//{url}").port or OTLP_PORT
