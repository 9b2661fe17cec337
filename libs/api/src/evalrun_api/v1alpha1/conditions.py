"""Conditions of an EvalRun: their types and reasons. Users write scripts against these words."""

from enum import StrEnum


class ConditionType(StrEnum):
    """The type of a condition. Its status is True, False or Unknown."""

    ACCEPTED = "Accepted"
    """The operator can run this spec."""
    ADMITTED = "Admitted"
    """The run may use the cluster. False while it waits in a queue; the deadline does not run meanwhile."""
    STALLED = "Stalled"
    """Something that does not resolve itself prevents the run from starting; the message says what."""
    APPLIED = "Applied"
    """The API server has accepted every object that the run needs."""
    CLUSTER_READY = "ClusterReady"
    """The RayCluster's replicas can be started; always True in simple mode, which has none."""
    GENERATED = "Generated"
    """Every completion is in the ledger."""
    JUDGED = "Judged"
    """Every completion has a verdict, or is known not to get one."""
    DEGRADED = "Degraded"
    """Some problems could not be judged: figures are reported with their coverage."""
    SUSPENDED = "Suspended"
    """`suspend` is true and the GPUs are free."""
    SCALING_ACTIVE = "ScalingActive"
    """The judge's autoscalers work. Absent while the judge's size is fixed, or it is scaled to zero."""
    GATE_PASSED = "GatePassed"
    """The gate's decision; Unknown while it is open or inconclusive. Absent without a gate."""
    ATTESTED = "Attested"
    """The results are signed; Unknown until the run has ended. Absent without attest."""
    SUCCEEDED = "Succeeded"
    """The run ended with results. A failed gate leaves it True."""
    COMPLETE = "Complete"
    """True in every end state, good or bad: what `kubectl wait --for=condition=Complete` waits for."""


class Reason(StrEnum):
    """Reason of a condition's status."""

    SPEC_ACCEPTED = "SpecAccepted"
    """The spec can be run."""
    WAITING_FOR_BASELINE = "WaitingForBaseline"
    """The EvalRun that the gate names as its baseline has no outputs yet."""
    INVALID_SPEC = "InvalidSpec"
    """Only the operator could see that the spec cannot be run; the message says what to change."""

    RUN_ADMITTED = "RunAdmitted"
    """The run does not wait in any queue."""
    NOT_STARTED = "NotStarted"
    """The run was refused, or suspended before it started: it is in no queue."""
    TOO_MANY_ACTIVE_RUNS = "TooManyActiveRuns"
    """As many runs are active as the operator allows; the message gives the position in the queue."""
    WAITING_FOR_QUOTA = "WaitingForQuota"
    """Kueue holds the RayCluster, or the generator's Job, back until there is quota."""
    WAITING_FOR_REPLICAS = "WaitingForReplicas"
    """The run's EvalSchedule keeps the replicas, and it is not the run's turn; no deadline is running."""
    INADMISSIBLE = "Inadmissible"
    """Kueue cannot admit it until somebody changes a queue, e.g. there is none of that name; the message says what."""

    PROGRESSING = "Progressing"
    """No obstacle is known, except perhaps missing capacity in the cluster."""
    CANNOT_START = "CannotStart"
    """A part cannot start. As a reason of Succeeded: not within the operator's startDeadlineSeconds."""
    ALL_APPLIED = "AllApplied"
    """Nothing was refused in the last pass."""
    REFUSED = "Refused"
    """The API server refuses an object until something changes; the message quotes it and says what."""
    NAME_TAKEN = "NameTaken"
    """An object that does not belong to the run has the name of one of its objects; it is left untouched."""
    WRITE_FAILED = "WriteFailed"
    """Writes have failed several times in a row, though they may succeed later."""

    AUDIT_FAILED = "AuditFailed"
    """The audit of a dataset failed, or its records are not those that were audited; the message says what to do."""

    CLUSTER_PENDING = "ClusterPending"
    """The RayCluster waits: for quota, nodes, images or its pods. The message names the pods' trouble."""
    CLUSTER_PROVISIONED = "ClusterProvisioned"
    """Head and workers are up."""
    CLUSTER_FAILED = "ClusterFailed"
    """The RayCluster cannot come up, or was lost."""
    CLUSTER_RELEASED = "ClusterReleased"
    """The RayCluster was deleted because it is no longer needed: its GPUs are free."""
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
    INTERRUPTED = "Interrupted"
    """The cluster took Ray's head away, e.g. to drain its node: no attempt is counted, and the work starts again."""
    ALL_GENERATED = "AllGenerated"
    """Every completion is in the ledger, or the gates have decided without the others."""

    WAITING_FOR_COMPLETIONS = "WaitingForCompletions"
    """There is nothing to judge yet."""
    JUDGING = "Judging"
    """Verdicts are being reached."""
    ALL_JUDGED = "AllJudged"
    """No completion lacks its verdict."""
    NOT_JUDGED = "NotJudged"
    """The judge could not decide some; as a reason of Succeeded: so many that there is no result."""

    SIGNED = "Signed"
    """The results are signed with the key of spec.attest."""
    NOT_SIGNED = "NotSigned"
    """The results are there, and nobody has signed them."""

    SUSPEND_REQUESTED = "SuspendRequested"
    """`suspend` is true."""
    SUSPENDING = "Suspending"
    """`suspend` is true and GPUs are still being freed."""
    NOT_SUSPENDED = "NotSuspended"
    """`suspend` is false."""

    MEASURED = "Measured"
    """The autoscalers have the metrics that they need."""
    NOT_MEASURED = "NotMeasured"
    """They scale nothing: metrics-server, a metrics adapter or KEDA is missing; the message says which."""

    GATE_PENDING = "GatePending"
    """The gate is decided when every verdict is in."""
    NO_REGRESSION = "NoRegression"
    """The lower bound of the difference is at or above -maxRegression, or minImprovement."""
    REGRESSION = "Regression"
    """The upper bound of the difference is below -maxRegression, or minImprovement."""
    INCONCLUSIVE = "Inconclusive"
    """The interval includes -maxRegression (or minImprovement), or fewer than 30 problems were compared."""
    BASELINE_NOT_FOUND = "BaselineNotFound"
    """The baseline's results cannot be read."""
    IMPLAUSIBLE = "Implausible"
    """The run's own figure is outside the gate's expectedRange; the message names likely causes."""

    RUNNING = "Running"
    """The run has not ended."""
    FINISHED = "Finished"
    """The outputs are written."""
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    """More attempts failed than backoffLimit allows."""
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    """activeDeadlineSeconds passed first."""
    STOPPED = "Stopped"
    """Somebody ended the run with `evalrun ctl stop --keep`."""


