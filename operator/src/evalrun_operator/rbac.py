"""Permissions of the operator: the rules of its ClusterRole (or of a Role in each namespace), as data.

The chart is generated from this module and the tests run the operator with exactly these rules. Secrets can be read by
name only, never listed: the operator reads only its runs' tokens. Of the cluster's own objects only discovery is read.
"""

from typing import NotRequired, TypedDict

from evalrun_cluster.kinds import EVAL_RUN, EVAL_SCHEDULE, EVENT, KINDS, LEASE, SECRET, WORKLOAD
from evalrun_operator.settings import AutoscalingMode


class PolicyRule(TypedDict):
    """A rule of a Role."""

    apiGroups: list[str]
    resources: list[str]
    resourceNames: NotRequired[list[str]]
    verbs: list[str]


MADE_VERBS = ("create", "list", "patch", "watch")
"""Server-side apply is `patch`, and `create` for a new object."""
UNUSED_SCALER: dict[AutoscalingMode, str] = {"keda": "HorizontalPodAutoscaler"}
"""The kind of autoscaler that a mode does not create; ScaledObject in the other modes."""
NEVER_DELETED = frozenset({"PersistentVolumeClaim"})
"""Kinds that may hold results: only the garbage collector, or a person, deletes them."""


def role_rules(autoscaling: AutoscalingMode) -> list[PolicyRule]:
    """Return the rules for a mode of autoscaling."""
    kinds = KINDS.values()
    made: dict[tuple[str, bool], list[str]] = {}
    unused = UNUSED_SCALER.get(autoscaling, "ScaledObject")
    for kind in kinds:
        if kind.made and kind.kind != unused:
            made.setdefault((kind.group, kind.kind not in NEVER_DELETED), []).append(kind.plural)
    return [
        # Schedules create runs, and delete runs beyond their history.
        _rule(EVAL_RUN.group, [EVAL_RUN.plural], ["create", "delete", "list", "watch"]),
        _rule(EVAL_SCHEDULE.group, [EVAL_SCHEDULE.plural], ["list", "watch"]),
        _rule(EVAL_RUN.group, [f"{kind.plural}/status" for kind in (EVAL_RUN, EVAL_SCHEDULE)], ["update"]),
        # blockOwnerDeletion needs this right where OwnerReferencesPermissionEnforcement is on.
        _rule(EVAL_RUN.group, [f"{EVAL_RUN.plural}/finalizers"], ["update"]),
        _rule(SECRET.group, [SECRET.plural], ["create", "get"]),
        _rule(EVENT.group, [EVENT.plural], ["create", "list"]),
        _rule(WORKLOAD.group, [WORKLOAD.plural], ["list"]),
        *(_rule(kind.group, [kind.plural], ["list", "watch"]) for kind in kinds if not kind.made),
        # The operator deletes pods of lost nodes, whose end nobody else would confirm. An admission policy limits this
        # to pods of runs.
        _rule(KINDS["Pod"].group, [KINDS["Pod"].plural], ["delete"]),
        # Autoscalers that were created before the mode was changed are deleted.
        _rule(KINDS[unused].group, [KINDS[unused].plural], ["delete", "list", "watch"]),
        *(
            _rule(group, sorted(plurals), sorted([*MADE_VERBS, *(["delete"] if deleted else [])]))
            for (group, deleted), plurals in sorted(made.items())
        ),
    ]


def lease_rules(lease: str) -> list[PolicyRule]:
    """Return the rules in the operator's own namespace: access to the Lease that elects the active replica.

    Only creating is not restricted to the Lease's name, because RBAC cannot name objects that do not exist yet.
    """
    named: PolicyRule = {**_rule(LEASE.group, [LEASE.plural], ["get", "update"]), "resourceNames": [lease]}
    return [_rule(LEASE.group, [LEASE.plural], ["create"]), named]


def shared_token_rules() -> list[PolicyRule]:
    """Return the rules about the Secrets of the chart's tokens; the chart names them (`resourceNames`)."""
    return [_rule(SECRET.group, [SECRET.plural], ["get", "patch"])]


def _rule(group: str, plurals: list[str], verbs: list[str]) -> PolicyRule:
    return {"apiGroups": [group], "resources": plurals, "verbs": verbs}
