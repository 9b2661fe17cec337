"""What a run says of its data and its gate before anything is generated."""

import pytest

from evalrun_aggregator.start.datasets import RunDataset
from evalrun_aggregator.start.start_warnings import (
    count_languages,
    language_warnings,
    start_warnings,
)
from evalrun_api.v1alpha1 import Dataset, EvalRunSpec
from evalrun_data.records import CallTests, Problem, StdioTests


def dataset(*prompts: str) -> RunDataset:
    problems = [Problem("d", f"p{n}", text, StdioTests(("",), ("",))) for n, text in enumerate(prompts)]
    return RunDataset(Dataset.model_validate({"name": "d", "source": "d.jsonl"}), problems)


def test_excluded_problems_are_listed_in_a_warning() -> None:
    content = {"name": "d", "source": "d.jsonl", "excludeProblems": ["p7", "p8"]}
    (line,) = start_warnings([RunDataset(Dataset.model_validate(content), dataset("Add.").problems)], spec())
    assert line.startswith("d: 2 problems are excluded by excludeProblems: figures compare only with runs that")
    assert line.endswith("p7, p8")


def spec(**gate: str) -> EvalRunSpec:
    content: dict[str, object] = {
        "model": {"path": "m"}, "datasets": [{"name": "d", "source": "d.jsonl"}], "endpoints": [{"url": "http://h/v1"}],
    }  # fmt: skip
    return EvalRunSpec.model_validate(
        content | ({"gates": [{"baseline": "b", "dataset": "d", **gate}]} if gate else {})
    )


def test_problems_with_one_text_are_named_whatever_their_blanks() -> None:
    (line,) = start_warnings([dataset("Add.", "Sum  up.", "Add. \r\n", "Sum up.", "Other.")], spec())
    assert line.startswith("d: 4 problems share their text with another one")
    assert "p0 = p2; p1 = p3." in line


def test_warnings_of_many_groups_name_the_first() -> None:
    (line,) = start_warnings([dataset(*(f"Task {n % 9}." for n in range(18)))], spec())
    assert line.count(" = ") == 5
    assert "and 4 more" in line


def test_problems_that_differ_are_no_warning() -> None:
    assert start_warnings([dataset("Add.", "Sum up.")], spec()) == []


def test_problems_that_cannot_be_judged_in_their_language_give_a_warning_with_the_reason() -> None:
    big = CallTests("f(x: long) -> long", ("[9007199254740993]",), ("1",))
    problems = [Problem("d", f"{language} {n}", f"{language} {n}", big, language=language)
                for language in ("java", "javascript", "php") for n in range(2)]  # fmt: skip
    inexact, other = start_warnings([RunDataset(dataset().spec, problems)], spec())
    reason = "9007199254740993 has more digits than a number of javascript keeps"
    assert inexact == f"d: 2 of 6 problems cannot be judged: {reason}: javascript 0, javascript 1"
    assert other.startswith("d: 2 of 6 problems cannot be judged: functions are called by values in python, ")
    assert other.endswith("not in php: php 0, php 1")


def test_gate_without_enough_problems_warns_with_the_needed_number() -> None:
    (line,) = start_warnings([dataset(*map(str, range(164)))], spec(maxRegression="0.02"))
    assert line == (
        "spec.gates: with maxRegression 0.02, about 1,127 problems are needed to pass an equal run, and d has 164: use "
        "more, or a maxRegression of about 0.06 (if 5% of the answers flip between equal runs)"
    )


@pytest.mark.parametrize(("problems", "margin"), [(164, "0.06"), (1127, "0.02"), (30, "0.17")])
def test_gate_with_enough_problems_gives_no_warning(problems: int, margin: str) -> None:
    assert start_warnings([dataset(*map(str, range(problems)))], spec(maxRegression=margin)) == []


def test_a_gate_without_a_margin_passes_a_better_run_only() -> None:
    (line,) = start_warnings([dataset(*map(str, range(50)))], spec(maxRegression="0.0"))
    assert 'gate.maxRegression: "0" passes only a better run' in line


@pytest.mark.parametrize(("stop_early", "lines"), [(True, 1), (False, 0)])
def test_dataset_without_a_gate_gives_a_warning_if_gates_may_stop_the_run(stop_early: bool, lines: int) -> None:
    gate = {"baseline": "b", "dataset": "d", "maxRegression": "0.02", "sequential": True, "stopEarly": stop_early}
    content = {
        "model": {"path": "m"},
        "datasets": [{"name": name, "source": "d.jsonl"} for name in ("d", "e")],
        "endpoints": [{"url": "http://h/v1"}],
        "gates": [gate],
    }
    found = start_warnings([dataset(*map(str, range(164)))], EvalRunSpec.model_validate(content))
    assert len(found) == lines
    assert all(line.startswith("e: no gate is about it") for line in found)


def test_sequential_gate_with_too_few_similar_problems_gives_a_warning() -> None:
    asked = {"maxRegression": "0.02", "sequential": "true"}
    assert start_warnings([dataset(*map(str, range(164)))], spec(**asked)) == []
    (line,) = start_warnings([dataset(*map(str, range(164)))], spec(**asked, population="similar"))
    assert "d has 164 problems, which leave an equal run undecided more than once in 5 (population: similar" in line


@pytest.mark.parametrize(
    ("judges", "said"),
    [
        ([], ""),
        ([[]], ""),
        ([["python", "go"]], ""),
        ([["python"]], "d: of 3 problems, 2 in go cannot be judged: the sandbox lacks the language. Install golang-go"),
        ([["python", "go"], ["python"]], "d: of 3 problems, 2 in go cannot be judged"),
        ([["go"]], "d: of 3 problems, 1 in python cannot be judged"),
    ],
)
def test_problems_in_a_language_that_a_judge_lacks_give_a_warning(judges: list[list[str]], said: str) -> None:
    found = language_warnings({"d": {"go": 2, "python": 1}, "e": {}}, judges)
    assert [line[: len(said)] for line in found] == ([said] if said else [])


def test_languages_are_counted_by_dataset() -> None:
    assert count_languages([dataset("Add.", "Sum up.")]) == {"d": {"python": 2}}
