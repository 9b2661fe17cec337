"""Every accepted problem format is read as it is, from every kind of source."""

import gzip
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pyarrow
import pyarrow.parquet
import pytest
from builders.data import assert_problem, check_problem, data_file, json_rows, stdio_problem, write_jsonl

from evalrun_data.entry_points import entry_point
from evalrun_data.formats.codecontests import parse_statement_and_tests
from evalrun_data.formats.record import make_problem_record, parse_record
from evalrun_data.prompts import render
from evalrun_data.readers import iter_problems, load_problem_files, load_problems, merge_sources
from evalrun_data.records import AssertTests, CheckTest, MainTest, Message, Reference, StdioTests
from evalrun_data.rows import Row
from evalrun_data.sources import Source
from evalrun_registry.limits import PartialLimits
from evalrun_runtime.exits import BadInputError

HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": "def f(x):\n",
    "entry_point": "f",
    "canonical_solution": "    return x\n",
    "test": "def check(candidate):\n    assert candidate(1) == 1\n",
}
MBPP = {
    "task_id": 11,
    "text": "Write f.",
    "code": "def f(x):\r\n\treturn x",
    "test_list": ["assert f(1) == 1"],
    "test_setup_code": "import math",
    "challenge_test_list": ["assert f(2) == 2"],
}
STDIO_TRUTH = {"inputs": ["1"], "outputs": ["2"]}


def verl_row(truth: object, prompt: object = "p", **extra: object) -> dict[str, object]:
    reward = {"style": "rule", "ground_truth": truth}
    return {"data_source": "codecontests", "prompt": prompt, "reward_model": reward, "extra_info": extra}


def parquet(path: Path, rows: list[dict[str, object]]) -> str:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return str(path)


# --- our records, and where they lie ---


@pytest.mark.parametrize("name", ["p.jsonl", "p.jsonl.gz", "p.parquet", "no_suffix"])
def test_records_of_every_family_survive_a_round_trip(tmp_path: Path, name: str) -> None:
    problems = [stdio_problem(), check_problem(), assert_problem()]
    rows = [make_problem_record(problem) for problem in problems]
    path = tmp_path / name
    if name.endswith(".parquet"):
        parquet(path, rows)
    else:
        write_jsonl(path, rows)
    assert load_problems(str(path)) == problems


def test_a_parquet_column_may_hold_the_ground_truth_as_json(tmp_path: Path) -> None:
    problems = [stdio_problem(), check_problem()]
    rows = [
        {**make_problem_record(p), "ground_truth": json.dumps(make_problem_record(p)["ground_truth"])} for p in problems
    ]
    assert load_problems(parquet(tmp_path / "p.parquet", rows)) == problems


def test_a_source_is_relative_to_its_base_directory_a_file_url_or_any_fsspec_url(tmp_path: Path) -> None:
    rows = [make_problem_record(stdio_problem())]
    directory = tmp_path / "a directory"
    directory.mkdir()
    path = write_jsonl(directory / "p.jsonl", rows)
    assert len(load_problems("a directory/p.jsonl", base_dir=tmp_path)) == 1
    assert len(load_problems(path.as_uri())) == 1
    with fsspec.open("memory://readers/p.jsonl", "wb") as remote:
        remote.write(path.read_bytes())
    assert len(load_problems("memory://readers/p.jsonl")) == 1
    with pytest.raises(BadInputError, match=r"^memory://readers/q.jsonl: no such file"):
        load_problems("memory://readers/q.jsonl")


def test_gzip_is_detected_by_content_and_blank_lines_and_a_byte_order_mark_are_ignored(tmp_path: Path) -> None:
    lines = (
        "\ufeff"
        + json.dumps(make_problem_record(stdio_problem()))
        + "\n\n"
        + json.dumps(make_problem_record(stdio_problem("b")))
    )
    path = tmp_path / "p.jsonl"
    path.write_bytes(gzip.compress(lines.encode()))
    assert [problem.problem_id for problem in load_problems(str(path))] == ["sum", "b"]


def test_named_dataset_of_a_file_with_several_is_selected(tmp_path: Path) -> None:
    rows = [make_problem_record(stdio_problem(dataset=name)) for name in ("one", "two")]
    path = str(write_jsonl(tmp_path / "p.jsonl", rows))
    assert [problem.dataset for problem in load_problems(path, "two")] == ["two"]
    assert [problem.dataset for problem in load_problems(path)] == ["one", "two"]
    with pytest.raises(BadInputError, match=r"p.jsonl: no dataset 'three' there \(it holds: one, two\)$"):
        load_problems(path, "three")


