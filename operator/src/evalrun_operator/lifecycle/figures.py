"""Derives the metrics in a run's status from its ledger's reply. Pure."""

from evalrun_api import names
from evalrun_api.v1alpha1 import DatasetStatus, EvalRun, EvalRunStatus, FigureInterval
from evalrun_operator.ledger_status import DatasetCounts, LedgerStatus

PRIMARY_DATASET = "humaneval"
"""The dataset whose pass@1 the printer column shows, if the run has it."""


def make_figures(run: EvalRun, before: EvalRunStatus, ledger: LedgerStatus | None) -> dict[str, object]:
    """Return the status fields that hold metrics; none while the ledger does not reply, so that earlier values stay."""
    if ledger is None or ledger.total == 0:
        return {}
    claim = names.ledger_claim(run.metadata.name, run.metadata.uid or "")
    datasets = [_dataset(counts) for counts in ledger.datasets]
    primary = next((item for item in datasets if item.name == PRIMARY_DATASET), datasets[0])
    figures: dict[str, object] = {
        "datasets": datasets,
        "progress": f"{ledger.judged}/{ledger.total}",
        "not_judged": str(ledger.not_judged),
        "accepted_at_1": primary.accepted_at_1 or before.accepted_at_1,
        "output_url": names.claim_url(ledger.output_url, claim) or before.output_url,
        "wandb_url": ledger.wandb_url or before.wandb_url,
        "stopped_early": ledger.stopped_early or before.stopped_early,
    }
    if ledger.generating_seconds > 0:
        figures["output_tokens"] = ledger.output_tokens
        figures["generating_seconds"] = round(ledger.generating_seconds)
        figures["tokens_per_second"] = f"{ledger.output_tokens / ledger.generating_seconds:.1f}"
    if ledger.working_seconds > 0:
        figures["problems_per_second"] = f"{ledger.judged / ledger.working_seconds:.2f}"
    if ledger.gpu_seconds > 0 and ledger.accepted > 0:
        figures["gpu_seconds_per_solved"] = f"{ledger.gpu_seconds / ledger.accepted:.2f}"
    return figures


def _dataset(counts: DatasetCounts) -> DatasetStatus:
    figure = counts.accepted_at_1
    return DatasetStatus.model_validate(
        {
            "name": counts.name,
            "total": counts.total,
            "generated": counts.generated,
            "judged": counts.judged,
            "not_judged": counts.not_judged,
            "cancelled": counts.cancelled,
            "accepted_at_1": None if figure is None else f"{figure.value:.4f}",
            "interval": None if figure is None else FigureInterval(low=f"{figure.low:.4f}", high=f"{figure.high:.4f}"),
        }
    )
