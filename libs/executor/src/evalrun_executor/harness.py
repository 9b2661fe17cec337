"""Harnesses: programs that a zygote preloads. A harness is several modules, shipped as text and loaded in order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import evalrun_executor.calls

Source = tuple[str, str, str | None]
"""Name, file and text of a module; no text: a package."""


@dataclass(frozen=True, slots=True)
class Harness:
    """A harness's modules. The last module has `main(code)`. They import only each other and the standard library."""

    modules: tuple[tuple[str, Path], ...]
    """Name and file of each module, in the order of loading."""

    @property
    def main(self) -> str:
        """Name of the module that has `main`."""
        return self.modules[-1][0]


def list_modules(package: str, directory: Path, names: Sequence[str]) -> tuple[tuple[str, Path], ...]:
    """Return modules of a package in the form that `Harness` takes."""
    return tuple((f"{package}.{name}", directory / f"{name}.py") for name in names)


def sources(harnesses: Iterable[Harness]) -> list[Source]:
    """Return the harnesses' modules without repeats, after the packages that contain them."""
    found: dict[str, Source] = {}
    for name, path in dict.fromkeys(module for harness in harnesses for module in harness.modules):
        parts = name.split(".")
        for count in range(1, len(parts)):
            package = ".".join(parts[:count])
            found.setdefault(package, (package, "", None))
        found[name] = name, str(path), path.read_text()
    return list(found.values())


_CALLS = Path(evalrun_executor.calls.__file__).parent
VALUES = list_modules(
    "evalrun_executor.calls",
    _CALLS,
    (
        "originals",
        "json_text",
        "buffers",
        "standard_values",
        "opaque",
        "heap",
        "exceptions",
        "encoding",
        "decoding",
        "values",
    ),
)
"""Modules that harnesses need to exchange values."""
CALL_HARNESS = Harness((*VALUES, *list_modules("evalrun_executor.calls", _CALLS, ("call_harness",))))
"""The harness that calls a program's functions."""
