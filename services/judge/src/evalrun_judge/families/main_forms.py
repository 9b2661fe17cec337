"""Combines a program and MultiPL-E's tests into one file, in each of its languages, and recognizes failures. Pure."""

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from evalrun_judge.extraction import SubmissionMode
from evalrun_registry.call_forms.java import CLASS, IMPORT, make_unit


@dataclass(frozen=True, slots=True, kw_only=True)
class MainForm:
    """The form of tests in a language."""

    language: str
    whole: re.Pattern[str]
    """Matches a valid `main`."""
    shape: str
    """The same pattern, described for people."""
    stops: tuple[str, ...]
    """Texts at which MultiPL-E cuts the continuation of a prompt, which are left out."""
    end: str = "\n"
    """Text after a cut continuation: the end of the function that a stop removed."""
    cut: Callable[[str], str] | None = None
    """Returns the continuation of a prompt up to the function's end; None: the stops cut it."""
    imports: re.Pattern[str]
    """Matches lines of a prompt that stay if the completion defines the function and a type before it."""
    defines: str
    """Regular expression of the head of a function `{name}`."""
    rename_main: Callable[[str], str] = lambda code: code
    """Prepares a program to share a file with its tests, e.g. renames its own `main`."""
    add_tests: Callable[[str, str, str], str]
    """Returns the program with its tests; the last line prints the secret."""
    exit_code: int = 1
    failed: re.Pattern[bytes]
    """Matches the text of a failed assertion; the process then ends with `exit_code`."""
    tells_on_stdout: bool = False
    """Whether a test library reports the failure on stdout instead of stderr."""


_TYPES: Final = re.compile(r"^(union|struct|class|enum)\s+(\w+)", re.MULTILINE)


def make_program(form: MainForm, prompt: str, entry_point: str, code: str, mode: SubmissionMode) -> str:
    """Return the program without its tests.

    Code that defines the function replaces the function's stub in the prompt, and the `main` in such code is renamed.
    Other code is appended to the prompt and cut where MultiPL-E cuts it.
    """
    defined = re.search(form.defines.replace("{name}", re.escape(entry_point)), code, re.MULTILINE)
    if mode is SubmissionMode.APPEND or (mode is SubmissionMode.AUTO and defined is None):
        if form.cut is not None:
            return f"{prompt}{form.cut(code)}"
        places = [place for stop in form.stops if (place := code.find(stop)) >= 0]
        return f"{prompt}{code[: min(places, default=len(code))]}{form.end}"
    return f"{_find_head(form, prompt, entry_point, code)}\n{form.rename_main(code)}\n"


def _find_head(form: MainForm, prompt: str, entry_point: str, code: str) -> str:
    """Return the part of the prompt before the function: imports and the types of its arguments.

    Only the imports are returned if the code defines one of those types itself.
    """
    heads = [*re.finditer(rf"^[^\s/#*].*\b{re.escape(entry_point)}[ \t]*\(", prompt, re.MULTILINE)]
    before = prompt[: heads[-1].start()] if heads else ""
    own = any(re.search(rf"\b{kind}\s+{name}\s*\{{", code) for kind, name in _TYPES.findall(before))
    return before if heads and not own else "\n".join(found[0] for found in form.imports.finditer(prompt))


def _add_cpp_tests(program: str, main: str, secret: str) -> str:
    again = "#undef main\n#undef assert\n#undef NDEBUG\n#include <assert.h>\n#include <stdio.h>\n"
    return f'{program}{again}{main.rstrip().removesuffix("}")}    fputs("\\n{secret}\\n", stdout);\n}}\n'


def _add_javascript_tests(program: str, main: str, secret: str) -> str:
    # The tests have a block of their own, because a program may declare `assert` or `test` too.
    return f'{program}\n{{\n{main.rstrip()}\nprocess.stdout.write("\\n{secret}\\n");\n}}\n'


def _add_rust_tests(program: str, main: str, secret: str) -> str:
    return f'{program}\n{main.rstrip().removesuffix("}")}    println!("\\n{secret}");\n}}\n'


def _add_typescript_tests(program: str, main: str, secret: str) -> str:
    # TypeScript refuses `declare` within a block.
    return _add_javascript_tests(program, main.replace(_DECLARED, "", 1), secret)


