"""Whatever is wrong with a problem file is one line that names what and where."""

import gzip
import json
import re
from pathlib import Path

import pytest
from builders.data import check_problem, stdio_problem, write_jsonl

from evalrun_data.formats.record import make_problem_record
from evalrun_data.readers import load_problems
from evalrun_runtime.exits import BadInputError

GOOD = make_problem_record(stdio_problem())


def refusal(source: str, base_dir: Path) -> str:
    with pytest.raises(BadInputError) as caught:
        load_problems(source, base_dir=base_dir)
    message = str(caught.value)
    assert "\n" not in message
    return message


def truth(**fields: object) -> dict[str, object]:
    return {**GOOD, "problem_id": "other", "ground_truth": fields}


@pytest.mark.parametrize(
    ("second_line", "message"),
    [
        ("{", "not JSON: Expecting property name"),
        ('{"a": 1} x', "not JSON: Extra data at column 10"),
        ("[1]", "expected one JSON object a line, not a list"),
        ("null", "expected one JSON object a line, not null"),
        (b"\xff\xfe{", "not UTF-8"),
        (b'{"a": "\xe9"}', "not UTF-8: invalid continuation byte at byte 7"),
        ('{"prompt": "a", "prompt": "b"}', "field 'prompt' is there twice"),
        ({**GOOD, "problem_id": "é\ud800"}, "field 'problem_id' is not valid Unicode at character 1"),
        ("[" * 100_000, "nested too deeply"),
        ('{"prompt": ' + "9" * 5000 + "}", "has a number of more than 4300 digits: write it as a text"),
        ({}, "field 'dataset' is missing (expected text)"),
        ({**GOOD, "prompt": None}, "field 'prompt' is missing (expected text)"),
        ({**GOOD, "prompt": 5}, "field 'prompt' should be text, not a whole number"),
        ({**GOOD, "problem_id": " "}, "field 'problem_id' is empty"),
        ({**GOOD, "ground_truth": None, "sandbox_id": None}, "field 'ground_truth' is missing (expected an object)"),
        ({**GOOD, "ground_truth": "nope"}, "field 'ground_truth' is neither an object nor JSON"),
        ({**GOOD, "ground_truth": "[]"}, "field 'ground_truth' should hold a JSON object"),
        (GOOD, "problem 'sum' of dataset 'contest' is there twice (first p.jsonl:1)"),
        (truth(), "field 'ground_truth' holds no tests: expected inputs and outputs, or"),
        (truth(inputs=[], outputs=[]), "field 'ground_truth.inputs' is empty: a problem needs at least one test"),
        (truth(inputs=["1"]), "field 'ground_truth.outputs' is missing (expected a list of texts)"),
        (truth(inputs=["1", "2"], outputs=["1"]), "field 'ground_truth' has 2 inputs but 1 outputs"),
        (truth(inputs=[1], outputs=["1"]), "field 'ground_truth.inputs[0]' should be text, not a whole number"),
        (
            truth(inputs=["1"], outputs=["1"], groups=["secret"]),
            "field 'ground_truth.groups' has 'secret' (",
        ),
        (truth(inputs=["1"], outputs=["1"], groups=["public"] * 2), "field 'ground_truth' has 1 inputs but 2 groups"),
        (truth(test_list=[], entry_point="f"), "field 'ground_truth.test_list' is empty: a problem needs"),
        (truth(test_list=["assert 1"]), "field 'ground_truth.entry_point' is missing"),
        (truth(prompt="", test="", entry_point="f"), "field 'ground_truth.test' is empty"),
        (
            {**GOOD, "language": "cobol"},
            (
                "field 'language' is 'cobol' "
                "(known: python, c, cpp, go, java, javascript, lua, php, ruby, rust, typescript)"
            ),
        ),
        ({**GOOD, "limits": {"time_seconds": 0}}, "field 'limits.time_seconds' should be more than 0, not 0"),
        ({**GOOD, "limits": {"memory_mib": 0.5}}, "field 'limits.memory_mib' should be at least 1, not 0.5"),
        ({**GOOD, "limits": {"memory_mib": 1.5}}, "field 'limits.memory_mib' should be a whole number, not 1.5"),
        (
            {**GOOD, "limits": {"timeSeconds": 1}},
            "field 'limits.timeSeconds' is unknown (known: time_seconds,",
        ),
        ({**GOOD, "comparator": {"name": "fuzzy"}}, "field 'comparator.name' is 'fuzzy' (known: exact, verl,"),
        ({**GOOD, "comparator": {"name": "tokens", "abs": -1}}, "field 'comparator.abs' should be at least 0, not -1"),
        ({**GOOD, "comparator": {"name": "tokens", "eps": 1}}, "field 'comparator.eps' is unknown"),
        ({**GOOD, "comparator": {"name": "checker", "protocol": "x"}}, "field 'comparator.protocol' is 'x'"),
        ({**GOOD, "comparator": {"name": "checker", "protocol": "kattis"}}, "field 'comparator.source' is missing"),
    ],
)
def test_bad_second_line_is_refused_with_its_number(
    tmp_path: Path, second_line: str | bytes | dict[str, object], message: str
) -> None:
    text = json.dumps(second_line) if isinstance(second_line, dict) else second_line
    line = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "p.jsonl").write_bytes(json.dumps(GOOD).encode() + b"\n" + line + b"\n")
    assert refusal("p.jsonl", tmp_path).startswith(f"p.jsonl:2: {message}")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.jsonl", b"", "p.jsonl: the file is empty"),
        ("p.jsonl", b"\n \n", "p.jsonl: the file is empty"),
        ("p.parquet", b"", "p.parquet: the file is empty"),
        ("p.jsonl.gz", b"", "p.jsonl.gz: the file is empty"),
        ("p.jsonl.gz", gzip.compress(b"", mtime=0), "p.jsonl.gz: the file is empty"),
        ("p.jsonl.gz", b'{"a": 1}\n', "p.jsonl.gz: not gzip, although its name ends in .gz"),
        (
            "p.jsonl.gz",
            gzip.compress(b'{"a": "' + bytes(range(32, 127)) * 9, mtime=0)[:40],
            "p.jsonl.gz: broken gzip: ",
        ),
        ("p.jsonl", b"\x1f\x8bxxxx", "p.jsonl: broken gzip: "),
        (
            "p.jsonl.gz",
            gzip.compress(b"\n" * (2 << 20), 1, mtime=0),
            "p.jsonl.gz:1048577: nearly all of it is blank lines",
        ),
        ("p.jsonl.gz", gzip.compress(b" " * (2 << 20), 1, mtime=0), "p.jsonl.gz:1: nearly all of it is blank lines"),
        ("p.parquet", b"PAR1 and no more", "p.parquet: broken Parquet after row 0: "),
        ("p.parquet", b"{}", "p.parquet: not Parquet, although its name ends in .parquet"),
        ("p.json", b'[{"a": 1}]', "p.json item 1: not a known problem format (fields: a)"),
        ("p.json", b"[[]]", "p.json item 1: expected an object, not a list"),
        ("p.json", b"[\n{},\n{]", "p.json: not JSON: Expecting property name enclosed in double quotes at line 3, col"),
        ("p.json", b"[]", "p.json: the file is empty"),
        (
            "p.json",
            b'{\n  "a": 1\n}\n{',
            "p.json:1: not JSON: Expecting property name enclosed in double quotes at column ",
        ),
        (
            "p.jsonl",
            b'{"question": "?", "answer": 1}',
            "p.jsonl:1: not a known problem format (fields: question, answer)",
        ),
        ("HumanEval.jsonl", b'{"task_id": "HumanEval/0"}', "HumanEval.jsonl:1: field 'prompt' is missing"),
        ("mbpp.jsonl", b'{"task_id": "x"}', "mbpp.jsonl:1: field 'task_id' should be a whole number, not text"),
        (
            "mbpp.jsonl",
            b'{"task_id": 1, "text": "t", "code": "x = 1", "test_list": ["assert f()"]}',
            "mbpp.jsonl:1: field 'code' defines no name that the asserts of 'test_list' call",
        ),
    ],
)
def test_bad_file_is_refused_with_the_cause(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert refusal(name, tmp_path).startswith(message)


def test_missing_file_and_directory_are_refused_with_the_cause(tmp_path: Path) -> None:
    assert refusal("no.jsonl", tmp_path) == f"no.jsonl: no such file (looked for {tmp_path}/no.jsonl)"
    assert refusal(f"{tmp_path}/no.jsonl", Path("/elsewhere")) == f"{tmp_path}/no.jsonl: no such file"
    assert refusal(str(tmp_path), tmp_path).endswith(": is a directory; name the file in it")
    assert refusal("file://host/x", tmp_path).startswith("file://host/x: a file URL has three slashes")
    assert refusal("gopher://x/y", tmp_path).startswith("gopher://x/y: cannot be read: ")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("memory://bucket/missing.jsonl", "memory://bucket/missing.jsonl: no such file"),
        ("http://127.0.0.1:9/p.jsonl", r"http://127.0.0.1:9/p.jsonl: cannot be read: .*(Connect|connect)"),
        ("nostore://bucket/p.jsonl", "nostore://bucket/p.jsonl: cannot be read: .*nostore"),
    ],
)
def test_a_remote_file_says_whether_it_or_its_server_is_missing(source: str, message: str, tmp_path: Path) -> None:
    assert re.match(message, refusal(source, tmp_path))


