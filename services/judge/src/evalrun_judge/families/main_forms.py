"""MultiPL-E's form in each of its languages: how program and tests become one file, and what a failure says. Pure."""

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from evalrun_judge.extraction import SubmissionMode


@dataclass(frozen=True, slots=True, kw_only=True)
class MainForm:
    """The form in a language."""

    language: str
    whole: re.Pattern[str]
    """What a `main` has to be."""
    shape: str
    """The same for people."""
    stops: tuple[str, ...]
    """Texts at which MultiPL-E cuts the continuation of a prompt, which are left out."""
    end: str
    """What follows a continuation that was cut: the end of the function where a stop took it."""
    imports: re.Pattern[str]
    """Lines of a prompt that stay where the answer defines the function and one of the types before it."""
    defines: str
    """Regular expression of the head of a function `{name}`."""
    rename_main: Callable[[str], str]
    """Returns a program whose own `main`, if it has one, is another function."""
    add_tests: Callable[[str, str, str], str]
    """Returns the program with its tests; the last line prints the secret."""
    exit_code: int
    failed: re.Pattern[bytes]
    """A failed assertion ends with this exit code and says so."""


_TYPES: Final = re.compile(r"^(union|struct|class|enum)\s+(\w+)", re.MULTILINE)


def make_program(form: MainForm, prompt: str, entry_point: str, code: str, mode: SubmissionMode) -> str:
    """Return the program without its tests.

    Code that defines the function replaces the function's stub in the prompt, and the `main` in such code is renamed.
    Other code is appended to the prompt and cut where MultiPL-E cuts it.
    """
    defined = re.search(form.defines.replace("{name}", re.escape(entry_point)), code, re.MULTILINE)
    if mode is SubmissionMode.APPEND or (mode is SubmissionMode.AUTO and defined is None):
        places = [place for stop in form.stops if (place := code.find(stop)) >= 0]
        return f"{prompt}{code[: min(places, default=len(code))]}{form.end}"
    return f"{_find_head(form, prompt, entry_point, code)}\n{form.rename_main(code)}\n"


def _find_head(form: MainForm, prompt: str, entry_point: str, code: str) -> str:
    """Return the part of the prompt before the function: imports and the types of its arguments.

    The imports alone where the code defines one of those types itself.
    """
    heads = [*re.finditer(rf"^[^\s/#*].*\b{re.escape(entry_point)}[ \t]*\(", prompt, re.MULTILINE)]
    before = prompt[: heads[-1].start()] if heads else ""
    own = any(re.search(rf"\b{kind}\s+{name}\s*\{{", code) for kind, name in _TYPES.findall(before))
    return before if heads and not own else "\n".join(form.imports.findall(prompt))


def _add_cpp_tests(program: str, main: str, secret: str) -> str:
    again = "#undef main\n#undef assert\n#undef NDEBUG\n#include <assert.h>\n#include <stdio.h>\n"
    return f'{program}{again}{main.rstrip().removesuffix("}")}    fputs("\\n{secret}\\n", stdout);\n}}\n'


def _add_javascript_tests(program: str, main: str, secret: str) -> str:
    # A block of their own, for an answer may declare `assert` or `test` too.
    return f'{program}\n{{\n{main.rstrip()}\nprocess.stdout.write("\\n{secret}\\n");\n}}\n'


def _add_rust_tests(program: str, main: str, secret: str) -> str:
    return f'{program}\n{main.rstrip().removesuffix("}")}    println!("\\n{secret}");\n}}\n'


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
_JAVASCRIPT: Final = MainForm(
    language="javascript",
    whole=re.compile(r"\s*const assert = require\('node:assert'\);.*\btest\(\);\s*", re.DOTALL),
    shape="text from const assert = require('node:assert'); to test();",
    stops=("\nfunction ", "\n/*", "\n//", "\nconsole.log"),
    end="\n",
    imports=re.compile(r"^const .*\brequire\(.*$", re.MULTILINE),
    defines=r"^(?:async\s+)?function\s*\*?\s*{name}[ \t]*\(|^(?:const|let|var)\s+{name}\s*=",
    rename_main=lambda code: code,
    add_tests=_add_javascript_tests,
    exit_code=1,
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

FORMS: Final[Mapping[str, MainForm]] = MappingProxyType({form.language: form for form in (_CPP, _JAVASCRIPT, _RUST)})
"""By language."""
