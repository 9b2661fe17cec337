"""Caches the inputs of large test suites by digest, so that gateways send them once and not with each program."""

import msgspec

from evalrun_executor.api import RunRequest, digest_inputs
from evalrun_executor.errors import RequestRefused
from evalrun_runtime.recently_used import RecentlyUsed


class UnknownInputs(Exception):  # noqa: N818 - says what is the matter, like those of `errors`
    """The inputs that a request names by digest are not cached here; the gateway sends them again."""


class KeptInputs:
    """A cache bounded by the inputs' bytes; evicts the least recently used inputs."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._kept: RecentlyUsed[bytes, list[bytes]] = RecentlyUsed(capacity_bytes, _size)

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._kept.size

    def whole(self, request: RunRequest) -> RunRequest:
        """Return the request with its inputs, and cache inputs that came with a digest.

        Raises:
            UnknownInputs: the request names inputs that are not cached.
            RequestRefused: the inputs have another digest; accepting them would change the verdicts of others.
        """
        digest = request.inputs_digest
        if not digest:
            return request
        known = self._kept.get(digest)
        if known is not None:
            return msgspec.structs.replace(request, inputs=known)
        if not request.inputs:
            raise UnknownInputs(f"the inputs with digest {digest.hex()} are not kept here; send them")
        if digest_inputs(request.inputs) != digest:
            raise RequestRefused("inputs_digest: it is not that of the inputs; send none, or theirs")
        # Larger inputs would only evict all others.
        if _size(request.inputs) <= self._capacity:
            self._kept.put(digest, request.inputs)
        return request


INPUT_BYTES = 50
"""Overhead of an input besides its bytes: an object and a list entry."""


def _size(inputs: list[bytes]) -> int:
    return sum(map(len, inputs)) + INPUT_BYTES * len(inputs)