MBPP = {
    "task_id": 2,
    "prompt": "Double.",
    "code": "def double(x):\n  return 2 * x",
    "test_list": ["assert double(2) == 4"],
}
HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": "def double(x):\n",
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}
CONTEST = {"name": "sum", "description": "Add.", "public_tests": {"input": ["1 2"], "output": ["3"]}}
PLUS = {"base_input": [[2]], "plus_input": [[3]]}


@pytest.mark.parametrize(
    ("row", "unused"),
    [
        (
            {**MBPP, "test_imports": [], "test": "for i in inputs: assertion(double(i))"},
            "MBPP rows does not use the tests in 'test'",
        ),
        (
            {**MBPP, "task_id": "Mbpp/2", **PLUS, "assertion": "assert double(2) == 4"},
            "'base_input', 'plus_input', 'assertion'",
        ),
        (
            {**HUMANEVAL, **PLUS, "canonical_solution": None},
            "HumanEval rows does not use the tests in 'base_input', 'plus_input'",
        ),
        ({**CONTEST, "hidden_tests": {"input": ["1 1"], "output": ["2"]}}, "'hidden_tests'"),
        (
            {"name": "sum", "statement": "Add.", "tests": [{"input": "", "output": ""}], "plus_tests": [1]},
            "'plus_tests'",
        ),
    ],
)
def test_tests_that_would_not_be_used_are_refused_by_name(row: dict[str, object], unused: str, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "p.jsonl", [row])
    message = refusal("p.jsonl", tmp_path)
    assert message.startswith("p.jsonl:1: ")
    assert unused in message


