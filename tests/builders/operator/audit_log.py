"""The API server's audit log: when each request of the operators came and ended, and what they made."""

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from builders.operator.running_operator import ACCOUNT, OPERATOR_NAMESPACE

LOG = "audit.log"
POLICY = {
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Metadata", "verbs": ["create"], "resources": [{"group": "evalrun.dev"}]},
        {"level": "Metadata", "users": [f"system:serviceaccount:{OPERATOR_NAMESPACE}:{ACCOUNT}"]},
        {"level": "None"},
    ],
}  # fmt: skip
"""Logs what operators ask for, and who creates an EvalRun."""
CREATED = 201
NOT_MADE = {"events", "leases", "evalruns"}
"""Resources that are created, but not as part of a run."""


def audit_flags(directory: Path) -> list[str]:
    """Return the API server's flags, after writing the policy that they name."""
    policy = directory / "audit.json"
    policy.write_text(json.dumps(POLICY))
    return [f"--audit-policy-file={policy}", f"--audit-log-path={directory / LOG}", "--audit-log-mode=batch"]


@dataclass(frozen=True)
class Request:
    """A request that changed something, or tried to, from the API server's audit log."""

    verb: str
    resource: str
    namespace: str
    name: str
    code: int
    came: float
    ended: float
    """Unix seconds."""


def read_audit_log(directory: Path, since: float) -> list[Request]:
    """Return the requests since a time (Unix seconds), in order."""
    found = []
    for line in (directory / LOG).read_text().splitlines():
        entry = json.loads(line)
        if entry["verb"] in {"watch", "list"} or "objectRef" not in entry:
            continue
        place, code = entry["objectRef"], entry.get("responseStatus", {}).get("code", 0)
        namespace, name = place.get("namespace", ""), place.get("name", "")
        came, ended = (_unix(entry[stage]) for stage in ("requestReceivedTimestamp", "stageTimestamp"))
        if came >= since:
            found.append(Request(entry["verb"], place["resource"], namespace, name, code, came, ended))
    return sorted(found, key=lambda request: request.came)


def made_twice(requests: list[Request]) -> list[str]:
    """Return the objects that the operators made more than once. A name is free again only where one was deleted."""
    made = Counter(
        f"{request.resource} {request.namespace}/{request.name}"
        for request in requests
        if (request.verb, request.code) == ("create", CREATED) and request.resource not in NOT_MADE
    )
    return [what for what, count in made.items() if count > 1]


def _unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
