"""Messages of the HTTP API, as frozen structs. `openapi` is generated from them."""

from enum import StrEnum
from typing import Any, Literal

import msgspec


class Outcome(StrEnum):
    """Outcome of a sample."""

    JUDGED = "judged"
    NOT_JUDGED = "not_judged"
    """The judge could not tell. No reward follows from it."""
    INVALID = "invalid"
    """The sample cannot be judged as it is written: an unknown problem, no tests. Asking again changes nothing."""


Shape = Literal["dense", "sparse"]
"""dense: the share of tests passed. sparse: 1 for an accepted answer, else 0."""


class Sample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A completion to judge. Its tests are named by `dataset` and `problem_id`, or given in `ground_truth`."""

    response: str
    """The model's answer, from which the program is extracted."""
    id: str = ""
    """Chosen by the caller; comes back with the result."""
    dataset: str = ""
    problem_id: str = ""
    data_source: str = ""
    """As verl's rows have it."""
    ground_truth: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Tests as an object, or the same as JSON in a text; or {"dataset": ..., "problem_id": ...}."""
    prompt: str = ""
    """Used only by tests that need the problem's own prompt (HumanEval's) and do not bring it."""
    language: str = ""
    """Empty: the problem's, or python."""
    truncated: bool = False
    """The model was cut off at its token limit."""
    extra_info: dict[str, Any] = {}
    """Passed on to a grader (a compute_score file) as it is; tests do not read it."""


class BatchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Samples of a run."""

    samples: list[Sample]
    run: str = ""
    """Name of the caller's run: places are shared fairly between runs, here and in the judge."""
    shape: Shape = "dense"


class Result(msgspec.Struct, frozen=True):
    """Result of a sample."""

    id: str
    outcome: Outcome
    reward: float | None = None
    """None unless judged."""
    accepted: bool | None = None
    pass_ratio: float | None = None
    """Tests passed / tests; None where a test could not be judged, or, if sparse, the tests stopped at a failure."""
    pass_ratio_high: float | None = None
    """The same had every assumed timeout passed."""
    final_status: str = ""
    passed: int = 0
    tests: int = 0
    f2p_count: int = 0
    """Tests passed of those that no program at all fails: all of them, for a program written from nothing."""
    f2p_total: int = 0
    p2p_count: int = 0
    """The same for tests that passed before: none, for a program written from nothing."""
    p2p_total: int = 0
    assumed_timeouts: int = 0
    """Tests stopped early, after enough others had timed out, and counted as failed."""
    codes: list[bool | int] = []
    """One a test, as verl's sandbox client has them: true, false, -1 not judged, -2 runtime error, -3 timeout,
    -4 compile error."""
    cached: bool = False
    """The same program on the same tests had been judged before."""
    reason: str = ""
    """Reason why there is no reward."""


class BatchResponse(msgspec.Struct, frozen=True):
    """A result for each sample, in the samples' order."""

    results: list[Result]
    judged: int
    not_judged: int
    invalid: int


class OpenRlhfRequest(msgspec.Struct, frozen=True):
    """Request that OpenRLHF posts to a remote reward model. Fields that it adds are ignored."""

    query: list[str]
    """Prompt and answer as one text, special tokens included."""
    prompts: list[str]
    labels: list[Any]
    """Keys of the tests: the `ground_truth` of each sample."""


class OpenRlhfResponse(msgspec.Struct, frozen=True):
    """Response that OpenRLHF reads."""

    rewards: list[float]
    scores: list[float]
    extra_logs: dict[str, list[float]]


class Health(msgspec.Struct, frozen=True):
    """Whether requests are taken."""

    status: Literal["ok", "draining"]
    version: str


class Problem(msgspec.Struct, frozen=True):
    """Reason why a request was refused."""

    message: str
    retry_after_ms: int | None = None
    unreadable: bool = False
    """No sample of the body could be read, and one of them may be the reason: send them one by one."""
