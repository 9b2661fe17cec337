"""Decides what a run needs now, from its spec, its status, the observed objects and the time. Pure.

The module reads as the lifecycle: accepted -> aggregator and judge ready -> cluster ready -> generating -> cluster
released as soon as every completion is in the ledger -> judging -> finished: the judge is scaled away, and the
aggregator stays for a while to report. The decision depends on the state, never on which event came, and may be made at
any time and any number of times.
"""

from dataclasses import replace
from datetime import datetime

from evalrun_api.v1alpha1 import ConditionType, EvalRun, EvalRunStatus
from evalrun_operator.certificates.judge_certificates import certificate_for_run
from evalrun_operator.certificates.run_certificates import new_certificates
from evalrun_operator.lifecycle.acceptance import accept, explain_queue_wait
from evalrun_operator.lifecycle.decision import Decision
from evalrun_operator.lifecycle.frozen import (
    has_hop_tokens,
    has_tls_unless_disabled,
    has_weights_on_claim,
    leaves_lost_nodes,
    thaw_settings,
)
from evalrun_operator.lifecycle.progress import advance
from evalrun_operator.lifecycle.run_end import close, find_early_end, finish, keep_ended_run, leave, may_close
from evalrun_operator.lifecycle.situation import ReconcileContext, find_aggregator, holds, make_identity
from evalrun_operator.lifecycle.suspension import resume, suspend
from evalrun_operator.observation.records import Observed
from evalrun_operator.resources import RunPlan
from evalrun_operator.resources.run_tokens import new_tokens
from evalrun_operator.settings import OperatorSettings


def decide(run: EvalRun, observed: Observed, settings: OperatorSettings, now: datetime, fresh_token: str) -> Decision:
    """Decide what a run needs now.

    Args:
        run: the EvalRun with its status, as the API server has it.
        observed: the observed objects of the run.
        settings: the operator's settings.
        now: the time, with its zone.
        fresh_token: a new random token, from which the run's tokens are derived if it has none yet.

    Raises:
        UnreadableSettingsError: the settings that the run has kept cannot be read.
    """
    before = run.status or EvalRunStatus.model_validate({})
    settings = thaw_settings(settings, before.settings)
    per_hop = has_hop_tokens(before.settings)
    tokens = observed.tokens or new_tokens(fresh_token, per_hop=per_hop)
    plan = RunPlan(
        make_identity(run), run.spec, settings, tokens.first, before.baseline_url,
        hop_tokens=per_hop, new_tokens=tokens if observed.tokens is None else None,
        weights_on_claim=has_weights_on_claim(before.settings),
        tls_unless_disabled=has_tls_unless_disabled(before.settings),
        leaves_lost_nodes=leaves_lost_nodes(before.settings),
        kept_by="" if observed.kept is None else observed.kept.schedule_uid,
    )  # fmt: skip
    if plan.tls and plan.new_tokens is not None and run.spec.tls_secret_refs is None:
        plan = replace(plan, new_tokens=tokens.add_certificates(new_certificates(plan.run, fresh_token)))
    authority = observed.judge_authority
    if authority is not None and plan.judge_is_issued:
        plan = replace(plan, judge_authority=authority.fingerprint)
        # Without an aggregator the Secret may be missing too, so the aggregator gets a new certificate.
        if find_aggregator(plan, observed) is None:
            certificate = certificate_for_run(authority, plan.run.name, now, fresh_token)
            plan = replace(plan, new_judge_certificate=certificate)
    context = ReconcileContext(run, before, plan, observed, now)
    if run.metadata.deletion_timestamp is not None:
        return leave(context)
    if before.start_time is None:
        return accept(context)
    if holds(before, ConditionType.COMPLETE):
        return keep_ended_run(context)
    end = find_early_end(context)
    if end is not None:
        return close(context, end) if may_close(context, end) else finish(context, end)
    if run.spec.suspend:
        return suspend(context)
    if holds(before, ConditionType.SUSPENDED):
        waits = explain_queue_wait(observed.place, settings.max_active_runs)
        return resume(context) if waits is None else suspend(context, waits)
    return advance(context)
