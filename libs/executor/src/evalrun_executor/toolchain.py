"""C and C++: which compilers are here, and the command lines to try."""

import shutil
from collections.abc import Mapping

_DRIVERS = {"c": ("gcc", "-std=gnu17"), "cpp": ("g++", "-std=gnu++17")}
_PATH = "/usr/bin:/bin"  # what the Landlock rules let the compile stage execute
STATIC = "-static"


class Toolchain:
    """The compilers found, and whether static linking works, which the first program of a language finds out.

    A static program starts in half the time (no loader, no libraries to map) and needs no library in its reach.
    """

    def __init__(self, drivers: Mapping[str, str] | None = None) -> None:
        found = {name: shutil.which(driver, path=_PATH) for name, (driver, _) in _DRIVERS.items()}
        self._drivers = dict(drivers) if drivers is not None else {name: path for name, path in found.items() if path}
        self._dynamic: set[str] = set()

    @property
    def languages(self) -> list[str]:
        """Languages whose compiler is here."""
        return sorted(self._drivers)

    def commands(self, language: str) -> list[list[str]]:
        """Return the command lines to try in order, the source's name and `-o` yet to come."""
        command = [self._drivers[language], "-O2", _DRIVERS[language][1], "-pipe"]
        return [command] if language in self._dynamic else [[*command, STATIC], command]

    def learn(self, language: str, command: list[str]) -> None:
        """Note that this command worked after the one before it did not: no static libraries here."""
        if STATIC not in command:
            self._dynamic.add(language)


def static_is_missing(stderr: bytes) -> bool:
    """Return whether the linker, not the program, is why a static build failed."""
    return b"cannot find -l" in stderr or (b"static" in stderr and b"ld:" in stderr)
