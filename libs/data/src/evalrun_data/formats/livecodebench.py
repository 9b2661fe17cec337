"""LiveCodeBench's `code_generation_lite`: programs that read stdin, and functions that are called; in any language.

Its private tests are base64 of zlib of a pickle of a JSON text. The pickle is read by its opcodes and never loaded: a
pickle of anything but a single text is refused.
"""

import ast
import base64
import binascii
import json
import pickletools
import re
import zlib
from typing import Final

from evalrun_data.formats.calls import PRELUDE, Call, call_chat, call_tests
from evalrun_data.records import TEST_GROUPS, AssertTests, CallTests, Problem, ProblemComparator, StdioTests, TestGroup
from evalrun_data.rows import Row
from evalrun_registry.languages import LANGUAGES, find_language

LIVECODEBENCH: Final = ProblemComparator("tokens", abs=0.0, rel=0.0, by_format=True)
"""Its checker compares line by line, and numbers by their value, without a tolerance."""

_MAX_TESTS_BYTES: Final = 512 << 20
_HELD_BY_PICKLE: Final = frozenset({"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"})
_OF_NO_EFFECT: Final = frozenset({"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP"})
_SCALARS: Final = {"int": "long", "float": "double", "str": "string", "bool": "bool"}
"""Types of signatures by Python's, whose int has no bound."""
_DATE: Final = re.compile(r"^\d{4}-\d{2}-\d{2}")


def is_livecodebench(row: Row) -> bool:
    """Return whether a row is from LiveCodeBench."""
    return row.has("question_id") and row.has("question_content") and row.has("public_test_cases")


def parse_livecodebench(row: Row, dataset: str | None) -> Problem:
    """Parse a row of LiveCodeBench. The dataset defaults to `livecodebench`.

    A dataset whose name ends with a language, such as `livecodebench_v6_java`, asks for programs in it.
    """
    language = _find_language(row, dataset)
    groups: list[TestGroup] = []
    tests: list[tuple[str, str, str]] = []
    for group in TEST_GROUPS[:2]:
        for test in _cases(row, f"{group}_test_cases"):
            tests.append((test.text("input"), test.text("output"), test.optional_text("testtype", "stdin")))
            groups.append(group)
    if not tests:
        raise row.error("field 'public_test_cases' is empty: a problem needs at least one test")
    kinds = sorted({kind for _, _, kind in tests})
    if len(kinds) > 1 or kinds[0] not in {"stdin", "functional"}:
        raise row.error(f"its tests have the types {', '.join(kinds)}: expected stdin or functional, one for all")
    starter, question = row.optional_text("starter_code"), row.text("question_content")
    functional = kinds == ["functional"]
    in_python = functional and language == "python"
    return Problem(
        dataset=dataset or "livecodebench",
        problem_id=row.name("question_id"),
        prompt=f"{question}\n\n{starter}" if in_python else question,
        ground_truth=(
            _calls(row, tests, starter, language)
            if functional
            else StdioTests(tuple(test[0] for test in tests), tuple(test[1] for test in tests), tuple(groups), PRELUDE)
        ),
        data_source=row.optional_text("platform") or "livecodebench",
        difficulty=row.optional_text("difficulty"),
        comparator=None if functional else LIVECODEBENCH,
        language=language,
        messages=call_chat(question, starter) if in_python else (),
        date=_date(row),
    )


def _find_language(row: Row, dataset: str | None) -> str:
    """Return the row's language, else the suffix of the dataset's name if it is a language, else Python."""
    if row.has("language"):
        found = find_language(row.name("language"))
        if found is None:
            raise row.error(f"field 'language' is '{row.name('language')[:40]}': write one of {', '.join(LANGUAGES)}")
        return found.name
    ending = (dataset or "").rpartition("_")[2]
    return ending if ending in LANGUAGES else "python"


