"""Key of the verdict cache: a digest of everything on which a verdict depends. Pure.

Two requests with the same key would get the same verdict from a judge that runs both. What a program does by chance
(clock, addresses, hash seeds) is outside of it: the first verdict stands for all of them.
"""

import hashlib
from dataclasses import dataclass

import msgspec

from evalrun_judge.pool.info import PoolInfo
from evalrun_judge.submission import JudgeRequest
from evalrun_registry.judging_rules import JUDGING_RULES

FORMAT = 6
"""Raised by a change of the stored form that makes what is stored useless. A change of what is right raises
`JUDGING_RULES`."""


@dataclass(frozen=True, slots=True)
class JudgeIdentity:
    """The properties of a judge on which verdicts depend."""

    version: str
    """Of the gateway."""
    image: str
    """The sandboxes' image, with its digest at best; empty where nobody said."""


def verdict_key(
    depends: object, request: JudgeRequest, judge: JudgeIdentity, sandboxes: PoolInfo, *, must_compile: bool
) -> bytes:
    """Return the digest (SHA-256) of everything that a verdict depends on.

    Which of the answer's texts the program was taken from is not in it: answers with the same program share a verdict.

    Args:
        depends: program and tests, as their family names them (`Family.key`).
        request: what was asked.
        judge: who judges.
        sandboxes: where programs run.
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
