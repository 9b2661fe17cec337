"""The programming languages that evalrun knows.

To add a language, describe it in a module here and name it in `LANGUAGES`; `Dockerfile.judge` installs its packages.
A sandbox offers the languages whose compiler it has.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from evalrun_registry.languages.c import C
from evalrun_registry.languages.cpp import CPP
from evalrun_registry.languages.go import GO
from evalrun_registry.languages.java import JAVA
from evalrun_registry.languages.javascript import JAVASCRIPT
from evalrun_registry.languages.language import (
    Compilation,
    Driver,
    Footprint,
    FusionNames,
    Interpreter,
    Language,
    Syntax,
)
from evalrun_registry.languages.lua import LUA
from evalrun_registry.languages.php import PHP
from evalrun_registry.languages.python import PYTHON
from evalrun_registry.languages.ruby import RUBY
from evalrun_registry.languages.rust import RUST
from evalrun_registry.languages.typescript import TYPESCRIPT

__all__ = [
    "LANGUAGES",
    "Compilation",
    "Driver",
    "Footprint",
    "FusionNames",
    "Interpreter",
    "Language",
    "Syntax",
    "find_fusion",
    "find_language",
]

LANGUAGES: Final[Mapping[str, Language]] = MappingProxyType(
    {each.name: each for each in (PYTHON, C, CPP, GO, JAVA, JAVASCRIPT, LUA, PHP, RUBY, RUST, TYPESCRIPT)}
)
"""The languages by name, in the order in which messages list them."""

_BY_SPELLING: Final = {spelling: each for each in LANGUAGES.values() for spelling in (each.name, *each.aliases)}
_BY_FUSION_NAME: Final = {each.fusion.name: each for each in LANGUAGES.values() if each.fusion is not None}


def find_language(spelling: str) -> Language | None:
    """Return the language with this name or alias, ignoring case."""
    return _BY_SPELLING.get(spelling.strip().lower())


def find_fusion(name: str) -> Language | None:
    """Return the language of a name in SandboxFusion's API."""
    return _BY_FUSION_NAME.get(name)
