"""Digests of records. Equal records have equal digests, whatever file they come from. Pure."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable

from evalrun_data.records import Problem


def digest_records(records: Iterable[object]) -> str:
    """Return the hex SHA-256 over the records as JSON lines with sorted keys."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(json.dumps(record, sort_keys=True).encode())
        digest.update(b"\n")
    return digest.hexdigest()


def digest_problems(problems: Iterable[Problem]) -> str:
    """Return the hex SHA-256 over everything on which verdicts about these problems depend: all but role and date."""
    return digest_records(map(_select_judged_fields, problems))


def _select_judged_fields(problem: Problem) -> dict[str, object]:
    """Return the fields on which a verdict depends. An absent prelude is omitted, so that digests of earlier
    versions stay valid."""
    fields = {name: value for name, value in dataclasses.asdict(problem).items() if name not in {"role", "date"}}
    if not fields["ground_truth"].get("prelude", True):
        del fields["ground_truth"]["prelude"]
    return fields
