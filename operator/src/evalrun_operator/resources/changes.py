"""Fields of a run's objects that may change during the run; all other fields stay as created. Pure.

The spec of a started run cannot change and its settings are frozen, so an object that is rendered differently comes
from another version of this operator. An upgrade must not touch running parts: half of the verdicts would come from one
template and half from another. So an object's digest has two parts, and only the second is acted on.
"""

import hashlib
import json
from collections.abc import Mapping

from evalrun_api import names
from evalrun_cluster.objects import Object


def _pointer(*parts: str) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


_TEMPLATE = ("spec", "template", "metadata", "annotations")
_GROUP = ("spec", "workerGroupSpecs", "0")
MUTABLE: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "StatefulSet": (
        ("metadata", "annotations", names.RESTARTS_ANNOTATION),
        (*_TEMPLATE, names.RESTARTS_ANNOTATION),
        (*_TEMPLATE, names.TOKEN_DIGEST_ANNOTATION),
    ),
    "Deployment": (("spec", "replicas"), (*_TEMPLATE, names.TOKEN_DIGEST_ANNOTATION)),
    "RayCluster": tuple((*_GROUP, field) for field in ("replicas", "minReplicas", "maxReplicas", "scaleStrategy")),
}
"""Paths of the fields that follow the run's state, by kind."""
APPLIED = ("metadata", "annotations", names.APPLIED_ANNOTATION)
REPLACED_WHOLE = frozenset({"NetworkPolicy"})
"""Kinds whose spec nobody else may change: edits are seen and undone."""


def stamp_digests(manifest: Object) -> Object:
    """Return the object with digests of its fixed and its changeable parts in its annotations."""
    metadata = manifest["metadata"]
    annotations = {key: value for key, value in metadata["annotations"].items() if key != names.APPLIED_ANNOTATION}
    plain = {**manifest, "metadata": {**metadata, "annotations": annotations}}
    changing = mutable_fields(plain)
    fixed = json.loads(json.dumps(plain))
    for path in MUTABLE.get(manifest["kind"], ()):
        _remove(fixed, path)
    annotations[names.APPLIED_ANNOTATION] = f"{_digest(fixed)}-{_digest(changing)}"
    return plain


def mutable_fields(manifest: Object) -> dict[str, object]:
    """Return the fields that follow the run's state, by JSON pointer; absent fields are left out."""
    found = {}
    for path in MUTABLE.get(manifest["kind"], ()):
        place = _place(manifest, path)
        if place is not None and path[-1] in place:
            found[_pointer(*path)] = place[path[-1]]
    return found


def make_patch(manifest: Object) -> list[Object]:
    """Return the JSON patch that brings an existing object up to date."""
    fields = mutable_fields(manifest)
    if manifest["kind"] in REPLACED_WHOLE:
        fields["/spec"] = manifest["spec"]
    fields[_pointer(*APPLIED)] = manifest["metadata"]["annotations"][names.APPLIED_ANNOTATION]
    return [{"op": "add", "path": path, "value": value} for path, value in fields.items()]


def is_outdated(applied: str, manifest: Object) -> bool:
    """Return whether the changeable parts differ from those applied."""
    return applied.partition("-")[2] != _parts(manifest)[1]


def is_as_made(applied: str, manifest: Object) -> bool:
    """Return whether the fixed parts are the same as at the object's creation."""
    return applied.partition("-")[0] == _parts(manifest)[0]


def spec_digest(spec: object) -> str:
    """Return a digest of a spec that treats empty and absent fields alike, as the API server stores them."""
    return _digest(_drop_empty(spec))


def _parts(manifest: Object) -> tuple[str, str]:
    fixed, _, changing = manifest["metadata"]["annotations"][names.APPLIED_ANNOTATION].partition("-")
    return fixed, changing


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def _place(manifest: Object, path: tuple[str, ...]) -> Object | None:
    """Return the object that contains the last part of a path, or None if the path does not exist."""
    place: object = manifest
    for part in path[:-1]:
        if isinstance(place, list):
            place = place[int(part)] if int(part) < len(place) else None
        elif isinstance(place, dict):
            place = place.get(part)
    return place if isinstance(place, dict) else None


def _remove(manifest: Object, path: tuple[str, ...]) -> None:
    place = _place(manifest, path)
    if place is not None:
        place.pop(path[-1], None)


def _drop_empty(value: object) -> object:
    if isinstance(value, Mapping):
        kept = {key: _drop_empty(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in ({}, [], None, "")}
    if isinstance(value, list):
        return [_drop_empty(item) for item in value]
    return value
