"""Suspends and resumes a run, and explains holds by Kueue or by kept replicas. Pure."""

from evalrun_api import names
from evalrun_api.v1alpha1 import Reason
from evalrun_operator.lifecycle.decision import IDLE_SECONDS, Decision, decision
from evalrun_operator.lifecycle.desired import services
from evalrun_operator.lifecycle.situation import ReconcileContext, explain_unready_parts
from evalrun_operator.lifecycle.status_report import Report, report_status
from evalrun_operator.observation.records import KueueWord
from evalrun_operator.policies.condition_text import RunText
from evalrun_operator.policies.generation import gpu_holders, live_attempts, release
from evalrun_operator.policies.stuck_pods import stuck_pods


def suspend(context: ReconcileContext, queued: RunText | None = None) -> Decision:
    """Free the GPUs and the judge, and keep only the ledger. The attempt ends before its cluster does.

    Args:
        context: context of the reconciliation.
        queued: the queue that the run waits in before it may resume.
    """
    deletions = release(context.observed, context.now, jobs_first=True)
    pods = [seen for seen, pod in context.observed.pods(names.GENERATOR) if not pod.ended]
    freed = not gpu_holders(context.observed) and not live_attempts(context.observed) and not pods
    stuck = stuck_pods(context.observed, context.now, names.RAY, names.GENERATOR)
    report = Report(
        suspended=RunText(
            "True" if freed else "False",
            Reason.SUSPEND_REQUESTED if freed else Reason.SUSPENDING,
            "No GPU and no judge is held; the ledger is kept. "
            + ("Set suspend: false to go on." if queued is None else "It goes on when it is admitted again.")
            if freed
            else f"The attempt and its cluster are being ended. {stuck}".strip(),
        ),
        ledger=context.observed.ledger,
        waiting_for=explain_unready_parts(context),
        generated=context.generated,
        queued=queued,
    )
    status = report_status(context.run, context.before, context.now, report)
    kept = {seen.ref for seen in context.observed.find_by_kind("RayCluster", "RayJob", "Job")}
    wait = IDLE_SECONDS if freed else context.settings.poll_seconds
    return decision(context, status, services(context), kept, deletions, wait)


def resume(context: ReconcileContext) -> Decision:
    """Announce that the run is no longer suspended, before any GPU is requested; the deadline restarts from
    here.
    """
    report = Report(
        ledger=context.observed.ledger,
        waiting_for=explain_unready_parts(context),
        generated=context.generated,
        resumed=True,
    )
    status = report_status(context.run, context.before, context.now, report)
    kept = {seen.ref for seen in context.observed.find_by_kind("RayCluster", "RayJob", "Job")}
    return decision(context, status, services(context), kept, requeue_after=0.0)


def explain_kueue_hold(context: ReconcileContext) -> RunText | None:
    """Return the text for a run whose RayCluster or Job is held back by Kueue; None if Kueue holds back neither."""
    queue = context.run.spec.queue_name
    for seen in context.observed.find_held():
        name, word = f"{seen.ref.kind} {seen.ref.name}", context.observed.kueue.get(seen.uid, KueueWord(""))
        # The cause is Kueue's manageJobsWithoutQueueName, or a person.
        if queue is None:
            field = "generator" if context.run.spec.rollout is None else "rollout"
            message = (
                f"{name} was suspended, and the run names no queue: set its spec.suspend to false, or create the run "
                f"again with spec.{field}.queueName. No deadline runs meanwhile."
            )
            return RunText("False", Reason.WAITING_FOR_QUOTA, message)
        if not word.admissible:
            remedy = f"kubectl describe localqueue {queue} -n {context.plan.run.namespace}"
            message = (
                f"Kueue cannot admit {name}: {word.message}. Create or fix the queue ({remedy}), or create the run "
                "again with another queueName. It holds no judge, and no deadline runs meanwhile."
            )
            return RunText("False", Reason.INADMISSIBLE, message)
        why = word.message or "it has not looked at it yet; if that lasts, see to Kueue's controller"
        message = f"Kueue holds {name} back until LocalQueue {queue} has quota: {why}. No deadline runs meanwhile."
        return RunText("False", Reason.WAITING_FOR_QUOTA, message)
    return None


def explain_turn_wait(context: ReconcileContext) -> RunText | None:
    """Return the text for a run that waits for its schedule's replicas; None if it does not."""
    kept = context.observed.kept
    if kept is None or kept.cluster or explain_unready_parts(context):
        return None
    return RunText("False", Reason.WAITING_FOR_REPLICAS, f"{kept.message} No deadline runs meanwhile.")
