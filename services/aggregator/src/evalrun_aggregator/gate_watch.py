"""Watches the sequential gates as results arrive, and determines which items are no longer needed.

Problems of each dataset are read in the order drawn, up to the first unsettled problem: a later result may have come
early only because it was quick. Each decision is on disk before it takes effect, and the first decision stands.
"""

import asyncio
import heapq
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from evalrun_aggregator.finish.sample_stream import NO_ANSWER, make_missing_sample, sample_results
from evalrun_aggregator.ledger.item_states import ItemStates
from evalrun_aggregator.ledger.items import RunItems, pack_row
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_aggregator.start.problems import RunProblems
from evalrun_api.run_config import EvalRunSpec, Gate, RunConfig
from evalrun_data.digest import digest_records
from evalrun_results.comparisons.gate import GateDecision, GateResult, make_undecided_result
from evalrun_results.comparisons.gate_values import UnusableGateError, base_bounds
from evalrun_results.comparisons.run_gate import Drawn, Totals, baseline_totals, decide_or_explain
from evalrun_results.metrics.accumulator import MetricsAccumulator
from evalrun_results.metrics.problem_totals import DatasetTotals
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

GROWTH: Final = 64
"""A gate is checked again once its problems have grown by 1/64, at least by one, because each check reads all of them.
The time of a check does not change the decision."""
FORGOTTEN: Final[dict[str, str]] = {"gates_asked": "", "gates_decided": ""}
"""Facts that `rejudge` resets: the new verdicts decide again, on the run's problems."""


_NOT_ASKED: Final = {"stopEarly", "keepPassing", "baseline"}
"""Fields of a gate that do not change its decision. The baseline's results do, its name does not."""


@dataclass(frozen=True)
class WatchedGate:
    """A sequential gate and its baseline."""

    place: int
    """Position among the run's gates."""
    gate: Gate
    baseline: Totals | None

    @property
    def totals(self) -> DatasetTotals | None:
        """The baseline's totals of the gate's datasets; None with an anchor."""
        return None if self.baseline is None else self.baseline.get(self.gate.dataset_names[0], DatasetTotals())

    @property
    def fingerprint(self) -> str:
        """A digest of the gate and of its baseline's results."""
        known = {} if self.totals is None else self.totals.problems
        asked = {key: value for key, value in self.gate.to_wire().items() if key not in _NOT_ASKED}
        rows = [
            [key, each.outcomes.judged, each.outcomes.accepted, each.pass_ratio_sum, sorted(each.statuses.items())]
            for key, each in sorted(known.items())
        ]
        return digest_records([asked, *rows])


