"""The parts of the descriptions of C and C++ that are the same."""

from typing import Final

from evalrun_registry.languages.language import Footprint, Syntax

COMMENT: Final = ("/*", "*/")

FOOTPRINT: Final = Footprint(resident_mib=2, mapped_mib=32)
"""Mapped: its text, libraries, and its threads' stacks of 2 MiB each."""

COMMENTS: Final = r"//[^\n]*|/\*(?s:.*?)(?:\*/|\Z)"
QUOTED: Final = r'"(?:\\.|[^"\\\n])*"?|\'(?:\\.|[^\'\\\n])*\'?'

SYNTAX: Final = Syntax(
    keywords="auto bool break case char class const continue default delete do double else enum extern false float for "
    "if include inline int long namespace new nullptr operator private public return short signed sizeof static struct "
    "switch template this true typedef typename unsigned using void while",
    comment=COMMENTS + r"|^[ \t]*\#[^\n]*",
    string=QUOTED,
)

TELL_KILL: Final = '"$0" "$@" || { status=$?; [ $status -ne 137 ] || kill -9 0; exit $status; }'
"""Shell text around a stage of a compiler, without a comma. A stage that SIGKILL has ended takes the driver with it.

The driver would end as it does for a mistake in the program.
"""

_CHECKER: Final = """\
#define main evalrun_checker_main
{source}
#undef main
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
static void evalrun_place(const char *name) {{
    uint64_t left;
    static char part[65536];
    FILE *file = fopen(name, "wb");
    if (file == NULL || fread(&left, sizeof left, 1, stdin) != 1) exit(120);
    while (left > 0) {{
        size_t got = fread(part, 1, left < sizeof part ? (size_t)left : sizeof part, stdin);
        if (got == 0 || fwrite(part, 1, got, file) != got) exit(121);
        left -= got;
    }}
    if (fclose(file) != 0) exit(122);
}}
CALL
int main(void) {{
    static char name[] = "checker", first[] = "{arguments[0]}", second[] = "{arguments[1]}", third[] = "{arguments[2]}";
    static char *arguments[] = {{name, first, second, third, NULL}};
    evalrun_place("input");
    evalrun_place("answer");
    evalrun_place("output");
    mkdir("feedback", 0700);
    if (freopen({output_as_stdin:d} ? "output" : "/dev/null", "rb", stdin) == NULL) exit(123);
    return evalrun_call(evalrun_checker_main, 4, arguments);
}}
"""


def checker_around(call: str) -> str:
    """Return the program around a checker, see `Language.checker`; `call` defines evalrun_call."""
    return _CHECKER.replace("CALL", call.replace("{", "{{").replace("}", "}}"))


def commands(standard: str) -> tuple[tuple[str, ...], ...]:
    """Return the command lines: first with static linking, which halves a program's start; then with dynamic."""
    first = ("{compiler}", "-wrapper", f"/bin/sh,-c,{TELL_KILL}", "-O2", f"-std={standard}", "-pipe")
    last = ("{source}", "-o", "{output}", "-lm")
    return (*first, "-static", *last), (*first, *last)
