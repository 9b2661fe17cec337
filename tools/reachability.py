"""NetworkPolicies read as an enforcer reads them: who may open a connection to whom. Pure."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Object = dict[str, Any]
Side = Literal["Ingress", "Egress"]
NAMESPACE_LABEL = "kubernetes.io/metadata.name"


@dataclass(frozen=True)
class Endpoint:
    """A pod, or an address outside the cluster."""

    name: str
    namespace: str = ""
    """Empty: outside the cluster."""
    labels: Mapping[str, str] = field(default_factory=dict)
    port_names: Mapping[str, int] = field(default_factory=dict)
    address: str = ""
    """Address of an endpoint outside the cluster."""


def closed_side(
    policies: Sequence[Object], caller: Endpoint, target: Endpoint, port: int, protocol: str = "TCP"
) -> Side | None:
    """Return which side's policies refuse a connection, the caller's first; None if it is allowed."""
    if not _allows(policies, caller, "Egress", target, port, target, protocol):
        return "Egress"
    return None if _allows(policies, target, "Ingress", caller, port, target, protocol) else "Ingress"


def _allows(
    policies: Sequence[Object], pod: Endpoint, side: Side, peer: Endpoint, port: int, target: Endpoint, protocol: str
) -> bool:
    """Return whether a pod's policies of one side let a connection pass; without a policy everything passes."""
    selecting = [policy for policy in policies if _selects(policy, pod, side)]
    if not selecting:
        return True
    return any(
        _is_port(rule.get("ports"), port, target, protocol)
        and _is_peer(rule.get("to" if side == "Egress" else "from"), peer, policy["metadata"]["namespace"])
        for policy in selecting
        for rule in policy["spec"].get(side.lower()) or ()
    )


def _selects(policy: Object, pod: Endpoint, side: Side) -> bool:
    spec = policy["spec"]
    default = ["Ingress", *(["Egress"] if "egress" in spec else [])]
    return (
        side in (spec.get("policyTypes") or default)
        and policy["metadata"]["namespace"] == pod.namespace
        and _matches(spec["podSelector"], pod.labels)
    )


def _matches(selector: Object, labels: Mapping[str, str]) -> bool:
    if unknown := selector.keys() - {"matchLabels"}:
        raise ValueError(f"a selector with {sorted(unknown)} is not read here: teach _matches to")
    wanted: Mapping[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()


def _is_port(ports: Sequence[Object] | None, port: int, target: Endpoint, protocol: str) -> bool:
    if not ports:
        return True
    return any(
        one.get("protocol", "TCP") == protocol
        and port == (target.port_names.get(one["port"]) if isinstance(one["port"], str) else one["port"])
        for one in ports
    )


def _is_peer(peers: Sequence[Object] | None, other: Endpoint, namespace: str) -> bool:
    return not peers or any(_is_one_peer(peer, other, namespace) for peer in peers)


def _is_one_peer(peer: Object, other: Endpoint, namespace: str) -> bool:
    if "ipBlock" in peer:
        # Whether a block also covers addresses of pods depends on the enforcer, so no pod counts as covered.
        return bool(other.address) and _is_in(other.address, peer["ipBlock"])
    if not other.namespace:
        return False
    of_namespace = (
        _matches(peer["namespaceSelector"], {NAMESPACE_LABEL: other.namespace})
        if "namespaceSelector" in peer
        else other.namespace == namespace
    )
    return of_namespace and _matches(peer.get("podSelector", {}), other.labels)


def _is_in(address: str, block: Object) -> bool:
    wanted = ipaddress.ip_address(address)
    return wanted in ipaddress.ip_network(block["cidr"]) and not any(
        wanted in ipaddress.ip_network(excepted) for excepted in block.get("except", ())
    )


def make_endpoint(name: str, namespace: str, template: Object) -> Endpoint:
    """Return the endpoint of a pod, or of the pods of a template."""
    ports = (port for one in template["spec"]["containers"] for port in one.get("ports", ()) if "name" in port)
    named = {port["name"]: port["containerPort"] for port in ports}
    return Endpoint(name, namespace, template["metadata"].get("labels", {}), named)