REASONS: dict[ConditionType, frozenset[Reason]] = {
    ConditionType.ADMITTED: frozenset(
        {
            Reason.RUN_ADMITTED, Reason.NOT_STARTED, Reason.TOO_MANY_ACTIVE_RUNS, Reason.WAITING_FOR_QUOTA,
            Reason.INADMISSIBLE, Reason.WAITING_FOR_REPLICAS,
        }
    ),
    ConditionType.STALLED: frozenset({Reason.PROGRESSING, Reason.CANNOT_START}),
    ConditionType.ACCEPTED: frozenset({Reason.SPEC_ACCEPTED, Reason.WAITING_FOR_BASELINE, Reason.INVALID_SPEC}),
    ConditionType.APPLIED: frozenset(
        {Reason.ALL_APPLIED, Reason.REFUSED, Reason.NAME_TAKEN, Reason.WRITE_FAILED}
    ),
    ConditionType.CLUSTER_READY: frozenset(
        {
            Reason.WAITING_FOR_SERVICES, Reason.CLUSTER_PENDING, Reason.CLUSTER_PROVISIONED, Reason.CLUSTER_FAILED,
            Reason.CLUSTER_RELEASED, Reason.NO_CLUSTER_NEEDED, Reason.SUSPEND_REQUESTED,
        }
    ),
    ConditionType.GENERATED: frozenset(
        {
            Reason.WAITING_FOR_SERVICES, Reason.WAITING_FOR_CLUSTER, Reason.GENERATING, Reason.ATTEMPT_FAILED,
            Reason.INTERRUPTED, Reason.WAITING_FOR_QUOTA, Reason.ALL_GENERATED, Reason.SUSPEND_REQUESTED,
            Reason.DEADLINE_EXCEEDED, Reason.STOPPED,
        }
    ),
    ConditionType.JUDGED: frozenset(
        {Reason.WAITING_FOR_SERVICES, Reason.WAITING_FOR_COMPLETIONS, Reason.JUDGING, Reason.ALL_JUDGED,
         Reason.NOT_JUDGED, Reason.DEADLINE_EXCEEDED, Reason.STOPPED}
    ),
    ConditionType.DEGRADED: frozenset({Reason.NOT_JUDGED, Reason.ALL_JUDGED, Reason.RUNNING}),
    ConditionType.SUSPENDED: frozenset({Reason.SUSPEND_REQUESTED, Reason.SUSPENDING, Reason.NOT_SUSPENDED}),
    ConditionType.SCALING_ACTIVE: frozenset({Reason.MEASURED, Reason.NOT_MEASURED}),
    ConditionType.GATE_PASSED: frozenset(
        {Reason.GATE_PENDING, Reason.NO_REGRESSION, Reason.REGRESSION, Reason.INCONCLUSIVE, Reason.BASELINE_NOT_FOUND,
         Reason.IMPLAUSIBLE}
    ),
    ConditionType.ATTESTED: frozenset({Reason.RUNNING, Reason.SIGNED, Reason.NOT_SIGNED}),
    ConditionType.SUCCEEDED: frozenset(
        {Reason.RUNNING, Reason.FINISHED, Reason.BACKOFF_LIMIT_EXCEEDED, Reason.DEADLINE_EXCEEDED,
         Reason.AUDIT_FAILED, Reason.CANNOT_START, Reason.INVALID_SPEC, Reason.NOT_JUDGED, Reason.STOPPED}
    ),
    ConditionType.COMPLETE: frozenset(
        {Reason.RUNNING, Reason.FINISHED, Reason.BACKOFF_LIMIT_EXCEEDED, Reason.DEADLINE_EXCEEDED,
         Reason.AUDIT_FAILED, Reason.CANNOT_START, Reason.INVALID_SPEC, Reason.NOT_JUDGED, Reason.STOPPED}
    ),
}  # fmt: skip
"""The reasons that each condition can have."""
