"""C."""

from typing import Final

from evalrun_registry.languages.c_family import COMMENT, FOOTPRINT, SYNTAX, checker_around, commands
from evalrun_registry.languages.language import Compilation, Driver, FusionNames, Language

C: Final = Language(
    name="c",
    title="C",
    tags=r"(?:c|gnu)(?:\d\d|89|9x|1x|2x)?",
    driver=Driver.EXECUTABLE,
    compilation=Compilation(compiler="gcc", source="main.c", commands=commands("gnu17")),
    footprint=FOOTPRINT,
    packages=("gcc", "libc6-dev"),
    comment=COMMENT,
    syntax=SYNTAX,
    checker=checker_around("#define evalrun_call(checker, count, arguments) checker(count, arguments)"),
    fusion=FusionNames(name="c", tags=frozenset({"c", "C"}), is_stock=False),
)
