"""Combines a program and HumanEval-X's tests into one file, in each of its languages. Pure.

HumanEval-X's own harness reads a failed `console.assert` from Node's output, and runs Go's and Rust's tests by their
test commands with packages that Debian lacks. Here a `main` calls each test and prints a secret after the last test.
"""

import re
import signal
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from evalrun_judge.families.main_forms import FORMS, GO_IMPORTS, GO_PACKAGE, MainForm, write_go_test_main
from evalrun_registry.call_forms.java import make_unit

_CPP_INCLUDES: Final = "".join(
    f"#include<{name}>\n"
    for name in (*("stdlib.h", "algorithm", "math.h", "stdio.h", "vector", "string", "climits", "cstring", "iostream"),)
)
"""Includes that HumanEval-X's harness puts before every program."""
_GO_OFFERED: Final = (
    *("math", "strings", "fmt", "strconv", "time", "bytes", "regexp", "sort", "math/rand", "crypto/md5"),
)
"""Imports that HumanEval-X's harness adds if the program uses them."""
_GO_ASSERT: Final = """
type evalrunAsserting struct{ t *testing.T }
func (asserting evalrunAsserting) New(t *testing.T) evalrunAsserting { return evalrunAsserting{t} }
func (asserting evalrunAsserting) Equal(expected, actual interface{}, _ ...interface{}) bool {
	equal := reflect.DeepEqual(expected, actual)
	if !equal { asserting.t.Errorf("Not equal: expected %#v, actual %#v", expected, actual) }
	return equal
}
var assert evalrunAsserting
"""
_NEXT_FUNCTION: Final = re.compile(r"\s*(?:func|fn|function|const)\s+(?!main\b)\w")
_RUST_TEST: Final = re.compile(r"#\[test\]\s*(?:pub\s+)?fn\s+(\w+)")


def cut_at_brace(code: str, closed: int) -> str:
    """Return a continuation up to the brace that closes the last open block of its prompt, counted naively.

    Functions that follow at once are kept: some published solutions have their helpers there.
    """
    depth = closed
    for place, letter in enumerate(code):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "}" and not depth and not _NEXT_FUNCTION.match(code, place + 1):
            return code[: place + 1] + "\n"
    return code.rstrip() + "\n" + "}\n" * (depth if 0 < depth < closed else 0)


def _add_cpp_tests(program: str, main: str, secret: str) -> str:
    again = "#undef main\n#undef assert\n#undef NDEBUG\n#include <assert.h>\n"
    return f'{_CPP_INCLUDES}{program}{again}{main.rstrip().removesuffix("}")}    fputs("\\n{secret}\\n", stdout);\n}}\n'


def _add_go_tests(program: str, main: str, secret: str) -> str:
    """Return a program of a single package that imports what it uses, as HumanEval-X's harness does.

    An unused import would not compile.
    """
    specs = {name: f'"{name}"' for name in _GO_OFFERED}
    for block, single in GO_IMPORTS.findall(f"{program}\n{main}"):
        for line in (block or single).splitlines():
            if spec := line.partition("//")[0].strip():
                specs[spec.rpartition(" ")[2].strip('"')] = spec
    rest = GO_PACKAGE.sub("", GO_IMPORTS.sub("", program)) + "\n" + GO_IMPORTS.sub("", main)
    used = [
        spec
        for path, spec in specs.items()
        if re.search(rf"\b{re.escape(path.rpartition('/')[2] if spec[0] == chr(34) else spec.split()[0])}\.", rest)
    ]
    always = ['"testing"', '"fmt"', '"reflect"']
    imports = "\n".join(f"\t{spec}" for spec in dict.fromkeys([*always, *used]))
    return f"package main\n\nimport (\n{imports}\n)\n{_GO_ASSERT}{rest}\n{write_go_test_main(main, secret)}"


def _add_java_tests(program: str, main: str, secret: str) -> str:
    tests = main.replace("public class Main", "class EvalrunTests", 1).replace("void main(", "void evalrunTests(", 1)
    return (
        f"{program}\n{tests}\nclass EvalrunMain {{\n    public static void main(String[] args) throws Exception {{\n"
        f'        EvalrunTests.evalrunTests(args);\n        System.out.println("\\n{secret}");\n    }}\n}}\n'
    )


def _add_javascript_tests(program: str, main: str, secret: str) -> str:
    # The tests have a block of their own, because a program may declare these names too.
    asserting = "assert(right) { require('node:assert')(right); }"
    return (
        f"{program}\n{{\nconst console = {{...globalThis.console, {asserting}}};\n"
        f'{main.rstrip()};\nprocess.stdout.write("\\n{secret}\\n");\n}}\n'
    )


def _add_rust_tests(program: str, main: str, secret: str) -> str:
    calls = "".join(f"    tests::{name}();\n" for name in _RUST_TEST.findall(main))
    tests = _RUST_TEST.sub(r"pub fn \1", main.replace("#[cfg(test)]", "", 1))
    return f'{program}\n{tests}\nfn main() {{\n{calls}    println!("\\n{secret}");\n}}\n'


def _close_one(code: str) -> str:
    return cut_at_brace(code, 1)


HUMANEVAL_X_FORMS: Final[Mapping[str, MainForm]] = MappingProxyType(
    {
        form.language: form
        for form in (
            replace(
                FORMS["cpp"],
                whole=re.compile(
                    r"\s*#undef NDEBUG\s+#include\s*<assert\.h>.*\bint\s+main\s*\(\s*\)\s*\{.*\}\s*", re.DOTALL
                ),
                shape="text from #undef NDEBUG to the end of int main() { ... }",
                cut=_close_one,
                add_tests=_add_cpp_tests,
                exit_code=-signal.SIGABRT,
            ),
            replace(
                FORMS["go"],
                whole=re.compile(
                    r'\s*(?:import \((?:\s*"[\w/]+")*\s*\)\s*)?'
                    r"func Test\w*\(t \*testing\.T\) \{\s*assert := assert\.New\(t\).*\}\s*",
                    re.DOTALL,
                ),
                shape="function func TestNAME(t *testing.T) { ... } that begins with assert := assert.New(t)",
                cut=_close_one,
                add_tests=_add_go_tests,
                failed=re.compile(rb"Not equal: expected [^\n]*"),
            ),
            replace(
                FORMS["java"],
                whole=re.compile(r"\s*public class Main\s*\{.*\}\s*", re.DOTALL),
                shape="class public class Main { ... }",
                cut=lambda code: cut_at_brace(code, 2),
                defines=r"\bclass\s+Solution\b|^[ \t]*(?:public|private|protected)\s[^;={}()]*\b{name}[ \t]*\(",
                rename_main=lambda code: make_unit(code, "Solution"),
                add_tests=_add_java_tests,
            ),
            replace(
                FORMS["javascript"],
                whole=re.compile(r"\s*const (test\w+) = \(\) => \{.*\}\s*\1\(\)\s*", re.DOTALL),
                shape="function const testNAME = () => { ... } and its call",
                cut=_close_one,
                add_tests=_add_javascript_tests,
            ),
            replace(
                FORMS["rust"],
                whole=re.compile(r"\s*#\[cfg\(test\)\]\s*mod tests\s*\{.*#\[test\].*\}\s*", re.DOTALL),
                shape="module #[cfg(test)] mod tests { ... }",
                cut=_close_one,
                add_tests=_add_rust_tests,
            ),
        )
    }
)
"""Forms by language."""