class GateWatch:
    """The sequential gates of a run.

    Args:
        spec: the spec of the run.
        problems: the problems of the run, numbered at random.
        gates: the sequential gates with their baselines.
        facts: the facts of the ledger.
    """

    def __init__(
        self, spec: EvalRunSpec, problems: RunProblems, gates: Sequence[WatchedGate], facts: Mapping[str, str]
    ) -> None:
        self._spec = spec
        self._problems = problems
        self._gates = gates
        self._family = len(spec.gates)
        self._asked = {place: str(said) for place, said in _read_fact(facts, "gates_asked").items()}
        self._kept = {name: int(str(count)) for name, count in _read_fact(facts, "gates_kept").items()}
        self.decided: dict[int, GateResult] = {
            int(place): parse_decision(content)
            for place, content in _read_fact(facts, "gates_decided").items()
            if isinstance(content, dict)
        }
        """The first decision of each gate, by the gate's position."""
        self.warnings: list[str] = []
        """Failures of the gates."""
        self._fresh = not self._asked
        self._totals = MetricsAccumulator()
        self._settled = [0] * len(problems.items.datasets)
        self._looked_at: dict[int, int] = {}

    @property
    def drawn(self) -> Drawn:
        """The order in which the run evaluates its problems."""
        return Drawn(
            self._spec.protocol.seed, {each.name: list(each.problem_ids) for each in self._problems.items.datasets}
        )

    @property
    def kept(self) -> Mapping[str, int]:
        """The number of problems whose results count, for each dataset whose rest was cancelled."""
        return self._kept

    async def look(self, ledger: Ledger, item_states: ItemStates) -> dict[int, int]:
        """Decide every gate that can be decided now.

        Returns:
            `kept_problems` of the datasets with items that became needless.

        Raises:
            LedgerError: the disk failed.
        """
        if not await self._is_asked_the_same(ledger):
            return {}
        await self._read_on(ledger, item_states)
        new = await asyncio.to_thread(self._decide)
        if new:
            self.decided |= new
            stored = {str(place): each.as_json() for place, each in self.decided.items()}
            kept = self._count_needed_problems()
            await ledger.set_facts(gates_decided=json.dumps(stored), gates_kept=json.dumps(self._kept | kept))
            for each in new.values():
                logger.info("gate: %s after %s problems: %s", each.decision, each.decided_after, each.message)
            if kept:
                self._kept |= kept
                return kept_problems({"gates_kept": json.dumps(self._kept)}, self._spec, self._problems.items)
        return {}

    async def _is_asked_the_same(self, ledger: Ledger) -> bool:
        """Record the gates before any result is seen. Return whether any gate is still the recorded gate."""
        asked = {str(each.place): each.fingerprint for each in self._gates}
        if self._fresh:
            self._fresh = False
            self._asked = asked
            await ledger.set_facts(gates_asked=json.dumps(asked))
        for each in self._gates:
            if self._asked.get(str(each.place)) != asked[str(each.place)] and each.place not in self._looked_at:
                self._looked_at[each.place] = -1
                message = (
                    f"{each.gate.label} {each.gate.metric}: the gate or its baseline was changed while the run was "
                    "under way. Chosen with results in sight, it says nothing: start a new run for it"
                )
                self.warnings.append(message)
                self.decided[each.place] = make_undecided_result(each.gate, message, family=self._family)
        return any(self._looked_at.get(each.place) != -1 for each in self._gates)

    async def _read_on(self, ledger: Ledger, item_states: ItemStates) -> None:
        """Add the results of all problems that are settled by now, in order."""
        for number, dataset in enumerate(self._problems.items.datasets):
            start, first = self._problems.items.get_start(number), self._settled[number]
            end = first
            while end < len(dataset.problem_ids) and item_states.is_settled(start + end):
                end += 1
            if end > first:
                rows = pack_row(start + first, 0, 0), pack_row(start + end, 0, 0)
                missing = [row for row in item_states.find_missing_rows() if rows[0] <= row < rows[1]]
                await asyncio.to_thread(self._take_in, ledger, *rows, missing)
                self._settled[number] = end

    def _take_in(self, ledger: Ledger, first: int, end: int, missing: Sequence[int]) -> None:
        samples = heapq.merge(
            ledger.samples(first, end), map(make_missing_sample, missing), key=lambda sample: sample.completion.row
        )
        for result in sample_results(samples, self._problems, self._spec.model.evaluated, undecided=NO_ANSWER):
            if result.repeat == 0:
                self._totals.add(result)

    def _decide(self) -> dict[int, GateResult]:
        found = {}
        for each in self._gates:
            number = self._find_dataset_number(each.gate)
            count, total = self._settled[number], len(self._problems.items.datasets[number].problem_ids)
            before = self._looked_at.get(each.place, 0)
            if each.place in self.decided or (count < before + max(1, before // GROWTH) and count < total):
                continue
            self._looked_at[each.place] = count
            if not count:
                continue
            decision = decide_or_explain(
                each.gate, each.baseline, self._totals.datasets, drawn=self.drawn, family=self._family
            )
            if decision.decided_after is not None:
                found[each.place] = decision
        return found

    def _count_needed_problems(self) -> dict[str, int]:
        """Return the number of problems whose results count, for each dataset of which the gates need no more."""
        found = {}
        for number, dataset in enumerate(self._problems.items.datasets):
            about = [(place, gate) for place, gate in enumerate(self._spec.gates) if dataset.name in gate.dataset_names]
            if dataset.name in self._kept or not all(self._has_stopped(place, gate) for place, gate in about):
                continue
            if about:
                found[dataset.name] = max(self._position_after(place, number) for place, _ in about)
            elif all(self._has_stopped(place, gate) for place, gate in enumerate(self._spec.gates)):
                found[dataset.name] = self._settled[number]
        return found

    def _has_stopped(self, place: int, gate: Gate) -> bool:
        decision = self.decided.get(place)
        if not gate.may_stop or decision is None or decision.decided_after is None:
            return False
        return not (gate.keep_passing and decision.decision is GateDecision.PASS) or self._has_failed()

    def _has_failed(self) -> bool:
        """Return whether the run has failed a gate with `keepPassing`, so that nothing keeps it running."""
        decided = self.decided.items()
        return any(
            self._spec.gates[place].keep_passing and each.decision is GateDecision.FAIL for place, each in decided
        )

    def _position_after(self, place: int, number: int) -> int:
        """Return the number of problems, in drawing order, up to the last problem that decided a gate."""
        after = self.decided[place].decided_after or 0
        ids = self._problems.items.datasets[number].problem_ids
        watched = next((each for each in self._gates if each.place == place), None)
        # The gate was decided before, against a baseline that cannot be read now.
        if watched is None:
            return self._settled[number]
        about = base_bounds(watched.gate, watched.totals, ids)
        seen = 0
        for position, name in enumerate(ids):
            seen += name in about
            if seen >= after:
                return position + 1
        return len(ids)

    def _find_dataset_number(self, gate: Gate) -> int:
        return [each.name for each in self._problems.items.datasets].index(gate.dataset_names[0])


def load_watched_gates(order: RunConfig) -> list[WatchedGate]:
    """Return the sequential gates of a run with their baselines. Blocking.

    A baseline that cannot be read keeps the run from stopping early, not from starting; it is read again at the end.
    """
    found = []
    for place, gate in enumerate(order.spec.gates):
        if not gate.sequential:
            continue
        try:
            found.append(WatchedGate(place, gate, baseline_totals(gate, order.base_dir)))
        except (BadInputError, UnusableGateError, OSError) as error:
            logger.warning("%s %s: the run will not stop early: %s", gate.label, gate.metric, error)
    return found


def kept_problems(facts: Mapping[str, str], spec: EvalRunSpec, items: RunItems) -> dict[int, int]:
    """Return the number of problems whose results count, by the number of each dataset whose rest was cancelled."""
    if not any(gate.may_stop for gate in spec.gates):
        # The spec no longer lets a gate stop the run, so all results are wanted.
        return {}
    numbers = {each.name: number for number, each in enumerate(items.datasets)}
    return {
        numbers[name]: int(str(count)) for name, count in _read_fact(facts, "gates_kept").items() if name in numbers
    }


def parse_decision(content: Mapping[str, object]) -> GateResult:
    """Return a decision from its JSON."""
    fields = {name: value for name, value in content.items() if name in GateResult.__dataclass_fields__}
    decisions = {
        name: GateDecision(str(content[name]))
        for name in ("decision", "decision_of_judged")
        if content.get(name) is not None
    }
    return GateResult(**{**fields, **decisions})  # type: ignore[arg-type]


def _read_fact(facts: Mapping[str, str], name: str) -> dict[str, object]:
    text = facts.get(name, "")
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}