def _add_php_tests(program: str, main: str, secret: str) -> str:
    return f'{program}\n{main.rstrip()}\nfwrite(STDOUT, "\\n{secret}\\n");\n'


def _add_lua_tests(program: str, main: str, secret: str) -> str:
    tests = main.rstrip()[: -len(_LUA_ENDS)]
    told = f'if evalrun_code == 0 then io.write("\\n{secret}\\n") end'
    return f"{program}\n{tests}\nlocal evalrun_code = lu.LuaUnit.run()\n{told}\nos.exit(evalrun_code)\n"


def _add_ruby_tests(program: str, main: str, secret: str) -> str:
    return (
        f"{program}\n{main.rstrip()}\n"
        "Test::Unit::AutoRunner.need_auto_run = false\n"
        "require 'test/unit/ui/console/testrunner'\n"
        "exit(1) unless Test::Unit::UI::Console::TestRunner.run(TestHumanEval).passed?\n"
        f'STDOUT.write("\\n{secret}\\n")\n'
    )


def _add_go_tests(program: str, main: str, secret: str) -> str:
    """Return a program of one package with every import at its top, whose last test prints the secret."""
    specs = {"testing": '"testing"', "fmt": '"fmt"'}
    for block, single in GO_IMPORTS.findall(program):
        for line in (block or single).splitlines():
            if spec := line.partition("//")[0].strip():
                specs.setdefault(spec.strip('"'), spec)
    rest = GO_PACKAGE.sub("", GO_IMPORTS.sub("", program))
    imports = "\n".join(f"\t{spec}" for spec in specs.values())
    return f"package main\n\nimport (\n{imports}\n)\n{rest}\n{main.rstrip()}\n\n{write_go_test_main(main, secret)}"


def write_go_test_main(main: str, secret: str) -> str:
    """Return Go's `main` that runs a test and, if it passed, prints the secret."""
    test = _GO_TEST.search(main)
    name = "" if test is None else test[1]
    return (
        "func main() {\n\tpassed := false\n"
        "\ttesting.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{\n"
        f'\t\t{{Name: "{name}", F: func(t *testing.T) {{ {name}(t); passed = true }}}},\n'
        '\t\t{Name: "end", F: func(t *testing.T) { if passed { fmt.Println("\\n' + secret + '") } }},\n'
        "\t}, nil, nil)\n}\n"
    )


def _add_java_tests(program: str, main: str, secret: str) -> str:
    """Return a program whose tests are a method of the program's class, because they call its methods by bare names.

    Assertions are switched on before that class is loaded. `org.javatuples`, which Debian lacks, is replaced.
    """
    called = _JAVA_CALLED.search(main)
    defined = re.search(_JAVA_DEFINES.replace("{name}", called[1] if called else ""), program, re.MULTILINE)
    before = program[: defined.start()] if defined else program
    owner = next(reversed([*CLASS.finditer(before)]), None)
    body = 0 if owner is None else program.find("{", owner.end()) + 1
    tuples = _write_java_tuples(program) if "org.javatuples" in program else ""
    tests = main.replace("public static void main(String[] args)", "static void evalrunTests()", 1)
    whole = f"{program[:body]}\n{tests}\n{program[body:]}"
    return (
        f"{_JAVA_TUPLES.sub('', whole)}\n"
        "class EvalrunMain {\n    public static void main(String[] args) {\n"
        "        EvalrunMain.class.getClassLoader().setDefaultAssertionStatus(true);\n"
        f"        {'Problem' if owner is None else owner[1]}.evalrunTests();\n"
        f'        System.out.println("\\n{secret}");\n    }}\n}}\n{tuples}'
    )


def _write_java_tuples(program: str) -> str:
    parts = [_JAVA_TUPLE]
    for count, name in enumerate(("Unit", "Pair", "Triplet", "Quartet", "Quintet"), 1):
        if re.search(rf"\bclass\s+{name}\b", program):
            continue
        types = ", ".join(f"T{each}" for each in range(count))
        given = ", ".join(f"T{each} v{each}" for each in range(count))
        values = ", ".join(f"v{each}" for each in range(count))
        getters = " ".join(
            f'@SuppressWarnings("unchecked") public T{each} getValue{each}() {{ return (T{each}) values[{each}]; }}'
            for each in range(count)
        )
        parts.append(
            f"class {name}<{types}> extends EvalrunTuple {{ public {name}({given}) {{ super({values}); }} "
            f"public static <{types}> {name}<{types}> with({given}) {{ return new {name}<>({values}); }} {getters} }}\n"
        )
    return "".join(parts)


