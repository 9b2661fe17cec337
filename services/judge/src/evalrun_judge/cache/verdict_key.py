"""Key of the verdict cache: a digest of everything on which a verdict depends. Pure.

Two requests with the same key would get the same verdict from a judge that runs both. Random behaviour of a program
(clock, addresses, hash seeds) is left out: the first verdict stands for all of them.
"""

import hashlib
from dataclasses import dataclass

import msgspec

from evalrun_judge.pool.info import PoolInfo
from evalrun_judge.submission import JudgeRequest
from evalrun_registry.judging_rules import JUDGING_RULES

FORMAT = 6
"""Version of the stored form. Increase it when a change makes stored values useless; a change of the judging rules
increases `JUDGING_RULES` instead."""


@dataclass(frozen=True, slots=True)
class JudgeIdentity:
    """The properties of a judge on which verdicts depend."""

    version: str
    """Version of the gateway."""
    image: str
    """Image of the sandboxes, ideally with its digest; empty if unknown."""


def verdict_key(
    depends: object, request: JudgeRequest, judge: JudgeIdentity, sandboxes: PoolInfo, *, must_compile: bool
) -> bytes:
    """Return the digest (SHA-256) of everything that a verdict depends on.

    The place of the program in the completion is left out: completions with the same program share a verdict.

    Args:
        depends: program and tests, as their family names them (`Family.key`).
        request: the request.
        judge: identity of the judge.
        sandboxes: facts about the sandboxes.
        must_compile: the program counts as code only if it compiles.
    """
    return hashlib.sha256(
        msgspec.msgpack.encode(
            (
                (FORMAT, JUDGING_RULES),
                (judge.version, judge.image),
                (sandboxes.backend, sandboxes.versions, sandboxes.python_version, sandboxes.level),
                depends,
                must_compile,
                type(request.tests).__name__,
                request.limits,
                request.stop_after_timeouts,
                request.stop_at_failure,
                request.comparator,
                request.checker,
            )
        )
    ).digest()
