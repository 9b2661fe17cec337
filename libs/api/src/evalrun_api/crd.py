"""The CustomResourceDefinitions: their schemas are generated from the models, and no manifest is written by hand."""

from typing import Any

from evalrun_api.api_model import VALIDATIONS, Rule
from evalrun_api.structural import Schema, drop_markers, structural_schema
from evalrun_api.v1alpha1 import GROUP, KIND, MUTABLE_FIELDS, SCHEDULE_KIND, VERSION, EvalRun, EvalSchedule

PLURAL = "evalruns"
SCHEDULE_PLURAL = "evalschedules"

SELECTABLE = {PLURAL: ".spec.operatorClass", SCHEDULE_PLURAL: ".spec.template.operatorClass"}
"""Fields that a list or watch may select by (Kubernetes 1.31; an older one ignores them)."""

Column = tuple[str, str, str, str, int]
COLUMNS: tuple[Column, ...] = (
    # name, type, path, description, priority (1: only with -o wide)
    ("Phase", "string", ".status.phase", "The conditions in one word.", 0),
    ("Reason", "string", ".status.reason", "Why: see the conditions.", 0),
    ("Model", "string", ".spec.model.path", "The model under evaluation.", 0),
    ("Progress", "string", ".status.progress", "Judged of all.", 0),
    ("Pass@1", "string", ".status.acceptedAt1", "humaneval's pass@1, else the first dataset's.", 0),
    ("Not-Judged", "string", ".status.notJudged", "Answers that the judge could not tell about.", 0),
    ("Tokens/s", "string", ".status.tokensPerSecond", "Output tokens a second.", 1),
    ("Problems/s", "string", ".status.problemsPerSecond", "Judged problems a second.", 1),
    ("GPU-s/Solved", "string", ".status.gpuSecondsPerSolved", "GPU seconds a solved problem.", 1),
    ("Attempts", "integer", ".status.attempts", "Generator attempts so far.", 1),
    ("Age", "date", ".metadata.creationTimestamp", "Time since it was made.", 0),
)
SCHEDULE_COLUMNS: tuple[Column, ...] = (
    ("Schedule", "string", ".spec.schedule", "When to start, as cron has it.", 0),
    ("Suspend", "boolean", ".spec.suspend", "Nothing is started by the clock.", 0),
    ("Last", "date", ".status.lastScheduleTime", "Time since the last start.", 0),
    ("Next", "string", ".status.next", "When the next start is due, in the schedule's time zone.", 0),
    ("Checkpoint", "string", ".status.checkpoint", "The newest checkpoint that has got its run.", 0),
    ("Last-Good", "string", ".status.good", "The newest checkpoint whose gates did not fail.", 0),
    ("Gate", "string", ".status.gate", "The gate of the newest checkpoint with results.", 0),
    ("Reason", "string", ".status.reason", "What the last start came to: see the conditions.", 0),
    ("Best", "string", ".status.bestStep", "The best checkpoint of the race so far.", 1),
    ("Time-Zone", "string", ".spec.timeZone", "Of the schedule.", 1),
    ("Directory", "string", ".spec.checkpoints.url", "Where the checkpoints are.", 1),
    ("Age", "date", ".metadata.creationTimestamp", "Time since it was made.", 0),
)


def evalrun_crd() -> dict[str, Any]:
    """Return the EvalRun's CRD as a manifest.

    Raises:
        UnsupportedSchemaError: a model says something that a CRD cannot.
    """
    schema = drop_markers(structural_schema(EvalRun))
    schema[VALIDATIONS] = [*schema.get(VALIDATIONS, []), *(rule.as_schema() for rule in immutability_rules(schema))]
    return _definition(KIND, PLURAL, "er", COLUMNS, schema)


def evalschedule_crd() -> dict[str, Any]:
    """Return the EvalSchedule's CRD as a manifest.

    Raises:
        UnsupportedSchemaError: a model says something that a CRD cannot.
    """
    schema = drop_markers(structural_schema(EvalSchedule))
    return _definition(SCHEDULE_KIND, SCHEDULE_PLURAL, "evs", SCHEDULE_COLUMNS, schema)


def crds() -> dict[str, dict[str, Any]]:
    """Return every CRD, by its plural."""
    return {PLURAL: evalrun_crd(), SCHEDULE_PLURAL: evalschedule_crd()}


def _definition(kind: str, plural: str, short: str, columns: tuple[Column, ...], schema: Schema) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "selectableFields": [{"jsonPath": SELECTABLE[plural]}],
                    "additionalPrinterColumns": [
                        {"name": name, "type": column_type, "jsonPath": path, "description": text, "priority": priority}
                        for name, column_type, path, text, priority in columns
                    ],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def immutability_rules(schema: Schema) -> list[Rule]:
    """Return a rule for each field of the spec that may not change once the run has started.

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
