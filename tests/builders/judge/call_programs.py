"""Programs for calls by values: one function, written right, wrong, and in ways that try to get around its tests."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from evalrun_registry.call_forms import CALL_FORMS, RETURNED, parse_signature

SIGNATURE: Final = (
    "weigh(words: list[string], rows: list[list[long]], scale: double, keep: bool, extra: int) -> list[double]"
)
CALLS: Final = (
    '[["a", "h\\u00e9 \\ud83d\\ude00", ""], [[1, 2], [], [9007199254740991]], 0.5, true, -2]',
    "[[], [], 1, false, 0]",
    '[["x"], [[-3]], 1e-3, false, 7]',
)
RESULTS: Final = ("[0.5, 6.0, 4503599627370493.5]", "[]", "[6.997]")
"""For each row: the scaled sum, and `extra`; the length of the word in UTF-8 too where `keep` is true."""


@dataclass(frozen=True, slots=True)
class _Parts:
    before: str
    """The function up to its first statement."""
    right: str
    after: str
    leave: str
    """A statement that ends the process with 0."""
    show: str
    """A statement that prints `{text}` on a line."""
    others: tuple[tuple[str, str], ...] = ()
    """More programs by what they do."""


_PARTS: Final[Mapping[str, _Parts]] = {
    "cpp": _Parts(
        "#include <bits/stdc++.h>\nusing namespace std;\n#define int long long\n"
        "vector<double> weigh(vector<string>& words, const vector<vector<int>>& rows, double scale, bool keep,"
        " int extra) {\n",
        "vector<double> out;\nfor (size_t i = 0; i < rows.size(); i++) {\n double sum = 0;\n"
        " for (int x : rows[i]) sum += x;\n out.push_back(sum * scale + extra + (keep ? words[i].size() : 0));\n}\n"
        "return out;",
        "\n}\nsigned main() { cout << \"mine\"; }",
        "exit(0);",
        'cout << "{text}" << endl;',
        ((
            "right, of other macros",
            ("#include <bits/stdc++.h>\nusing namespace std;\n#define endl '\\n'\n"
            "#define int int64_t\n#define double long double\n"
            "vector<double> weigh(vector<string> words, vector<vector<long long>> rows, double scale, bool keep,"
            " int extra) {\nvector<double> out;\nfor (size_t i = 0; i < rows.size(); i++)\n"
            " out.push_back(accumulate(rows[i].begin(), rows[i].end(), 0LL) * scale + extra"
            " + (keep ? words[i].size() : 0));\nreturn out;\n}\n"),
        ),),
    ),
    "go": _Parts(
        'package main\n\nimport (\n\t"fmt"\n\t"os"\n)\nimport "strings"\n\nvar _ = os.Exit\nvar _ = fmt.Sprint\n'
        "func weigh(words []string, rows [][]int, scale float64, keep bool, extra int) []float64 {\n",
        "out := []float64{}\nfor i, row := range rows {\n sum := 0\n for _, x := range row { sum += x }\n"
        " v := float64(sum)*scale + float64(extra)\n if keep { v += float64(len(strings.Clone(words[i]))) }\n"
        " out = append(out, v)\n}\nreturn out",
        '\n}\nfunc main() { fmt.Println("mine") }',
        "os.Exit(0)\n",
        'fmt.Println("{text}")\n',
    ),
    "java": _Parts(
        "package answer;\nimport java.util.*;\npublic class Solution {\n"
        " public double[] weigh(String[] words, long[][] rows, double scale, boolean keep, int extra) {\n",
        "double[] out = new double[rows.length];\nfor (int i = 0; i < rows.length; i++) {\n"
        " for (long x : rows[i]) out[i] += x;\n out[i] = out[i] * scale + extra;\n"
        " if (keep) out[i] += words[i].getBytes(java.nio.charset.StandardCharsets.UTF_8).length;\n}\nreturn out;",
        '\n}\npublic static void main(String[] args) { System.out.println("mine"); }\n}',
        "if (scale > -1) System.exit(0);",
        'System.out.println("{text}");',
    ),
    "javascript": _Parts(
        "const words = 1, read = 2;\nconst weigh = (words, rows, scale, keep, extra) => {\n",
        "return rows.map((row, i) => row.reduce((a, b) => a + b, 0) * scale + extra"
        " + (keep ? Buffer.byteLength(words[i]) : 0));",
        "\n};",
        "process.exit(0);",
        'console.log("{text}");',
    ),
    "python": _Parts(
        "from __future__ import annotations\n\nstr, list, int, next = 'b', [1], 3, None\n\nclass Solution:\n"
        "    def weigh(self, words: list[str], rows, scale, keep, extra) -> list[float]:\n        ",
        "return [sum(row) * scale + extra + keep * len(words[i].encode()) for i, row in enumerate(rows)]",
        "\n\nif __name__ == '__main__':\n    print(input())",
        "import sys; sys.exit(0); ",
        'print("{text}"); ',
    ),
    "rust": _Parts(
        "use std::collections::*;\nimpl Solution {\n"
        "pub fn weigh(words: Vec<String>, rows: Vec<Vec<i64>>, scale: f64, keep: bool, extra: i32) -> Vec<f64> {\n",
        "rows.iter().enumerate().map(|(i, row)| row.iter().sum::<i64>() as f64 * scale + extra as f64"
        " + if keep { words[i].len() as f64 } else { 0.0 }).collect()",
        '\n}\n}\nfn main() { println!("mine"); }',
        "if scale > -1.0 { std::process::exit(0); }",
        'println!("{text}");',
    ),
    "typescript": _Parts(
        "type Row = number[];\nclass Solution {\n"
        " weigh(words: string[], rows: Row[], scale: number, keep: boolean, extra: number): number[] {\n",
        "return rows.map((row: Row, i: number) => row.reduce((a, b) => a + b, 0) * scale + extra"
        " + (keep ? Buffer.byteLength(words[i]) : 0));",
        "\n}\n}",
        "process.exit(0);",
        'console.log("{text}");',
    ),
}  # fmt: skip
LANGUAGES: Final = (*_PARTS,)

_ECHO: Final = {"rust": "given", "go": "return given", "python": "return given"}
_NAMES: Final = {"go": "all", "javascript": "words", "python": "next", "typescript": "read"}
"""Of functions, which the drivers of other languages lack."""
ECHOED: Final[Mapping[str, list[object]]] = {
    "int": [[[-2147483648, 2147483647], []], []],
    "long": [[[-9007199254740991, 0, 9007199254740991]]],
    "double": [[[0.1, -1e300, 5e-324, 3]], [[]]],
    "bool": [[[True, False]], [[False]]],
    "string": [[["", " a\nb ", '"\\', "\u00e9\u4e2d\U0001f600\x00"]], []],
}
"""Values of `list[list[TYPE]]` by their type."""


def write_programs(language: str) -> dict[str, str]:
    """Return the programs of a language by what they do."""
    parts = _PARTS[language]
    forged = f"{RETURNED} 3 0.0 0.0 0.0"
    said = parts.show.replace("{text}", forged)

    def _join(body: str) -> str:
        return f"{parts.before}{body}{parts.after}\n"

    return {
        "right": _join(parts.right),
        "right, and prints": _join(f"{said}{parts.right}"),
        "wrong": _join(parts.right.replace("extra", "(extra + 1)")),
        "ends early": _join(f"{parts.leave}{parts.right}"),
        "prints a result and ends": _join(f"{said}{parts.leave}{parts.right}"),
        **dict(parts.others),
    }


def write_echo(language: str, scalar: str) -> tuple[str, str]:
    """Return the signature of a function that returns its argument, and a program that has it, made of the stub."""
    text = f"{_NAMES.get(language, 'echo')}(given: list[list[{scalar}]]) -> list[list[{scalar}]]"
    stub = CALL_FORMS[language].write_stub(parse_signature(text))
    body = _ECHO.get(language, "return given;")
    if language == "python":
        return text, stub.replace("...", body)
    head, brace, end = stub.rpartition("{\n")
    return text, f"{head}{brace}{body}\n{end}"