def _calls(row: Row, tests: list[tuple[str, str, str]], starter: str, language: str) -> AssertTests | CallTests:
    metadata = row.make_inner_row("metadata", _json_object(row, "metadata"))
    calls = []
    for number, (given, wanted, _) in enumerate(tests):
        try:
            arguments = [json.loads(line) for line in given.split("\n")]
            json.loads(wanted)
        except ValueError as error:
            raise row.error(f"test {number} is no call: expected a JSON value a line, and one as output") from error
        calls.append(Call(json.dumps(arguments), wanted))
    function = metadata.name("func_name")
    if language == "python":
        return call_tests(row, function, calls, starter, "livecodebench")
    signature = _write_signature(row, starter, function)
    return CallTests(signature, tuple(call.arguments for call in calls), tuple(call.expected for call in calls))


def _write_signature(row: Row, starter: str, function: str) -> str:
    """Return the function's signature for other languages, from the types in the Python that it begins with."""
    try:
        tree = ast.parse(f"{starter.rstrip()}\n        pass\n")
    except (SyntaxError, ValueError, RecursionError) as error:
        raise row.error(f"field 'starter_code' is not the head of a Python function: {error}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            parameters = [each for each in node.args.args if each.arg != "self"]
            listed = ", ".join(f"{each.arg}: {_write_type(each.annotation)}" for each in parameters)
            return f"{function}({listed}) -> {_write_type(node.returns)}"
    raise row.error(f"field 'starter_code' has no function '{function[:40]}', which metadata names")


def _write_type(annotation: ast.expr | None) -> str:
    match annotation:
        case ast.Name(name) if name in _SCALARS:
            return _SCALARS[name]
        case ast.Subscript(ast.Name("List" | "list"), item):
            return f"list[{_write_type(item)}]"
        case None:
            return "any"
    # Another type is refused by its name.
    return ast.unparse(annotation).replace(",", ";")


def _date(row: Row) -> str:
    value = row.optional_text("contest_date")
    if value and not _DATE.match(value):
        raise row.error(f"field 'contest_date' is '{value[:40]}': write a date such as 2024-08-31")
    return value[:10]


def _cases(row: Row, field: str) -> list[Row]:
    text = row.optional_text(field)
    if not text.strip():
        return []
    if not text.lstrip().startswith("["):
        text = _unpack_text(row, field, text)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise row.error(f"field '{field}' is not JSON: {' '.join(str(error).split())[:100]}") from error
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise row.error(f"field '{field}' should be a list of tests as JSON")
    return [row.make_inner_row(f"{field}[{number}]", value) for number, value in enumerate(values)]


def _unpack_text(row: Row, field: str, text: str) -> str:
    """Return the text inside base64, zlib and a pickle."""
    try:
        inflating = zlib.decompressobj()
        content = inflating.decompress(base64.b64decode(text, validate=True), _MAX_TESTS_BYTES)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise row.error(f"field '{field}' is neither JSON nor base64 of zlib: take the published file") from error
    if inflating.unconsumed_tail:
        raise row.error(f"field '{field}' unpacks to more than {_MAX_TESTS_BYTES >> 20} MiB: split the row")
    held: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(content):
            if opcode.name in _HELD_BY_PICKLE:
                held.append(str(argument))
            elif opcode.name not in _OF_NO_EFFECT:
                raise row.error(
                    f"field '{field}' holds a pickle of more than one text ({opcode.name}), which may run any code: it "
                    "is never loaded; write the tests as JSON"
                )
    except ValueError as error:
        raise row.error(f"field '{field}' is a broken pickle of a text: take the published file") from error
    if len(held) != 1:
        raise row.error(f"field '{field}' holds {len(held)} texts: expected one, a list of tests as JSON")
    return held[0]


def _json_object(row: Row, field: str) -> dict[str, object]:
    value = row.values.get(field)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise row.error(f"field '{field}' is not JSON") from error
    if not isinstance(value, dict):
        raise row.wrong(field, "an object as JSON")
    return value
