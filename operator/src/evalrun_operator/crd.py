"""The CustomResourceDefinition, made from the models: nothing of it is written by hand."""

from typing import Any

from evalrun_operator.api.modelling import VALIDATIONS, Rule
from evalrun_operator.api.structural import Schema, structural_schema, without_markers
from evalrun_operator.api.v1alpha1 import GROUP, KIND, MUTABLE_FIELDS, VERSION, EvalRun

PLURAL = "evalruns"
CRD_NAME = f"{PLURAL}.{GROUP}"

COLUMNS: tuple[tuple[str, str, str, str, int], ...] = (
    # name, type, path, description, priority (1: only with -o wide)
    ("Phase", "string", ".status.phase", "The conditions in one word.", 0),
    ("Model", "string", ".spec.model.path", "The model under evaluation.", 0),
    ("Progress", "string", ".status.progress", "Judged of all.", 0),
    ("Accepted@1", "string", ".status.acceptedAt1", "humaneval's accepted@1, else the first dataset's.", 0),
    ("Not-Judged", "string", ".status.notJudged", "Answers that the judge could not tell about.", 0),
    ("Tokens/s", "string", ".status.tokensPerSecond", "Output tokens a second.", 1),
    ("Problems/s", "string", ".status.problemsPerSecond", "Judged problems a second.", 1),
    ("GPU-s/Solved", "string", ".status.gpuSecondsPerSolved", "GPU seconds a solved problem.", 1),
    ("Attempts", "integer", ".status.attempts", "Generator attempts so far.", 1),
    ("Age", "date", ".metadata.creationTimestamp", "Time since it was made.", 0),
)


def evalrun_crd() -> dict[str, Any]:
    """Give the CRD as a manifest.

    Raises:
        UnsupportedSchemaError: a model says something that a CRD cannot.
    """
    schema = without_markers(structural_schema(EvalRun))
    schema[VALIDATIONS] = [*schema.get(VALIDATIONS, []), *(rule.as_schema() for rule in immutability_rules(schema))]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["er"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path, "description": text, "priority": priority}
                        for name, kind, path, text, priority in COLUMNS
                    ],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def immutability_rules(schema: Schema) -> list[Rule]:
    """Give one rule a field of the spec that may not change once the run has started.

    They stand at the root: only there a rule sees the status, which says whether the run has started. An optional field
    is compared with `has` on both sides, so that adding and removing it are changes too.
    """
    spec = schema["properties"]["spec"]
    required = set(spec["required"])
    mutable = ", ".join(sorted(MUTABLE_FIELDS))
    rules = []
    for name in spec["properties"]:
        if name in MUTABLE_FIELDS:
            continue
        now, before = f"self.spec.{name}", f"oldSelf.spec.{name}"
        same = f"{now} == {before}"
        if name not in required:
            same = f"(has({now}) == has({before}) && (!has({now}) || {same}))"
        rules.append(
            Rule(
                f"!has(oldSelf.status) || !has(oldSelf.status.startTime) || {same}",
                f"the run has started: {name} can no longer change; make an EvalRun of another name (what may still "
                f"change: {mutable})",
                f".spec.{name}",
            )
        )
    return rules