def test_the_asked_for_dataset_names_records_that_name_none(tmp_path: Path) -> None:
    row = make_problem_record(stdio_problem())
    del row["dataset"]
    assert load_problems(str(write_jsonl(tmp_path / "p.jsonl", [row])), "mine")[0].dataset == "mine"


def test_same_problem_in_several_sources_is_kept_once() -> None:
    sums, more = stdio_problem(), replace(stdio_problem(), problem_id="more")
    elsewhere = replace(sums, dataset="elsewhere", prompt="another")
    assert list(merge_sources([("a", [sums]), ("b", [more, sums, elsewhere])])) == [sums, more, elsewhere]


@pytest.mark.parametrize("change", [{"prompt": "?"}, {"limits": PartialLimits(9.0)}, {"language": "cpp"}])
def test_contradicting_sources_are_both_named(change: dict[str, Any]) -> None:
    sums = stdio_problem()
    with pytest.raises(BadInputError, match=r"^b: problem 'sum' of dataset '.*' is another one in a: "):
        list(merge_sources([("a", [sums]), ("b", [replace(sums, **change)])]))


def test_several_files_must_not_share_a_problem(tmp_path: Path) -> None:
    one = str(write_jsonl(tmp_path / "1.jsonl", [make_problem_record(stdio_problem())]))
    two = str(
        write_jsonl(tmp_path / "2.jsonl", [make_problem_record(check_problem()), make_problem_record(stdio_problem())])
    )
    with pytest.raises(BadInputError, match=r"2.jsonl:2: problem 'sum' .* is there twice .*1.jsonl:1"):
        load_problem_files([one, two])


# --- published files ---


@pytest.mark.parametrize("name", ["HumanEval.jsonl", "HumanEval.jsonl.gz", "renamed.jsonl"])
def test_published_humaneval_row_is_read(tmp_path: Path, name: str) -> None:
    (problem,) = load_problems(str(write_jsonl(tmp_path / name, [HUMANEVAL])))
    assert (problem.dataset, problem.problem_id, problem.prompt) == ("humaneval", "HumanEval/0", "def f(x):\n")
    assert problem.ground_truth == CheckTest("def f(x):\n", str(HUMANEVAL["test"]), "f")


def test_published_mbpp_row_is_read_and_mbpp_reg_selects_its_range(tmp_path: Path) -> None:
    rows = [{**MBPP, "task_id": number} for number in (10, 11, 210, 211)]
    path = str(write_jsonl(tmp_path / "mbpp.jsonl", rows))
    assert [problem.problem_id for problem in load_problems(path, "mbpp_reg")] == ["MBPP/11", "MBPP/210"]
    problem = load_problems(path)[1]
    assert (problem.dataset, problem.prompt, problem.split) == ("mbpp", "Write f.", "test")
    assert problem.ground_truth == AssertTests(("assert f(1) == 1",), "import math", "f")


def test_sanitized_mbpp_row_is_read(tmp_path: Path) -> None:
    row = {
        **MBPP,
        "prompt": "Write it.",
        "test_imports": ["import math", "import re"],
        "test_setup_code": None,
        "text": None,
    }
    (problem,) = load_problems(str(write_jsonl(tmp_path / "s.jsonl", [row])))
    assert problem.prompt == "Write it."
    assert isinstance(problem.ground_truth, AssertTests)
    assert problem.ground_truth.test_setup_code == "import math\nimport re"


def test_a_published_file_names_its_dataset_itself(tmp_path: Path) -> None:
    path = str(write_jsonl(tmp_path / "HumanEval.jsonl", [HUMANEVAL]))
    with pytest.raises(BadInputError, match=r"no dataset 'humanevl' there \(it holds: humaneval\)"):
        load_problems(path, "humanevl")


