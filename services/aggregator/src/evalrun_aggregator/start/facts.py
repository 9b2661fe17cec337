"""Facts about the run in its ledger: its identity, its start and its end. Pure.

A ledger is resumed only for the run that it belongs to. The identity is a digest of everything that the completions
depend on, and a digest of everything that the verdicts depend on; rejudging may change the latter.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalrun_aggregator.run_end import DecidedGate, Interval, RunEnd
from evalrun_aggregator.start.datasets import RunDataset
from evalrun_api.run_config import Protocol, RunConfig
from evalrun_data.digest import digest_records
from evalrun_data.prompts import TEMPLATES_VERSION
from evalrun_runtime.exits import BadInputError


@dataclass(frozen=True)
class LedgerIdentity:
    """Identity of the run that a ledger belongs to."""

    run: str
    generation: str
    """Digest of model, protocol, prompts and given completions."""
    judging: str
    """Digest of tests, limits and comparators."""

    def facts(self) -> dict[str, str]:
        """Return the identity as facts of the ledger."""
        return {"run": self.run, "generation": self.generation, "judging": self.judging}


def make_identity(order: RunConfig, datasets: Sequence[RunDataset], responses_sha256: str | None) -> LedgerIdentity:
    """Return the identity of the ledger for a run configuration."""
    spec = order.spec
    generation = {
        "model": spec.model.to_wire(),
        "protocol": protocol_facts(spec.protocol),
        "prompts": [_identify_prompts(d) for d in datasets],
        "templates": TEMPLATES_VERSION,
        "responses": responses_sha256,
    }
    judging = [
        [
            d.spec.name,
            d.spec.judge_mode,
            d.spec.stop_after_timeouts,
            None if d.spec.limits is None else d.spec.limits.to_wire(),
            None if d.spec.comparator is None else d.spec.comparator.to_wire(),
            d.records_sha256,
            *([] if d.grader is None else [d.grader.sha256, d.grader.program]),
            *([] if d.spec.function_tests == "auto" else [d.spec.function_tests]),
        ]
        for d in datasets
    ]
    return LedgerIdentity(order.run, digest_records([generation]), digest_records(judging))


def protocol_facts(protocol: Protocol) -> dict[str, object]:
    """Return what identifies the protocol. A single seed is omitted, so that digests of earlier versions stay valid."""
    return {name: value for name, value in protocol.to_wire().items() if (name, value) != ("seeds", 1)}


def _identify_prompts(dataset: RunDataset) -> list[str]:
    """Return what identifies the prompts. Default feedback is omitted, so that digests of earlier versions stay
    valid."""
    spec = dataset.spec
    feedback = [] if spec.feedback == "PublicTests" else ["feedback", spec.feedback]
    return [spec.name, spec.prompt_format, dataset.prompts_sha256, *feedback]


def name_rejudging(order: RunConfig) -> str | None:
    """Name the rejudging that a run configuration asks for; None for none.

    The output is part of the name: rejudging a copy of a rejudged ledger into another directory is intended.
    """
    return None if order.rejudge is None else f"{order.rejudge} into {order.output_dir}"


def check_identity(facts: Mapping[str, str], identity: LedgerIdentity, ledger: str, *, judging_again: bool) -> None:
    """Refuse a ledger of another run.

    Args:
        facts: facts of the ledger.
        identity: identity of the run configuration.
        ledger: path of the ledger, for the message.
        judging_again: the verdicts are about to be set aside, so their digest may differ.

    Raises:
        BadInputError: the message names the difference.
    """
    elsewhere = "name another ledger, or give this one the run configuration that it was made with"
    if facts.get("run") != identity.run:
        raise BadInputError(f"ledger {ledger}: of run {facts.get('run')!r}, not {identity.run!r}: {elsewhere}")
    if facts.get("generation") != identity.generation:
        raise BadInputError(
            f"ledger {ledger}: its completions were made with another model, protocol, prompts or answers: {elsewhere}"
        )
    if facts.get("judging") != identity.judging and not judging_again:
        raise BadInputError(
            f"ledger {ledger}: its verdicts were made with other tests, limits, comparators or graders: {elsewhere}, "
            "or judge everything again (evalrun rejudge)"
        )


def end_facts(ended: RunEnd) -> dict[str, str]:
    """Return a run's end as facts of the ledger."""
    figures = {name: [figure.value, figure.low, figure.high] for name, figure in ended.accepted_at_1.items()}
    content: dict[str, object] = {
        "finished_at": ended.finished_at,
        "output_url": ended.output_url,
        "accepted_at_1": figures,
    }
    if ended.gate is not None:
        content["gate"] = {"reason": ended.gate.reason, "message": ended.gate.message}
    content |= {"wandb_url": ended.wandb_url, "warnings": list(ended.warnings)}
    content["notices"] = list(ended.notices)
    content["attested_by"] = ended.attested_by
    return {"ended": json.dumps(content)}


NOT_ENDED = {"ended": "", "ended_early": "", "stopped_by_user": ""}
NOT_PAUSED = {"paused": ""}
PAUSED = {"paused": "yes"}
STOPPED_BY_USER = {"stopped_by_user": "yes"}


def read_max_in_flight(facts: Mapping[str, str]) -> int | None:
    """Return the maximum number of requests that a worker may have in flight; None: as many as its endpoints take."""
    text = facts.get("max_in_flight", "")
    return int(text) if text else None


def max_in_flight_facts(bound: int | None) -> dict[str, str]:
    """Return the maximum number of requests in flight per worker as facts of the ledger."""
    return {"max_in_flight": "" if bound is None else str(bound)}


def read_run_end(facts: Mapping[str, str]) -> RunEnd | None:
    """Return a run's end from the facts of its ledger; None if it has not ended."""
    text = facts.get("ended", "")
    if not text:
        return None
    content = json.loads(text)
    figures = {name: Interval(*numbers) for name, numbers in content["accepted_at_1"].items()}
    gate = content.get("gate")
    decided = None if gate is None else DecidedGate(gate["reason"], gate["message"])
    return RunEnd(
        content["finished_at"],
        content["output_url"],
        figures,
        decided,
        wandb_url=content.get("wandb_url", ""),
        warnings=tuple(content.get("warnings", ())),
        notices=tuple(content.get("notices", ())),
        attested_by=content.get("attested_by", ""),
    )
