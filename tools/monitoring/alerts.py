"""Rules of Prometheus. Each alert has an expression, a comparison and a threshold, so that a test can query the bare
expression. A further rule records the headline metric, which can be kept for longer than a run's own series."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from evalrun_registry.metrics import HEADLINE
from monitoring.promql import RUN, SCHEDULE, WITHOUT_VERDICT

SUSPENDED = f"unless on ({RUN}) (evalrun_run_suspended == 1 or evalrun_run_over == 1)"
"""PromQL clause that leaves out runs that are suspended or over: no progress is expected of them, though their
aggregators still reply. Without an operator these series do not exist, and no run is left out."""


def _waited(minutes: int) -> str:
    """Return the PromQL clause that leaves out runs which waited for their schedule's replicas within the last
    `minutes`: such runs had less time than others. The replicas themselves have the alert EvalrunReplicasNotReady."""
    return f"unless on ({RUN}) max_over_time(evalrun_run_waiting_for_replicas[{minutes}m]) == 1"


@dataclass(frozen=True)
class Alert:
    """An alert rule."""

    name: str
    expression: str
    comparison: Literal[">", "<", "=="]
    threshold: str
    """A number, as PromQL writes it."""
    hold: str
    """Duration for which the comparison must hold, as Prometheus writes durations."""
    severity: Literal["warning", "critical"]
    summary: str
    description: str

    def to_rule(self) -> dict[str, Any]:
        return {
            "alert": self.name,
            # `unless` binds less than `>`, so the expression needs parentheses.
            "expr": f"({self.expression}) {self.comparison} {self.threshold}",
            "for": self.hold,
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "description": self.description},
        }


def _requests(matcher: str = "") -> str:
    return f"sum by ({RUN}) (rate(evalrun_judge_request_seconds_count{matcher}[10m]))"


def _unfinished(states: str) -> str:
    """Return the expression that is 1 for a run with samples in one of these states, else 0."""
    return f'(sum by ({RUN}) (evalrun_problems{{state=~"{states}"}}) > bool 0)'


WHICH = "{{ $labels.namespace }}/{{ $labels.run }}"
WHICH_SCHEDULE = "{{ $labels.namespace }}/{{ $labels.schedule }}"


def _next_start() -> str:
    """Return the expression of each schedule's next start; while no operator works, the time that was last known.

    A schedule that was deleted while an operator works is known no more, so it raises no alarm.
    """
    name = "evalrun_schedule_next_start_timestamp_seconds"
    known = f"max by ({SCHEDULE}) (last_over_time({name}[2d])) unless on () (max(evalrun_operator_leads) == 1)"
    return f"(max by ({SCHEDULE}) ({name}) or on ({SCHEDULE}) ({known}))"


ALERTS: Sequence[Alert] = (
    Alert(
        name="EvalrunJudgeErrors",
        expression=f"{_requests(f'{{{WITHOUT_VERDICT}}}')} / {_requests()}",
        comparison=">",
        threshold="0.05",
        hold="5m",
        severity="warning",
        summary=f"The judge of {WHICH} gives no verdict on {{{{ $value | humanizePercentage }}}} of its requests",
        description="Sandboxes fail or cannot be reached; the samples are sent again, and end as not judged where that "
        "goes on. Dashboard judge latency, row Errors by cause, says which it is.",
    ),
    Alert(
        name="EvalrunJudgeQueueOld",
        expression=f"max by ({RUN}) (evalrun_judge_queue_oldest_seconds)",
        comparison=">",
        threshold="120",
        hold="5m",
        severity="warning",
        summary=f"A request has waited {{{{ $value | humanizeDuration }}}} for the judge of {WHICH}",
        description="The sandboxes have fewer slots than the run needs, or hang: raise judge.sandbox.maxReplicas, or "
        "look at them.",
    ),
    Alert(
        name="EvalrunRunStalled",
        expression=f"(time() - max by ({RUN}) (evalrun_last_progress_timestamp_seconds))"
        f" * on ({RUN}) {_unfinished('pending|generated')} {SUSPENDED} {_waited(30)}",
        comparison=">",
        threshold="1800",
        hold="1m",
        severity="critical",
        summary=f"Run {WHICH} has stored nothing for {{{{ $value | humanizeDuration }}}}",
        description="Samples are left, but neither a completion nor a verdict came. `kubectl describe er` says what "
        "the run waits for.",
    ),
    Alert(
        name="EvalrunRunNotStarting",
        expression=f"time() - max by ({RUN}) (evalrun_run_preparing_since_timestamp_seconds) {_waited(10)}",
        comparison=">",
        threshold="600",
        hold="1m",
        severity="warning",
        summary=f"Run {WHICH} has been preparing for {{{{ $value | humanizeDuration }}}}",
        description="Its aggregator, judge or RayCluster does not come up. `kubectl describe er` has the cause: the "
        "condition Stalled if somebody must fix something; otherwise it waits for room or for quota.",
    ),
    Alert(
        name="EvalrunReplicaDown",
        expression=f"(1 - max by ({RUN}, replica) (evalrun_replica_up))"
        f" * on ({RUN}) group_left () {_unfinished('pending')} {SUSPENDED}",
        comparison=">",
        threshold="0",
        hold="5m",
        severity="warning",
        summary=f"Replica {{{{ $labels.replica }}}} of {WHICH} does not answer",
        description="Samples are still to be generated, and this server of the model is left out. The generator's log "
        "says why.",
    ),
    Alert(
        name="EvalrunWritesRefused",
        expression=f"max by ({RUN}) (evalrun_run_refused)",
        comparison=">",
        threshold="0",
        hold="5m",
        severity="warning",
        summary=f"The API server refuses an object of {WHICH}",
        description="Condition Applied in `kubectl describe er` quotes it and says what to do.",
    ),
    Alert(
        name="EvalrunOperatorDown",
        expression="max(evalrun_operator_leads) or vector(0)",
        comparison="<",
        threshold="1",
        hold="5m",
        severity="critical",
        summary="No evalrun operator works",
        description="No pod of the operator is up, or none holds the Lease. Runs go on, but nothing is started, "
        "retried or cleaned up: see `kubectl -n evalrun-system get pods` and their logs.",
    ),
    Alert(
        name="EvalrunRunFailed",
        expression=f"max by ({RUN}) (evalrun_run_failed)",
        comparison=">",
        threshold="0",
        hold="0s",
        severity="warning",
        summary=f"Run {WHICH} failed",
        description="Condition Succeeded in `kubectl describe er` says why. The alert ends when the EvalRun is "
        "deleted.",
    ),
    Alert(
        name="EvalrunGateFailed",
        # A schedule's runs have EvalrunCheckpointGateFailed: one checkpoint must not wake somebody twice.
        expression=f'max by ({RUN}) (evalrun_gate_passed{{schedule=""}})',
        comparison="<",
        threshold="1",
        hold="0s",
        severity="critical",
        summary=f"The gate of {WHICH} found a regression",
        description="`kubectl describe er` and the run's report say how large it is, and on which problems.",
    ),
    Alert(
        name="EvalrunScheduleLate",
        expression=f"time() - {_next_start()}",
        comparison=">",
        threshold="900",
        hold="1m",
        severity="critical",
        summary=f"The start of schedule {WHICH_SCHEDULE} has been due for {{{{ $value | humanizeDuration }}}}",
        description="Nobody makes the start: the operator is down, leads no more, or the API server refuses its "
        "writes. Its log says which. The last start that was missed is made up once it works again.",
    ),
    Alert(
        name="EvalrunReplicasNotReady",
        expression=f"time() - max by ({SCHEDULE}) (evalrun_schedule_replicas_unready_since_timestamp_seconds)",
        comparison=">",
        threshold="900",
        hold="1m",
        severity="warning",
        summary=f"The replicas of schedule {WHICH_SCHEDULE} neither serve nor are gone since "
        "{{ $value | humanizeDuration }}",
        description="Runs wait for them, or GPUs are held for nothing. Condition ReplicasReady in `kubectl describe "
        "evalschedule` says what the RayCluster lacks.",
    ),
    Alert(
        name="EvalrunScheduleMissedStart",
        expression=f'1 - max by ({SCHEDULE}, reason) (evalrun_schedule_started{{reason!="BudgetSpent"}})',
        comparison=">",
        threshold="0",
        hold="30m",
        severity="warning",
        summary=f"The last start of schedule {WHICH_SCHEDULE} came to nothing: {{{{ $labels.reason }}}}",
        description="No checkpoint was evaluated. Condition Started in `kubectl describe evalschedule` says why. "
        "A day's budget that is spent is no such case.",
    ),
    Alert(
        name="EvalrunCheckpointBroken",
        expression=f"1 - max by ({SCHEDULE}) (evalrun_schedule_sound)",
        comparison=">",
        threshold="0",
        hold="10m",
        severity="warning",
        summary=f"A checkpoint of schedule {WHICH_SCHEDULE} is broken",
        description="Condition Sound in `kubectl describe evalschedule` names it and what it lacks, or Merged what the "
        "merger said. It gets no run: write it again, or delete its directory.",
    ),
    Alert(
        name="EvalrunCheckpointGateFailed",
        expression=f"max by ({SCHEDULE}) (evalrun_checkpoint_gate_passed)",
        comparison="<",
        threshold="1",
        hold="0s",
        severity="critical",
        summary=f"The gate of the newest checkpoint of schedule {WHICH_SCHEDULE} failed",
        description="`evalrun history` shows the curve, `kubectl describe er` and the run's report the problems. Ends "
        "with a newer checkpoint whose gate does not fail.",
    ),
)


RECORDED = f"evalrun:{HEADLINE.name}:avg"
"""Name of the recorded headline metric, by what was evaluated and without the run: few series, which can be kept for
years, while an operator's are kept for weeks. `avg`: the mean of several runs of one checkpoint, e.g. with other seeds.
"""


def rule_groups() -> dict[str, Any]:
    """Return the rules as a file of Prometheus, and as the spec of a PrometheusRule."""
    headline, subject = HEADLINE.series("run"), "model, step, phase"
    value = f"max by ({RUN}, dataset) ({headline})"
    about = f"max by ({RUN}, {subject}) (evalrun_run_info)"
    recorded = {
        "record": RECORDED,
        "expr": f"avg by (namespace, dataset, {subject}) ({value} * on ({RUN}) group_left ({subject}) {about})",
    }
    return {
        "groups": [
            {"name": "evalrun", "rules": [alert.to_rule() for alert in ALERTS]},
            {"name": "evalrun-headlines", "rules": [recorded]},
        ]
    }
