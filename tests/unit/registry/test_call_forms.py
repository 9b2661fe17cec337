"""Signatures, the words of their values, and what cannot be called by values."""

import builtins
import json
import subprocess
import sys

import pytest

from evalrun_registry.call_forms import (
    CALL_FORMS,
    RETURNED,
    SignatureError,
    encode_arguments,
    encode_result,
    explain_refusal,
    is_result,
    parse_signature,
)

ADD = "add(xs: list[int], k: long) -> list[double]"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("add", "'add' is no signature"),
        ("add(xs) -> int", "'xs' is no parameter"),
        ("add(x: int, x: int) -> int", "have the same name"),
        ("add(x: int) -> dict[string; int]", "the type 'dict[string; int]' cannot be passed by value"),
        ("add(x: list[]) -> int", "the type 'list[]'"),
        ("add(x: int) -> void", "the type 'void'"),
        (f"add(x: int) -> {'list[' * 9}int{']' * 9}", "nested at most 8 deep"),
        (f"add(x: int){' ' * 2000}-> int", "at most 2000 characters"),
    ],
)
def test_signatures_that_no_language_can_be_called_by_are_refused(text: str, told: str) -> None:
    with pytest.raises(SignatureError) as refused:
        parse_signature(text)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("int", -(1 << 31), b"-2147483648"),
        ("long", (1 << 63) - 1, b"9223372036854775807"),
        ("double", 3, b"3.0"),
        ("bool", True, b"1"),
        ("string", "", b"s"),
        ("string", "a \u00e9", b"s6120c3a9"),
        ("list[list[string]]", [[], ["a"]], b"2 0 1 s61"),
    ],
)
def test_encode_result_gives_the_words_of_each_type(kind: str, value: object, words: bytes) -> None:
    assert encode_result(parse_signature(f"f() -> {kind}"), json.dumps(value)) == words


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("int", text) for text in ("2147483648", "1.0", "true", "null", '"1"', "[1]", "NaN", "{")),
        ("long", str(1 << 63)),
        ("double", "Infinity"),
        ("double", "NaN"),
        ("double", "1" + "0" * 400),
        ("bool", "1"),
        ("string", '"\\ud800"'),
        ("list[int]", "[[1]]"),
    ],
)
def test_values_of_other_types_are_refused(kind: str, text: str) -> None:
    with pytest.raises(SignatureError):
        encode_result(parse_signature(f"f() -> {kind}"), text)


@pytest.mark.parametrize("text", ["[]", "[[1]]", "[[1], 2, 3]", "{}", "[2, [1]]"])
def test_arguments_that_are_not_the_parameters_are_refused(text: str) -> None:
    with pytest.raises(SignatureError):
        encode_arguments(parse_signature(ADD), text)
    assert encode_arguments(parse_signature(ADD), "[[1, 2], 3]") == b"2 1 2 3\n"


@pytest.mark.parametrize(
    ("kind", "said", "wanted", "right"),
    [
        ("double", b"0.30000000000000004", b"0.3", True),
        ("double", b"1e9", b"1000000001.0", True),
        ("double", b"0.3001", b"0.3", False),
        ("double", b"nan", b"0.3", False),
        ("double", b"?", b"0.3", False),
        ("double", b"", b"0.3", False),
        ("long", b"1.0", b"1", False),
        ("string", b"s61", b"s62", False),
        ("list[double]", b"2 1 2", b"2 1.0 2.0000001", True),
        ("list[double]", b"2.0000001 1 2", b"2 1.0 2.0", False),
        ("list[list[double]]", b"1 1 5", b"1 1 5.0", True),
        ("list[list[double]]", b"1 0", b"1 1 5.0", False),
    ],
)
def test_only_the_numbers_of_a_double_have_a_tolerance(kind: str, said: bytes, wanted: bytes, *, right: bool) -> None:
    assert is_result(parse_signature(f"f() -> {kind}"), said, wanted) is right


@pytest.mark.parametrize(
    ("language", "signature", "call", "told"),
    [
        ("java", "f(x: long) -> long", "[9007199254740993]", ""),
        ("javascript", "f(x: long) -> long", "[9007199254740991]", ""),
        ("javascript", "f(x: long) -> long", "[9007199254740993]", "more digits than a number of javascript keeps"),
        ("php", "f(x: long) -> long", "[1]", "not in php"),
        ("java", "new(x: long) -> long", "[1]", "no function of java can be called 'new'"),
        ("java", "goto(x: long) -> long", "[1]", "no function of java can be called 'goto'"),
        ("java", "record(x: long) -> long", "[1]", ""),
        ("rust", "yield(x: long) -> long", "[1]", "no function of rust can be called 'yield'"),
        ("go", "main(x: long) -> long", "[1]", "no function of go can be called 'main'"),
        ("go", "any(type: long) -> long", "[1]", ""),
        ("python", "match(x: long) -> long", "[1]", ""),
        ("python", "Solution(x: long) -> long", "[1]", "no function of python can be called 'Solution'"),
        ("rust", "f(x: long) -> Node", "[1]", "the type 'Node'"),
    ],
)
def test_explain_refusal_names_what_the_language_cannot_take(
    language: str, signature: str, call: str, told: str
) -> None:
    said = explain_refusal(language, signature, [call], ["1"])
    assert told in said
    assert bool(told) is bool(said)


STUBS = {
    "python": "def add(xs: list[int], k: int) -> list[float]:\n    ...",
    "cpp": "std::vector<double> add(std::vector<int> xs, long long k) {\n}",
    "go": "func add(xs []int, k int) []float64 {\n}",
    "java": "class Solution {\n    public double[] add(int[] xs, long k) {\n    }\n}",
    "javascript": "/** (xs: number[], k: number) => number[] */\nfunction add(xs, k) {\n}",
    "rust": "fn add(xs: Vec<i32>, k: i64) -> Vec<f64> {\n}",
    "typescript": "function add(xs: number[], k: number): number[] {\n}",
}


def test_write_stub_is_the_functions_head_in_each_language() -> None:
    assert {language: form.write_stub(parse_signature(ADD)) for language, form in CALL_FORMS.items()} == STUBS


def test_write_stub_renames_a_parameter_that_is_a_keyword() -> None:
    signature = parse_signature("f(type: int, type_: int) -> int")
    assert CALL_FORMS["go"].write_stub(signature) == "func f(type__ int, type_ int) int {\n}"
    assert CALL_FORMS["java"].write_stub(signature).splitlines()[1] == "    public int f(int type, int type_) {"


PYTHON_PROGRAMS = {
    "a number that prints itself otherwise": (
        "f() -> list[double]",
        "class Number(float):\n    def __repr__(self):\n        return 'Number'\ndef f():\n    return [Number(1.5), 2]",
        "2 1.5 2",
    ),
    "names of Python": (
        "f(x: list[string]) -> list[string]",
        f"{' = '.join(name for name in dir(builtins) if name.islower() and name.isalpha())} = 3\ndef f(x): return x",
        "1 s61",
    ),
    "the function is one of them": ("next(x: list[string]) -> bool", "def next(x):\n    return x == ['a']", "1"),
}


@pytest.mark.parametrize("name", PYTHON_PROGRAMS)
def test_python_driver_program_that_hides_names_is_called(name: str) -> None:
    text, program, words = PYTHON_PROGRAMS[name]
    form = CALL_FORMS["python"]
    whole = form.before + form.add_driver(program, parse_signature(text))
    done = subprocess.run(
        [sys.executable, "-I", "-c", whole], input="1 s61\n", capture_output=True, text=True, check=True
    )
    assert done.stdout == f"\n{RETURNED} {words}\n"
