"""HumanEval in Go, Java, JavaScript, Rust and TypeScript: rows of MultiPL-E's shape, made of HumanEval's own asserts.

`tests/humaneval/signatures.txt` has a line for each problem: its number, its function, arguments with their types, and
the type that it returns (`i`, `f`, `b`, `s`, or `L` and one of them). A language's file has `=== NUMBER` and the body
of a solution. The asserts are translated when a test needs them, and stay where they are.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from builders.data import data_file, json_rows

DIRECTORY = Path(__file__).parents[2] / "humaneval"
LANGUAGES = ("go", "java", "javascript", "rust", "typescript")


@dataclass(frozen=True)
class _Function:
    name: str
    arguments: tuple[tuple[str, str], ...]
    """Names and types."""
    returned: str


@dataclass(frozen=True)
class _Form:
    """How MultiPL-E writes values, types and tests of a language."""

    published: str
    """MultiPL-E's name of the language."""
    prompt: str
    tests: str
    case: str
    types: Mapping[str, str]
    listed: str
    """The type of a list."""
    argument: str = "{name}: {type}"
    stops: tuple[str, ...] = ("\n}",)


_JS_TESTS = (
    "const assert = require('node:assert');\n\n\nfunction test() {\n  let candidate = {name};\n{cases}}\n\ntest();"
)
_JS_CASE = "  assert.deepEqual(candidate({given}),{wanted});\n"
_FORMS = {
    "go": _Form(
        published="go_test.go",
        prompt='package main_test\n\nimport (\n    "testing"\n    "fmt"\n)\n\n'
        "// Solves it.\nfunc {name}({arguments}) {returned} {\n",
        tests="func Test_{name}(t *testing.T) {\n  candidate := {name}\n"
        "\ttype test struct {\n\t\tactual   interface{}\n"
        "\t\texpected interface{}\n\t}\n   tests := []test{\n{cases}   }\n\n\tfor i, tc := range tests {\n"
        '\t\tt.Run(fmt.Sprintf("test num % d", i), func(t *testing.T) {\n'
        '\t\t\tif fmt.Sprintf("%v", tc.actual) != fmt.Sprintf("%v", tc.expected) {\n'
        "\t\t\t\tt.Errorf(\"expected '%s', got '%s'\", tc.expected, tc.actual)\n\t\t\t}\n\t\t})\n\t}\n}\n",
        case="     { actual: candidate({given}), expected: {wanted} },\n",
        types={"i": "int", "f": "float64", "b": "bool", "s": "string"},
        listed="[]{type}",
        argument="{name} {type}",
        stops=("\nfunc", "struct", "\n// "),
    ),
    "java": _Form(
        published="java",
        prompt="import java.util.*;\nimport java.lang.reflect.*;\nimport org.javatuples.*;\nimport java.security.*;\n"
        "import java.math.*;\nimport java.io.*;\nimport java.util.stream.*;\nclass Problem {\n    // Solves it.\n"
        "    public static {returned} {name}({arguments}) {\n",
        tests="    }\n    public static void main(String[] args) {\n{cases}    }\n\n}\n",
        case="    assert({name}({given}){equals});\n",
        types={"i": "long", "f": "float", "b": "boolean", "s": "String"},
        listed="ArrayList<{type}>",
        argument="{type} {name}",
        stops=("\n    }\n",),
    ),
    "javascript": _Form(
        published="js",
        prompt="//Solves it.\nfunction {name}({arguments}){\n",
        tests=_JS_TESTS,
        case=_JS_CASE,
        types={},
        listed="",
        argument="{name}",
        stops=("\nfunction ", "\n/*", "\n//", "\nconsole.log"),
    ),
    "rust": _Form(
        published="rs",
        prompt="/// Solves it.\nfn {name}({arguments}) -> {returned} {\n",
        tests="}\n\nfn main() {\n    let candidate = {name};\n{cases}}\n",
        case="    assert_eq!(candidate({given}), {wanted});\n",
        types={"i": "isize", "f": "f64", "b": "bool", "s": "String"},
        listed="Vec<{type}>",
    ),
    "typescript": _Form(
        published="ts",
        prompt="//Solves it.\nfunction {name}({arguments}): {returned} {\n",
        tests=f"declare var require: any;\n{_JS_TESTS}",
        case=_JS_CASE,
        types={"i": "number", "f": "number", "b": "boolean", "s": "string"},
        listed="{type}[]",
        stops=("\nfunction ", "\n/*", "\n//", "\nclass"),
    ),
}
_JAVA_BOXES = {"i": "Long", "f": "Float", "s": "String"}


