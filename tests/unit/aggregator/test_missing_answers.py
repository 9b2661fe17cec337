"""Answers that a file lacks: how many a problem should have, what the outputs say, and that no gate is passed so."""

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest
from builders.governance import contest_row, write_rows
from builders.operator.evalruns import evalrun_manifest
from builders.results.samples import sample_result
from builders.results.stored_runs import a_gate, totals_of

from evalrun_aggregator.finish.partial_results import partial_because
from evalrun_aggregator.ledger.item_states import ItemState, ItemStates
from evalrun_aggregator.ledger.items import DatasetItems, ItemKey, RunItems
from evalrun_aggregator.start.datasets import RunDataset, load_datasets
from evalrun_aggregator.start.problems import RunProblems
from evalrun_aggregator.start.responses import count_asked_answers, read_responses
from evalrun_api.run_config import EvalRunSpec, RunConfig
from evalrun_data.responses import Response
from evalrun_results.comparisons.gate import GateDecision
from evalrun_results.comparisons.run_gate import decide_or_explain
from evalrun_results.samples import SampleResult
from evalrun_runtime.exits import BadInputError

pytestmark = pytest.mark.slow

TWO = RunItems([DatasetItems("a", ["a1", "a2"]), DatasetItems("b", ["b1"])], samples=3)


def datasets_of(directory: Path, **dataset: object) -> list[RunDataset]:
    write_rows(directory / "rows.jsonl", [contest_row(n, dataset="contest") for n in range(4)])
    manifest = evalrun_manifest(
        {"spec.datasets": [{"name": "contest", "source": str(directory / "rows.jsonl"), **dataset}]}
    )
    return load_datasets(EvalRunSpec.model_validate(manifest["spec"]), directory, {})


@pytest.mark.parametrize(("answers", "asked"), [(None, [3, 1]), (4, [4, 4]), ("AsGiven", [0, 0])])
def test_asked_samples_are_the_most_of_a_dataset_unless_the_order_says(
    answers: int | Literal["AsGiven"] | None, asked: list[int]
) -> None:
    given = [Response("a", "a1", sample, "") for sample in range(3)] + [Response("a", "a2", 0, "")]
    assert count_asked_answers(answers, ["a", "b"], given) == asked


def test_pending_samples_beyond_those_asked_are_no_part_of_the_run() -> None:
    item_states = ItemStates(TWO)
    for sample in range(3):
        item_states.move(TWO.find_index(ItemKey("a", "a1", sample)) or 0, ItemState.GENERATED)
    assert item_states.settle_pending([3, 1]) == 4
    assert [(each.total, each.not_judged) for each in item_states.datasets] == [(6, 3), (1, 1)]


def test_an_answer_beyond_the_number_asked_is_refused(tmp_path: Path) -> None:
    datasets = datasets_of(tmp_path)
    rows = [{"problem_id": "p0", "response": "", "sample": sample} for sample in range(3)]
    file = write_rows(tmp_path / "answers.jsonl", rows)
    spec = EvalRunSpec.model_validate(evalrun_manifest({})["spec"])
    order = RunConfig(
        run="r", created=datetime.now(UTC), spec=spec, responses=[str(file)], answers_per_problem=2,
        output_dir=str(tmp_path),
    )  # fmt: skip
    with pytest.raises(BadInputError, match="sample number 2, and each should have 2"):
        read_responses(order, datasets)
    problems, given = read_responses(order.model_copy(update={"answers_per_problem": 5}), datasets)
    assert (problems.items.samples, given.asked) == (5, [5])
    asked = order.model_copy(update={"answers_per_problem": None, "k": [1, 3]})
    assert read_responses(asked, datasets)[0].items.samples == 3
    with pytest.raises(BadInputError, match="pass@4 needs as many answers to a problem, and none has more than 3"):
        read_responses(asked.model_copy(update={"k": [1, 4]}), datasets)


@pytest.mark.parametrize(
    ("dataset", "missing", "says"),
    [
        ({}, [], ""),
        ({"maxProblems": 4}, [], ""),
        ({"maxProblems": 2}, [], "contest: only the first 2 problems (maxProblems)"),
        ({"excludeProblems": ["p1"]}, [], "contest: 1 problem is excluded (excludeProblems)"),
        ({}, ["p1", "p3"], "2 of 4 problems lack an answer (p1, p3)"),
        (
            {"excludeProblems": ["p1"], "maxProblems": 2},
            ["p2"],
            (
                "1 of 2 problems lacks an answer (p2); contest: only the first 2 problems (maxProblems); "
                "contest: 1 problem is excluded (excludeProblems)"
            ),
        ),
    ],
)  # fmt: skip
def test_partial_because_names_every_reason(
    dataset: dict[str, object], missing: list[str], says: str, tmp_path: Path
) -> None:
    datasets = datasets_of(tmp_path, **dataset)
    protocol = EvalRunSpec.model_validate(evalrun_manifest({})["spec"]).protocol
    problems = RunProblems("r", datasets, protocol, samples=1, repeats=0)
    items = problems.items
    rows = [items.get_row(items.find_index(ItemKey("contest", name)) or 0) for name in missing]
    assert partial_because("", rows, problems) == says


def run_of(verdicts: list[list[bool]], given: set[tuple[int, int]], asked: int, kept: range) -> list[SampleResult]:
    """Return the rows of a judged file that holds the given answers to the kept problems."""
    return [
        sample_result(problem, sample, ["success" if verdicts[problem][sample] else "wrong_answer"])
        if (problem, sample) in given
        else sample_result(problem, sample, None)
        for problem in kept
        for sample in range(asked)
    ]


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("leaves_problems_out", [False, True], ids=["answers", "problems"])
def test_no_gate_is_passed_by_leaving_answers_out(samples: int, *, leaves_problems_out: bool) -> None:
    """Random subsets, and the failed answers alone, which is what somebody would leave out."""
    rng = random.Random(f"{samples}{leaves_problems_out}")
    gate, passed = a_gate(maxRegression="0.05"), 0
    for _ in range(40):
        solved, count = rng.choice([0.5, 0.9, 0.97]), rng.randint(40, 160)
        first = [[rng.random() < solved for _ in range(samples)] for _ in range(count)]
        changed = rng.choice([0.0, 0.02, 0.1])
        second = [[each != (rng.random() < changed) for each in problem] for problem in first]
        every = {(problem, sample) for problem in range(count) for sample in range(samples)}
        share = rng.choice([0.0, 0.01, 0.1, 0.4])
        only_failed = rng.random() < 0.5
        given = {
            (problem, sample)
            for problem, sample in every
            if rng.random() >= share or (only_failed and second[problem][sample])
        }
        kept = range(rng.randint(count // 2, count)) if leaves_problems_out else range(count)
        asked = count_asked_answers(samples, ["humaneval"], [Response("humaneval", "", s, "") for _, s in given])[0]
        baseline = totals_of(run_of(first, every, samples, range(count)))
        found = decide_or_explain(gate, baseline, totals_of(run_of(second, given, asked, kept)))
        if found.decision is GateDecision.PASS:
            passed += 1
            whole = decide_or_explain(gate, baseline, totals_of(run_of(second, every, samples, range(count))))
            assert whole.decision is GateDecision.PASS
    assert passed
