"""Texts of kube-apiserver about a request that it refuses, and the remedies. Pure.

A quota, a missing right, Pod Security and an admission webhook all return 403 with the reason `Forbidden` and no cause:
only the message tells them apart. The message selects the advice that a user reads, and decides nothing. The texts are
those of kube-apiserver 1.36, and tests/cluster/test_kubernetes_texts.py asks that version for them.
"""

REMEDIES = (
    ("exceeded quota", "Raise the ResourceQuota, or free what it counts."),
    ("violates PodSecurity", "Let the namespace enforce a lower Pod Security level, or change what the run asks for."),
    ("cannot", "Give the operator's account the right that is named: the chart's rbac.create does."),
    ("denied the request", "Meet the admission policy that is named, or have it changed."),
    ("webhook", "See to the admission webhook that is named: while it does not answer, nothing can be made."),
)
"""Remedies by a part of the message; the first match counts."""
OTHERWISE = "Change what the message names."


def find_remedy(message: str) -> str:
    """Return what a user can do about a refusal."""
    return next((remedy for part, remedy in REMEDIES if part in message), OTHERWISE)
