"""The inputs that a sandbox has cached, as far as this gateway knows; they are sent by digest. Pure.

This knowledge may be wrong at any time (another pod replies, the sandbox was restarted, or has evicted the inputs). The
sandbox then reports that it lacks the inputs, and gets them in full.
"""

from collections import OrderedDict

import msgspec

from evalrun_executor.api import RunRequest, SandboxInfo

WORTH_BYTES = 64 * 1024
"""Smaller inputs are always sent: they cost less than a failed call."""

MAX_KNOWN = 4096
"""Maximum number of remembered digests per sandbox; a forgotten digest costs sending its inputs once more."""


class SandboxInputs:
    """Tracks the inputs that a sandbox has cached."""

    def __init__(self) -> None:
        self._capacity = 0
        self._known: OrderedDict[bytes, None] = OrderedDict()

    def record_description(self, info: SandboxInfo) -> None:
        self._capacity = info.keep_mib * 1024 * 1024

    def form(self, request: RunRequest) -> RunRequest:
        """Return the request to send: inputs by digest, inputs to cache, or plain."""
        if not request.inputs_digest:
            return request
        if not WORTH_BYTES <= sum(map(len, request.inputs)) <= self._capacity:
            return _plain(request)
        if request.inputs_digest in self._known:
            return msgspec.structs.replace(request, inputs=[])
        return request

    def record_answer(self, sent: RunRequest, request: RunRequest, status: int) -> RunRequest | None:
        """Record the reply to a form of the request.

        Returns the form in which to send the request again, if the sandbox lacks the inputs or (400) may be an older
        sandbox that knows no digests; None: the reply is final.
        """
        if not sent.inputs_digest:
            return None
        if status in (200, 429):
            self._known[sent.inputs_digest] = None
            self._known.move_to_end(sent.inputs_digest)
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
            return None
        self._known.pop(sent.inputs_digest, None)
        if status == 404 and not sent.inputs:
            return request
        return _plain(request) if status == 400 else None


def _plain(request: RunRequest) -> RunRequest:
    return msgspec.structs.replace(request, inputs_digest=b"")