@pytest.mark.parametrize(
    ("code", "asserts", "name"),
    [
        ("def f(x):\r\n\treturn x", ["assert f(1) == 1"], "f"),
        ("def helper(x): return x\ndef f(x): return helper(x)", ["assert f(1) == 1"], "f"),
        ("def sum(a, b): return a", ["assert sum(1, 2) == 1"], "sum"),
        ("def ludic(n): return 3", ["assert int(ludic(3)) == 3"], "ludic"),
        ("f = lambda x: x", ["assert f(1) == 1"], "f"),
        ("class Pair: pass\ndef f(p): return 1", ["assert f(Pair()) == 1", "assert f([Pair()]) == 1"], "f"),
        ("def f(x):\n  def g(): return 1\n  return g()", ["assert set(f(1)) == set(f(2))"], "f"),
        ("x = 1", ["assert f(1) == 1"], None),
        ("def f(:", ["assert f(1) == 1"], "f"),
    ],
)
def test_entry_point_is_the_function_that_the_asserts_call(code: str, asserts: list[str], name: str | None) -> None:
    assert entry_point(code, asserts) == name


# --- EvalPlus, and what is not read ---

EVALPLUS: dict[str, object] = {
    "task_id": "HumanEval/0",
    "prompt": "def f(x):\n",
    "entry_point": "f",
    "contract": "    assert x\n",
    "canonical_solution": "    return x\n",
    "base_input": [[1]],
    "plus_input": [[2], [3]],
    "atol": 0,
}


@pytest.mark.parametrize("begin", ["", "["])
def test_evalplus_arguments_may_be_infinite_and_other_fields_may_not(tmp_path: Path, begin: str) -> None:
    row = {**EVALPLUS, "plus_input": [[float("inf")], [float("-inf")]]}
    path = tmp_path / "rows.jsonl"
    path.write_text(begin + json.dumps(row) + "]" * len(begin))
    (problem,) = load_problems(str(path), "humaneval_plus")
    assert "[[1], [Infinity], [-Infinity]]" in str(problem.ground_truth)
    path.write_text(begin + json.dumps(row | {"atol": float("inf")}) + "]" * len(begin))
    with pytest.raises(BadInputError, match="Infinity is not JSON: write null, or a number"):
        load_problems(str(path))


def test_plus_input_may_be_an_empty_object_and_no_other_object(tmp_path: Path) -> None:
    path = str(write_jsonl(tmp_path / "rows.jsonl", [EVALPLUS | {"plus_input": {}}]))
    plus, base = load_problems(path)
    assert (plus.dataset, base.dataset) == ("humaneval_plus", "humaneval_plus_base")
    assert plus.ground_truth == base.ground_truth
    write_jsonl(Path(path), [EVALPLUS | {"plus_input": {"0": [1]}}])
    with pytest.raises(BadInputError, match="'plus_input' should be a list of lists of arguments, not an object"):
        load_problems(path)


def test_evalplus_file_gives_the_plus_datasets_whatever_its_name(tmp_path: Path) -> None:
    path = str(write_jsonl(tmp_path / "HumanEval.jsonl", [EVALPLUS]))
    problem, twin = load_problems(path)
    assert twin.key == ("humaneval_plus_base", "HumanEval/0")
    assert (problem.key, problem.prompt, problem.family) == (("humaneval_plus", "HumanEval/0"), "def f(x):\n", "check")
    assert "[[1], [2], [3]]" in str(problem.ground_truth)
    (base,) = load_problems(path, "humaneval_plus_base")
    assert base.dataset == "humaneval_plus_base"
    assert "[[1]]" in str(base.ground_truth)
    assert "[2]" not in str(base.ground_truth)
    with pytest.raises(BadInputError, match=r"no dataset 'humaneval' there \(it holds: humaneval_plus\)"):
        load_problems(path, "humaneval")
    mbpp = str(write_jsonl(tmp_path / "MbppPlus.jsonl.gz", [{**EVALPLUS, "task_id": "Mbpp/2"}]))
    assert load_problems(mbpp)[0].key == ("mbpp_plus", "MBPP/2")


