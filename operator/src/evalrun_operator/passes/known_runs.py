"""The EvalRuns as they were last seen. Ended runs are rarely read and are stored compressed."""

import json
import zlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from evalrun_api.v1alpha1 import ConditionType
from evalrun_operator.observation.children import Key

Manifest = dict[str, Any]


class KnownRuns(MutableMapping[Key, Manifest]):
    """Manifests by namespace and name, without managedFields, which nobody here reads.

    As Python's objects a manifest takes 21 KiB, packed 1.5; thousands of ended runs may be kept in a cluster.
    """

    def __init__(self) -> None:
        self._open: dict[Key, Manifest] = {}
        self._ended: dict[Key, bytes] = {}

    def unended(self) -> Mapping[Key, Manifest]:
        """Return the runs that have not ended, in the order in which they were first seen: that of a queue."""
        return self._open

    def __getitem__(self, key: Key) -> Manifest:
        if key in self._open:
            return self._open[key]
        manifest: Manifest = json.loads(zlib.decompress(self._ended[key]))
        return manifest

    def __setitem__(self, key: Key, manifest: Manifest) -> None:
        metadata = {name: value for name, value in manifest["metadata"].items() if name != "managedFields"}
        plain = {**manifest, "metadata": metadata}
        if _has_ended(plain):
            self._open.pop(key, None)
            self._ended[key] = zlib.compress(json.dumps(plain, separators=(",", ":")).encode(), 1)
        else:
            self._ended.pop(key, None)
            self._open[key] = plain

    def __delitem__(self, key: Key) -> None:
        if key in self._open:
            del self._open[key]
        else:
            del self._ended[key]

    def __contains__(self, key: object) -> bool:
        return key in self._open or key in self._ended

    def __iter__(self) -> Iterator[Key]:
        yield from list(self._open)
        yield from list(self._ended)

    def __len__(self) -> int:
        return len(self._open) + len(self._ended)


def _has_ended(manifest: Manifest) -> bool:
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    said = {one.get("type"): one.get("status") for one in conditions}
    return said.get(ConditionType.COMPLETE) == "True" and not manifest["metadata"].get("deletionTimestamp")
