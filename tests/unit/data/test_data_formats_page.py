"""docs/data-formats.md: every example is loaded as the page says it can be."""

import json
import re
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from builders.data import PROJECT_ROOT

from evalrun_data.readers import load_problem_files, load_problems
from evalrun_data.responses import load_responses
from evalrun_registry.comparators import COMPARATORS

PAGE = (PROJECT_ROOT / "docs" / "data-formats.md").read_text()
EXAMPLES = re.findall(r"<!-- (problems|responses): (\S+) -->\n```json\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
PROBLEMS = {
    "contest.jsonl": [("contest", "sum", 2), ("contest", "mean", 2), ("contest", "any", 1)],
    "functions.jsonl": [("ours", "double", 1), ("ours", "half", 2)],
    "calls.jsonl": [("ours", "add", 2)],
    "phase0_humaneval.parquet": [("phase0_humaneval", "HumanEval/0", 1)],
    "HumanEval.jsonl": [("humaneval", "HumanEval/0", 1)],
    "mbpp.jsonl": [("mbpp", "MBPP/11", 1)],
    "auto_eval.jsonl": [("sandboxfusion", "double", 1), ("sandboxfusion", "7", 1)],
    "HumanEvalPlus.jsonl": [("humaneval_plus", "HumanEval/1", 1), ("humaneval_plus_base", "HumanEval/1", 1)],
    "MbppPlus.jsonl": [("mbpp_plus", "MBPP/12", 1), ("mbpp_plus_base", "MBPP/12", 1)],
    "apps.jsonl": [("apps", "0", 1), ("apps", "1", 2)],
    "livecodebench.jsonl": [("livecodebench", "1873_A", 1), ("livecodebench", "2917", 2)],
    "bigcodebench.jsonl": [("bigcodebench", "BigCodeBench/0", 1)],
    "multipl_e.jsonl": [("multipl_e_cpp", "HumanEval_0_twice", 1)],
    "humaneval_x.jsonl": [("humaneval_x_javascript", "JavaScript/0", 1)],
    "verl.parquet": [("codecontests", "0", 1), ("codecontests", "1", 1)],
    "codecontests.parquet": [("codecontests", "1_A. Sum", 3)],
    "statements.jsonl": [("codecontests", "sum", 1)],
    "codecontests_plus.jsonl": [("codecontests_plus", "1_A", 1), ("codecontests_plus", "p00001", 1)],
}
RESPONSES = {
    "answers.jsonl": [("contest", "sum", 0), ("contest", "sum", 1), ("ours", "double", 0), ("ours", "half", 0)],
    "samples.jsonl": [("mbpp", "MBPP/11", 0), ("mbpp", "MBPP/11", 1)],
    "generated.parquet": [("codecontests", "0", 0), ("codecontests", "0", 1)],
    "evalplus_samples.jsonl": [("humaneval", "HumanEval/0", 0)],
    "samples_humaneval.jsonl": [("humaneval", "HumanEval/0", 0)],
    "batch_output.jsonl": [("mbpp", "MBPP/11", 0)],
    "inspect_log.json": [("humaneval", "HumanEval/0", 0), ("humaneval", "HumanEval/0", 1)],
    "livecodebench_output.json": [("contest", "sum", 0)],
}


def written(directory: Path, wanted: str) -> list[str]:
    paths = []
    for kind, name, text in EXAMPLES:
        if kind == wanted:
            path = directory / name
            if path.suffix == ".parquet":
                rows = [json.loads(line) for line in text.splitlines()]
                pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
            else:
                path.write_text(text)
            paths.append(str(path))
    return paths


def test_every_benchmark_of_the_table_has_an_example_under_its_dataset() -> None:
    table = PAGE.partition("| Benchmark | As published in |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert len(rows) == 14
    for benchmark, _, dataset, _, example in rows:
        if example:
            loaded = {name for name, _, _ in PROBLEMS[example.strip("`")]}
            assert loaded & set(re.findall(r"`(\w+)`", dataset)) or "data_source" in dataset, benchmark
        else:
            assert dataset.startswith("refused: [why]"), benchmark


def test_every_tool_of_the_answers_table_has_an_example() -> None:
    table = PAGE.partition("| Written by | Told by |")[2].partition("\n\n")[0]
    tools = [line.split("|")[1].strip().partition(",")[0] for line in table.splitlines()[2:]]
    examples = {
        "EvalPlus": "evalplus_samples.jsonl",
        "lm-evaluation-harness": "samples_humaneval.jsonl",
        "OpenAI batches (chat or completions)": "batch_output.jsonl",
        "Inspect": "inspect_log.json",
        "LiveCodeBench": "livecodebench_output.json",
    }
    assert tools == list(examples)
    assert set(examples.values()) <= set(RESPONSES)


def test_every_example_of_the_page_is_loaded_here() -> None:
    assert [name for kind, name, _ in EXAMPLES if kind == "problems"] == list(PROBLEMS)
    assert [name for kind, name, _ in EXAMPLES if kind == "responses"] == list(RESPONSES)
    assert PAGE.count("```json") == len(EXAMPLES)


@pytest.mark.parametrize("name", PROBLEMS)
def test_problem_examples_of_the_page_load_as_listed(tmp_path: Path, name: str) -> None:
    written(tmp_path, "problems")
    problems = load_problems(name, base_dir=tmp_path)
    assert [(problem.dataset, problem.problem_id, problem.test_count) for problem in problems] == PROBLEMS[name]


@pytest.mark.parametrize("name", RESPONSES)
def test_response_examples_of_the_page_load_as_listed(tmp_path: Path, name: str) -> None:
    alike = ("statements.jsonl", "phase0_humaneval.parquet")  # their ids stand in other examples too
    chosen = [path for path in written(tmp_path, "problems") if not path.endswith(alike)]
    written(tmp_path, "responses")
    responses = load_responses([name], load_problem_files(chosen), tmp_path)
    assert [response.key for response in responses] == RESPONSES[name]


def test_the_generation_file_serves_as_problems_and_as_responses(tmp_path: Path) -> None:
    written(tmp_path, "responses")
    problems = load_problems("generated.parquet", base_dir=tmp_path)
    assert len(load_responses(["generated.parquet"], problems, tmp_path)) == 2


def test_the_page_names_every_comparator_and_the_demos_size() -> None:
    assert all(f"`{name}`" in PAGE for name in COMPARATORS)
    assert f"holds {len(load_problems('builtin:demo'))} problems" in PAGE
