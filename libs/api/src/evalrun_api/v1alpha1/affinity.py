"""Affinity of a part's pods: Kubernetes' own fields, bounded in depth and length.

Kubernetes' schema has no such bounds. An object nested thousands of levels deep would stop every process that decodes
it, and an object of a megabyte would fill the memory of every process that keeps it.
"""

from typing import Annotated, Literal

from pydantic import Field

from evalrun_api.api_model import ApiModel, Rule, list_type

ATOMIC = list_type("atomic")
"""Server-side apply replaces these lists as a whole, as it does in pods."""
LabelValue = Annotated[str, Field(max_length=63)]
LabelKey = Annotated[str, Field(min_length=1, max_length=317)]
TopologyKey = Annotated[str, Field(min_length=1, max_length=317)]

# Lists are unset, not empty, by default: an empty list in the template would look like a change of running pods.
_VALUES_RULE = Rule(
    "(self.operator in ['Exists', 'DoesNotExist']) != (has(self.values) && size(self.values) > 0)",
    "operators Exists and DoesNotExist take no values, all others need at least one",
    ".values",
)


class NodeRequirement(ApiModel):
    """A condition on a node's labels."""

    key: LabelKey = Field(description="The label's key.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(
        description="How the label is compared with the values."
    )
    values: list[LabelValue] | None = Field(
        None, max_length=16, description="In, NotIn: texts; Gt, Lt: one whole number.", json_schema_extra=ATOMIC
    )

    RULES = (_VALUES_RULE,)


class NodeTerm(ApiModel):
    """Conditions that a node meets together."""

    match_expressions: list[NodeRequirement] = Field(
        min_length=1, max_length=8, description="Every condition must hold.", json_schema_extra=ATOMIC
    )


class NodeTerms(ApiModel):
    """Alternatives of conditions on a node."""

    node_selector_terms: list[NodeTerm] = Field(
        min_length=1, max_length=4, description="At least one of them must hold.", json_schema_extra=ATOMIC
    )


class PreferredNodeTerm(ApiModel):
    """A preference for nodes."""

    weight: int = Field(ge=1, le=100, description="Its weight among all preferences.")
    preference: NodeTerm = Field(description="The conditions of a preferred node.")


class NodeAffinity(ApiModel):
    """Which nodes the pods need or prefer."""

    required_during_scheduling_ignored_during_execution: NodeTerms | None = Field(
        None, description="Conditions without which a pod is not scheduled."
    )
    preferred_during_scheduling_ignored_during_execution: list[PreferredNodeTerm] | None = Field(
        None, max_length=4, description="Preferences.", json_schema_extra=ATOMIC
    )


class LabelRequirement(ApiModel):
    """A condition on a pod's labels."""

    key: LabelKey = Field(description="The label's key.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="How the label is compared with the values."
    )
    values: list[LabelValue] | None = Field(None, max_length=16, description="The texts.", json_schema_extra=ATOMIC)

    RULES = (_VALUES_RULE,)


class PodLabels(ApiModel):
    """Labels of other pods."""

    match_labels: dict[str, LabelValue] | None = Field(None, max_length=8, description="Labels that a pod must have.")
    match_expressions: list[LabelRequirement] | None = Field(
        None, max_length=8, description="Further conditions; each must hold.", json_schema_extra=ATOMIC
    )


class PodTerm(ApiModel):
    """Pods of the run's namespace, and the domain in which they count."""

    label_selector: PodLabels = Field(description="The pods that are meant.")
    topology_key: TopologyKey = Field(
        description="The nodes' label whose value makes a domain, e.g. kubernetes.io/hostname."
    )


class PreferredPodTerm(ApiModel):
    """A preference for, or against, the neighbourhood of pods."""

    weight: int = Field(ge=1, le=100, description="Its weight among all preferences.")
    pod_affinity_term: PodTerm = Field(description="The pods that are meant.")


class PodAffinity(ApiModel):
    """Which pods the part's pods need, prefer or, as anti-affinity, avoid beside them."""

    required_during_scheduling_ignored_during_execution: list[PodTerm] | None = Field(
        None, max_length=4, description="Conditions without which a pod is not scheduled.", json_schema_extra=ATOMIC
    )
    preferred_during_scheduling_ignored_during_execution: list[PreferredPodTerm] | None = Field(
        None, max_length=4, description="Preferences.", json_schema_extra=ATOMIC
    )


class Affinity(ApiModel):
    """Kubernetes' affinity without `matchFields`, `namespaces`, `namespaceSelector` and the match label keys."""

    node_affinity: NodeAffinity | None = Field(None, description="Nodes that the pods need or prefer.")
    pod_affinity: PodAffinity | None = Field(None, description="Pods that the pods need or prefer beside them.")
    pod_anti_affinity: PodAffinity | None = Field(None, description="Pods that the pods avoid.")