MULTIPL_E: dict[str, Any] = {
    "name": "HumanEval_0_f", "language": "cpp", "prompt": "#include<assert.h>\nlong f(long x) {\n",
    "tests": "}\nint main() {\n    auto candidate = f;\n    assert(candidate((1)) == (1));\n}\n",
    "stop_tokens": ["\n}"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("language", "tests", "ours", "main"),
    [
        (
            "js",
            "const assert = require('node:assert');\nfunction test() {\n  let candidate = f;\n}\n\ntest();",
            "javascript",
            None,
        ),
        ("rs", "}\n\nfn main() {\n    let candidate = f;\n}\n", "rust", "fn main() {\n    let candidate = f;\n}"),
    ],
)
def test_multipl_es_rows_in_other_languages_are_read(
    tmp_path: Path, language: str, tests: str, ours: str, main: str | None
) -> None:
    row = {**MULTIPL_E, "language": language, "tests": tests}
    (problem,) = load_problems(str(write_jsonl(tmp_path / "m.jsonl", [row])))
    assert (problem.dataset, problem.language) == (f"multipl_e_{language}", ours)
    assert problem.ground_truth == MainTest(MULTIPL_E["prompt"], main or tests, "f")
    assert f"Answer with one {ours} code block" in render(problem)[0].content


def test_multipl_es_rows_in_cpp_are_functions_with_a_main(tmp_path: Path) -> None:
    path = str(write_jsonl(tmp_path / "m.jsonl", [MULTIPL_E]))
    (problem,) = load_problems(path)
    assert (problem.key, problem.family, problem.language) == (("multipl_e_cpp", "HumanEval_0_f"), "main", "cpp")
    main = "int main() {\n    auto candidate = f;\n    assert(candidate((1)) == (1));\n}"
    assert problem.ground_truth == MainTest(MULTIPL_E["prompt"], main, "f")
    assert parse_record(Row(make_problem_record(problem), "x", 1), None) == problem
    assert load_problems(path, "ours")[0].dataset == "ours"
    (message,) = render(problem)
    assert "Complete the following C++ function." in message.content
    assert problem.prompt.strip("\n") in message.content
    assert render(problem, "Completion")[0].content == problem.prompt


BIGCODEBENCH = {
    "task_id": "BigCodeBench/0",
    "complete_prompt": 'import json\n\ndef task_func(text):\n    """Count the keys."""\n',
    "instruct_prompt": "Count the keys. Begin with `def task_func(text):`.",
    "code_prompt": "import json\n\ndef task_func(text):\n",
    "canonical_solution": "    return len(json.loads(text))\n",
    "test": "import unittest\nclass TestCases(unittest.TestCase):\n    def test_one(self): pass\n",
    "entry_point": "task_func",
    "libs": "['json']",
}


def test_bigcodebench_uses_either_prompt_and_runs_after_the_complete_prompt(tmp_path: Path) -> None:
    path = str(write_jsonl(tmp_path / "bigcodebench.jsonl", [BIGCODEBENCH]))
    (complete,) = load_problems(path)
    (instruct,) = load_problems(path, "bigcodebench_instruct")
    assert complete.key == ("bigcodebench", "BigCodeBench/0")
    assert complete.ground_truth == instruct.ground_truth
    assert complete.ground_truth == CheckTest(
        str(BIGCODEBENCH["complete_prompt"]), str(BIGCODEBENCH["test"]), "task_func"
    )
    assert str(BIGCODEBENCH["complete_prompt"]).strip() in render(complete)[0].content
    assert render(instruct)[0].content == BIGCODEBENCH["instruct_prompt"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**EVALPLUS, "base_input": [1]}, "field 'base_input' should be a list of lists of arguments"),
        ({**EVALPLUS, "canonical_solution": ["x"]}, "field 'canonical_solution' should be text, not a list"),
        ({**EVALPLUS, "extra_test": "x"}, "the reader of EvalPlus rows does not use the tests in 'extra_test'"),
        (
            {"source": "Codeforces", "id": "1_A", "title": "Sum", "description": "d", "checker": "c", "validator": "v"},
            "has no field 'test_cases': the subset default has no tests: take one of the subsets 1x to 5x",
        ),
        (
            {**MULTIPL_E, "language": "jl"},
            "MultiPL-E in 'jl' is not supported, only in cpp, go, java, js, lua, php, rb, rs, ts; use MultiPL-E's own",
        ),
        (
            {**MULTIPL_E, "language": "py"},
            "MultiPL-E in 'py' is not supported, only in cpp, go, java, js, lua, php, rb, rs, ts; read",
        ),
        ({**MULTIPL_E, "tests": "int main() {}"}, "field 'tests' is not MultiPL-E's for cpp: '}', then 'int main() {'"),
        (
            {**MULTIPL_E, "tests": MULTIPL_E["tests"].replace("assert", "return 0; assert")},
            "field 'tests' has 'return'",
        ),
        (
            {"instance_id": "a__b-1", "repo": "a/b", "base_commit": "0", "patch": "", "FAIL_TO_PASS": "[]"},
            "SWE-bench is not supported: its answers are patches of a repository, tested in an image of their own for",
        ),
    ],
)
def test_unsupported_row_of_a_published_benchmark_is_refused(
    tmp_path: Path, row: dict[str, object], message: str
) -> None:
    path = str(write_jsonl(tmp_path / "p.jsonl", [{name: value or "-" for name, value in row.items()}]))
    with pytest.raises(BadInputError) as caught:
        load_problems(path)
    assert str(caught.value).startswith(f"{path}:1: {message}")


