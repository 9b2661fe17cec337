"""What the operator may do: the rules of its ClusterRole (or of a Role in each namespace), as data, and nothing beyond.

The chart is generated from it and the tests run the operator with exactly this. Secrets can be read by name only, never
listed: the operator reads nothing but its runs' tokens. Nothing of the cluster's own objects is read but discovery.
"""

from typing import TypedDict

from evalrun_operator.app import watched_kinds
from evalrun_operator.kinds import EVAL_RUN, EVENT, SECRET
from evalrun_operator.settings import AutoscalingMode


class Rule(TypedDict):
    """One rule of a role."""

    apiGroups: list[str]
    resources: list[str]
    verbs: list[str]


MADE_VERBS = ("create", "list", "patch", "watch")
"""Server-side apply is `patch`, and `create` where the object is new."""
NEVER_DELETED = frozenset({"PersistentVolumeClaim"})
"""Results may lie there: only the garbage collector, or a person, takes it away."""


def role_rules(autoscaling: AutoscalingMode) -> list[Rule]:
    """Give the rules for one mode of autoscaling."""
    kinds = watched_kinds(autoscaling)
    made: dict[tuple[str, bool], list[str]] = {}
    for kind in kinds:
        if kind.made:
            made.setdefault((kind.group, kind.kind not in NEVER_DELETED), []).append(kind.plural)
    return [
        _rule(EVAL_RUN.group, [EVAL_RUN.plural], ["list", "watch"]),
        _rule(EVAL_RUN.group, [f"{EVAL_RUN.plural}/status"], ["update"]),
        # Where OwnerReferencesPermissionEnforcement is on, blockOwnerDeletion asks for this.
        _rule(EVAL_RUN.group, [f"{EVAL_RUN.plural}/finalizers"], ["update"]),
        _rule(SECRET.group, [SECRET.plural], ["create", "get"]),
        _rule(EVENT.group, [EVENT.plural], ["create"]),
        *(_rule(kind.group, [kind.plural], ["list", "watch"]) for kind in kinds if not kind.made),
        *(
            _rule(group, sorted(plurals), sorted([*MADE_VERBS, *(["delete"] if deleted else [])]))
            for (group, deleted), plurals in sorted(made.items())
        ),
    ]


def _rule(group: str, plurals: list[str], verbs: list[str]) -> Rule:
    return {"apiGroups": [group], "resources": plurals, "verbs": verbs}
