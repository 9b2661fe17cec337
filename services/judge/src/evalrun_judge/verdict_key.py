"""What a verdict depends on, as one digest: the verdict cache's key. Pure.

Two requests with the same key would get the same verdict from a judge that runs both. What a program does by chance
(clock, addresses, hash seeds) is outside of it: the first verdict stands for all of them.
"""

import hashlib
from dataclasses import dataclass

import msgspec

from evalrun_judge.plan import FunctionPlan, StdioPlan
from evalrun_judge.pool_info import PoolInfo
from evalrun_judge.submission import JudgeRequest, StdioTests

FORMAT = 1
"""Raised by a change of the judge or the stored form that makes what is stored useless, where the version stays."""


@dataclass(frozen=True, slots=True)
class JudgeIdentity:
    """Who judges."""

    version: str
    """Of the gateway."""
    image: str
    """The sandboxes' image, with its digest at best; empty where nobody said."""


def verdict_key(
    plan: StdioPlan | FunctionPlan, request: JudgeRequest, judge: JudgeIdentity, sandboxes: PoolInfo
) -> bytes:
    """Give the digest (SHA-256) of everything that a verdict on this plan depends on.

    Which of the answer's texts the program was taken from is not in it: answers with the same program share a verdict.
    """
    program: tuple[object, ...]
    if isinstance(plan, StdioPlan):
        program = (plan.run.language, plan.run.code, plan.run.mode)
    else:
        program = ("python", plan.program, "calls")
    tests: object = request.tests
    if isinstance(request.tests, StdioTests):
        tests = request.tests.digest
    return hashlib.sha256(
        msgspec.msgpack.encode(
            (
                FORMAT,
                (judge.version, judge.image),
                (sandboxes.backend, sandboxes.versions, sandboxes.python_version, sandboxes.level),
                program,
                plan.extraction.must_compile,
                type(request.tests).__name__,
                tests,
                request.limits,
                request.stop_after_timeouts,
                request.comparator,
                request.checker,
            )
        )
    ).digest()