# --- verl ---


def test_verl_row_with_a_chat_keeps_its_messages(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    path = parquet(tmp_path / "v.parquet", [verl_row(json.dumps(STDIO_TRUTH), chat, index=7, split="test")])
    (problem,) = load_problems(path)
    assert (problem.dataset, problem.problem_id, problem.split) == ("codecontests", "7", "test")
    assert problem.messages == (Message("system", "s"), Message("user", "u"))
    assert problem.prompt == "s\n\nu"
    assert problem.ground_truth == StdioTests(("1",), ("2",))


@pytest.mark.parametrize(
    ("truth", "expected"),
    [
        (STDIO_TRUTH, StdioTests(("1",), ("2",))),
        (json.dumps({"inputs": [None, 5], "outputs": [3, "x"]}), StdioTests(("", "5"), ("3", "x"))),
        ({"assert_case": ["assert f(len([])) == 1"]}, AssertTests(("assert f(len([])) == 1",), "", "f")),
        ({"assert_case": ["assert f(g(1))"], "entry_point": "g"}, AssertTests(("assert f(g(1))",), "", "g")),
    ],
)
def test_verl_ground_truth_becomes_tests(tmp_path: Path, truth: object, expected: object) -> None:
    (problem,) = load_problems(str(write_jsonl(tmp_path / "v.jsonl", [verl_row(truth)])))
    assert (problem.ground_truth, problem.problem_id, problem.messages) == (expected, "1", ())


CHECK_TRUTH = {"test": "def check(f):\n    assert f() == 1\n", "entry_point": "f"}


def test_a_verl_row_of_humaneval_needs_no_prompt_beside_its_test(tmp_path: Path) -> None:
    row = verl_row(json.dumps(CHECK_TRUTH), "def f():\n", difficulty=3, index=4)
    (problem,) = load_problems(parquet(tmp_path / "v.parquet", [row]))
    assert problem.ground_truth == CheckTest("def f():\n", CHECK_TRUTH["test"], "f")
    assert (problem.difficulty, problem.problem_id) == ("3", "4")


def test_a_verl_row_whose_prompt_is_a_chat_says_which_prompt_is_missing(tmp_path: Path) -> None:
    row = verl_row(json.dumps(CHECK_TRUTH), [{"role": "user", "content": "Write f."}], index=1)
    with pytest.raises(BadInputError, match=r"ground_truth.prompt' is missing, and the row's prompt is a chat: write"):
        load_problems(parquet(tmp_path / "v.parquet", [row]))


def test_a_difficulty_beside_a_verl_row_may_be_a_number(tmp_path: Path) -> None:
    row = {**verl_row(json.dumps(STDIO_TRUTH), index=1), "difficulty": 7}
    assert load_problems(parquet(tmp_path / "v.parquet", [row]))[0].difficulty == "7"


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        ({**STDIO_TRUTH, "fn_name": "f g"}, "the function to call is 'f g': write a name of Python"),
        ({"inputs": ["x"], "outputs": ["1"], "fn_name": "f"}, r"inputs\[0\]' is no call: expected a JSON value a line"),
        ({"inputs": ["1"], "outputs": [], "fn_name": "f"}, "has 1 inputs and 0 outputs: a problem needs at least one"),
        ("42", "reward_model.ground_truth' is a whole number: an answer for a reward function, not tests"),
        ("x = 7", "reward_model.ground_truth' is no JSON: an answer for a reward function"),
        ({"assert_case": ["assert f(g(1)) == 1"]}, "name it in 'entry_point'"),
        ({"assert_case": ["assert f()"], "inputs": ["1"]}, "texts beside assert_case"),
        ({"inputs": [[1]], "outputs": ["2"]}, r"reward_model.ground_truth.inputs\[0\]' should be text, not a list"),
        ({"inputs": ["1"], "outputs": [None]}, r"outputs\[0\]' should be text, not null"),
        ({"inputs": ["1"], "outputs": []}, "has 1 inputs but 0 outputs"),
    ],
)
def test_unsupported_verl_feature_is_named(tmp_path: Path, truth: object, message: str) -> None:
    path = str(write_jsonl(tmp_path / "v.jsonl", [verl_row(STDIO_TRUTH), verl_row(truth)]))
    with pytest.raises(BadInputError, match=rf"v.jsonl:2: .*{message}"):
        load_problems(path)


