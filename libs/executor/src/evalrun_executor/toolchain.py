"""The compilers on this machine, and the command lines to try."""

import shutil
from collections.abc import Mapping

from evalrun_registry.languages import LANGUAGES

COMPILER_PATH = "/usr/bin:/bin"
"""Directories of compilers: the Landlock rules let the compile stage execute what is there."""
_COMPILATIONS = {name: each.compilation for name, each in LANGUAGES.items() if each.compilation is not None}
COMPILERS: Mapping[str, str] = {name: each.compiler for name, each in _COMPILATIONS.items()}
"""The compiler's file name by language."""


class Toolchain:
    """The compilers found, and whether they can link statically, which the first program of a language shows.

    Args:
        compilers: path by language; None: those that are on this machine.
    """

    def __init__(self, compilers: Mapping[str, str] | None = None) -> None:
        if compilers is None:
            found = {name: shutil.which(compiler, path=COMPILER_PATH) for name, compiler in COMPILERS.items()}
            compilers = {name: path for name, path in found.items() if path}
        self._commands = {name: _commands(name, path) for name, path in compilers.items()}

    @property
    def languages(self) -> list[str]:
        """Languages whose compiler is here."""
        return sorted(self._commands)

    def commands(self, language: str) -> list[list[str]]:
        """Return the command lines to try in order, with placeholders for the names of source and output."""
        return self._commands[language]

    def source(self, language: str) -> str:
        """Return the name of the file that the compiler reads."""
        return _COMPILATIONS[language].source

    def learn(self, language: str, command: list[str]) -> None:
        """Note that this command worked. The commands before it need static libraries that are missing here."""
        commands = self._commands[language]
        if command in commands:
            self._commands[language] = commands[commands.index(command) :]


def _commands(language: str, compiler: str) -> list[list[str]]:
    filled = {"{compiler}": compiler}
    return [[filled.get(word, word) for word in command] for command in _COMPILATIONS[language].commands]


def static_is_missing(stderr: bytes) -> bool:
    """Return whether the linker, not the program, is why a static build failed."""
    return b"cannot find -l" in stderr or (b"static" in stderr and b"ld:" in stderr)
