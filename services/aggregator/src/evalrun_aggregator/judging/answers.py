"""Turns each reply of the judge, and each lost request, into a verdict or another attempt."""

import logging
from collections.abc import Callable

from evalrun_aggregator.judging.item_rules import ItemRules
from evalrun_aggregator.judging.judge_health import JudgeHealth
from evalrun_aggregator.judging.retry_policy import (
    Decision,
    NotJudged,
    Retry,
    RetryPolicy,
    decide_failure,
    decide_loss,
    decide_verdict,
    explain_not_judged,
    make_not_judged_verdict,
)
from evalrun_aggregator.judging.verdict_store import VerdictStore
from evalrun_aggregator.judging.work import Work, WorkSource
from evalrun_aggregator.ledger.entries import StoredVerdict
from evalrun_aggregator.ledger.item_states import ItemStates
from evalrun_client.failure_codes import FailureCode, to_failure_code
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_results.run_warnings import BrokenTests

logger = logging.getLogger(__name__)


class Answers:
    """Processes the judge's replies of all stream workers.

    Args:
        item_states: the states of the items.
        source: takes back the items that are sent again.
        store: takes the verdicts.
        health: counts the verdicts and the failures of the judge.
        rules: reads verdicts and opens further turns.
        policy: decides on failures.
        now: Unix seconds.
    """

    def __init__(
        self,
        item_states: ItemStates,
        source: WorkSource,
        store: VerdictStore,
        health: JudgeHealth,
        rules: ItemRules,
        policy: RetryPolicy,
        now: Callable[[], float],
    ) -> None:
        self._item_states = item_states
        self._source = source
        self._store = store
        self._health = health
        self._rules = rules
        self._policy = policy
        self._now = now
        self.broken_tests = BrokenTests()
        """Tests that no completion can pass, as far as is known."""

    def record(self, work: Work, answer: judge_pb2.JudgeStreamResponse) -> None:
        """Process a reply."""
        if answer.HasField("failure"):
            self._record_failure(work, answer.failure)
            return
        outage = self._health.note_outage(work)
        if answer.verdict.judged:
            self._health.record_verdict()
        verdict = self._rules.verdict(work.index, answer.verdict)
        self._act(work, decide_verdict(verdict, work.history, outage, self._policy), verdict)

    def record_loss(self, work: Work, reason: str) -> None:
        """Process an item whose stream ended before its reply."""
        self._act(work, decide_loss(reason, work.history, self._health.note_outage(work), self._policy), None)

    def give_up(self, work: Work, reason: str) -> None:
        """Record an item that cannot be sent as not judged."""
        self._act(work, NotJudged(reason), None)

    def _record_failure(self, work: Work, failure: judge_pb2.StreamFailure) -> None:
        if to_failure_code(failure) is FailureCode.NOT_FOUND and not work.with_tests:
            # The request reached another pod than the one that got the tests, or that pod has dropped them.
            work.with_tests = True
            self._act(work, Retry(0.0, work.history), None)
            return
        self._health.record_failure(failure)
        self._act(work, decide_failure(failure, work.history, self._health.note_outage(work), self._policy), None)

    def _act(self, work: Work, decision: Decision, verdict: judge_pb2.Verdict | None) -> None:
        if isinstance(decision, Retry):
            work.history = decision.history
            self._source.put_back(work, decision.delay)
            return
        reason = ""
        if isinstance(decision, NotJudged) or verdict is None:
            reason = decision.reason if isinstance(decision, NotJudged) else ""
            verdict = make_not_judged_verdict()
        elif not verdict.judged:
            reason = explain_not_judged(verdict)
        if not verdict.judged:
            key = self._item_states.items.get_key(work.index)
            self.broken_tests.add(key.dataset, key.problem_id, verdict)
            logger.warning("%s was not judged: %s", key, reason)
        stored = StoredVerdict(
            row=work.completion.row,
            verdict=verdict.SerializeToString(),
            final_status=verdict.final_status,
            judged=verdict.judged,
            accepted=verdict.accepted and verdict.judged,
            recorded_at=self._now(),
            attempts=1 + work.history.failures + work.history.losses + work.history.uncounted,
            reason=reason,
            feedback=self._rules.feedback(work.index, work.completion, verdict),
        )
        self._store.add(work, stored)