def test_the_asked_for_dataset_names_a_verl_file_or_takes_one_of_its_sources(tmp_path: Path) -> None:
    rows = [verl_row(STDIO_TRUTH, index=1), {**verl_row(STDIO_TRUTH, index=2), "data_source": "apps"}]
    path = parquet(tmp_path / "v.parquet", rows)
    assert [problem.key for problem in load_problems(path, "mine")] == [("mine", "1"), ("mine", "2")]
    assert [problem.key for problem in load_problems(path, "apps")] == [("apps", "2")]


# --- CodeContests ---


def test_codecontests_row_of_the_hub_is_read(tmp_path: Path) -> None:
    row = {
        "name": "1_A. Sum",
        "description": "Add.",
        "public_tests": {"input": ["1"], "output": ["a"]},
        "private_tests": {"input": [], "output": []},
        "generated_tests": {"input": ["2", "3"], "output": ["b", "c"]},
        "source": 2,
        "difficulty": 7,
        "time_limit": {"seconds": 1, "nanos": 0},
    }
    path = parquet(tmp_path / "c.parquet", [row])
    (problem,) = load_problems(path, "codecontests_valid")
    assert problem.key == ("codecontests_valid", "1_A. Sum")
    assert (problem.data_source, problem.difficulty, problem.limits) == ("CODEFORCES", "A", PartialLimits())
    assert problem.ground_truth == StdioTests(("1", "2", "3"), ("a", "b", "c"), ("public", "generated", "generated"))
    (public,) = load_problems(path, "codecontests_valid", tests=["public"])
    assert public.test_count == 1
    (every,) = load_problems(path, "codecontests_valid", tests=["public", "private", "generated"])
    assert every == problem
    with pytest.raises(BadInputError, match=r"problem '1_A\. Sum' has no private tests"):
        load_problems(path, "codecontests_valid", tests=["private"])


def test_groups_are_refused_where_a_file_has_none_unless_all_are_named(tmp_path: Path) -> None:
    path = str(write_jsonl(tmp_path / "p.jsonl", [make_problem_record(stdio_problem())]))
    assert load_problems(path, tests=["public", "private", "generated"]) == load_problems(path)
    with pytest.raises(BadInputError, match="does not say which group its tests are in"):
        load_problems(path, tests=["public"])
    with pytest.raises(BadInputError, match="unknown group of tests 'hidden'"):
        load_problems(path, tests=["hidden"])


# --- the real files ---


def test_real_published_files_are_read_completely_and_fast() -> None:
    humaneval, mbpp = str(data_file("humaneval/HumanEval.jsonl.gz")), str(data_file("mbpp/mbpp.jsonl.gz"))
    begin = time.process_time()
    problems = load_problems(humaneval) + load_problems(mbpp)
    seconds = time.process_time() - begin
    assert len(problems) == 164 + 974
    assert len(load_problems(mbpp, "mbpp_reg")) == 200
    assert seconds < 0.5, "measured 0.04 s; five times 0.1 s would be a change of kind"
    points = {p.problem_id: p.ground_truth.entry_point for p in problems if isinstance(p.ground_truth, AssertTests)}
    assert (points["MBPP/126"], points["MBPP/912"], points["MBPP/123"]) == ("sum", "lobb_num", "amicable_numbers_sum")
    for row in json_rows(data_file("mbpp/mbpp.jsonl.gz")):
        assert f"def {points['MBPP/' + str(row['task_id'])]}" in str(row["code"]).replace("(", " (")


def test_real_contest_problems_are_read_with_all_tests() -> None:
    problems = load_problems(str(data_file("codecontests/code_contests_20.jsonl.gz")), "codecontests_valid")
    assert len(problems) == 20
    assert min(problem.test_count for problem in problems) == 35
    assert max(problem.test_count for problem in problems) == 331


def test_a_large_parquet_file_is_streamed(tmp_path: Path) -> None:
    """A training split does not fit into memory: the first problem comes although the file is broken further on."""
    rows = [make_problem_record(stdio_problem(f"p{i}", tests=3)) for i in range(2000)]
    path = tmp_path / "big.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=100)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 2000] = bytes(2000)
    path.write_bytes(data)
    stream = iter_problems(Source(str(path)))
    assert next(stream).problem_id == "p0"
    with pytest.raises(BadInputError, match=r"big.parquet: broken Parquet after row [1-9]\d*: "):
        list(stream)


