"""Observes a run for a reconciliation: objects, tokens, the ledger's status, and facts that only events report."""

import logging
from collections.abc import Callable
from dataclasses import replace

from evalrun_api import names
from evalrun_api.v1alpha1 import ConditionType, EvalRun
from evalrun_cluster.client import Cluster, decode_secret
from evalrun_cluster.errors import RefusedError
from evalrun_cluster.objects import RunIdentity
from evalrun_operator.aggregator_client import AggregatorError, Aggregators, CertificateError
from evalrun_operator.certificates.issuing import Authority
from evalrun_operator.certificates.judge_certificates import make_authority
from evalrun_operator.lifecycle.situation import holds
from evalrun_operator.observation.children import Children, Key
from evalrun_operator.observation.record_parser import parse_kueue_word, select_own_objects
from evalrun_operator.observation.records import Baseline, KueueWord, Observed
from evalrun_operator.policies.troubles import Trouble, classify_trouble
from evalrun_operator.resources.plan import is_issued
from evalrun_operator.resources.run_tokens import RunTokens
from evalrun_operator.settings import OperatorSettings

logger = logging.getLogger(__name__)

TOKEN_SECONDS = 60.0
"""Seconds for which a run's tokens, or the seed of the judge's authority, are assumed to be still in its Secret."""
KUEUE_SECONDS = 15.0
"""Seconds between two questions why Kueue holds an object back. The object itself shows when Kueue admits it."""
WARNING_SECONDS = 5.0
"""Seconds for which an object may start without a report before its events are read, and between two readings."""


