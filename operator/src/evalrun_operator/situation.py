"""What one decision about a run follows from, and the facts that are read from it. Pure."""

from dataclasses import dataclass
from datetime import datetime

from evalrun_operator import names
from evalrun_operator.api.v1alpha1 import ConditionType, EvalRun, EvalRunStatus, Gate
from evalrun_operator.ledger_status import RunState
from evalrun_operator.observed import Observed
from evalrun_operator.resources import RunIdentity, RunPlan
from evalrun_operator.settings import OperatorSettings
from evalrun_operator.status_report import condition_of


@dataclass(frozen=True)
class Pass:
    """What one decision follows from."""

    run: EvalRun
    before: EvalRunStatus
    plan: RunPlan
    observed: Observed
    now: datetime

    @property
    def settings(self) -> OperatorSettings:
        """The operator's settings."""
        return self.plan.settings

    @property
    def output_url(self) -> str:
        """Where the ledger says that the outputs are, as it is known outside of its pod; empty before."""
        run, ledger = self.plan.run, self.observed.ledger
        return "" if ledger is None else names.claim_url(ledger.output_url, names.ledger_claim(run.name, run.uid))

    @property
    def generated(self) -> bool:
        """Whether every completion is in the ledger; where the ledger does not say, as it was last known.

        A ledger that says that answers are missing wins over what was known: its volume was lost.
        """
        ledger = self.observed.ledger
        if ledger is not None and (ledger.all_generated or ledger.some_missing):
            return ledger.all_generated
        return holds(self.before, ConditionType.GENERATED)


def waiting_for(this: Pass) -> str:
    """Say what of aggregator and judge is not up yet; empty where all is, and the ledger answers."""
    run, observed = this.plan.run.name, this.observed
    parts = [("StatefulSet", names.AGGREGATOR)]
    if this.run.spec.own_judge is not None:
        parts += [("Deployment", names.JUDGE), ("Deployment", names.SANDBOX)]
    down = []
    for kind, part in parts:
        workload = observed.workload(kind, names.component(run, part))
        if workload is None or (workload.ready == 0 and (workload.wanted > 0 or part == names.AGGREGATOR)):
            down.append(part)
    if down:
        troubles = observed.troubles(*down)
        return f"{', '.join(down)} not ready yet. {troubles}".strip()
    return "" if observed.ledger is not None else "The aggregator is up, but does not answer yet."


def ledger_failed(this: Pass) -> bool:
    """Say whether the ledger cannot go on, and says so itself: not a process that is being replaced already."""
    ledger = this.observed.ledger
    workload = this.observed.workload("StatefulSet", names.component(this.plan.run.name, names.AGGREGATOR))
    return ledger is not None and ledger.state is RunState.FAILED and workload is not None and workload.settled


def aggregator_restarts(this: Pass) -> int:
    """Give how often the aggregator was restarted since its ledger had failed."""
    seen = this.observed.find("StatefulSet", names.component(this.plan.run.name, names.AGGREGATOR))
    return 0 if seen is None else seen.restarts


def names_a_run(gate: Gate) -> bool:
    """Say whether a gate's baseline is the name of an EvalRun; otherwise it is a URL."""
    return "://" not in gate.baseline


def holds(status: EvalRunStatus, kind: ConditionType) -> bool:
    """Say whether a condition is True."""
    condition = condition_of(status, kind)
    return condition is not None and condition.status == "True"


def identity_of(run: EvalRun) -> RunIdentity:
    """Give which EvalRun it is."""
    metadata = run.metadata
    created = metadata.creation_timestamp
    if metadata.uid is None or metadata.namespace is None or created is None:
        raise ValueError(f"EvalRun {metadata.name} does not come from an API server: uid, namespace or time is missing")
    return RunIdentity(metadata.name, metadata.namespace, metadata.uid, created)
