"""Opens a run's ledger: creates it at the first start and resumes it later."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from evalrun_aggregator.gate_watch import FORGOTTEN
from evalrun_aggregator.ledger.entries import CompletionTally, StoredCompletion, StoredEvent
from evalrun_aggregator.ledger.item_states import ItemStates
from evalrun_aggregator.ledger.items import RunItems, pack_row
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_aggregator.run_end import RunEnd
from evalrun_aggregator.start.facts import (
    NOT_ENDED,
    NOT_PAUSED,
    LedgerIdentity,
    check_identity,
    read_max_in_flight,
    read_run_end,
)
from evalrun_aggregator.token_budget import TokenBudgets
from evalrun_aggregator.work_time import WorkTime
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

IMPORT_BATCH = 1000


@dataclass(frozen=True)
class OpenedRun:
    """Contents of the ledger at the start."""

    item_states: ItemStates
    """State of each item."""
    tallies: Mapping[str, Sequence[CompletionTally]]
    """Completions of each dataset, counted by finish reason."""
    work_time: WorkTime
    """Work time of the completions and verdicts."""
    started_at: float
    """First start, or start of the rejudging; Unix seconds."""
    ended: RunEnd | None
    """End of the run; None if it has not ended, or continues."""
    ended_early: str
    """Reason why the run was ended before everything was decided; empty if it was not."""
    cut_short: str = ""
    """For a rejudging, why the run had ended before everything was generated; empty if it had not."""
    is_paused: bool = False
    max_in_flight: int | None = None
    """Maximum number of requests that a worker may have in flight; None: as many as its endpoints take."""
    is_stopped_by_user: bool = False
    """Whether a person ended the run early."""

    @property
    def output_tokens(self) -> int:
        """Number of tokens generated, as far as servers counted them."""
        return sum(tally.output_tokens for tallies in self.tallies.values() for tally in tallies)


async def open_run(
    ledger: Ledger,
    items: RunItems,
    identity: LedgerIdentity,
    *,
    rejudge: str | None,
    retry_not_judged: bool,
    lift_pause: bool = False,
    asks_for_outputs: bool = False,
    responses: Sequence[StoredCompletion] | None,
    budget: TokenBudgets | None,
    turns: bool = False,
    asked: Sequence[int] = (),
    kept: Callable[[Mapping[str, str]], Mapping[int, int]] = lambda facts: {},
    now: float,
) -> OpenedRun:
    """Resume the run, or create its ledger.

    Args:
        ledger: the open ledger.
        items: items of the run configuration.
        identity: identity of the run configuration.
        rejudge: name of a rejudging; at its first start the verdicts are set aside. Nothing is generated.
        retry_not_judged: reopen a run that has ended, to judge what was not judged.
        responses: given completions by row. None: completions are generated.
        budget: a new budget; opens the samples that a token budget allows. None: every item is to be generated.
        asked: if nothing is generated, how many samples each problem should have, by the dataset's number. A sample
            without a completion is missing; further samples are not part of the run.
        turns: a failed completion may open its sample's next turn.
        asks_for_outputs: a run that has ended writes its outputs again: a race may ask for more of the existing
            results.
        kept: returns, from the ledger's facts, the number of problems whose results count, by the number of each
            dataset that gates or a race have cut.
        now: Unix seconds.

    Raises:
        BadInputError: the ledger belongs to another run, or there is nothing to judge again.
        LedgerError: the disk failed or is full.
    """
    facts = ledger.reader.facts()
    if not facts:
        if rejudge is not None:
            raise BadInputError(f"ledger {ledger.path} is empty: nothing to judge again")
        facts = {**identity.facts(), **NOT_ENDED, "started_at": repr(now)}
        await ledger.found(list(items.names()), facts)
    judging_again = rejudge is not None and facts.get("rejudge") != rejudge
    check_identity(facts, identity, str(ledger.path), judging_again=judging_again)
    if list(ledger.reader.problems()) != list(items.names()):
        raise BadInputError(f"ledger {ledger.path}: its problems are not those of the run configuration")
    if judging_again:
        restarted = {**NOT_ENDED, **FORGOTTEN, "rejudge": str(rejudge), "started_at": repr(now)}
        restarted |= NOT_PAUSED
        restarted |= {"cut_short": facts.get("ended_early") or facts.get("cut_short", "")}
        await ledger.start_rejudging({**identity.facts(), **restarted})
    if responses is not None:
        for start in range(0, len(responses), IMPORT_BATCH):
            await ledger.add_completions(responses[start : start + IMPORT_BATCH])
    item_states = ItemStates(items)
    facts = ledger.reader.facts()
    ended = read_run_end(facts)
    keep = ended is not None and not retry_not_judged
    item_states.restore(ledger.reader.completion_rows(), ledger.reader.verdict_rows(), keep_not_judged=keep)
    if responses is not None or rejudge is not None:
        logger.info("%d samples lack an answer", item_states.settle_pending(asked))
    elif budget is not None:
        budget.restore(item_states, ledger.reader.output_tokens())
    elif turns:
        item_states.leave_out_later_turns(ledger.reader.feedback_rows())
    item_states.cancel(kept(facts))
    ended_early = facts.get("ended_early", "")
    if retry_not_judged and ended_early:
        await ledger.set_facts(ended_early="", stopped_by_user="")
        ended_early = ""
    goes_on = item_states.unjudged or item_states.remaining or asks_for_outputs
    if ended is not None and not ended_early and goes_on:
        logger.info("the run had ended; %d samples are judged again", item_states.unjudged)
        await ledger.set_facts(**NOT_ENDED)
        ended = None
    work_time = WorkTime()
    work_time.restore(ledger.reader.request_times(), ledger.reader.verdict_times())
    return OpenedRun(
        item_states,
        read_tallies(ledger, items),
        work_time,
        float(facts["started_at"]),
        ended,
        ended_early,
        facts.get("cut_short", ""),
        is_paused=await stays_paused(ledger, facts, lift_pause=lift_pause, now=now),
        max_in_flight=read_max_in_flight(facts),
        is_stopped_by_user=bool(ended_early and facts.get("stopped_by_user")),
    )


async def stays_paused(ledger: Ledger, facts: Mapping[str, str], *, lift_pause: bool, now: float) -> bool:
    """Return whether a run starts paused; end the pause if that is requested. Raises LedgerError."""
    if facts.get("paused") and lift_pause:
        await ledger.record(StoredEvent(now, "resume", "the run was resumed"), **NOT_PAUSED)
        return False
    return bool(facts.get("paused"))


def read_tallies(ledger: Ledger, items: RunItems) -> dict[str, Sequence[CompletionTally]]:
    """Return the ledger's completions of each dataset, counted by finish reason."""
    found: dict[str, Sequence[CompletionTally]] = {}
    for number, dataset in enumerate(items.datasets):
        start = items.get_start(number)
        first, end = pack_row(start, 0, 0), pack_row(start + len(dataset.problem_ids), 0, 0)
        found[dataset.name] = ledger.reader.tallies(first, end)
    return found