def load_rows(language: str) -> dict[str, dict[str, object]]:
    """Return rows of MultiPL-E's shape by HumanEval's number."""
    published = {str(row["task_id"]): row for row in json_rows(data_file("humaneval/HumanEval.jsonl.gz"))}
    form = _FORMS[language]
    rows: dict[str, dict[str, object]] = {}
    for number, function in _functions():
        cases = "".join(
            _write_case(language, function, given, wanted)
            for given, wanted in _asserts(str(published[f"HumanEval/{number}"]["test"]))
        )
        if not cases:
            raise ValueError(f"HumanEval/{number}: no assert of it can be written in {language}")
        words = {
            "name": _called(language, function),
            "returned": _write_type(language, function.returned),
            "cases": cases,
            "arguments": ", ".join(
                _fill(form.argument, {"name": name, "type": _write_type(language, kind)})
                for name, kind in function.arguments
            ),
        }
        rows[number] = {
            "name": f"HumanEval_{number}_{function.name}",
            "language": form.published,
            "prompt": _fill(form.prompt, words),
            "tests": _fill(form.tests, words),
            "stop_tokens": [*form.stops],
        }
    return rows


def load_solutions(language: str) -> dict[str, str]:
    """Return the body of each solution, with its function's last brace where a continuation needs it, by number."""
    closed = "" if language in ("java", "rust") else "}"
    parts = (DIRECTORY / f"{language}.txt").read_text().removeprefix("=== ").split("\n=== ")
    return {number: f"{body.rstrip()}\n{closed}" for number, _, body in (part.partition("\n") for part in parts)}


def write_answer(language: str, prompt: str, body: str) -> str:
    """Return the answer of a chat model: the whole function, or Java's class, in a block."""
    end = {"java": "\n    }\n}", "rust": "\n}"}.get(language, "")
    return f"Here it is.\n```{language}\n{prompt}{body}{end}\n```\n"


def _functions() -> Iterator[tuple[str, _Function]]:
    for line in (DIRECTORY / "signatures.txt").read_text().splitlines():
        number, name, *arguments, returned = line.split()
        pairs = [each.split(":") for each in arguments]
        yield number, _Function(name, tuple((each, kind) for each, kind in pairs), returned)


def _asserts(test: str) -> Iterator[tuple[list[object], object]]:
    """Return arguments and result of each assert that compares with a literal, as all of the chosen problems have."""
    for node in ast.walk(ast.parse(test)):
        if not (isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare)):
            continue
        call, wanted = node.test.left, node.test.comparators[0]
        is_equality = isinstance(node.test.ops[0], ast.Eq | ast.Is)
        if is_equality and isinstance(call, ast.Call) and all(map(_is_literal, (*call.args, wanted))):
            yield [ast.literal_eval(each) for each in call.args], ast.literal_eval(wanted)


def _is_literal(node: ast.expr) -> bool:
    return not any(isinstance(each, ast.Name | ast.Call | ast.BinOp) for each in ast.walk(node))


def _called(language: str, function: _Function) -> str:
    first, *others = function.name.split("_")
    return first + "".join(map(str.capitalize, others)) if language == "java" else function.name


def _fill(form: str, words: Mapping[str, str]) -> str:
    return re.sub(r"\{([a-z]+)\}", lambda found: words.get(found[1], found[0]), form)


def _write_type(language: str, kind: str) -> str:
    form = _FORMS[language]
    if kind.startswith("L"):
        inner = _JAVA_BOXES[kind[1:]] if language == "java" else form.types.get(kind[1:], "")
        return _fill(form.listed, {"type": inner})
    return form.types.get(kind, "")


def _write_case(language: str, function: _Function, given: list[object], wanted: object) -> str:
    kinds = [kind for _, kind in function.arguments]
    values = ", ".join(_write_value(language, kind, value) for kind, value in zip(kinds, given, strict=True))
    text = _write_value(language, function.returned, wanted)
    equals = f" == ({text})" if function.returned in "ifb" else f".equals(({text}))"
    words = {"given": values, "wanted": text, "name": _called(language, function), "equals": equals}
    return _fill(_FORMS[language].case, words)


def _write_value(language: str, kind: str, value: object) -> str:
    if isinstance(value, list):
        parts = ", ".join(_write_value(language, kind[1:], each) for each in value)
        match language:
            case "go":
                return f"{_write_type(language, kind)}{{{parts}}}"
            case "java":
                return f"(new {_write_type(language, kind)}(Arrays.asList({parts})))"
            case "rust":
                # Of an empty `vec![]` the compiler does not know what it would hold.
                return f"vec![{parts}]" if value else f"{_write_type(language, kind).replace('<', '::<')}::new()"
        return f"[{parts}]"
    if kind == "b":
        return str(value).lower()
    if kind == "s":
        # Rust and Java know other escapes than Python; the chosen texts need none but these.
        text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'String::from("{text}")' if language == "rust" else f'"{text}"'
    if kind == "f":
        return f"{float(str(value))}{'f' if language == 'java' else ''}"
    return f"{value}{'l' if language == 'java' else ''}"
