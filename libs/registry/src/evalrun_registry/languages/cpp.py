"""C++."""

from typing import Final

from evalrun_registry.languages.c_family import COMMENT, FOOTPRINT, SYNTAX, checker_around, commands
from evalrun_registry.languages.language import Compilation, Driver, FusionNames, Language

_CALL: Final = """\
static int evalrun_call(int (*checker)(int, char **), int count, char **arguments) { return checker(count, arguments); }
static int evalrun_call(int (*checker)(int, const char **), int count, char **arguments) {
    return checker(count, const_cast<const char **>(arguments));
}"""

CPP: Final = Language(
    name="cpp",
    title="C++",
    aliases=("c++", "cc"),
    tags=r"(?:c\+\+|cpp|cc|cxx|gnu\+\+|g\+\+)(?:\d\w)?",
    driver=Driver.EXECUTABLE,
    compilation=Compilation(compiler="g++", source="main.cpp", commands=commands("gnu++17")),
    footprint=FOOTPRINT,
    packages=("g++", "libc6-dev"),
    comment=COMMENT,
    line_starts="#include",
    syntax=SYNTAX,
    checker=checker_around(_CALL),
    fusion=FusionNames(name="cpp", tags=frozenset({"cpp", "c++", "C++", "Cpp", "CPP"})),
)
