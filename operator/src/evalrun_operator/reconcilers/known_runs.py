"""Stores the last seen state of each EvalRun, compressed, with its position in the queue of runs."""

import json
import zlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from evalrun_operator.lifecycle.situation import parse_queued_run
from evalrun_operator.observation.children import Key
from evalrun_operator.policies.admission import QueuedRun

Manifest = dict[str, Any]


class KnownRuns(MutableMapping[Key, Manifest]):
    """Manifests by namespace and name.

    A manifest takes 21 KiB as Python objects, and a hostile user's up to 25 times its text; compressed it takes 1.5
    KiB, and never more than its text. Thousands of runs may wait, or be kept after their end.
    """

    def __init__(self) -> None:
        self._packed: dict[Key, bytes] = {}
        self._contenders: dict[Key, QueuedRun] = {}

    def contenders(self) -> Mapping[Key, QueuedRun]:
        """Return the runs that hold a position or wait for one."""
        return self._contenders

    def __getitem__(self, key: Key) -> Manifest:
        manifest: Manifest = json.loads(zlib.decompress(self._packed[key]))
        return manifest

    def __setitem__(self, key: Key, manifest: Manifest) -> None:
        contender = parse_queued_run(manifest)
        self._packed[key] = zlib.compress(json.dumps(manifest, separators=(",", ":")).encode(), 1)
        if contender is None:
            self._contenders.pop(key, None)
        else:
            self._contenders[key] = contender

    def __delitem__(self, key: Key) -> None:
        del self._packed[key]
        self._contenders.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return key in self._packed

    def __iter__(self) -> Iterator[Key]:
        yield from list(self._packed)

    def __len__(self) -> int:
        return len(self._packed)