@pytest.mark.parametrize(("source", "case_sensitive"), [(2, False), (5, None), ("", False)])
def test_case_sensitivity_follows_the_source_of_a_codecontests_problem(
    source: object, case_sensitive: bool | None
) -> None:
    """CodeContests compares without case; AtCoder's own judge does not, number 5 in the published schema."""
    row = {"name": "a", "statement": "Solve.", "tests": [{"input": "1", "output": "Yes"}], "source": source}
    problem = parse_statement_and_tests(Row(row, "rows.jsonl", 1), None)
    assert (problem.comparator and problem.comparator.case_sensitive) is case_sensitive


def test_a_file_may_be_one_object_over_several_lines(tmp_path: Path) -> None:
    (tmp_path / "row.json").write_text(json.dumps(EVALPLUS, indent=2))
    write_jsonl(tmp_path / "row.jsonl", [EVALPLUS])
    assert load_problems("row.json", base_dir=tmp_path) == load_problems("row.jsonl", base_dir=tmp_path)
    (tmp_path / "row.json").write_text(json.dumps(EVALPLUS, indent=2) + "\n{}\n")
    with pytest.raises(BadInputError, match=r"row.json:1: not JSON: .*expected one JSON object a line"):
        load_problems("row.json", base_dir=tmp_path)


def test_graded_row_is_read_for_its_grader_and_other_rows_as_tests(tmp_path: Path) -> None:
    """Rows of graded data sources are not read as tests; the others are, as ever."""
    rows = [
        {
            "prompt": "2+2?",
            "data_source": "openai/gsm8k",
            "reward_model": {"ground_truth": "4"},
            "extra_info": {"a": 1},
        },
        {
            "prompt": "Echo.",
            "data_source": "taco",
            "reward_model": {"ground_truth": {"inputs": ["1"], "outputs": ["1"]}},
        },
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    maths, code = iter_problems(Source(str(file)), "mixed", graded=lambda source: source != "taco")
    assert (maths.ground_truth, maths.family, maths.test_count) == (Reference('"4"', '{"a": 1}'), "reference", 1)
    assert (maths.data_source, maths.dataset, code.ground_truth) == (
        "openai/gsm8k", "mixed", StdioTests(("1",), ("1",)),
    )  # fmt: skip
    assert [problem.dataset for problem in load_problem_files([str(file)], graded=lambda source: source != "taco")] == [
        "openai_gsm8k", "taco",
    ]  # fmt: skip
    (alone,) = iter_problems(Source(str(file)), "openai_gsm8k", graded=lambda source: source != "taco")
    assert alone.problem_id == "1"
    with pytest.raises(BadInputError, match="such rows need a grader"):
        list(iter_problems(Source(str(file)), "mixed"))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"data_source": "d", "prompt": "p", "reward_model": {"style": "rule"}},
            r"reward_model.ground_truth' is missing",
        ),
        ({"problem_id": "1", "prompt": "p", "ground_truth": None}, "ground_truth' is missing: a grader has nothing"),
    ],
)
def test_a_row_without_anything_to_compare_with_is_refused(tmp_path: Path, row: object, message: str) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(BadInputError, match=message):
        list(iter_problems(Source(str(tmp_path / "rows.jsonl")), "d", graded=lambda _: True))


