"""Conditions of an EvalRun: their types, and every reason that each may give. Users script against these words."""

from enum import StrEnum


class ConditionType(StrEnum):
    """What a condition is about. Its status is True, False or Unknown."""

    ACCEPTED = "Accepted"
    """The operator can run this spec."""
    CLUSTER_READY = "ClusterReady"
    """The RayCluster's replicas can be started; always True in simple mode, which has none."""
    GENERATED = "Generated"
    """Every completion is in the ledger."""
    JUDGED = "Judged"
    """Every completion has a verdict, or is known not to get one."""
    DEGRADED = "Degraded"
    """Some problems could not be judged: figures stand beside their coverage."""
    SUSPENDED = "Suspended"
    """`suspend` is true and the GPUs are free."""
    GATE_PASSED = "GatePassed"
    """The gate's decision; Unknown while it is open or inconclusive. Absent without a gate."""
    SUCCEEDED = "Succeeded"
    """The run ended with results. A failed gate leaves it True."""
    COMPLETE = "Complete"
    """True in every end state, good or bad: what `kubectl wait --for=condition=Complete` waits for."""


class Reason(StrEnum):
    """Why a condition has its status."""

    SPEC_ACCEPTED = "SpecAccepted"
    """The spec can be run."""
    INVALID_SPEC = "InvalidSpec"
    """Only the operator could see that the spec cannot be run; the message says what to change."""

    CLUSTER_PENDING = "ClusterPending"
    """The RayCluster waits: for quota, nodes, images or its pods. The message names the pods' trouble."""
    CLUSTER_PROVISIONED = "ClusterProvisioned"
    """Head and workers are up."""
    CLUSTER_FAILED = "ClusterFailed"
    """The RayCluster cannot come up, or was lost."""
    CLUSTER_RELEASED = "ClusterReleased"
    """Deleted since it is no longer needed: its GPUs are free."""
    NO_CLUSTER_NEEDED = "NoClusterNeeded"
    """Simple mode."""

    WAITING_FOR_SERVICES = "WaitingForServices"
    """Aggregator or judge is not up yet."""
    WAITING_FOR_CLUSTER = "WaitingForCluster"
    """The RayCluster is not up yet."""
    GENERATING = "Generating"
    """Completions are being drawn."""
    ATTEMPT_FAILED = "AttemptFailed"
    """The last attempt failed and another one follows; finished work is kept."""
    ALL_GENERATED = "AllGenerated"
    """Every completion is in the ledger."""

    WAITING_FOR_COMPLETIONS = "WaitingForCompletions"
    """There is nothing to judge yet."""
    JUDGING = "Judging"
    """Verdicts are being reached."""
    ALL_JUDGED = "AllJudged"
    """No completion lacks its verdict."""
    NOT_JUDGED = "NotJudged"
    """The judge could not tell for some; as a reason of Succeeded: for so many that there is no result."""

    SUSPEND_REQUESTED = "SuspendRequested"
    """`suspend` is true."""
    SUSPENDING = "Suspending"
    """`suspend` is true and GPUs are still being freed."""
    NOT_SUSPENDED = "NotSuspended"
    """`suspend` is false."""

    GATE_PENDING = "GatePending"
    """The gate is decided when every verdict is in."""
    NO_REGRESSION = "NoRegression"
    """The lower bound of the difference is at or above -maxRegression."""
    REGRESSION = "Regression"
    """The upper bound of the difference is below -maxRegression."""
    INCONCLUSIVE = "Inconclusive"
    """The interval holds -maxRegression: more problems or samples would be needed."""
    BASELINE_NOT_FOUND = "BaselineNotFound"
    """The baseline's results cannot be read."""

    RUNNING = "Running"
    """Not at an end yet."""
    FINISHED = "Finished"
    """The outputs are written."""
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    """More attempts failed than backoffLimit allows."""
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    """activeDeadlineSeconds passed first."""


REASONS: dict[ConditionType, frozenset[Reason]] = {
    ConditionType.ACCEPTED: frozenset({Reason.SPEC_ACCEPTED, Reason.INVALID_SPEC}),
    ConditionType.CLUSTER_READY: frozenset(
        {
            Reason.WAITING_FOR_SERVICES, Reason.CLUSTER_PENDING, Reason.CLUSTER_PROVISIONED, Reason.CLUSTER_FAILED,
            Reason.CLUSTER_RELEASED, Reason.NO_CLUSTER_NEEDED, Reason.SUSPEND_REQUESTED,
        }
    ),
    ConditionType.GENERATED: frozenset(
        {
            Reason.WAITING_FOR_SERVICES, Reason.WAITING_FOR_CLUSTER, Reason.GENERATING, Reason.ATTEMPT_FAILED,
            Reason.ALL_GENERATED, Reason.SUSPEND_REQUESTED,
        }
    ),
    ConditionType.JUDGED: frozenset(
        {Reason.WAITING_FOR_SERVICES, Reason.WAITING_FOR_COMPLETIONS, Reason.JUDGING, Reason.ALL_JUDGED,
         Reason.NOT_JUDGED}
    ),
    ConditionType.DEGRADED: frozenset({Reason.NOT_JUDGED, Reason.ALL_JUDGED, Reason.RUNNING}),
    ConditionType.SUSPENDED: frozenset({Reason.SUSPEND_REQUESTED, Reason.SUSPENDING, Reason.NOT_SUSPENDED}),
    ConditionType.GATE_PASSED: frozenset(
        {Reason.GATE_PENDING, Reason.NO_REGRESSION, Reason.REGRESSION, Reason.INCONCLUSIVE, Reason.BASELINE_NOT_FOUND}
    ),
    ConditionType.SUCCEEDED: frozenset(
        {Reason.RUNNING, Reason.FINISHED, Reason.BACKOFF_LIMIT_EXCEEDED, Reason.DEADLINE_EXCEEDED,
         Reason.INVALID_SPEC, Reason.NOT_JUDGED}
    ),
    ConditionType.COMPLETE: frozenset(
        {Reason.RUNNING, Reason.FINISHED, Reason.BACKOFF_LIMIT_EXCEEDED, Reason.DEADLINE_EXCEEDED,
         Reason.INVALID_SPEC, Reason.NOT_JUDGED}
    ),
}  # fmt: skip
"""Which reasons a condition may give."""
