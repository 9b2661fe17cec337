"""Placement, labels and annotations of a run's pods."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from evalrun_api.api_model import ApiModel, DnsName, Rule, list_type
from evalrun_api.v1alpha1.affinity import Affinity

Part = Literal["sandbox", "gateway", "aggregator", "generator", "rayHead", "rayWorkers"]
"""A part of a run that has pods of its own. The generator is simple mode's; with rollout Ray's head runs it."""
PARTS: tuple[Part, ...] = get_args(Part)


class PodMetadata(ApiModel):
    """Labels and annotations of pods, e.g. for a policy that requires an owner."""

    labels: Annotated[
        dict[str, Annotated[str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")]],
        Field(max_length=16, description='Labels, e.g. team: "evals". They take precedence over the chart\'s.'),
        Rule(
            "self.all(k, k.matches('^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",
            "a label's key is a name of at most 63 characters, after a domain and '/' if you like: example.com/team",
        ),
        Rule(
            "self.all(k, !k.startsWith('evalrun.dev/') && !k.startsWith('app.kubernetes.io/') && "
            "!k.startsWith('ray.io/') && !k.startsWith('kueue.x-k8s.io/'))",
            "labels of evalrun.dev, app.kubernetes.io, ray.io and kueue.x-k8s.io select the run's own pods: choose "
            "another domain",
        ),
    ] = {}  # noqa: RUF012 - pydantic copies it
    annotations: Annotated[
        dict[str, Annotated[str, Field(max_length=1024)]],
        Field(max_length=16, description="Annotations. They take precedence over the chart's."),
        Rule(
            "self.all(k, !k.startsWith('evalrun.dev/'))",
            "annotations of evalrun.dev are the operator's own: choose another domain",
        ),
    ] = {}  # noqa: RUF012 - pydantic copies it


class Toleration(ApiModel):
    """Toleration of tainted nodes, as in a pod."""

    key: str | None = Field(None, min_length=1, max_length=253, description="The taint's key; unset with Exists: all.")
    operator: Literal["Equal", "Exists"] = Field("Equal", description="Exists matches any value.")
    value: str | None = Field(None, max_length=63, description="The taint's value, with Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="The taint's effect; unset: every effect."
    )
    toleration_seconds: int | None = Field(
        None, ge=0, le=31_536_000, description="With NoExecute: how long the pod may stay; unset: without limit."
    )

    RULES = (
        Rule(
            "self.operator != 'Exists' || !has(self.value)",
            "operator: Exists takes any value: remove value, or write operator: Equal",
            ".value",
        ),
        Rule(
            "self.operator == 'Exists' || has(self.key)",
            "operator: Equal needs a key: write key, or operator: Exists to tolerate every taint",
            ".key",
        ),
    )


class TopologySpread(ApiModel):
    """Spreads the pods of a part; the label selector is the part's own."""

    topology_key: str = Field(
        min_length=1, max_length=317, description="The nodes' label, e.g. topology.kubernetes.io/zone."
    )
    max_skew: int = Field(1, ge=1, le=1000, description="Maximum difference between two domains, in pods.")
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = Field(
        "ScheduleAnyway", description="DoNotSchedule leaves a pod pending if it would exceed maxSkew."
    )


class Placement(PodMetadata):
    """Placement of a part's pods, with their labels and annotations. Unset fields have the chart's values."""

    node_selector: dict[str, Annotated[str, Field(max_length=63)]] = Field(
        {}, max_length=16, description="Labels that a node must have for the pods to run on it."
    )
    tolerations: list[Toleration] = Field(
        [], max_length=16, description="Taints that the pods tolerate.", json_schema_extra=list_type("atomic")
    )
    affinity: Affinity | None = Field(
        None,
        description="Kubernetes' affinity, bounded: nodes by expressions, pods of the run's namespace by labels and "
        "topology key.",
    )
    topology_spread: list[TopologySpread] = Field(
        [],
        max_length=8,
        description="How the pods are spread; unset: gateways and sandboxes are spread over nodes if possible.",
        json_schema_extra=list_type("map", "topologyKey"),
    )
    priority_class_name: DnsName | None = Field(None, description="The pods' PriorityClass.")
    scheduler_name: DnsName | None = Field(None, description="The scheduler of the pods; unset: the cluster's default.")

    def pod_fields(self, selector: Mapping[str, str]) -> dict[str, Any]:
        """Return the fields of a pod's spec that are set; `selector` selects the part's pods."""
        wire = {**self.to_wire(), "topologySpreadConstraints": [
            {**spread.to_wire(), "labelSelector": {"matchLabels": dict(selector)}} for spread in self.topology_spread
        ]}  # fmt: skip
        return {name: wire[name] for name in POD_FIELDS if wire.get(name)}


POD_FIELDS = (
    "nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "priorityClassName", "schedulerName",
)  # fmt: skip
PARTS_RULE = Rule(
    f"self.all(k, k in [{', '.join(repr(part) for part in PARTS)}])",
    f"unknown part of a run: write one of {', '.join(PARTS)}",
)
Placements = Annotated[
    dict[str, Placement],
    Field(max_length=len(PARTS), description="Placement by part: " + ", ".join(PARTS) + "."),
    PARTS_RULE,
]
