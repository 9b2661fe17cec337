"""Checks EvalRuns and the templates of EvalSchedules against the chart's allow-lists. Pure.

The chart's ValidatingAdmissionPolicy has the same rules in CEL, so that they hold without an operator. This module
serves clusters whose API server knows no such policies (before Kubernetes 1.30), and releases that may create none
(`operator.watchNamespaces`). The texts of both come from here; tests compare both with a table of specs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

REFUSED = {
    "priorityClasses": "a priorityClassName",
    "tolerations": "a toleration's key",
    "nodeLabels": "a key of nodeSelector or nodeAffinity",
    "images": "an image",
    "backends": "judge.sandbox.backend",
    "runtimeClasses": "judge.sandbox.runtimeClassName",
    "serviceAccounts": "serviceAccountName",
    "claims": "the claim of a pvc:// URL",
    "buckets": "the bucket of a URL",
}
"""What a list allows, by its name in the chart's `admission.allowed`."""
BEGINNING = "{what} is not allowed here. Allowed: "
END = " (admission.allowed.{name} of the evalrun chart, for one namespace admission.namespaces)"
NONE = "none"
EVERYTHING = "*"
Lists = Mapping[str, Sequence[str]]
Spec = Mapping[str, Any]


def find_refusal(spec: Spec, namespace: str, lists: Mapping[str, Lists], more_urls: Sequence[str] = ()) -> str:
    """Return why a spec is not allowed; empty if it is.

    Args:
        spec: the spec of an EvalRun, or the template of an EvalSchedule, as its manifest has it.
        namespace: namespace of the object.
        lists: lists by namespace; those of "" are for every other namespace. Without any list everything is allowed.
        more_urls: further URLs of an EvalSchedule, beside its template.
    """
    if not lists:
        return ""
    allowed = lists.get(namespace) or lists[""]
    for name, value in list_requested_values(spec, more_urls):
        entries = allowed[name]
        if EVERYTHING not in entries and not any(_allows(name, entry, value) for entry in entries):
            return describe_refusal(name, entries)
    return ""


def describe_refusal(name: str, entries: Sequence[str]) -> str:
    """Return the message of a refusal, which names the list."""
    return f"{BEGINNING.format(what=REFUSED[name])}{', '.join(entries) or NONE}{END.format(name=name)}"


def refusal_expression(name: str) -> str:
    """Return the message of a refusal as an expression in CEL, for the chart's policy."""
    entries = f"variables.allowed.{name}"
    listed = f'(size({entries}) == 0 ? "{NONE}" : {entries}.join(", "))'
    return f'"{BEGINNING.format(what=REFUSED[name])}" + {listed} + "{END.format(name=name)}"'


def list_requested_values(spec: Spec, more_urls: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield each value that a spec asks for, with the list that must allow it."""
    rollout, judge = spec.get("rollout") or {}, spec.get("judge") or {}
    sandbox = judge.get("sandbox") or {}
    for placement in (*(spec.get("placement") or {}).values(), rollout):
        if "priorityClassName" in placement:
            yield "priorityClasses", placement["priorityClassName"]
        yield from (("tolerations", one.get("key") or "") for one in placement.get("tolerations") or ())
        yield from (("nodeLabels", key) for key in placement.get("nodeSelector") or ())
        yield from (("nodeLabels", key) for key in _affinity_keys(placement))
    for part in (rollout, judge.get("gateway") or {}, sandbox):
        if "image" in part:
            yield "images", part["image"]
    if "backend" in sandbox:
        yield "backends", sandbox["backend"]
    if "runtimeClassName" in sandbox:
        yield "runtimeClasses", sandbox["runtimeClassName"]
    if "serviceAccountName" in spec:
        yield "serviceAccounts", spec["serviceAccountName"]
    for url in (*_urls(spec), *more_urls):
        if url.startswith("pvc://"):
            yield "claims", url
        elif url.startswith(("s3://", "gs://")):
            yield "buckets", url


def _allows(name: str, entry: str, value: str) -> bool:
    if name == "images":
        return value.startswith(entry)
    if name in ("claims", "buckets"):
        folder = f"pvc://{entry}" if name == "claims" else entry
        return value == folder or value.startswith(f"{folder}/")
    return value == entry


def _affinity_keys(placement: Spec) -> Iterator[str]:
    node = (placement.get("affinity") or {}).get("nodeAffinity") or {}
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = list(required.get("nodeSelectorTerms") or ())
    terms += [one["preference"] for one in node.get("preferredDuringSchedulingIgnoredDuringExecution") or ()]
    yield from (expression["key"] for term in terms for expression in term.get("matchExpressions") or ())


def _urls(spec: Spec) -> Iterator[str]:
    model, output, gate = spec.get("model") or {}, spec.get("output") or {}, spec.get("gate") or {}
    datasets = spec.get("datasets") or ()
    found = [
        model.get("path"), model.get("adapter"), model.get("base"), output.get("url"), gate.get("baseline"),
        *(one.get(field) for one in datasets for field in ("source", "manifest", "promptTemplate")),
        *((one.get("grader") or {}).get("path") for one in datasets),
        *(one.get("baseline") for one in spec.get("gates") or ()),
    ]  # fmt: skip
    yield from (url for url in found if url is not None)