def test_record_with_another_ground_truth_is_read_as_a_reference_of_its_grader(tmp_path: Path) -> None:
    row = {"problem_id": "1", "prompt": "2+2?", "ground_truth": {"answer": 4}, "extra_info": {"level": 5}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    (problem,) = iter_problems(Source(str(tmp_path / "rows.jsonl")), "maths", graded=lambda _: True)
    assert problem.ground_truth == Reference('{"answer": 4}', '{"level": 5}')
    assert render(problem)[0].content == "2+2?"


# --- SandboxFusion's rows, and its data as the documents fetch it ---

CASES = [{"input": {"stdin": "1\n"}, "output": {"stdout": "2\n"}}, {"input": "3", "output": "4"}]
CHECK = "def check(candidate):\n    assert candidate(1) == 1\n"


@pytest.mark.parametrize(
    ("row", "truth"),
    [
        ({"id": 3, "content": "c", "test_cases": CASES}, StdioTests(("1\n", "3"), ("2\n", "4"))),
        ({"id": "3", "content": "c", "test": json.dumps(CASES)}, StdioTests(("1\n", "3"), ("2\n", "4"))),
        (
            {"id": 3, "content": "import os\ndef help_f():\ndef f(x):\n", "test": CHECK, "canonical_solution": "x"},
            CheckTest("import os\ndef help_f():\ndef f(x):\n", CHECK, "f"),
        ),
        (
            {"id": 3, "content": "c", "test": {"code": CHECK, "asset": {}}, "labels": '{"entry_point": "g"}'},
            CheckTest("c", CHECK, "g"),
        ),
        ({"id": 3, "content": "c", "test": "assert f(1) == 2\nassert f(2) == 3"},
         AssertTests(("assert f(1) == 2", "assert f(2) == 3"), "", "f")),
        ({"id": 3, "content": "c", "test_list": '["assert f(1) == 2"]', "labels": {"test_setup_code": "import re"}},
         AssertTests(("assert f(1) == 2",), "import re", "f")),
    ],
)  # fmt: skip
def test_load_problems_sandbox_fusion_row_is_read(tmp_path: Path, row: dict[str, object], truth: object) -> None:
    (problem,) = load_problems(str(write_jsonl(tmp_path / "auto.jsonl", [row])), "auto_eval")
    assert (problem.problem_id, problem.prompt, problem.ground_truth) == ("3", row["content"], truth)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": 1, "content": "c", "test": CHECK}, "names no function to call: add 'entry_point'"),
        (
            {"id": 1, "content": "c", "test": "x = 1\nassert f(x) == 1"},
            "neither a function `check` nor a list",
        ),
        ({"id": 1, "content": "c", "test": {"code": CHECK, "asset": {"a": "b"}}}, "holds files"),
        ({"id": 1, "content": "c", "test_cases": []}, "is empty: a problem needs at least one test"),
        ({"id": 1, "content": "c", "test": "def ("}, "is no Python"),
    ],
)
def test_load_problems_unusable_sandbox_fusion_row_is_refused(
    tmp_path: Path, row: dict[str, object], message: str
) -> None:
    with pytest.raises(BadInputError, match=message):
        load_problems(str(write_jsonl(tmp_path / "auto.jsonl", [row])))


@pytest.mark.parametrize(
    ("file", "dataset", "named"),
    [
        ("codecontests_valid.jsonl", "codecontests", {"split": "valid", "sandbox_id": 7}),
        ("humaneval.jsonl", "humaneval", {"split": "test", "sandbox_id": 0}),
        ("mbpp_reg.jsonl", "mbpp_reg", {"sandbox_id": "11"}),
    ],
)
def test_load_problems_fetched_records_are_read_under_their_file_names(
    tmp_path: Path, file: str, dataset: str, named: dict[str, object]
) -> None:
    row = {"dataset": dataset, "problem_id": 5, "prompt": "p", "sandbox_dataset": "t", **named}
    (problem,) = load_problems(str(write_jsonl(tmp_path / file, [row])), file.partition(".")[0])
    assert (problem.problem_id, problem.sandbox_id) == ("5", str(named["sandbox_id"]))


def test_load_problems_mbpp_parquet_without_entry_point_infers_it(tmp_path: Path) -> None:
    truth = json.dumps({"test_list": ["assert f(1) == 1"], "test_setup_code": ""})
    row = {"prompt": "p", "data_source": "mbpp_reg", "ground_truth": truth, "problem_id": "MBPP/11", "difficulty": 1.0}
    (problem,) = load_problems(parquet(tmp_path / "mbpp_reg.parquet", [row]))
    assert (problem.dataset, problem.ground_truth) == ("mbpp_reg", AssertTests(("assert f(1) == 1",), "", "f"))


def test_load_problems_aime_rows_need_a_grader(tmp_path: Path) -> None:
    row = {"ID": "2024-I-1", "Problem": "p", "Solution": "s", "Answer": 204}
    file = str(write_jsonl(tmp_path / "aime.jsonl", [row]))
    with pytest.raises(BadInputError, match="has an answer for a grader and no tests"):
        load_problems(file)
    (problem,) = load_problem_files([file], graded=lambda source: source == "aime")
    assert (problem.problem_id, problem.data_source) == ("2024-I-1", "aime")
    assert problem.ground_truth == Reference('"204"', '{"index": "2024-I-1"}')
