"""Reads a policy file: a YAML list of the CRD's gate objects, refused for the reasons the API server would give."""

from collections.abc import Sequence
from pathlib import Path

from evalrun_api.cel_rules import find_broken_rules
from evalrun_api.checks import apply_defaults, structural_problems
from evalrun_api.manifest import load_documents, schema_for
from evalrun_api.v1alpha1 import Gate
from evalrun_runtime.exits import BadInputError

EXAMPLE = "- {baseline: outputs/main, dataset: mbpp_reg, metric: accepted_at_1, maxRegression: '0.05'}"


def read_policy(file: Path) -> list[Gate]:
    """Return the gates of a policy file, at least one.

    Raises:
        BadInputError: the file cannot be read, or a gate is not valid: a line each, with its index and field.
    """
    documents = load_documents(file)
    if len(documents) != 1 or not isinstance(documents[0], list) or not documents[0]:
        raise BadInputError(f"{file}: is not a list of gates: write one a line, e.g. {EXAMPLE}")
    return read_gates(documents[0], str(file))


def read_gates(written_gates: Sequence[object], where: str) -> list[Gate]:
    """Return the gates that a list of a CRD's gate objects describes.

    Raises:
        BadInputError: a gate is not valid: a line each, with its index and field.
    """
    # The schema and the rules are those of the EvalRun's `gates`, so there is no second validator.
    schema = schema_for("machine")["properties"]["spec"]["properties"]["gates"]["items"]
    lines, gates = [], []
    for index, written in enumerate(written_gates):
        value = apply_defaults(schema, written)
        problems = list(structural_problems(schema, value, f"[{index}]"))
        wrong = frozenset(problem.path for problem in problems if problem.spoils)
        problems += find_broken_rules(schema, value, wrong, f"[{index}]")
        lines += [f"{where}: {problem.path}: {problem.message}" for problem in problems]
        if not problems:
            gates.append(Gate.model_validate(value))
    if lines:
        raise BadInputError("\n".join(lines))
    return gates