class Observer:
    """Observes runs. It remembers only what saves a request.

    Args:
        settings: the operator's settings.
        cluster: the API server.
        children: the known objects of the runs.
        aggregators: the runs' ledgers.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        settings: OperatorSettings,
        cluster: Cluster,
        children: Children,
        aggregators: Aggregators,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._children = children
        self._aggregators = aggregators
        self._clock = clock
        self._tokens: dict[str, tuple[RunTokens, float]] = {}
        self._resynced: dict[str, float] = {}
        self._warnings: dict[str, dict[str, tuple[Trouble | None, float]]] = {}
        """By uid of a run and of its object: the object's last warning, and the time of the question."""
        self._judge_authority: tuple[Authority | None, float] = (None, 0.0)
        """Authority of the chart's judge, and the time of reading it."""
        self._kueue: dict[str, dict[str, tuple[KueueWord, float]]] = {}
        """By uid of a run and of its object: Kueue's report, and the time of the question."""

    async def observe(self, run: EvalRun, identity: RunIdentity) -> Observed:
        """Return the observed state of a run. Raises ClusterError."""
        objects = select_own_objects(self._children.find_for_run(identity.namespace, identity.uid))
        started = run.status is not None and run.status.start_time is not None
        ended = run.status is not None and holds(run.status, ConditionType.COMPLETE)
        tokens = await self._read_tokens(identity) if started and not ended else None
        resync = self._clock() - self._resynced.setdefault(identity.uid, self._clock()) >= self._settings.resync_seconds
        baseline = None if started else await self._baseline(run)
        observed = Observed(
            objects,
            tokens,
            None,
            frozenset(self._children.missing_kinds),
            baseline,
            resync=resync,
            missing_groups=frozenset(self._children.missing_groups),
        )
        if ended:
            self._warnings.pop(identity.uid, None)
            self._kueue.pop(identity.uid, None)
            # An ended run is never written to again.
            self._resynced.pop(identity.uid, None)
        if started and not ended:
            observed = replace(
                observed,
                judge_authority=await self._read_judge_authority(run, identity, observed),
                warnings=await self._ask_for_warnings(identity, observed),
                kueue=await self._ask_kueue(identity, observed),
            )
        aggregator = observed.workload("StatefulSet", names.component(identity.name, names.AGGREGATOR))
        if tokens is None or aggregator is None or aggregator.ready == 0 or ended:
            return observed
        references = run.spec.tls_secret_refs
        if references is not None:
            name = references.operator.name
            held = decode_secret(await self._cluster.read_secret(name, identity.namespace) or {})
            lacks = [file for file in names.TLS_FILES if not held.get(file)]
            if lacks:
                return replace(
                    observed,
                    ledger_error=f"Secret {name} of spec.tlsSecretRefs.operator lacks {', '.join(lacks)}: "
                    "without them the operator cannot ask it. Write them, or have cert-manager do so.",
                )
            tokens = tokens.add_operator_certificate(*(held[file] for file in names.TLS_FILES))
            observed = replace(observed, tokens=tokens)
        try:
            ledger = await self._aggregators.status(self._address(identity.namespace, identity.name), tokens.operator)
        except AggregatorError as error:
            logger.info("%s/%s: its aggregator does not answer: %s", identity.namespace, identity.name, error)
            said = str(error)
            if references is not None and isinstance(error, CertificateError):
                said += f" The Secrets are {references.aggregator.name} (aggregator's) and {references.operator.name}."
            return replace(observed, ledger_error=said)
        return replace(observed, ledger=ledger)

    async def _ask_for_warnings(self, identity: RunIdentity, observed: Observed) -> dict[str, Trouble]:
        """Return the last warning events, by uid, of objects that do not start and whose status shows no reason."""
        known, now = self._warnings.get(identity.uid, {}), self._clock()
        fresh = {}
        for seen in observed.silent():
            trouble, asked = known.get(seen.uid, (None, now))
            if now - asked >= WARNING_SECONDS:
                warning, asked = await self._cluster.last_warning(identity.namespace, seen.uid), now
                trouble = None if warning is None else classify_trouble(warning.reason, warning.message)
            fresh[seen.uid] = trouble, asked
        self._warnings[identity.uid] = fresh
        return {uid: trouble for uid, (trouble, _) in fresh.items() if trouble is not None}

    async def _ask_kueue(self, identity: RunIdentity, observed: Observed) -> dict[str, KueueWord]:
        """Return, by uid, Kueue's report about each object that it holds back."""
        known, now = self._kueue.pop(identity.uid, {}), self._clock()
        fresh = {}
        for seen in observed.find_held():
            word, asked = known.get(seen.uid, (KueueWord(""), float("-inf")))
            if now - asked >= KUEUE_SECONDS or not word.message:
                workloads = await self._cluster.kueue_workloads(identity.namespace, seen.uid)
                word, asked = parse_kueue_word(workloads or ()), now
            fresh[seen.uid] = word, asked
        if fresh:
            self._kueue[identity.uid] = fresh
        return {uid: word for uid, (word, _) in fresh.items()}

    async def end_early(self, identity: RunIdentity, tokens: RunTokens, reason: str) -> None:
        """Request that a run's ledger ends it with the results so far.

        A failed request is repeated in the next reconciliation.
        """
        try:
            await self._aggregators.end_run(self._address(identity.namespace, identity.name), tokens.operator, reason)
        except AggregatorError as error:
            logger.warning("%s/%s: its aggregator does not end it: %s", identity.namespace, identity.name, error)

    def record_tokens(self, uid: str, tokens: RunTokens) -> None:
        """Remember tokens that were just written, so that they need not be read back."""
        self._tokens[uid] = (tokens, self._clock())

    def record_resync(self, uid: str) -> None:
        """Remember that every object of a run was applied again."""
        self._resynced[uid] = self._clock()

    def forget_tokens(self) -> None:
        """Read every token again, because another operator may have created new tokens."""
        self._tokens.clear()

    def forget(self, key: Key, uid: str) -> None:
        """Forget a run that is gone, whether it had ended or not."""
        self._aggregators.forget(self._address(*key))
        for known in (self._tokens, self._resynced, self._warnings, self._kueue):
            known.pop(uid, None)

    def close(self, identity: RunIdentity) -> None:
        """Close the connection to a run's ledger that will not be called again soon."""
        self._aggregators.forget(self._address(identity.namespace, identity.name))

    async def _baseline(self, run: EvalRun) -> Baseline | None:
        """Read the EvalRun that the gate names from the API server, because the watch may not have seen it yet."""
        name = run.spec.baseline_run
        if name is None:
            return None
        found = await self._cluster.read_run(run.metadata.namespace or "", name)
        status = (found or {}).get("status") or {}
        return Baseline("" if found is None else status.get("phase", "Pending"), status.get("outputURL", ""))

    async def _read_judge_authority(self, run: EvalRun, identity: RunIdentity, observed: Observed) -> Authority | None:
        """Return the authority of the chart's judge, if it issues the run's certificate.

        Raises:
            RefusedError: the authority does not exist yet, and the aggregator is to be created.
            ClusterError: see `evalrun_cluster.errors`.
        """
        judge = self._settings.shared_judge
        if judge is None or not is_issued(run.spec.judge_ref, identity.namespace, judge):
            return None
        known, asked = self._judge_authority
        if known is not None and self._clock() - asked < TOKEN_SECONDS:
            return known
        seed = decode_secret(await self._cluster.read_secret(judge.authority_secret, judge.namespace) or {}).get(
            names.SEED_KEY
        )
        if seed:
            self._judge_authority = make_authority(judge, seed), self._clock()
            return self._judge_authority[0]
        if observed.find("StatefulSet", names.component(identity.name, names.AGGREGATOR)) is None:
            raise RefusedError(
                f"the shared judge has no authority yet: Secret {judge.namespace}/{judge.authority_secret} lacks the "
                f"key {names.SEED_KEY}. The operator writes it within half a minute, once the chart has made the Secret"
            )
        return None

    async def _read_tokens(self, identity: RunIdentity) -> RunTokens | None:
        known = self._tokens.get(identity.uid)
        if known is not None and self._clock() - known[1] < TOKEN_SECONDS:
            return known[0]
        held = await self._cluster.read_tokens(identity)
        if held is None:
            self._tokens.pop(identity.uid, None)
            return None
        if names.TOKEN_KEY not in held or not all(value.strip() for value in held.values()):
            secret = names.token_secret(identity.name)
            raise RefusedError(f"Secret {secret} lacks a token: delete it, and the operator makes new ones")
        tokens = RunTokens(held)
        self._tokens[identity.uid] = (tokens, self._clock())
        return tokens

    def _address(self, namespace: str, name: str) -> str:
        service = names.component(name, names.AGGREGATOR)
        return self._settings.aggregator_address.format(service=service, namespace=namespace, run=name)