@pytest.mark.parametrize(
    "row",
    [
        {**MBPP, "test_imports": ["import math"], "challenge_test_list": ["assert double(0) == 0"]},
        {**HUMANEVAL, "example_test": "def check(candidate):\n    assert candidate(1) == 2\n"},
        {**HUMANEVAL, "plus_input": None, "base_input": []},
        {**CONTEST, "private_tests": {"input": [], "output": []}, "input_file": "in.txt", "output_file": ""},
    ],
)
def test_columns_that_add_no_test_are_left_alone(row: dict[str, object], tmp_path: Path) -> None:
    write_jsonl(tmp_path / "p.jsonl", [row])
    assert len(load_problems("p.jsonl", base_dir=tmp_path)) == 1


def test_a_parquet_row_is_named_by_its_number(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [make_problem_record(check_problem()), {**make_problem_record(check_problem("x")), "prompt": None}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "p.parquet")
    assert refusal("p.parquet", tmp_path) == "p.parquet row 2: field 'prompt' is missing (expected text)"


def test_the_rows_after_the_first_must_have_its_format(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "p.jsonl", [GOOD, {"task_id": "HumanEval/0", "prompt": "", "test": "t", "entry_point": "f"}])
    assert refusal("p.jsonl", tmp_path) == "p.jsonl:2: field 'dataset' is missing (expected text)"


BROKEN = ["assert f(1)", "assert f(2"]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({**GOOD, "problem_id": "1", "ground_truth": {"test_list": BROKEN}}, "ground_truth.test_list"),
        ({"task_id": 1, "text": "f", "code": "g = 1", "test_list": BROKEN, "test_setup_code": ""}, "test_list"),
        ({"id": 1, "content": "f", "test_list": BROKEN}, "test_list"),
    ],
)
def test_assert_that_does_not_compile_is_refused_with_its_field(
    row: dict[str, object], field: str, tmp_path: Path
) -> None:
    write_jsonl(tmp_path / "p.jsonl", [row])
    said = refusal("p.jsonl", tmp_path)
    assert said.endswith(f"p.jsonl:1: field '{field}': test 1 does not compile: line 1: '(' was never closed")