_DECLARED: Final = "declare var require: any;"
_LUA_ENDS: Final = "os.exit(lu.LuaUnit.run())"
GO_IMPORTS: Final = re.compile(
    r'^import[ \t]*(?:\((.*?)^[ \t]*\)|((?:[\w.]+[ \t]+)?"[^"\n]+"))', re.MULTILINE | re.DOTALL
)
GO_PACKAGE: Final = re.compile(r"^package[ \t]+\w+", re.MULTILINE)
_GO_TEST: Final = re.compile(r"func (Test\w*)\(t \*testing\.T\)")

_JAVA_DEFINES: Final = r"^[ \t]*(?:[\w@]+(?:\([^()\n]*\))?\s+)*static\s[^;={}()]*\b{name}[ \t]*\("
_JAVA_CALLED: Final = re.compile(r"\bassert\s*\(+\s*([A-Za-z_]\w*)\(")
_JAVA_TUPLES: Final = re.compile(r"^import\s+org\.javatuples\b[^;]*;", re.MULTILINE)
_JAVA_TUPLE: Final = (
    "abstract class EvalrunTuple { final Object[] values; EvalrunTuple(Object... values) { this.values = values; } "
    "public boolean equals(Object other) { return other != null && other.getClass() == getClass() "
    "&& java.util.Arrays.equals(values, ((EvalrunTuple) other).values); } "
    "public int hashCode() { return java.util.Arrays.hashCode(values); } "
    "public String toString() { return java.util.Arrays.toString(values); } }\n"
)

_CPP: Final = MainForm(
    language="cpp",
    whole=re.compile(r"\s*int\s+main\s*\(\s*\)\s*\{.*\}\s*", re.DOTALL),
    shape="function int main() { ... }",
    stops=("\n}",),
    end="\n}\n",
    imports=re.compile(r"^[ \t]*(?:#[ \t]*include\b|using\b).*$", re.MULTILINE),
    defines=r"^[^\s/#*][^\n;={]*\b{name}[ \t]*\(",
    rename_main=lambda code: f"#define main evalrun_own_main\n{code}",
    add_tests=_add_cpp_tests,
    exit_code=-signal.SIGABRT,
    failed=re.compile(rb"Assertion `.*' failed\."),
)
_JAVA: Final = MainForm(
    language="java",
    whole=re.compile(r"\s*public static void main\(String\[\] args\) \{.*\}\s*", re.DOTALL),
    shape="method public static void main(String[] args) { ... }",
    stops=("\n    }\n",),
    end="\n    }\n}\n",
    imports=IMPORT,
    defines=_JAVA_DEFINES,
    rename_main=lambda code: make_unit(code, "Problem"),
    add_tests=_add_java_tests,
    failed=re.compile(rb'Exception in thread "main" java\.lang\.AssertionError[^\n]*'),
)
_JAVASCRIPT: Final = MainForm(
    language="javascript",
    whole=re.compile(r"\s*const assert = require\('node:assert'\);.*\btest\(\);\s*", re.DOTALL),
    shape="text from const assert = require('node:assert'); to test();",
    stops=("\nfunction ", "\n/*", "\n//", "\nconsole.log"),
    imports=re.compile(r"^const .*\brequire\(.*$", re.MULTILINE),
    defines=r"^(?:async\s+)?function\s*\*?\s*{name}[ \t]*\(|^(?:const|let|var)\s+{name}\s*=",
    add_tests=_add_javascript_tests,
    failed=re.compile(rb"AssertionError \[ERR_ASSERTION\][^\n]*"),
)
_RUST: Final = MainForm(
    language="rust",
    whole=re.compile(r"\s*fn\s+main\s*\(\s*\)\s*\{.*\}\s*", re.DOTALL),
    shape="function fn main() { ... }",
    stops=("\n}",),
    end="\n}\n",
    imports=re.compile(r"^use\b.*$", re.MULTILINE),
    defines=r"\bfn\s+{name}\s*[(<]",
    rename_main=lambda code: re.sub(r"\bfn\s+main\s*\(", "fn evalrun_own_main(", code),
    add_tests=_add_rust_tests,
    exit_code=101,
    failed=re.compile(rb"assertion (?:failed|`)[^\n]*"),
)

