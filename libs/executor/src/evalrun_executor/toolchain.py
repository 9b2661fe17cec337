"""The compilers and interpreters on this machine, and their command lines."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from evalrun_executor.contained.frames import ExecutionFields
from evalrun_registry.languages import LANGUAGES, Driver

COMPILER_PATH = "/usr/bin:/bin"
"""Directories of compilers and interpreters: the Landlock rules let the compile stage execute the files there."""
_COMPILATIONS = {name: each.compilation for name, each in LANGUAGES.items() if each.compilation is not None}
_INTERPRETERS = {name: each.interpreter for name, each in LANGUAGES.items() if each.interpreter is not None}
COMPILERS: Mapping[str, str] = {
    **{name: each.program for name, each in _INTERPRETERS.items()},
    **{name: each.compiler for name, each in _COMPILATIONS.items()},
}
"""File name of the compiler by language, or of the interpreter if the language is not compiled."""


class Toolchain:
    """The compilers and interpreters found, and whether a compiler can link statically.

    The first compiled program shows the latter.

    Args:
        compilers: path by language; None: those on this machine.
    """

    def __init__(self, compilers: Mapping[str, str] | None = None) -> None:
        if compilers is None:
            found = {name: shutil.which(compiler, path=COMPILER_PATH) for name, compiler in COMPILERS.items()}
            compilers = {name: path for name, path in found.items() if path}
        self._commands = {name: _commands(name, path) for name, path in compilers.items() if name in _COMPILATIONS}
        # The interpreter of a compiled program comes with the compiler, in the same directory.
        self._interpreters = {
            name: str(Path(path).with_name(_INTERPRETERS[name].program))
            for name, path in compilers.items()
            if name in _INTERPRETERS
        }

    @property
    def languages(self) -> list[str]:
        """Languages whose compiler or interpreter exists here."""
        return sorted({**self._commands, **self._interpreters})

    @property
    def interpreters(self) -> list[str]:
        """Paths of the interpreters on this machine."""
        return sorted({*self._interpreters.values()})

    def interpreter(self, language: str) -> str:
        """Return the path of the program that runs texts of this language."""
        return self._interpreters[language]

    def commands(self, language: str) -> list[list[str]]:
        """Return the command lines to try in order, with placeholders for the names of source and output."""
        return self._commands[language]

    def source(self, language: str) -> str:
        """Return the name of the file that the compiler reads."""
        return _COMPILATIONS[language].source

    def learn(self, language: str, command: list[str]) -> None:
        """Record that this command worked. The commands before it need static libraries that are missing here."""
        commands = self._commands[language]
        if command in commands:
            self._commands[language] = commands[commands.index(command) :]


def _commands(language: str, compiler: str) -> list[list[str]]:
    filled = {"{compiler}": compiler}
    return [[filled.get(word, word) for word in command] for command in _COMPILATIONS[language].commands]


def make_execution(language: str, memory_mib: int) -> ExecutionFields | None:
    """Return how programs of this language are started, or None if nothing is executed."""
    described = LANGUAGES[language]
    if described.driver is Driver.PYTHON:
        return None
    text, words = "", ["main"]
    environment: tuple[str, ...] = ()
    if described.interpreter is not None:
        text = described.interpreter.source
        filled = [word.replace("{memory_mib}", str(memory_mib)) for word in described.interpreter.arguments]
        words, environment = [described.interpreter.program, *filled], described.interpreter.environment
    footprint = described.footprint
    return (
        text, [word.encode() for word in words], [each.encode() for each in environment], footprint.mapped_mib,
        footprint.reserved_mib,
    )  # fmt: skip


def static_is_missing(stderr: bytes) -> bool:
    """Return whether the linker, not the program, made a static build fail."""
    return b"cannot find -l" in stderr or (b"static" in stderr and b"ld:" in stderr)