_TYPESCRIPT: Final = replace(
    _JAVASCRIPT,
    language="typescript",
    whole=re.compile(
        rf"\s*{re.escape(_DECLARED)}\s*const assert = require\('node:assert'\);.*\btest\(\);\s*", re.DOTALL
    ),
    shape=f"text from {_DECLARED} to test();",
    stops=("\nfunction ", "\n/*", "\n//", "\nclass"),
    imports=re.compile(r"^(?:import\b.*|const .*\brequire\(.*)$", re.MULTILINE),
    defines=r"^(?:export\s+)?(?:(?:async\s+)?function\s*\*?\s*{name}[ \t]*[(<]|(?:const|let|var)\s+{name}\b)",
    add_tests=_add_typescript_tests,
)
_PHP: Final = MainForm(
    language="php",
    whole=re.compile(r"\s*function candidate\(\.\.\.\$args\) \{.*\btest\(\);\s*", re.DOTALL),
    shape="text from function candidate(...$args) to test();",
    stops=("\nfunction", "\n?>", "\n//", "\n#"),
    imports=re.compile(r"^(?:<\?php|use\b.*)$", re.MULTILINE),
    defines=r"^\s*function\s+&?{name}[ \t]*\(",
    rename_main=lambda code: re.sub(r"^\s*<\?(?:php\b)?|\?>\s*$", "", code),
    add_tests=_add_php_tests,
    exit_code=255,
    failed=re.compile(rb"Uncaught Exception: Test failed!"),
)
_LUA: Final = MainForm(
    language="lua",
    whole=re.compile(rf"\s*lu = require\('luaunit'\).*{re.escape(_LUA_ENDS)}\s*", re.DOTALL),
    shape=f"text from lu = require('luaunit') to {_LUA_ENDS}",
    stops=("\nlocal", "\nfunction", "\n--"),
    imports=re.compile(r"^local .*\brequire\b.*$", re.MULTILINE),
    defines=r"^[ \t]*(?:local\s+)?(?:function\s+{name}[ \t]*\(|{name}\s*=\s*function\b)",
    add_tests=_add_lua_tests,
    failed=re.compile(rb"expected: [^\n]*actual: [^\n]*"),
    tells_on_stdout=True,
)
_RUBY: Final = MainForm(
    language="ruby",
    whole=re.compile(r"\s*require 'test/unit'\s+class TestHumanEval < Test::Unit::TestCase\b.*\bend\s*", re.DOTALL),
    shape="text from require 'test/unit' to the end of class TestHumanEval",
    stops=("\nclass", "\ndef", "\n#"),
    imports=re.compile(r"^require\b.*$", re.MULTILINE),
    defines=r"^[ \t]*def\s+(?:self\.)?{name}\b",
    add_tests=_add_ruby_tests,
    failed=re.compile(rb"<[^\n]*> expected but was\s*<[^\n]*>"),
    tells_on_stdout=True,
)
_GO: Final = MainForm(
    language="go",
    whole=re.compile(r"\s*func Test\w*\(t \*testing\.T\) \{.*\}\s*", re.DOTALL),
    shape="function func TestNAME(t *testing.T) { ... }",
    stops=("\nfunc", "\n// "),
    imports=GO_IMPORTS,
    defines=r"^func\s+{name}[ \t]*[(\[]",
    rename_main=lambda code: re.sub(r"^func\s+main\s*\(", "func evalrunOwnMain(", code, flags=re.MULTILINE),
    add_tests=_add_go_tests,
    failed=re.compile(rb"expected '[^\n]*', got '[^\n]*'"),
    tells_on_stdout=True,
)

FORMS: Final[Mapping[str, MainForm]] = MappingProxyType(
    {form.language: form for form in (_CPP, _GO, _JAVA, _JAVASCRIPT, _LUA, _PHP, _RUBY, _RUST, _TYPESCRIPT)}
)
"""Forms by language."""
